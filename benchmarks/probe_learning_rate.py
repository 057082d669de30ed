"""Which step size learns from a few answers and does not break the policy.

    python -m benchmarks.probe_learning_rate [--rates=1e-4,3e-4,1e-3] [--steps=20]

The embedded policy edits eight random scripts of a task a step and earns 1 for an edit
that names the model part, else 0: a reward that needs no sandbox. All else is the
preset ``tiny``. Reported per rate: share of edits that name the model, and of answers
that change their script, in the first and in the last third of the steps; every step.
"""

import argparse
import dataclasses
import tempfile

import numpy as np

from experiments.answers import NoScript
from experiments.config.presets import TINY
from experiments.config.protocol import SOUND, Protocol
from experiments.menus.menu import Menu
from experiments.menus.part_edits import read
from experiments.menus.prompt import menu_prompt
from experiments.menus.task_menu import menu_of
from experiments.policies.base import Signals
from experiments.policies.models import Model
from experiments.teaching.examples import generate
from rpg_tasks.prompts import Attempt
from rpg_tasks.registry import Task, get_task


def protocol(rate: float) -> Protocol:
    """The protocol ``sound`` under the preset, at a step size."""
    sampling = dataclasses.replace(
        SOUND.sampling,
        max_prompt_tokens=TINY.max_prompt_tokens,
        max_new_tokens=TINY.max_new_tokens,
    )
    learning = dataclasses.replace(
        SOUND.learning, epochs=TINY.epochs, kl_coef=TINY.kl_coef, learning_rate=rate
    )
    return dataclasses.replace(SOUND, sampling=sampling, learning=learning)


def shown(task: Task, menu: Menu, rng: np.random.Generator) -> tuple[str, str]:
    """(prompt, script) of a random parent that has a model part."""
    while True:
        script = generate(task, rng, kind="base").script
        if "\n# model: " in script:
            rank = (1 + int(rng.integers(8)), 8)
            attempt = Attempt(script, seconds=2.0, score=0.5, rank=rank)
            return menu_prompt(task, menu, attempt), script


def probe(
    model: Model, task: Task, rate: float, *, steps: int, seed: int
) -> np.ndarray:
    """Shares (names the model, changes its script) of every step, shape [steps, 2]."""
    menu, rng = menu_of(task.short), np.random.default_rng(seed)
    rows = TINY.chains
    shares = []
    with tempfile.TemporaryDirectory() as folder:
        policy = model.policy(folder, seed, protocol(rate), task)
        for step in range(steps):
            prompts, parents = zip(
                *(shown(task, menu, rng) for _ in range(rows)), strict=True
            )
            answers = list(policy.sample(step, range(rows), prompts))
            texts = [text for part in answers for text in part.texts]
            named = np.array(["model:" in text for text in texts])
            reward = named.astype(np.float32)
            signals = Signals(
                relative=reward,
                advantage=reward,
                weight=np.ones(rows, np.float32),
                charged=np.zeros(rows, np.float32),
                mask=np.ones(rows, bool),
            )
            policy.learn(step, answers, signals)
            works = [_changes(menu, *pair) for pair in zip(texts, parents, strict=True)]
            shares.append((named.mean(), np.mean(works)))
        policy.close()
    return np.array(shares)


def _changes(menu: Menu, text: str, parent: str) -> bool:
    try:
        return bool(read(menu, text, parent))
    except NoScript:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rates", default="1e-4,3e-4,1e-3")
    parser.add_argument("--task", default="insults")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    model, task = Model("tiny", TINY.machine, menus=True), get_task(args.task)
    third = max(args.steps // 3, 1)
    for rate in map(float, args.rates.split(",")):
        found = probe(model, task, rate, steps=args.steps, seed=args.seed)
        first, last = found[:third].mean(0), found[-third:].mean(0)
        print(
            f"rate {rate:g}: model {first[0]:.0%} -> {last[0]:.0%}, changes "
            f"{first[1]:.0%} -> {last[1]:.0%}; model by step "
            + " ".join(f"{share:.2f}" for share in found[:, 0]),
            flush=True,
        )


if __name__ == "__main__":
    main()
