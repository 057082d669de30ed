"""The attack corpus: where it lies, what one attack says of itself."""

import json
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from .errors import SandboxError


class Attack(TypedDict):
    """One entry of attacks.json; the script is the file ``<id>.py`` beside it.

    Attributes:
        id, category, what: its name, its kind, what it tries (one line).
        expect: what is seen where it is contained, by name of the check.
        timeout_s: wall limit of its run (seconds).
        flaws: habits of the naive runner that it needs to show.
        control: what the machine must have for the naive runner to be seen to leak.
        limits: of its run, over the defaults.
        needs: what it must have; unknown ones are refused.
        probe: how the victim is set up.
    """

    id: str
    category: str
    what: str
    expect: dict[str, Any]
    timeout_s: float
    flaws: NotRequired[list[str]]
    control: NotRequired[str]
    limits: NotRequired[dict[str, Any]]
    needs: NotRequired[list[str]]
    probe: NotRequired[str]


OWN_CORPUS = Path(__file__).resolve().parent.parent / "tests" / "attacks"
_NEEDS = {"gpu", "pid_namespace"}
_PROBES = {"pty", "socket_in_inputs"}


def find_corpus(folder: Path | None = None) -> Path:
    """Return the folder that holds attacks.json.

    Raises:
        SandboxError: not found; the corpus is part of the source tree, not the wheel.
    """
    places = [folder] if folder else [OWN_CORPUS, Path("tests/attacks")]
    for place in places:
        if (place / "attacks.json").is_file():
            return place.resolve()
    raise SandboxError(
        "no attack corpus: run from a checkout of the project, or name the folder that "
        f"holds attacks.json with --corpus (looked in {', '.join(map(str, places))})"
    )


def load(corpus: Path, only: list[str] | None = None) -> list[Attack]:
    """Read the corpus.

    Raises:
        SandboxError: an id in `only` does not exist, or an attack needs what is unknown
            here: it would run without it.
    """
    path = corpus / "attacks.json"
    attacks: list[Attack] = json.loads(path.read_text(encoding="utf-8"))
    for attack in attacks:
        unknown = set(attack.get("needs", ())) - _NEEDS
        if unknown:
            raise SandboxError(
                f"{path}: {attack['id']} needs {', '.join(sorted(unknown))}, which is "
                f"unknown here (known: {', '.join(sorted(_NEEDS))})"
            )
        if attack.get("probe", "pty") not in _PROBES or "/" in attack["id"]:
            raise SandboxError(f"{path}: {attack['id']} cannot be set up here")
    if only is None:
        return attacks
    known = {attack["id"]: attack for attack in attacks}
    wrong = [name for name in only if name not in known]
    if wrong:
        raise SandboxError(f"no such attack: {', '.join(wrong)}")
    return [known[name] for name in only]
