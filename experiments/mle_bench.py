"""MLE-Bench: train a policy on a task; or list tasks, grade, show prompts.

    python -m experiments.mle_bench --task=spooky-author
    python -m experiments.mle_bench --task=all --model=DIR --data=mlebench
    python -m experiments.mle_bench --resume --out=RUN
    python -m experiments.mle_bench --replay=RUN
    python -m experiments.mle_bench --list
    python -m experiments.mle_bench --task=spooky-author --show-prompt
    python -m experiments.mle_bench --task=spooky-author --grade=submission.csv

Real data are used where `mlebench prepare` has left them, else small synthetic data of
the same form. Guide: docs/mle_bench.md
"""

from pathlib import Path
from typing import Any

from absl import flags

from experiments import cli
from experiments.cli import DRY_RUN, OUT, RESUME, SEED
from rpg_tasks import TaskError, commands, get_task
from rpg_tasks.prompts import STYLES

TASK = flags.DEFINE_list("task", None, "Task: short name, comma list, or all.")
# Data
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
LEADERBOARDS = flags.DEFINE_string(
    "leaderboards", None, "MLE-Bench's competitions folder, for --reward=paper."
)
# What is compared
ARMS = flags.DEFINE_list(
    "arms",
    ["rpg", "vanilla"],
    "rpg, vanilla, search-only, fixed-price, ratio, on-policy-rate, "
    "duration-weighted; comma list or all.",
)
SEEDS = flags.DEFINE_list("seeds", ["1"], "Number of seeds, or a list (0,7).")
PROTOCOL = flags.DEFINE_enum(
    "protocol", "sound", ["sound", "paper"], "Ours, or the published one."
)
FIXED_PRICE = flags.DEFINE_float(
    "fixed_price", None, "Of the arm fixed-price: reward per second."
)
# Reward and rate; by default the protocol's
REWARD = flags.DEFINE_enum(
    "reward", None, ["gain", "raw", "paper"], "Reward of a score."
)
REWARD_SPLIT = flags.DEFINE_enum(
    "reward_split", None, ["validation", "test"], "Answers that make the reward."
)
TIME = flags.DEFINE_enum(
    "time",
    None,
    ["attempt", "execution"],
    "Seconds a script pays for: with generation, or execution alone.",
)
FAILURE_CHARGE = flags.DEFINE_enum(
    "failure_charge", None, ["measured", "slowest", "limit"], "Seconds of a failure."
)
FAILURE_PENALTY = flags.DEFINE_float(
    "failure_penalty",
    None,
    "What a failure loses beside its time; the paper's reward has its own (10).",
)
RATE = flags.DEFINE_enum(
    "rate",
    None,
    ["niw", "robbins-monro", "neural", "empirical"],
    "Estimator of the reward rate.",
)
RATE_DATA = flags.DEFINE_enum(
    "rate_data",
    None,
    ["greedy", "slots"],
    "Attempts that it sees: the best ones, or lifetime sums per chain.",
)
# Budget
BUDGET = flags.DEFINE_float("budget", None, "Seconds of each run.")
BUDGET_CLOCK = flags.DEFINE_enum(
    "budget_clock", "total", ["total", "attempt", "execution"], "Which seconds."
)
STEPS = flags.DEFINE_integer("steps", None, "Steps of each run, at most.")
CHAINS = flags.DEFINE_integer("chains", None, "Scripts per step.")
# Policy
MODEL = flags.DEFINE_string(
    "model", "tiny", "tiny, smollm2, a model folder, a .gguf file or a cached hub id."
)
LR = flags.DEFINE_float("lr", None, "Step size of the policy.")
ADVANTAGE = flags.DEFINE_enum("advantage", None, ["loo", "critic"], "Its baseline.")
LORA_RANK = flags.DEFINE_integer(
    "lora_rank", None, "Train adapters of this rank; 0: all weights."
)
PROMPT_STYLE = flags.DEFINE_enum(
    "prompt_style",
    None,
    [*STYLES, "menu"],
    "Ask a large or a small model for a script, or for choices from a menu.",
)
MAX_PROMPT_TOKENS = flags.DEFINE_integer("max_prompt_tokens", None, "Longest prompt.")
MAX_NEW_TOKENS = flags.DEFINE_integer("max_new_tokens", None, "Longest answer.")
# Sandbox
SLOTS = flags.DEFINE_integer(
    "slots",
    None,
    "Scripts at one time, a core each; by default all (a large policy keeps one).",
)
WALL_LIMIT = flags.DEFINE_float("wall_limit", None, "Seconds of a script, at most.")
ISOLATION = flags.DEFINE_enum(
    "isolation",
    "auto",
    ["auto", "posix", "landlock", "namespaces", "full"],
    "Least level that the sandbox must give; the best one is used.",
)
# Ending
FINAL = flags.DEFINE_enum(
    "final",
    "best",
    ["best", "chains", "none"],
    "Scripts scored on the private test: the run's best, each chain's, none.",
)
REPORT = flags.DEFINE_boolean("report", True, "Build the HTML report at the end.")
REPLAY = flags.DEFINE_string(
    "replay", None, "Feed this run's records again and compare every number."
)
# Other commands
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
SHOW_PROMPT = flags.DEFINE_boolean(
    "show_prompt",
    False,
    "Print the prompts (style full unless --prompt_style says so, without a run's "
    "limits) and stop.",
)
TOKENIZER = flags.DEFINE_string(
    "tokenizer", None, "With --show_prompt: folder or hub id of a chat template."
)
for _name in ("seed", "out", "resume", "dry_run"):
    flags.declare_key_flag(_name)

SECTIONS = {
    "what is compared": (TASK, ARMS, SEEDS, PROTOCOL, FIXED_PRICE),
    "data": (DATA, DATA_DIR, CACHE_DIR, SIZE, SEED, LEADERBOARDS),
    "reward and rate (by default the protocol's)": (
        *(REWARD, REWARD_SPLIT, TIME, FAILURE_CHARGE, FAILURE_PENALTY),
        *(RATE, RATE_DATA),
    ),
    "budget": (BUDGET, BUDGET_CLOCK, STEPS),
    "policy (by default the model's preset)": (
        *(MODEL, CHAINS, LR, ADVANTAGE, LORA_RANK),
        *(PROMPT_STYLE, MAX_PROMPT_TOKENS, MAX_NEW_TOKENS),
    ),
    "sandbox": (SLOTS, WALL_LIMIT, ISOLATION),
    "run": (OUT, RESUME, REPLAY, FINAL, REPORT, DRY_RUN),
    "other commands": (LIST, SHOW_PROMPT, TOKENIZER, GRADE, ANSWERS, SAMPLE, SPLIT),
}
# These say where and whether, not what; the rest identifies an experiment.
_NOT_SETTINGS = (
    *("data_dir", "cache_dir", "leaderboards", "out", "resume", "replay"),
    *("report", "dry_run"),
)
# The shared flag, as it is meant here: runs have --seeds.
flags.FLAGS["seed"].help = "Of synthetic data and of the validation split."


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
    if not TASK.value:
        raise cli.UsageError(f"--{flag} needs --task=NAME (--list shows the names)")
    if len(TASK.value) > 1:
        raise cli.UsageError(f"--{flag} takes one task, not {len(TASK.value)}")
    return get_task(TASK.value[0])


def resolve() -> Any:
    """The ``Settings`` that the flags mean.

    Raises:
      UsageError: a flag is out of range, or names something that is not there.
    """
    from experiments.running import parts
    from experiments.running import resolve as loop

    return loop.resolve_settings(
        {name: flags.FLAGS[name].value for name in _setting_flags()},
        data_dir=DATA_DIR.value,
        describe=parts.describe,
    )


def _setting_flags() -> list[str]:
    names = [f.name for section in list(SECTIONS.values())[:-1] for f in section]
    return [name for name in names if name not in _NOT_SETTINGS]


def _stored(folder: str, what: str) -> Any:
    """The settings of a run's folder; flags that would change them are refused."""
    from experiments.config.settings import read_settings

    allowed = ("model",) if what == "replay" else ("budget", "steps")
    given = [
        f"--{name}"
        for name in _setting_flags()
        if flags.FLAGS[name].present and name not in allowed
    ]
    if given:
        raise cli.UsageError(
            f"--{what} takes the configuration of {folder}: leave out "
            f"{', '.join(given)}"
        )
    return read_settings(Path(folder))


def train() -> int:
    """Resolves the flags, then runs the experiment."""
    import dataclasses

    from experiments.config.settings import longer, read_settings, same_limits
    from experiments.records import rundir
    from experiments.running.places import Places, check_folder, check_tasks
    from experiments.running.resolve import show

    if REPLAY.value is not None and RESUME.value:
        raise cli.UsageError("--replay starts anew: leave out --resume")
    if RESUME.value and OUT.value is None:
        raise cli.UsageError("--resume needs the run's folder: add --out=DIR")
    if OUT.value is not None:
        check_folder(Path(OUT.value), resume=RESUME.value)
    if REPLAY.value is not None:
        settings = _stored(REPLAY.value, "replay")
        if flags.FLAGS["model"].present:
            settings = dataclasses.replace(settings, model=MODEL.value)
    elif RESUME.value and TASK.value is None:
        settings = longer(_stored(OUT.value, "resume"), BUDGET.value, STEPS.value)
    else:
        settings = resolve()
        limited = any(flags.FLAGS[name].present for name in ("budget", "steps"))
        if RESUME.value and not limited:
            # A preset's budget is for new runs; a longer one is asked for by name.
            settings = same_limits(settings, read_settings(Path(OUT.value)))
    tasks = settings.tasks
    name = tasks[0] if len(tasks) == 1 else f"{len(tasks)}-tasks"
    name += "-replay" if REPLAY.value is not None else ""
    places = Places(
        out=Path(OUT.value or rundir.default_folder("mle_bench", name)),
        data_dir=DATA_DIR.value,
        cache_dir=CACHE_DIR.value,
        leaderboards=LEADERBOARDS.value,
    )
    if DRY_RUN.value:
        print(show(settings, places))
        return 0
    check_tasks(settings, places)
    check_folder(places.out, resume=RESUME.value)

    from experiments.console.screen import Screen
    from experiments.running.launch import launch
    from experiments.running.parts import real_parts
    from experiments.running.sweep import check_replay

    screen = Screen()
    replay = None if REPLAY.value is None else Path(REPLAY.value)
    if replay is not None:
        check_replay(settings, replay)
    parts, identity = real_parts(settings, places, screen, replay=replay)
    return launch(
        settings,
        places,
        parts,
        identity,
        screen=screen,
        resume=RESUME.value,
        replay=replay,
        report=REPORT.value,
    )


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
            if PROMPT_STYLE.value == "menu":
                raise cli.UsageError("--show-prompt shows the styles full and compact")
            return commands.show_prompt(
                _need_task("show_prompt"),
                style=PROMPT_STYLE.value or "full",
                tokenizer=TOKENIZER.value,
                prepare=prepare_options(),
            )
    except TaskError as error:
        raise cli.UsageError(str(error)) from error
    if TASK.value is None and not RESUME.value and REPLAY.value is None:
        raise cli.UsageError(
            "nothing to do: give --list, or --task=NAME to train (with --show-prompt "
            "or --grade=FILE it does that alone)"
        )
    return train()


if __name__ == "__main__":
    cli.run(main, sections=SECTIONS)
