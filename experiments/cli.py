"""What every command line here shares: flags of a record, one-line errors, exit codes.

Exit codes: 0 done, 1 the work failed, 2 the command line or its files are wrong,
130 stopped by Ctrl-C, 143 by SIGTERM, 141 the reader of the output has left.
"""

import dataclasses
import os
import sys
import textwrap
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar, cast

from absl import app, flags, logging

from experiments.config.errors import UsageError as UsageError
from experiments.config.options import choices as choices

#: Flags that several commands share; ``flags.declare_key_flag`` lists one in the
#: --help of a command.
SEED = flags.DEFINE_integer("seed", 0, "Seed of the run.", lower_bound=0)
OUT = flags.DEFINE_string("out", None, "The run's folder; a new one in runs/.")
RESUME = flags.DEFINE_boolean("resume", False, "Go on with the run in --out.")
DRY_RUN = flags.DEFINE_boolean("dry_run", False, "Print the configuration and stop.")
PLOT = flags.DEFINE_boolean(
    "plot", None, "Print curves of the best score; by default on a terminal alone."
)
# What follows defines flags for the command that asks for them.
flags.disclaim_key_flags()


#: Shared flags by name.
SHARED = {holder.name: holder for holder in (SEED, OUT, RESUME, DRY_RUN)}

Record = TypeVar("Record")
Sections = Mapping[str, Sequence[flags.FlagHolder[Any]]]

_STOPPED = (130, 143)


def _fail(message: str) -> int:
    # absl puts its advice on further lines; the first says what is wrong.
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return 2


def _underscored(argv: Sequence[str]) -> list[str]:
    """Lets --show-prompt stand for --show_prompt: absl knows one spelling only."""
    words = list(argv)
    for position, word in enumerate(words[1:], start=1):
        if word == "--":
            break
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            words[position] = f"--{name.replace('-', '_')}{equals}{value}"
    return words


def define_flags(record: type[Any]) -> dict[str, list[flags.FlagHolder[Any]]]:
    """A flag for each field of a record made with ``option``; by their sections.

    A shared flag that is there already keeps its type and takes the field's help.
    """
    sections: dict[str, list[flags.FlagHolder[Any]]] = {}
    kinds = typing.get_type_hints(record)
    for field in dataclasses.fields(record):
        about: Mapping[str, Any] = field.metadata
        default: Any = field.default
        name, text, choices = field.name, about["help"], about["choices"]
        kind = kinds[name]
        bare = next((k for k in typing.get_args(kind) if k is not type(None)), kind)
        if name in flags.FLAGS:
            flags.FLAGS[name].help = text
            flags.declare_key_flag(name)
            sections.setdefault(about["section"], []).append(SHARED[name])
            continue
        holder: flags.FlagHolder[Any]
        if choices is not None:
            holder = flags.DEFINE_enum(name, default, list(choices), text)
        elif typing.get_origin(kind) is tuple or typing.get_origin(bare) is tuple:
            words = None if default is None else list(default)
            holder = flags.DEFINE_list(name, words, text)
        elif bare is bool:
            holder = flags.DEFINE_boolean(name, default, text)
        elif bare is int:
            holder = flags.DEFINE_integer(name, default, text)
        elif bare is float:
            holder = flags.DEFINE_float(name, default, text)
        else:
            holder = flags.DEFINE_string(name, default, text)
        sections.setdefault(about["section"], []).append(holder)
    return sections


def read_flags(record: Callable[..., Record]) -> Record:
    """The record that the command line means."""
    values = {
        f.name: flags.FLAGS[f.name].value for f in dataclasses.fields(cast(Any, record))
    }
    return record(
        **{n: tuple(v) if isinstance(v, list) else v for n, v in values.items()}
    )


def given_flags(record: type[Any]) -> list[str]:
    """Names of the record's flags that stand on the command line."""
    names = [field.name for field in dataclasses.fields(record)]
    return [name for name in names if flags.FLAGS[name].present]


def grouped_help(
    doc: str, sections: Mapping[str, Sequence[flags.FlagHolder[Any]]]
) -> str:
    """Help text: the module's docstring, then its flags under headings."""
    lines = [doc.strip()]
    for title, holders in sections.items():
        lines += ["", f"{title}:"]
        for holder in holders:
            flag = flags.FLAGS[holder.name]
            values = getattr(flag.parser, "enum_values", None)
            text = flag.help if values is None else flag.help.partition(": ")[2]
            kind = f" ({'|'.join(values)})" if values else ""
            default = flag.default_as_str
            if flag.default not in (None, False, []):
                kind += f" [{default}]"
            lines.append(
                textwrap.fill(
                    f"{text}{kind}",
                    88,
                    initial_indent=f"  --{holder.name:<18} ",
                    subsequent_indent=" " * 23,
                    break_on_hyphens=False,
                    break_long_words=False,
                )
            )
    return "\n".join(lines)


def run(
    main: Callable[[], int | None],
    argv: Sequence[str] | None = None,
    *,
    sections: Sections | None = None,
) -> NoReturn:
    """Parses flags and runs ``main``; never returns.

    Args:
      main: reads ``flags.FLAGS``; returns an exit code, None meaning 0.
      argv: the command line, program name first; ``sys.argv`` by default.
      sections: headings of --help and their flags; absl's own list by default.
    """

    def parse(argv: Sequence[str]) -> list[str]:
        if sections and any(word in ("--help", "-h", "-help") for word in argv[1:]):
            print(grouped_help(sys.modules["__main__"].__doc__ or "", sections))
            sys.exit(0)
        try:
            rest = flags.FLAGS(_underscored(argv))
        except flags.Error as error:
            sys.exit(_fail(str(error)))
        if len(rest) > 1:
            sys.exit(
                _fail(f"unexpected argument {rest[1]!r}: flags look like --name=value")
            )
        # Libraries log through absl; their INFO lines do not interest a user.
        if flags.FLAGS["verbosity"].using_default_value:
            logging.set_verbosity(logging.WARNING)
        return rest

    def guarded(_: Sequence[str]) -> int | None:
        try:
            code = main()
        except UsageError as error:
            return _fail(str(error))
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
            code = 130
        except BrokenPipeError:
            # The reader (head, less) has left; the interpreter flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 141
        if code in _STOPPED:
            # Files and children are closed by now. An interpreter that was stopped
            # inside a compilation can crash while it shuts down (measured: in four
            # of five tries), which would hide the exit code.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        return code

    app.run(guarded, argv=None if argv is None else list(argv), flags_parser=parse)
    raise AssertionError("app.run returned")


def split_folders(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """(folders, command line without them), for commands that take folders."""
    folders: list[str] = []
    rest = [argv[0]]
    takes_value = False
    for at, word in enumerate(argv[1:], start=1):
        if word == "--":
            return folders + list(argv[at + 1 :]), rest
        if takes_value or (word.startswith("-") and word != "-"):
            rest.append(word)
            name = word.lstrip("-").replace("-", "_")
            known = not takes_value and name in flags.FLAGS
            takes_value = known and not flags.FLAGS[name].boolean
        else:
            folders.append(word)
    return folders, rest


def int_list(name: str, values: Sequence[str], *, minimum: int = 1) -> list[int]:
    """Parses a comma-separated list flag into distinct integers.

    Raises:
      UsageError: an entry is no integer or is below ``minimum``.
    """
    numbers = []
    for text in values:
        try:
            number = int(text)
        except ValueError:
            raise UsageError(f"--{name}={text}: not a whole number") from None
        if number < minimum:
            raise UsageError(f"--{name}={number}: must be at least {minimum}")
        numbers.append(number)
    if not numbers:
        raise UsageError(f"--{name} is empty")
    return list(dict.fromkeys(numbers))
