"""The trainer half of bench_llm: one PPO step against torch on the same weights."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.llm_sampler import load, reference, side_by_side
from rpg_jax.llm.batch import make_batch
from rpg_jax.llm.errors import CheckpointError
from rpg_jax.llm.hyper import PPOHyper
from rpg_jax.llm.models import count_parameters
from rpg_jax.llm.ppo import make_ppo

# One pass, one optimizer step, no reference: the same work on both sides.
HYPER = PPOHyper(
    epochs=1,
    kl_coef=0.0,
    entropy_coef=0.001,
    learning_rate=1e-6,
    remat=False,
    mismatch_warn=1e9,
)


def random_rows(config, batch, prompt_tokens, new_tokens):
    """Full-length prompts and completions with random rewards."""
    rng = np.random.default_rng(0)
    prompt = rng.integers(0, config.vocab_size, (batch, prompt_tokens))
    completion = rng.integers(0, config.vocab_size, (batch, new_tokens))
    return prompt, completion, rng.normal(size=batch).astype(np.float32)


def ours(config, params, rows, hyper=HYPER):
    """A function that takes one PPO step and waits for it."""
    prompt, completion, reward = rows
    batch = make_batch(
        *(prompt, np.ones(prompt.shape, bool)),
        *(completion, np.ones(completion.shape, bool)),
        np.zeros(completion.shape),
        reward,
    )
    ppo = make_ppo(config, hyper, donate=True)
    # A copy: donated steps would eat the weights that torch is built from.
    state = [ppo.init(jax.random.key(0), jax.tree.map(jnp.copy, params))]

    def run(_):
        state[0], metrics = ppo.update(state[0], batch)
        jax.block_until_ready(state[0].params)
        return metrics

    return run


def theirs(model, rows):
    """The same step with transformers, torch's AdamW and all logits."""
    import torch

    prompt, completion, reward = (torch.tensor(x) for x in rows)
    tokens = torch.cat([prompt, completion], dim=1)
    start, length = prompt.shape[1] - 1, completion.shape[1]
    count = max(1, len(reward) - 1)
    advantage = (reward - (reward.sum() - reward) / count)[:, None]
    model.train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=HYPER.learning_rate, weight_decay=HYPER.weight_decay
    )

    def run(_):
        logits = model(input_ids=tokens, use_cache=False).logits
        log_p = torch.log_softmax(logits[:, start : start + length].float(), dim=-1)
        log_prob = log_p.gather(-1, completion[..., None])[..., 0]
        entropy = -(log_p.exp() * log_p).sum(-1)
        ratio = (log_prob - log_prob.detach()).exp()
        low, high = 1 - HYPER.clip_eps, 1 + HYPER.clip_eps
        surrogate = torch.minimum(ratio * advantage, ratio.clamp(low, high) * advantage)
        loss = -(surrogate + HYPER.entropy_coef * entropy).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), HYPER.grad_clip)
        optimizer.step()
        return loss.item()

    return run


def peak_flops(dtype=jnp.float32, size=2048, repeats=5):
    """Multiply-adds per second, times two, of one large matrix product here."""
    x = jnp.ones((size, size), dtype)
    product = jax.jit(lambda a: a @ a)
    (seconds,) = side_by_side([lambda _: product(x).block_until_ready()], repeats)
    return 2 * size**3 / seconds


def step_flops(config, rows, *, frozen=False, remat=False):
    """6 N per token (2 forward, 4 backward), 2 N more with remat, 2 N fewer for LoRA.

    Counts every weight once per token and leaves attention's quadratic part out, so
    the share of the peak is on the low side for long rows.
    """
    prompt, completion, _ = rows
    tokens = prompt.size + completion.size
    factor = 6 + 2 * remat - 2 * frozen
    return factor * count_parameters(config) * tokens


def measure(*, models, batches, prompt_tokens, new_tokens, repeats, growth, report):
    """Seconds per PPO step of both sides, their ratio, and the share of the peak."""
    peak = peak_flops()
    report(f"matrix product: {peak / 1e9:.0f} GFLOP/s")
    result = {"peak_flops": peak, "models": {}}
    for name in models:
        try:
            config, params = load(name)
        except CheckpointError as error:
            report(f"{name}: skipped, {error}")
            continue
        entry = {"parameters": count_parameters(config), "against_torch": []}
        for batch in batches:
            rows = random_rows(config, batch, prompt_tokens, new_tokens)
            hyper = dataclasses.replace(HYPER, microbatch=batch)
            mine, other = side_by_side(
                [
                    ours(config, params, rows, hyper),
                    theirs(reference(config, params), rows),
                ],
                repeats,
            )
            used = step_flops(config, rows) / mine / peak
            row = {
                "batch": batch,
                "tokens": batch * (prompt_tokens + new_tokens),
                "seconds": mine,
                "torch_seconds": other,
                "ratio": other / mine,
                "share_of_peak": used,
            }
            entry["against_torch"].append(row)
            report(
                f"{name} batch {batch} x {prompt_tokens + new_tokens} tokens: "
                f"{mine:.3f} s per step, {row['ratio']:.2f}x torch, "
                f"{used:.0%} of the matrix-product peak"
            )
        if growth:
            entry["growth"] = _growth(
                config, params, batches[0], prompt_tokens, new_tokens, repeats, report
            )
        result["models"][name] = entry
    if jax.default_backend() == "gpu":
        from benchmarks.bench_llm_train import measure_4b

        result["qwen3.5-4b"] = measure_4b(report=report)
    return result


def _growth(config, params, batch, prompt_tokens, new_tokens, repeats, report):
    """Seconds per step for doublings of the length."""
    out = []
    for new in (2 * new_tokens, 4 * new_tokens):
        rows = random_rows(config, batch, prompt_tokens, new)
        hyper = dataclasses.replace(HYPER, microbatch=batch)
        (seconds,) = side_by_side([ours(config, params, rows, hyper)], repeats)
        out.append({"batch": batch, "new_tokens": new, "seconds": seconds})
        report(f"batch {batch}, {new} completion tokens: {seconds:.3f} s per step")
    return out
