"""Export: a trained policy as a model folder.

    python -m experiments.export runs/mle_bench/RUN --out=my_model
    python -m experiments.export RUN --arm=rpg --seed=0 --out=my_model --dtype=bfloat16

The folder has weights (safetensors), tokenizer, chat template, generation config and a
card; transformers, vLLM and `--model=my_model` read it. Adapters are merged.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from experiments import cli
from experiments.cli import OUT

DTYPES = ("float32", "bfloat16", "float16")
TASK = flags.DEFINE_string("task", None, "Task of the run, if there are several.")
ARM = flags.DEFINE_string("arm", None, "Arm of the run, if there are several.")
RUN_SEED = flags.DEFINE_integer(
    "run_seed", None, "Seed of the run, if there are several."
)
DTYPE = flags.DEFINE_enum("dtype", "float32", DTYPES, "Of the matrices.")
flags.declare_key_flag("out")


def main(folders: Sequence[str]) -> int:
    """Write the policy of one run."""
    if len(folders) != 1:
        raise cli.UsageError(
            "name one run's folder: python -m experiments.export RUN --out=DIR"
        )
    if OUT.value is None:
        raise cli.UsageError("--out=DIR: where to write the model")
    from experiments.config.errors import LoopError
    from experiments.config.plugins import load_plugins
    from experiments.config.settings import read_settings
    from experiments.running.export import choose, export_run, trained_runs
    from rpg_jax.llm import CheckpointError

    folder, out = Path(folders[0]), Path(OUT.value)
    if out.exists():
        raise cli.UsageError(f"--out={out} exists already: choose another name")
    settings = read_settings(folder)
    load_plugins(settings.plugins)
    runs = trained_runs(folder, settings)
    chosen = choose(runs, task=TASK.value, arm=ARM.value, seed=RUN_SEED.value)
    try:
        steps = export_run(folder, chosen, out, dtype=DTYPE.value)
    except (CheckpointError, LoopError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"wrote {out}: {chosen.arm} on {chosen.task}, after {steps} steps")
    return 0


if __name__ == "__main__":
    _folders, _rest = cli.split_folders(sys.argv)
    cli.run(lambda: main(_folders), _rest)
