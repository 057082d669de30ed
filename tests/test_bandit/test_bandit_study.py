"""A study as a library: its record, resume, stop, estimate and figures."""

import io
import threading
import time

import numpy as np
import pytest

from bandit import agents, analysis, estimate, progress, study, sweep
from bandit.study import Study

SMALL = Study(
    envs=("E1",), arms=(3,), contexts=(2,), agents=("uniform", "npg-cells"),
    steps=150, trials=4,
)  # fmt: skip


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    log = io.StringIO()
    cells = study.run(SMALL, folder, watcher=progress.Lines(log))
    return folder, cells, log.getvalue()


def test_a_line_a_cell_and_no_more(done):
    _, cells, log = done
    assert len(cells) == 2
    lines = log.strip().splitlines()
    assert [line.split(":")[0] for line in lines] == ["1 of 2 cells", "2 of 2 cells"]


def test_a_second_run_finds_everything_done(done, monkeypatch):
    folder, cells, _ = done
    monkeypatch.setattr(sweep, "run_cell", None)
    log = io.StringIO()
    again = study.run(SMALL, folder, watcher=progress.Lines(log))
    assert log.getvalue() == "resuming: 2 of 2 cells are done\n"
    for (a, one), (b, two) in zip(cells.items(), again.items(), strict=True):
        assert a.stem == b.stem
        np.testing.assert_array_equal(one.regret, two.regret)


def test_other_documented_settings_are_not_mixed(done, monkeypatch):
    folder, _, _ = done
    spec = agents.AGENTS["npg-cells"]
    monkeypatch.setitem(agents.AGENTS, "npg-cells", spec._replace(defaults={"lr": 9.0}))
    with pytest.raises(ValueError, match="another folder"):
        study.run(SMALL, folder)


def test_results_and_figures_by_number_of_contexts(done, tmp_path):
    _, cells, _ = done
    both = dict(cells)
    for cell, result in cells.items():
        more = sweep.Cell(cell.env, cell.num_arms, 6, cell.agent)
        both[more] = result
    wide = Study(**{**vars(SMALL), "contexts": (2, 6)})
    paths = study.write(wide, both, tmp_path)
    names = {path.name for path in paths}
    assert {"regret_vs_arms_X02.png", "regret_vs_time_K003_X06.pdf"} <= names
    rows = analysis.read_csv(tmp_path / "result.csv")
    assert len(rows) == 4
    assert not (tmp_path / "claims.csv").exists()
    names = {path.name for path in study.write(SMALL, cells, tmp_path)}
    assert names == {
        f"{name}.{suffix}"
        for name in ("regret_vs_arms", "regret_vs_time_K003")
        for suffix in ("png", "pdf")
    }


def test_the_record_is_that_of_older_runs():
    record = Study(envs=("E1",), arms=(5, 10)).record()
    assert record["contexts"] == 4
    assert record["envs"] == ["E1"]
    assert list(record) == [
        "envs", "arms", "contexts", "agents", "steps", "trials", "tune",
        "rate_quantile", "seed",
    ]  # fmt: skip
    assert Study(envs=("E1",), arms=(5,), contexts=(4, 8)).record()["contexts"] == [
        4,
        8,
    ]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("envs", ("E9",)), ("envs", ()), ("arms", (0,)), ("arms", (5, 5)),
        ("contexts", (-1,)), ("agents", ("nobody",)), ("steps", 0), ("trials", 0),
        ("tune", "always"), ("rate_quantile", "exact"), ("seed", -1), ("seed", 2**32),
    ],
)  # fmt: skip
def test_fields_out_of_range_are_named(field, value):
    with pytest.raises(ValueError, match=f"^{field}"):
        Study(**{"envs": ("E1",), "arms": (5,), field: value})


def test_a_failed_cell_stops_the_others_and_is_told(tmp_path, monkeypatch):
    def broken(cell, key, *, progress, **work):
        if cell.agent.name == "uniform":
            raise ValueError("broken cell")
        for _ in range(500):
            time.sleep(0.01)
            progress(1)

    monkeypatch.setattr(sweep, "run_cell", broken)
    with pytest.raises(ValueError, match="broken cell"):
        study.run(SMALL, tmp_path, workers=2)
    with pytest.raises(ValueError, match="workers"):
        study.run(SMALL, tmp_path, workers=0)


def test_an_interrupt_does_not_wait_for_a_chunk(tmp_path, monkeypatch):
    """A worker in the middle of a chunk, or of a compilation, is left behind."""
    started, let_go = threading.Event(), threading.Event()

    def busy(*args, **kwargs):
        started.set()
        let_go.wait(60)
        raise study.Stopped

    def interrupted(futures, **kwargs):
        assert started.wait(60)
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep, "run_cell", busy)
    monkeypatch.setattr(study, "wait", interrupted)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        study.run(SMALL, tmp_path)
    assert time.monotonic() - began < 50  # not the worker's 60 s
    assert not list(tmp_path.glob("cells/*.npz"))
    let_go.set()


def test_the_estimate_grows_with_the_work():
    paper = Study(**{**vars(SMALL), "tune": "paper"})
    small, large = (s.estimate(2) for s in (SMALL, paper))
    assert small.cells == large.cells == 2
    assert small.trial_steps == 2 * 150 * 4
    grid = len(agents.AGENTS["npg-cells"].settings(2)["lr"])
    assert large.trial_steps == 150 * (4 + 2 * 4 + grid * sweep.TUNE_TRIALS)
    assert small.seconds < large.seconds <= large.cpu_seconds
    # The whole small study took about 25 minutes of one core.
    names = ("npg-niw", "spg-niw", "cucb-tuned", "cucb-theory", "cucb-plugin", "imed",
             "posterior", "npg-cells")  # fmt: skip
    whole = Study(
        envs=("E1", "E2", "E3", "E4"), arms=(5, 10, 20, 30), agents=names, tune="paper"
    ).estimate()
    assert 10 * 60 < whole.cpu_seconds < 60 * 60
    with pytest.raises(ValueError, match="workers"):
        SMALL.estimate(0)


def test_durations_in_words():
    words = [estimate.duration(s) for s in (3, 100, 7200)]
    assert words == ["3 s", "2 min", "2.0 h"]


def test_a_bar_on_a_terminal_and_lines_elsewhere(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    bar = progress.watcher()
    assert isinstance(bar, progress.Bar)
    bar.begin(100, 1, 3)
    bar.stepped(40)
    bar.finished("cell", 1.0)
    bar.end()
    assert "2 of 3 cells" in capsys.readouterr().err
    monkeypatch.setattr("sys.stderr.isatty", lambda: False, raising=False)
    assert isinstance(progress.watcher(), progress.Lines)
