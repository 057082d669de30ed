"""Answers that edit their parent, through the loop: recorded, resumed, replayed."""

import json

import loop_help as helper
import numpy as np
import pytest

from experiments.answers import get_form
from experiments.loop.algorithm import Loop
from experiments.records.drafts import Generation

CHAINS, STEPS = 4, 4


class Editor:
    """Writes whole scripts for base prompts; then raises the shown score by an edit.

    Chain 1 always searches for a line that is not there, chain 2 changes nothing.
    """

    def __init__(self, folder):
        self.prompts = {}

    def sample(self, step, rows, prompts):
        texts = []
        for row, prompt in zip(rows, prompts, strict=True):
            self.prompts[step, row] = prompt
            if not prompt.startswith("improve"):
                texts.append(helper.answer(0.6, 1.0 + row))
                continue
            line = next(s for s in prompt.split("\n") if s.startswith(helper.ORDER))
            order = helper.order_of(line.encode())
            order["score"] = round(order["score"] + 0.01 * (row + 1), 4)
            old = "# nothing like it" if row == 1 else line
            new = line if row == 2 else f"{helper.ORDER}{json.dumps(order)}"
            texts.append(
                f"Higher.\n<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n"
            )
        yield Generation(tuple(rows), tuple(texts), np.ones(len(rows)), {})

    def learn(self, step, generations, signals):
        return {}

    def save(self, step, meta):
        pass

    def restore(self):
        return 0


def describe(previous):
    if previous is None:
        return "base"
    return f"improve {previous.score}\n{previous.script}\n{previous.note}"


def loop_of(folder, policy, ran, **options):
    folder.mkdir(exist_ok=True)

    def execute(run_id, script):
        ran.append(run_id)
        return helper.execute(run_id, script)

    hooks = helper.hooks(
        policy, execute=execute, describe=describe, form=get_form("search-replace")
    )
    return Loop(folder, helper.spec("search-only", chains=CHAINS), hooks, **options)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("edits") / "run"
    policy, ran = Editor(folder), []
    with loop_of(folder, policy, ran) as loop:
        for _ in range(STEPS):
            loop.step()
    return folder, policy, ran


def test_a_child_is_its_parent_with_the_edit(run):
    folder, _, _ = run
    by_id = {r["run_id"]: r for r in helper.records(folder)}
    edited = [r for r in by_id.values() if r["parent"] and r["script_file"]]
    assert len(edited) == 2 * (STEPS - 1)
    for record in edited:
        parent = by_id[record["parent"]]
        gain = 0.01 * (record["chain"] + 1)
        assert record["score"] == pytest.approx(parent["score"] + gain)
        texts = [(folder / r["script_file"]).read_text() for r in (parent, record)]
        assert texts[0] != texts[1]


def test_a_failed_edit_is_not_run_and_its_chain_is_told(run):
    folder, policy, ran = run
    for record in helper.records(folder):
        if record["step"] == 0:
            continue
        kind = {1: "missing edit", 2: "no-op edit"}.get(record["chain"])
        assert (record["status"] == "no_script") == (kind is not None)
        if kind is not None:
            assert record["reason"].startswith(kind)
            assert record["run_id"] not in ran
        shown = policy.prompts[record["step"], record["chain"]]
        told = "The last answer was not applied" in shown
        assert told == (record["step"] > 1 and kind is not None)
        if told:
            assert kind in shown


def test_a_replay_reads_the_edits_again(run, tmp_path):
    folder, _, _ = run
    ran = []
    with loop_of(tmp_path / "copy", Editor(tmp_path), ran, replay=folder) as loop:
        while not loop.exhausted:
            loop.step()
        assert loop.next_step == STEPS
    assert ran == []
    for record in helper.records(tmp_path / "copy"):
        if record["script_file"]:
            copy = (tmp_path / "copy" / record["script_file"]).read_bytes()
            assert copy == (folder / record["script_file"]).read_bytes()


def test_a_stopped_run_goes_on_as_if_it_had_not_stopped(run, tmp_path):
    folder, _, _ = run
    place = tmp_path / "resumed"
    with loop_of(place, Editor(place), []) as loop:
        loop.step()
        loop.step()
    with loop_of(place, Editor(place), [], resume=True) as loop:
        for _ in range(STEPS):
            loop.step()
    names = ("run_id", "parent", "script_sha256", "score", "reason", "prompt_id")
    for a, b in zip(helper.records(folder), helper.records(place), strict=True):
        assert [a[name] for name in names] == [b[name] for name in names]
