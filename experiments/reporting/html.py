"""The page: one file, no script, nothing from the network."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.reporting import facts, lineage, texts, wording
from experiments.reporting.edits import Edit
from experiments.reporting.runs import Experiment
from experiments.reporting.sheet import Sheet, arrow, number, spread
from experiments.reporting.style import LOOKS, OTHER

if TYPE_CHECKING:
    import jinja2

TEMPLATES = Path(__file__).with_name("templates")


@dataclasses.dataclass(frozen=True)
class Figure:
    """Drawn for the page: inline SVGs under one caption."""

    key: str
    panels: tuple[str, ...]
    caption: str


@dataclasses.dataclass(frozen=True)
class Section:
    """Figures and tables under one heading."""

    key: str
    title: str
    intro: str = ""
    figures: tuple[Figure, ...] = ()
    sheets: tuple[Sheet, ...] = ()


def _environment() -> "jinja2.Environment":
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number}
    environment.globals |= {"arrow": arrow, "spread": spread}
    return environment


@dataclasses.dataclass(frozen=True)
class Lines:
    """The page's sentences.

    Attributes:
        headline: the first one, on best scores.
        rates: the same on reward per second.
        verdicts: one a task on best scores.
        contests: one a task on reward per second.
        interval_note: what the intervals can and cannot say.
        few: whether the sentences on tasks are shown.
        edits: task -> the edits that improved its best score most.
        spread: seconds that buy no score; empty where they are not measured.
    """

    headline: str
    rates: str
    verdicts: list[str]
    contests: list[str]
    interval_note: str
    few: bool
    edits: dict[str, list[Edit]]
    spread: str = ""


def heading(experiment: Experiment) -> str:
    """The page's first heading."""
    score = wording.score(experiment.tasks[0])
    return f"Best {score} against time"


def render(experiment: Experiment, sections: list[Section], lines: Lines) -> str:
    """The page's text: figures and tables by section, scripts, what was run."""
    from markupsafe import Markup

    stories, shown = lineage.stories(experiment)
    known = facts.facts(experiment)
    attempts = sum(len(run.attempts) for run in experiment.runs)
    css = (TEMPLATES / "page.css").read_text(encoding="utf-8")
    colours = "".join(f"--arm-{name}:{look.colour};" for name, look in LOOKS.items())
    template = _environment().get_template("page.html")
    return template.render(
        css=Markup(css),
        colours=Markup(f":root{{{colours}--arm-other:{OTHER.colour}}}"),
        code_css=Markup(texts.styles()),
        title=", ".join(experiment.arms()),
        heading=heading(experiment),
        facts=[pair for pair in known if pair[0] not in facts.FOLDED],
        folded=[pair for pair in known if pair[0] in facts.FOLDED],
        cautions=facts.cautions(experiment),
        unfinished=experiment.unfinished,
        sections=sections,
        stories=stories,
        shown=shown,
        attempts=attempts,
        looks=LOOKS,
        headline=lines.headline,
        rates=lines.rates,
        spread_line=lines.spread,
        verdicts=lines.verdicts,
        contests=lines.contests,
        interval_note=lines.interval_note,
        few=lines.few,
        edits={
            task: [(edit, texts.highlighted(edit.diff, "diff")) for edit in found]
            for task, found in lines.edits.items()
        },
    )
