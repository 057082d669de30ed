"""A run in its own process, for the test that kills it: FOLDER STEPS PAUSE POLICY."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import loop_help as helper

from experiments.config.budget import Budget
from experiments.loop.algorithm import Loop
from experiments.loop.turns import run


def main(folder: str, steps: str, pause: str, name: str) -> None:
    pool = ThreadPoolExecutor(3)

    def slow(run_id, script):
        time.sleep(float(pause))
        return helper.run_record(run_id, script)

    def execute(run_id, script):
        return pool.submit(slow, run_id, script)

    policy = getattr(helper, name)(Path(folder))
    spec = helper.spec(checkpoint_every=3)
    hooks = helper.hooks(policy, execute=execute)
    with Loop(folder, spec, hooks, resume=True) as loop:
        run([loop], Budget(steps=int(steps)))
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
