"""Which step size learns from a few answers and does not break the policy.

    python -m benchmarks.probe_learning_rate [--rates=1e-4,3e-4,2e-3] [--steps=14]

The embedded policy answers one base prompt eight times a step and earns 1 for a script
that parses and uses a linear model, else 0: a reward that needs no sandbox. Everything
else is the preset ``tiny``. Reported per rate: share of linear models and of scripts
that parse, in the first and in the last third of the steps, and every step.
"""

import argparse
import dataclasses
import tempfile
from typing import Any

import numpy as np

from experiments.config.presets import TINY
from experiments.config.protocol import SOUND
from experiments.policies.base import Signals
from experiments.policies.llm import LLMOptions, LLMPolicy, ppo_hyper
from experiments.teaching.writer import parses
from rpg_jax.llm import load_pretrained, load_tokenizer
from rpg_tasks import prepare_task
from rpg_tasks.prompts import NoScript, extract_script, prompt


def probe(
    model: Any, question: str, rate: float, *, steps: int, seed: int
) -> np.ndarray:
    """Shares (linear, parses) of every step, shape [steps, 2]."""
    config, params, tokenizer = model
    sampling = dataclasses.replace(
        SOUND.sampling,
        max_prompt_tokens=TINY.max_prompt_tokens,
        max_new_tokens=TINY.max_new_tokens,
    )
    learning = dataclasses.replace(
        SOUND.learning, epochs=TINY.epochs, kl_coef=TINY.kl_coef, learning_rate=rate
    )
    options = LLMOptions(remat=TINY.machine.remat)
    rows = TINY.chains
    shares = []
    with tempfile.TemporaryDirectory() as folder:
        policy = LLMPolicy(
            folder,
            config,
            params,
            tokenizer,
            sampling=sampling,
            hyper=ppo_hyper(learning, sampling, options),
            seed=seed,
            options=options,
        )
        for step in range(steps):
            answers = list(policy.sample(step, range(rows), [question] * rows))
            scripts = [_script(text) for part in answers for text in part.texts]
            good = np.array([bool(s) and parses(s) for s in scripts])
            linear = good & np.array(["sklearn.linear_model" in s for s in scripts])
            reward = linear.astype(np.float32)
            signals = Signals(
                relative=reward,
                advantage=reward,
                weight=np.ones(rows, np.float32),
                charged=np.zeros(rows, np.float32),
                mask=np.ones(rows, bool),
            )
            policy.learn(step, answers, signals)
            shares.append((linear.mean(), good.mean()))
        policy.close()
    return np.array(shares)


def _script(text: str) -> str:
    try:
        return extract_script(text)
    except NoScript:
        return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rates", default="1e-4,3e-4,2e-3")
    parser.add_argument("--task", default="insults")
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    model = (*load_pretrained("tiny"), load_tokenizer("tiny"))
    data = prepare_task(args.task, data="synthetic")
    question = prompt(data.task, data.public, None, style="compact")
    third = max(args.steps // 3, 1)
    for rate in map(float, args.rates.split(",")):
        found = probe(model, question, rate, steps=args.steps, seed=args.seed)
        first, last = found[:third].mean(0), found[-third:].mean(0)
        print(
            f"rate {rate:g}: linear {first[0]:.0%} -> {last[0]:.0%}, parse "
            f"{first[1]:.0%} -> {last[1]:.0%}; linear by step "
            + " ".join(f"{share:.2f}" for share in found[:, 0]),
            flush=True,
        )


if __name__ == "__main__":
    main()
