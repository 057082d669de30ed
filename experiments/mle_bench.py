"""MLE-Bench tasks: list them, grade a submission, show the prompts.

    python -m experiments.mle_bench --list
    python -m experiments.mle_bench --task=spooky-author --show-prompt
    python -m experiments.mle_bench --task=spooky-author --grade=submission.csv

Real data are used where `mlebench prepare` has left them, else small synthetic data of
the same form.
"""

from typing import Any

from absl import flags

from experiments import cli
from experiments.cli import SEED
from experiments.tasks import TaskError, commands, get_task
from experiments.tasks.prompts import STYLES

TASK = flags.DEFINE_string("task", None, "Task: short name or competition id.")
DATA = flags.DEFINE_enum(
    "data",
    None,
    ["mlebench", "synthetic"],
    "Where data come from; by default real data where they are prepared.",
)
DATA_DIR = flags.DEFINE_string(
    "data_dir", None, "MLE-Bench's data folder; by default its own."
)
CACHE_DIR = flags.DEFINE_string(
    "cache_dir", None, "Where built data are kept; by default in the user's cache."
)
SIZE = flags.DEFINE_enum("size", "small", ["small", "medium"], "Of synthetic data.")
LIST = flags.DEFINE_boolean("list", False, "Print the tasks and stop.")
GRADE = flags.DEFINE_string("grade", None, "Grade this submission and stop.")
ANSWERS = flags.DEFINE_string(
    "answers", None, "With --grade: answers file; by default the prepared data's."
)
SAMPLE = flags.DEFINE_string(
    "sample", None, "With --answers: the sample submission, for the gain."
)
SPLIT = flags.DEFINE_enum(
    "split", "validation", ["validation", "test"], "With --grade: which answers."
)
SHOW_PROMPT = flags.DEFINE_boolean("show_prompt", False, "Print the prompts and stop.")
PROMPT_STYLE = flags.DEFINE_enum(
    "prompt_style", "full", list(STYLES), "Prompts for a large or a small model."
)
TOKENIZER = flags.DEFINE_string(
    "tokenizer", None, "With --show_prompt: folder or hub id of a chat template."
)
flags.declare_key_flag("seed")


def prepare_options() -> dict[str, Any]:
    """The flags that say which data to prepare, as options of ``prepare_task``."""
    return {
        "data": DATA.value,
        "size": SIZE.value,
        "seed": SEED.value,
        "cache_dir": CACHE_DIR.value,
        "data_dir": DATA_DIR.value,
    }


def _need_task(flag: str) -> Any:
    if TASK.value is None:
        raise cli.UsageError(f"--{flag} needs --task=NAME (--list shows the names)")
    return get_task(TASK.value)


def main() -> int:
    """Runs the command that the flags name."""
    try:
        if LIST.value:
            return commands.list_tasks(DATA_DIR.value)
        if GRADE.value is not None:
            return commands.grade_file(
                _need_task("grade"),
                GRADE.value,
                answers=ANSWERS.value,
                sample=SAMPLE.value,
                split=SPLIT.value,
                prepare=prepare_options(),
            )
        if SHOW_PROMPT.value:
            return commands.show_prompt(
                _need_task("show_prompt"),
                style=PROMPT_STYLE.value,
                tokenizer=TOKENIZER.value,
                prepare=prepare_options(),
            )
    except TaskError as error:
        raise cli.UsageError(str(error)) from error
    raise cli.UsageError(
        "nothing to do: give --list, --task=NAME --show-prompt, or --task=NAME "
        "--grade=FILE"
    )


if __name__ == "__main__":
    cli.run(main)
