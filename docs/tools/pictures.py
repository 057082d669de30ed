"""Draw docs/img/rooms.svg and docs/img/sample_way.svg.

python docs/tools/pictures.py            # write both
python docs/tools/pictures.py --check    # exit code 1 if one is out of date
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from xml.sax.saxutils import escape

IMAGES = Path(__file__).resolve().parents[1] / "img"

INK, SOFT, LINE = "#1b2330", "#5a6576", "#8a94a6"
FILLS = {
    "library": "#dbe7fb",
    "experiment": "#e6f2e1",
    "record": "#fdf0cf",
    "policy": "#f6dfe4",
    "plain": "#ffffff",
}


class Picture:
    """A few boxes and arrows on a white card, readable on light and dark pages."""

    def __init__(self, width: int, height: int, title: str):
        self.size, self.title, self.parts = (width, height), title, []

    def box(
        self,
        at: tuple[float, float, float, float],
        name: str,
        lines: tuple[str, ...] = (),
        fill: str = "plain",
    ) -> None:
        """A box (x, y, width, height) with a name in bold and lines below it."""
        x, y, width, height = at
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="7" '
            f'fill="{FILLS[fill]}" stroke="{LINE}"/>'
        )
        top = y + height / 2 - 8.5 * len(lines) + 5
        self.text(x + width / 2, top, name, bold=True)
        for number, line in enumerate(lines, start=1):
            self.text(x + width / 2, top + 17 * number, line, small=True)

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        bold: bool = False,
        small: bool = False,
        anchor: str = "middle",
    ) -> None:
        """One line of text."""
        weight = ' font-weight="600"' if bold else ""
        size, ink = (12.5, SOFT) if small else (14.5, INK)
        self.parts.append(
            f'<text x="{x}" y="{y}" font-size="{size}" fill="{ink}" '
            f'text-anchor="{anchor}"{weight}>{escape(words)}</text>'
        )

    def arrow(self, *points: tuple[float, float], dashed: bool = False) -> None:
        """A line through points that ends in a head."""
        path = "M" + " L".join(f"{x},{y}" for x, y in points)
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(
            f'<path d="{path}" fill="none" stroke="{SOFT}" stroke-width="1.6"{dash} '
            'marker-end="url(#head)"/>'
        )

    def svg(self) -> str:
        """The file's text."""
        width, height = self.size
        body = "\n".join(self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            'font-family="system-ui, Segoe UI, Helvetica, Arial, sans-serif" '
            f'role="img">\n<title>{escape(self.title)}</title>\n'
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" '
            'markerWidth="7" markerHeight="7" orient="auto-start-reverse">'
            f'<path d="M0,0 L10,5 L0,10 z" fill="{SOFT}"/></marker></defs>\n'
            f'<rect width="{width}" height="{height}" rx="10" fill="#ffffff"/>\n'
            f"{body}\n</svg>\n"
        )


#: Rooms of experiments from the top down: (name, what it is).
STACK = (
    (("commands", "flags, --help"),),
    (("running", "settings to runs"), ("reporting", "figures, page")),
    (("console", "table, signals"),),
    (("loop", "Algorithm 1"),),
    (("policies", "what writes answers"),),
    (("answers", "how they are read"), ("menus", "choices and corpus")),
    (("records", "run folder, ledger"),),
    (("config", "arms, protocols, options"),),
)

#: Packages: (top, height, name, lines, fill).
PACKAGES = (
    (60, 84, "rpg_jax", ("estimators, updates, losses", "llm: models, PPO"), "library"),
    (220, 70, "rpg_tasks", ("tasks, data, graders, prompts",), "library"),
    (366, 70, "sandbox_exec", ("contained and timed scripts",), "library"),
    (480, 56, "bandit", ("the study (in the checkout)",), "experiment"),
)


def rooms() -> str:
    """Packages and the rooms of experiments; an arrow means 'imports'."""
    picture = Picture(920, 560, "Packages and rooms; arrows say who imports whom")
    picture.text(260, 30, "experiments (in the checkout)", bold=True)
    picture.text(745, 30, "shipped in the wheel", bold=True)
    for level, row in enumerate(STACK):
        y, width = 48 + 62 * level, (448 - 16 * len(row)) / len(row)
        for place, (name, what) in enumerate(row):
            x = 44 + place * (width + 16)
            picture.box((x, y, width, 46), name, (what,), "experiment")
        if level:
            picture.arrow((260, y - 16), (260, y - 1))
    below = "a room imports only rooms below it; teaching stands beside"
    picture.text(260, 550, below, small=True)
    for top, height, name, lines, fill in PACKAGES:
        picture.box((600, top, 290, height), name, lines, fill)
    for y in (102, 255, 401):
        picture.arrow((478, y), (598, y))
    picture.arrow((745, 290), (745, 364))
    picture.arrow((890, 508), (906, 508), (906, 102), (892, 102))
    picture.text(757, 331, "and nothing else", small=True, anchor="start")
    return picture.svg()


#: The rows of the second picture: (name, lines, fill), each from left to right.
COMMAND = (
    ("flags", ("--task --arms", "--budget"), "plain"),
    ("options", ("one record,", "checked"), "plain"),
    ("settings", ("config.json", "of the run"), "record"),
    ("turns", ("the run that has", "used least is next"), "experiment"),
)
ATTEMPT = (
    ("select", ("parents, by", "value − price · δ"), "experiment"),
    ("sample", ("prompt → answer", "→ script"), "policy"),
    ("execute", ("sandbox: δ seconds,", "a submission"), "library"),
    ("grade", ("score → reward r", "a failure earns 0"), "library"),
)
LEARNING = (
    ("update", ("PPO step on", "the advantages"), "policy"),
    ("learn", ("r̃ = r − ρ̂ · δ", "A = r̃ − mean of others"), "experiment"),
    ("price", ("ρ̂ from the best", "attempts and failures"), "experiment"),
    ("record", ("attempts.jsonl:", "r, δ, status, parent"), "record"),
)


def sample_way() -> str:
    """From a flag to a reward to an update."""
    picture = Picture(920, 520, "The way of a sample from flag to reward to update")
    for y, row in ((24, COMMAND), (170, ATTEMPT), (322, LEARNING)):
        for place, (name, lines, fill) in enumerate(row):
            picture.box((30 + 225 * place, y, 185, 82), name, lines, fill)
            left, right = 30 + 225 * place - 38, 30 + 225 * place - 2
            if place:
                ends = (left, right) if row is not LEARNING else (right, left)
                picture.arrow((ends[0], y + 41), (ends[1], y + 41))
    picture.arrow((797, 106), (797, 136), (122, 136), (122, 168))
    picture.text(460, 129, "one step: every chain makes one attempt", small=True)
    picture.arrow((797, 252), (797, 320))
    picture.arrow((122, 322), (122, 254))
    picture.text(132, 293, "next step", small=True, anchor="start")
    picture.arrow((797, 404), (797, 456), (660, 456), dashed=True)
    picture.box((470, 432, 188, 50), "report", ("reads records only",), "plain")
    note = "The rate of a batch comes from the batches before it."
    picture.text(30, 500, note, small=True, anchor="start")
    return picture.svg()


PICTURES: dict[str, Callable[[], str]] = {
    "rooms.svg": rooms,
    "sample_way.svg": sample_way,
}


def main() -> int:
    """Write the pictures, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check, stale = parser.parse_args().check, []
    for name, draw in PICTURES.items():
        path, text = IMAGES / name, draw()
        if not check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
    if stale:
        print(f"out of date: {', '.join(stale)}; run python docs/tools/pictures.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
