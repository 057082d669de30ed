"""The page: one file, no script, nothing from the network."""

import dataclasses
from pathlib import Path
from typing import Any

from experiments.reporting import headline, lineage, texts
from experiments.reporting.load import Experiment
from experiments.reporting.sheet import Sheet, arrow, number, spread
from experiments.reporting.style import LOOKS, OTHER

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


def _environment():
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


def render(
    experiment: Experiment, sections: list[Section], lines: dict[str, Any]
) -> str:
    """The page's text.

    Args:
        experiment: what is reported.
        sections: figures and tables.
        lines: ``headline`` and ``contests`` (sentences).
    """
    from markupsafe import Markup

    stories, shown = lineage.stories(experiment)
    facts = headline.facts(experiment)
    attempts = sum(len(cell.attempts) for cell in experiment.cells)
    css = (TEMPLATES / "page.css").read_text(encoding="utf-8")
    colours = "".join(f"--arm-{name}:{look.colour};" for name, look in LOOKS.items())
    return (
        _environment()
        .get_template("page.html")
        .render(
            css=Markup(css),
            colours=Markup(f":root{{{colours}--arm-other:{OTHER.colour}}}"),
            code_css=Markup(texts.styles()),
            title=", ".join(experiment.arms()),
            facts=[pair for pair in facts if pair[0] not in headline.FOLDED],
            folded=[pair for pair in facts if pair[0] in headline.FOLDED],
            cautions=headline.cautions(experiment),
            unfinished=experiment.unfinished,
            sections=sections,
            stories=stories,
            shown=shown,
            attempts=attempts,
            looks=LOOKS,
            **lines,
        )
    )
