"""``rpg-tasks``: list, show, prepare, prompt, grade and check tasks.

    rpg-tasks list
    rpg-tasks show spooky-author
    rpg-tasks prepare spooky-author --size=medium
    rpg-tasks prompt spooky-author --style=compact
    rpg-tasks grade spooky-author submission.csv
    rpg-tasks check my_tasks/toy_regression

Tasks from outside: RPG_TASKS_PATH names folders that hold task folders.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from rpg_tasks import commands
from rpg_tasks.prompts import STYLES
from rpg_tasks.task import SIZES, SOURCES, TaskError

# What a shell reports of a command whose reader left (128 + SIGPIPE).
_READER_LEFT = 141


def _data_options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_argument_group("data")
    group.add_argument(
        "--data", choices=SOURCES, help="by default real data where they are prepared"
    )
    group.add_argument(
        "--size", choices=SIZES, default="small", help="of synthetic data"
    )
    group.add_argument(
        "--seed", type=int, default=0, help="of synthetic data and validation rows"
    )
    group.add_argument("--cache-dir", help="where built data are kept")
    group.add_argument("--data-dir", help="MLE-Bench's data folder")
    return parser


def build_parser() -> argparse.ArgumentParser:
    """The command line's parser."""
    parser = argparse.ArgumentParser(
        prog="rpg-tasks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    data = _data_options()
    add = parser.add_subparsers(dest="command", required=True).add_parser
    found = add("list", help="every task, its metric, and whether real data are there")
    found.add_argument("--data-dir", help="MLE-Bench's data folder")
    show = add("show", help="a task's record, paths, data and traps")
    show.add_argument("name")
    show.add_argument("--data-dir", help="MLE-Bench's data folder")
    prepare = add("prepare", parents=[data], help="make a task's data; print the paths")
    prepare.add_argument("name")
    prompt = add("prompt", parents=[data], help="what a policy is told")
    prompt.add_argument("name")
    prompt.add_argument("--style", choices=STYLES, default="full")
    prompt.add_argument("--tokenizer", help="folder or hub id of a chat template")
    grade = add("grade", parents=[data], help="the verdict on a submission")
    grade.add_argument("name")
    grade.add_argument("submission")
    grade.add_argument("--split", choices=["validation", "test"], default="validation")
    grade.add_argument("--answers", help="answers file in place of the prepared data's")
    grade.add_argument("--sample", help="with --answers: the sample submission")
    check = add("check", help="does a task's folder work")
    check.add_argument("folder", help="a task's folder, or a task's name")
    return parser


def _prepare_options(given: argparse.Namespace) -> dict[str, Any]:
    names = ("data", "size", "seed", "cache_dir", "data_dir")
    return {name: getattr(given, name) for name in names}


def _run(given: argparse.Namespace) -> int:
    if given.command == "list":
        return commands.list_tasks(given.data_dir)
    if given.command == "show":
        return commands.show_task(given.name, given.data_dir)
    if given.command == "check":
        from rpg_tasks.check_folder import check_task

        return check_task(given.folder)
    options = _prepare_options(given)
    if given.command == "prepare":
        return commands.prepare_data(given.name, prepare=options)
    if given.command == "prompt":
        return commands.show_prompt(
            given.name, style=given.style, tokenizer=given.tokenizer, prepare=options
        )
    return commands.grade_file(
        given.name,
        given.submission,
        answers=given.answers,
        sample=given.sample,
        split=given.split,
        prepare=options,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: of the command line; None for the process's own.

    Returns:
        0 for success, 1 for an invalid submission or a check that failed, 2 for a
        wrong name, file or option.
    """
    given = build_parser().parse_args(arguments)
    try:
        code = _run(given)
        sys.stdout.flush()
    except TaskError as error:
        print(f"rpg-tasks: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        print(
            f"rpg-tasks: this needs the package {error.name}: "
            "pip install 'rpg-jax[tasks]'",
            file=sys.stderr,
        )
        return 2
    except BrokenPipeError:
        # Nothing more can be said; the flush at exit must not try again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _READER_LEFT
    return code


if __name__ == "__main__":
    sys.exit(main())
