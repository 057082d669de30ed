"""What the report's figures show, read off their axes and their SVGs."""

import re

import numpy as np
import pytest
from report_checks import ARMS, TASKS

from experiments.reporting import figures, style
from experiments.reporting.budget import BudgetUse
from experiments.reporting.curves import Chain
from rpg_tasks.registry import get_task


def budget(short, baseline, **arms):
    """One chain an arm; arms are lists of best scores so far, a second apart."""
    chains = {
        arm: {0: [Chain(np.arange(1.0, len(v) + 1.0), np.array(v))]}
        for arm, v in arms.items()
    }
    end = float(max(len(v) for v in arms.values()))
    return BudgetUse(get_task(short), "total", "best", baseline, chains, end, end, end)


def limits(one):
    with style.styled():
        (axis,) = style.draw([figures.budget_panel(one)]).axes
    texts = [text.get_text() for text in axis.texts]
    return axis.get_ylim(), "worse scores are not shown" in texts


@pytest.mark.parametrize(("short", "sign"), [("nyc-taxi", 1.0), ("tabular-2022", -1.0)])
def test_ruinous_scores_do_not_flatten_the_curves(short, sign):
    # Errors, or minus errors where higher is better.
    (low, high), cut = limits(
        budget(
            short,
            sign * 10.0,
            rpg=[sign * y for y in (1000.0, 5.0, 3.0)],
            vanilla=[sign * y for y in (9.0, 6.0, 4.0)],
        )
    )
    low, high = sorted((sign * low, sign * high))
    assert cut
    # The sample submission and both ends are in the picture, with room below.
    assert low < 3.0
    assert 10.0 < high < 20.0


@pytest.mark.parametrize(
    "arms",
    [
        {"rpg": [12.0, 5.0, 3.0], "vanilla": [9.0, 6.0, 4.0]},  # nothing far off
        {"rpg": [1000.0, 900.0, 800.0], "vanilla": [9.0, 6.0, 4.0]},  # ends there
        {"rpg": [1000.0, 10.0, 10.0]},  # nothing gained
    ],
)
def test_every_line_ends_in_the_picture(arms):
    (low, high), cut = limits(budget("nyc-taxi", 10.0, **arms))
    assert not cut
    for values in arms.values():
        assert all(low <= y <= high for y in values)


def test_the_legend_is_above_the_data_also_in_a_page(report):
    experiment = report.experiment
    with style.styled():
        figure = style.draw(
            [figures.rates_panel(experiment)], size=figures.rates_size(experiment)
        )
        (axis,) = figure.axes
        legend = axis.get_legend()
        names = [text.get_text() for text in legend.get_texts()]
        assert names == list(ARMS)
        # Inside the axis's own box, which is what a page is given of a figure.
        drawn = legend.get_window_extent()
        assert drawn.y0 >= axis.get_window_extent().y1
        assert axis.get_tightbbox().padded(1).y1 >= drawn.y1
        (svg,) = style.svgs(figure, "rates", "rates")
    # In the SVG: every task's name is below both arms' names.
    places = re.findall(r'<text[^>]* y="([\d.]+)"[^>]*>([^<]+)</text>', svg)
    heights = {name: float(y) for y, name in places}
    for task in TASKS:
        for arm in ARMS:
            assert heights[arm] < heights[task]
