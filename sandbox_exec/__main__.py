"""Run untrusted scripts contained: what this machine holds, one script, attacks."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import SandboxError
from .limits import Level, Limits

if TYPE_CHECKING:
    from .environment import Environment
    from .isolation import IsolationReport
    from .overshoot import Overshoot


def main(argv: list[str] | None = None) -> int:
    """Run one command of ``sys.argv`` (or `argv`); returns the exit code."""
    parser = _parser()
    options = parser.parse_args(argv)
    try:
        code: int = options.command(options)
        return code
    except (SandboxError, OSError, ValueError) as error:
        print(f"sandbox_exec: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("sandbox_exec: interrupted", file=sys.stderr)
        return 130


def _name() -> str:
    """As it was called: the installed script, or this module."""
    called = Path(sys.argv[0]).name
    return "rpg-sandbox" if called == "rpg-sandbox" else "python -m sandbox_exec"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=_name(), description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="doctor|run|attack")

    doctor = commands.add_parser("doctor", help="what this machine holds, by trying it")
    doctor.add_argument("--python", help="interpreter for the scripts")
    doctor.add_argument("--json", action="store_true", help="machine-readable")
    doctor.add_argument(
        "--compile", action="store_true", help="write missing bytecode of the packages"
    )
    doctor.set_defaults(command=_doctor)

    run = commands.add_parser("run", help="run one script, print its record as JSON")
    run.add_argument("script", type=Path)
    run.add_argument("args", nargs="*", help="arguments of the script")
    run.add_argument("--inputs", type=Path, help="folder shown read-only as ./input")
    run.add_argument(
        "--require", default="namespaces", help="least level (default: %(default)s)"
    )
    run.add_argument("--level", help="exactly this level")
    run.add_argument("--python", help="interpreter for the script")
    run.add_argument("--submission", default="submission.csv", help="file to collect")
    run.add_argument("--save", type=Path, help="write the collected file here")
    for name, text in (
        ("wall_s", "seconds"),
        ("memory_mb", "MiB, all processes together"),
        ("pids", "processes and threads"),
        ("disk_mb", "MiB"),
    ):
        default = getattr(Limits(), name)
        run.add_argument(
            f"--{name}",
            type=type(default),
            default=default,
            help=f"{text} (%(default)s)",
        )
    run.add_argument("--cpu_s", type=float, help="CPU seconds (no limit)")
    run.set_defaults(command=_run)

    attack = commands.add_parser("attack", help="try the attack corpus on this machine")
    attack.add_argument("--level", default="full", help="level to attack, or 'naive'")
    attack.add_argument("--corpus", type=Path, help="folder of attacks.json")
    attack.add_argument("--only", help="comma-separated ids")
    attack.add_argument(
        "--really",
        action="store_true",
        help="below NAMESPACES: run attacks that are not the project's, caged",
    )
    attack.add_argument("--json", action="store_true", help="machine-readable")
    attack.set_defaults(command=_attack)
    return parser


def _doctor(options: argparse.Namespace) -> int:
    from .environment import Environment
    from .isolation import probe_isolation

    env = Environment.of(options.python)
    if options.compile and not env.compile_ahead():
        print(f"cannot write bytecode into {env.site}", file=sys.stderr)
    report = probe_isolation(options.python)
    missing = env.uncompiled()
    tried = _overshoots(env, report)
    if options.json:
        plain = {
            "level": report.level.name,
            "held": {level.name: checks for level, checks in report.held.items()},
            "missing": {level.name: why for level, why in report.missing.items()},
            "memory_above_limit_mb": {
                level.name: None if isinstance(found, str) else found.above_mb
                for level, found in tried.items()
            },
            "python": env.python,
            "modules_without_bytecode": missing,
        }
        print(json.dumps(plain, indent=2))
    else:
        print("\n".join(report.lines()))
        for level, found in tried.items():
            text = found if isinstance(found, str) else found.line()
            print(f"  {level.name:<10} memory: {text}")
        print(f"interpreter: {env.python}")
        if missing:
            print(
                f"  {missing} modules without bytecode: importing them costs every run "
                "time; `doctor --compile` writes it"
            )
    return 0 if report.level >= Level.NAMESPACES else 1


def _overshoots(
    env: "Environment", report: "IsolationReport"
) -> "dict[Level, Overshoot | str]":
    """How far scripts get past their memory limit where it is sampled; or why not."""
    from .overshoot import measure_overshoot
    from .runner import Engine

    found: dict[Level, Overshoot | str] = {}
    for level in (Level.NAMESPACES, Level.LANDLOCK):
        if level in report.missing:
            continue
        engine = Engine(level=level, env=env, as_nobody=report.as_nobody)
        try:
            found[level] = measure_overshoot(engine)
        except SandboxError as error:
            found[level] = f"not tried: {error}"
    return found


def _run(options: argparse.Namespace) -> int:
    from .prepare import run_script
    from .protocol import ScriptJob

    limits = Limits(
        wall_s=options.wall_s,
        memory_mb=options.memory_mb,
        pids=options.pids,
        disk_mb=options.disk_mb,
        cpu_s=options.cpu_s,
    )
    job = ScriptJob(
        script=options.script.read_bytes(),
        inputs=options.inputs,
        limits=limits,
        submission_name=options.submission,
        args=tuple(options.args),
    )
    record = run_script(
        job, require=options.require, level=options.level, python=options.python
    )
    print(record.to_json(indent=2))
    if options.save is not None and record.submission_bytes is not None:
        options.save.write_bytes(record.submission_bytes)
    return 0 if record.ok else 1


def _attack(options: argparse.Namespace) -> int:
    from . import attack

    only = options.only.split(",") if options.only else None
    return attack.main(
        options.level,
        corpus=options.corpus,
        only=only,
        as_json=options.json,
        really=options.really,
    )


if __name__ == "__main__":
    sys.exit(main())
