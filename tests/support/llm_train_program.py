"""A small training run with checkpoints and a ledger, for tests that kill it.

    python llm_train_program.py DIRECTORY STEPS

Every step samples, scores, updates, appends to the ledger and saves. At the end
`result.json` has a digest of everything that a resumed run must reproduce bit for bit.
"""

import hashlib
import json
import os
import sys
from pathlib import Path

import jax
import llm_tiny as tiny
import numpy as np

from rpg_jax.llm import make_batch, make_ppo
from rpg_jax.llm.checkpoint import Checkpoints, fingerprint, ppo_items, with_ppo_items
from rpg_jax.llm.hyper import PPOHyper
from rpg_jax.llm.models import model_for

CONFIG = tiny.llama(layers=1)
HYPER = PPOHyper(learning_rate=3e-3, microbatch=4, minibatches=2, epochs=2, remat=False)


def main(directory: Path, steps: int) -> None:
    ppo = make_ppo(CONFIG, HYPER)
    params = model_for(CONFIG).init(jax.random.key(0))
    state = ppo.init(jax.random.key(1), params)
    estimator = {"rate": np.float32(0), "count": np.int32(0)}
    buffer = {"reward": np.zeros(16, np.float32)}
    directory.mkdir(parents=True, exist_ok=True)
    ledger_path = directory / "ledger.jsonl"
    with Checkpoints(directory / "checkpoints") as store:
        items = {**ppo_items(state), "estimator": estimator, "buffer": buffer}
        snapshot = store.restore(items)
        offset = 0
        if snapshot is not None:
            assert snapshot.meta["start_weights"] == fingerprint(params)
            state = with_ppo_items(state, snapshot.items)
            estimator = jax.tree.map(np.asarray, snapshot.items["estimator"])
            buffer = jax.tree.map(np.array, snapshot.items["buffer"])
            offset = snapshot.meta["ledger_offset"]
        with open(ledger_path, "ab") as ledger:
            ledger.truncate(offset)  # lines of a step that no checkpoint knows
            ledger.seek(0, os.SEEK_END)
            (directory / "ready").touch()
            while (step := int(state.step)) < steps:
                state, estimator, line = attempt(ppo, state, estimator, buffer, step)
                ledger.write(line)
                ledger.flush()
                os.fsync(ledger.fileno())
                items = {**ppo_items(state), "estimator": estimator, "buffer": buffer}
                store.save(
                    step + 1,
                    items,
                    {
                        "ledger_offset": ledger.tell(),
                        "start_weights": fingerprint(params),
                    },
                )
    digest = hashlib.sha256(ledger_path.read_bytes())
    leaves = jax.tree.leaves((state.params, state.opt_state, estimator, buffer))
    for leaf in [*leaves, jax.random.key_data(state.key), state.step]:
        digest.update(np.asarray(leaf).tobytes())
    (directory / "result.json").write_text(json.dumps({"digest": digest.hexdigest()}))


def attempt(ppo, state, estimator, buffer, step):
    """One step of the loop; the sampler's key comes from the state, as training's."""
    prompt, prompt_mask = tiny.prompts(8)
    tokens, mask, log_prob = tiny.rollout(
        jax.random.fold_in(state.key, 7),
        ppo.policy_params(state),
        CONFIG,
        *(prompt, prompt_mask, 6),
    )
    tokens, mask = np.asarray(tokens), np.asarray(mask)
    relative = ((tokens == 3) & mask).sum(1) - (0.1 + estimator["rate"]) * mask.sum(1)
    batch = make_batch(prompt, prompt_mask, tokens, mask, log_prob, relative)
    state, metrics = ppo.update(state, batch)
    reward = np.float32(metrics.reward_mean)
    count = np.int32(estimator["count"] + 1)
    rate = np.float32(estimator["rate"] + 0.01 * reward / count)
    buffer["reward"][step % 16] = reward
    line = {"step": step, "reward": float(reward), "loss": metrics.loss.tolist()}
    return state, {"rate": rate, "count": count}, (json.dumps(line) + "\n").encode()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
