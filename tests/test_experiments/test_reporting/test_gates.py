"""When a report gives no verdict."""

from types import SimpleNamespace

import pytest

from experiments.reporting import gates


def run(arm="rpg", steps=12, skipped=0, gradient=True, contended=0, executed=100,
        spent_s=100.0, disturbed_s=0.0):  # fmt: skip
    attempts = SimpleNamespace(
        contended=contended, executed=executed, spent_s=spent_s, disturbed_s=disturbed_s
    )
    config = {"arm": {"name": arm, "gradient": gradient}}
    return SimpleNamespace(
        arm=arm, steps=steps, skipped=skipped, config=config, attempts=attempts
    )


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({}, None),
        ({"steps": 10}, None),
        ({"steps": 9}, "fewer than 10 updates"),
        ({"skipped": 3}, "fewer than 10 updates"),
        ({"skipped": 3, "gradient": False}, None),  # its steps count
        ({"contended": 4}, None),  # too few to tell
        ({"contended": 11}, "unequal contention"),
        ({"contended": 10}, "unequal contention"),  # Fisher: p = 0.002
        ({"contended": 5}, None),  # p = 0.06
        ({"contended": 20, "executed": 1000}, None),  # rare, but a slight difference
        ({"disturbed_s": 9.0}, None),
        ({"disturbed_s": 11.0}, "unequal contention"),
        ({"executed": 0, "spent_s": 0.0}, None),
    ],
)
def test_the_rule(change, kind):
    for one, other in ((0, 1), (1, 0)):
        pair = [[run(**change)], [run("vanilla")]]
        found = gates.why_no_verdict(pair[one], pair[other])
        assert (found and found.kind) == kind


def test_the_shortest_run_decides():
    found = gates.why_no_verdict([run(), run(steps=3)], [run("vanilla")])
    assert found.reason == "a run of rpg made 3 updates, and a verdict needs 10"
    search = run("search-only", steps=1, gradient=False)
    assert "made 1 step," in gates.why_no_verdict([search], [run()]).reason


def test_equal_contention_is_no_reason():
    pair = [[run(contended=40)], [run("vanilla", contended=45)]]
    assert gates.why_no_verdict(*pair) is None
