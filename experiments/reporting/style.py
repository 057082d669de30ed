"""How figures look: one colour, dash and marker per arm, large type, SVG for a page.

Colours are those of Okabe and Ito, told apart by colour-blind readers; dashes, markers
and names at the lines' ends tell arms apart without any colour.
"""

import io
import re
import textwrap
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.sax.saxutils import quoteattr

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Look(NamedTuple):
    """Of one arm."""

    colour: str
    dash: str | tuple[int, tuple[float, ...]]
    marker: str


LOOKS = {
    "rpg": Look("#0072b2", "-", "o"),
    "vanilla": Look("#d55e00", (0, (5, 1.6)), "s"),
    "search-only": Look("#6e6e6e", (0, (8, 1, 1, 1)), "^"),
    "random-edits": Look("#2b2b2b", (0, (1, 1.2)), "d"),
    "independent": Look("#b0b0b0", (0, (1, 3)), "_"),
    "fixed-price": Look("#009e73", (0, (6, 1.5, 1, 1.5)), "D"),
    "ratio": Look("#cc79a7", (0, (3, 1, 1, 1, 1, 1)), "v"),
    "on-policy-rate": Look("#e69f00", (0, (8, 2)), "P"),
    "duration-weighted": Look("#56b4e9", (0, (2, 1)), "X"),
    "rpg-best": Look("#332288", (0, (10, 1.5)), "p"),
    "max-at-k": Look("#882255", (0, (4, 1, 1, 1, 1, 1)), "h"),
}
OTHER = Look("#8c6d31", (0, (4, 1, 1, 1)), "*")
#: Inches of a panel: narrow, so that letters are large enough on a phone.
SIZE = (3.9, 3.2)
TITLE = 32  # letters on a line of a panel's title
#: Colours of text, grid and background; a page replaces them by its own.
INK, GRID, PAPER = "#1b1b1f", "#c9c9cf", "#fefefe"

_RC: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 12,
    "axes.titlesize": 12,
    "axes.titley": 1.0,  # no search for a free place at each drawing
    "axes.labelsize": 12,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": GRID,
    "svg.fonttype": "none",
    "svg.hashsalt": "report",
    "pdf.fonttype": 42,
    "text.parse_math": False,
    "axes.formatter.use_mathtext": False,
}


def look(arm: str) -> Look:
    """Of an arm."""
    return LOOKS.get(arm, OTHER)


def styled() -> AbstractContextManager[None]:
    """The figures' settings, for a ``with`` block; the caller's own stay."""
    import matplotlib

    return matplotlib.rc_context(_RC)


Panel = Callable[["Axes"], None]


def draw(
    panels: Sequence[Panel],
    *,
    size: tuple[float, float] = SIZE,
    foot: str = "",
) -> "Figure":
    """A figure of panels side by side, in rows of two or three from four on.

    Args:
        panels: each draws on one axis.
        size: of one panel, inches.
        foot: small print below all.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    rows = 1 if len(panels) < 4 else max(-(-len(panels) // 3), 2)
    columns = -(-len(panels) // rows)
    figure = Figure(figsize=(size[0] * columns, size[1] * rows))
    figure.patch.set_facecolor(PAPER)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis in axes[len(panels) :]:
        axis.remove()
    for axis, panel in zip(axes, panels, strict=False):
        axis.set_facecolor("none")
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(True, axis="y", linewidth=0.6, alpha=0.7)
        axis.set_axisbelow(True)
        panel(axis)
        axis.set_title(textwrap.fill(axis.get_title(), TITLE))
    if foot:
        figure.supxlabel(foot, fontsize=9)
    # Laid out here, once: a figure that has a layout engine, even the empty one, is
    # drawn twice at each saving.
    ConstrainedLayoutEngine().execute(figure)
    return figure


def name_lines(axis: "Axes", names: Sequence[tuple[str, float, float, str]]) -> None:
    """Names at the lines' ends, moved apart where they would overlap.

    Args:
        axis: limits are set already.
        names: (text, x, y, colour) of each line's last point.
    """
    if not names:
        return
    low, high = axis.get_ylim()
    figure = axis.get_figure(root=True)
    assert figure is not None  # an axis is part of one
    height = axis.get_position().height * figure.get_figheight() * 72
    gap = (high - low) * 14.0 / max(height, 1.0)
    order = sorted(range(len(names)), key=lambda i: names[i][2])
    places = [names[i][2] for i in order]
    for _ in range(60):  # neighbours push each other apart, evenly
        for i in range(len(places) - 1):
            short = gap - (places[i + 1] - places[i])
            if short > 1e-12:
                places[i] -= short / 2
                places[i + 1] += short / 2
        places = [min(max(p, low), high) for p in places]
    for place, i in zip(places, order, strict=True):
        text, x, y, colour = names[i]
        axis.annotate(
            text,
            xy=(x, y),
            xytext=(1.05, place),
            textcoords=axis.get_yaxis_transform(),
            color=colour,
            va="center",
            fontweight="bold",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "linewidth": 0.7,
                "relpos": (0, 0.5),
                "shrinkA": 1,
                "shrinkB": 0,
            },
        )


def save(figure: "Figure", path: Path) -> list[Path]:
    """PNG and PDF next to each other; both paths."""
    paths = [path.with_suffix(suffix) for suffix in (".png", ".pdf")]
    for target in paths:
        meta = {"CreationDate": None} if target.suffix == ".pdf" else None
        figure.savefig(target, dpi=160, metadata=meta)
    return paths


_VARIABLES = {INK: "currentColor", GRID: "var(--grid)", PAPER: "var(--page)"}


def svgs(figure: "Figure", key: str, label: str) -> list[str]:
    """Each panel of a figure as an inline <svg>, for a page as narrow as a phone.

    Args:
        figure: as drawn; left as it was.
        key: prefix of the ids, which no other figure has; letters, digits, hyphens.
        label: what it shows, in words, for those who cannot see it.
    """
    axes = figure.axes
    shown = [figure.patch, *axes, *figure.texts]
    try:
        for artist in shown:
            artist.set_visible(False)
        return [_svg(figure, axis, f"{key}-{i}", label) for i, axis in enumerate(axes)]
    finally:
        for artist in shown:
            artist.set_visible(True)


def _svg(figure: "Figure", axis: "Axes", key: str, label: str) -> str:
    axis.set_visible(True)
    box = axis.get_tightbbox()
    assert box is not None  # an axis that is visible has one
    box = box.padded(4).transformed(figure.dpi_scale_trans.inverted())
    buffer = io.StringIO()
    meta = {"Date": None, "Creator": None}
    figure.savefig(buffer, format="svg", metadata=meta, bbox_inches=box)
    axis.set_visible(False)
    return _inlined(buffer.getvalue(), key, label)


def _inlined(text: str, key: str, label: str) -> str:
    """A page's <svg>: its own ids, the page's font and colours, no fixed size."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r'\sxmlns(:xlink)?="[^"]*"', "", text)
    text = text.replace("xlink:href=", "href=")
    text = re.sub(r'\sid="', f' id="{key}-', text)
    text = re.sub(r'href="#', f'href="#{key}-', text)
    text = re.sub(r"url\(#", f"url(#{key}-", text)
    text = re.sub(r"'DejaVu Sans'[^;\"]*", "var(--font)", text)
    for name, one in LOOKS.items():
        text = text.replace(one.colour, f"var(--arm-{name})")
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, variable)
    text = re.sub(r'\s(width|height)="[\d.]+pt"', "", text, count=2)
    start = f'<svg role="img" aria-label={quoteattr(label)}'
    return text.replace("<svg", start, 1).strip()
