"""The page: well-formed, self-contained, safe from what scripts and outputs say."""

import html.parser
import json
import re
import shutil

import pytest
import report_help as helper

from benchmarks.bench_report import grow
from experiments.reporting import lineage, texts
from experiments.reporting.build import build, build_report
from experiments.reporting.load import load

VOID = {"meta", "link", "img", "br", "hr", "input", "wbr", "use", "path"}
HOSTILE = (
    "</code></pre></details><script>document.title='owned'</script>",
    "<img src=x onerror=alert(1)>",
    "{{ 7 * 7 }}{% raw %}",
    "&lt;b&gt; & 'quotes' \"double\" ]]> <!-- --> </style>",
    "\x1b[31mred\x1b[0m \x00 \x07 \u202egnp.exe\u2066 \ufeff",
)


class Page(html.parser.HTMLParser):
    """Checks nesting while it reads; collects elements, ids, links and text."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.ids, self.links, self.names = [], [], [], []
        self.words, self.handlers = [], []
        self.feed(text)
        self.close()
        assert self.open == [], self.open

    def handle_starttag(self, tag, attrs):
        self._take(tag, attrs)
        if tag not in VOID or tag in ("path", "use"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self._take(tag, attrs)

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing at {self.getpos()}"
        assert self.open.pop() == tag, f"</{tag}> at {self.getpos()}"

    def handle_data(self, data):
        self.words.append(data)

    def _take(self, tag, attrs):
        self.names.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href", "action", "data", "srcset", "poster"):
                self.links.append(value)
            if name.startswith("on"):
                self.handlers.append((tag, name))

    @property
    def text(self):
        return "".join(self.words)


def check(text):
    """The page's parse, after everything that any page must hold."""
    page = Page(text)
    assert len(page.ids) == len(set(page.ids))
    assert page.handlers == []
    assert not {"script", "iframe", "object", "embed", "link", "base"} & set(page.names)
    for link in page.links:
        assert link.startswith("#"), link
        assert link[1:] in page.ids, link
    for url in re.findall(r"url\(([^)]*)\)", text):
        assert url.startswith("#"), url
        assert url[1:] in page.ids, url
    assert "@import" not in text
    assert "default-src 'none'" in text
    return page


class HostilePolicy(helper.Policy):
    def body(self, step, row):
        return "\n".join(["", *(f"# {line}" for line in HOSTILE), "x = 1 < 2", ""])


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile") / "run"
    helper.make_run(
        folder,
        tasks=("tabular-2022",),
        arms=("rpg", "vanilla"),
        seeds=(0,),
        steps=4,
        policy=HostilePolicy,
        stdout="\n".join(HOSTILE),
        stderr="<script>alert('err')</script>",
        config={"model": "<script>alert('model')</script>"},
    )
    path = folder / "tabular-2022" / "rpg" / "seed-0" / "attempts.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if line["reason"]:
            line["reason"] = f"<svg onload=alert(2)> {line['reason']}"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.fixture(scope="module")
def report(hostile):
    return build(hostile)


def test_hostile_content_is_text(report):
    text = report.page.read_text(encoding="utf-8")
    page = check(text)
    said = page.text
    for line in (*HOSTILE[:4], "<script>alert('err')</script>"):
        assert line in said
    assert "<script>alert('model')</script>" in said
    assert "<svg onload=alert(2)>" in said
    assert "\\u202egnp.exe\\u2066" in said
    assert "\\u0000" in said
    assert "\x1b" not in text
    assert "red" in said
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069]", text)
    # The tables' other forms.
    markdown = (report.page.parent / "tables.md").read_text(encoding="utf-8")
    assert "<svg" not in markdown


def test_the_page_shows_scripts_with_their_parents(hostile):
    experiment = load([hostile])
    stories, shown = lineage.stories(experiment)
    ((task, rows),) = stories
    assert task.short == "tabular-2022"
    assert [story.run.arm for story in rows] == ["rpg", "vanilla"]
    assert shown == sum(len(story.scripts) for story in rows)
    for story in rows:
        run, at = story.run, story.run.attempts
        first = story.scripts[0]
        assert first.role == "best"
        assert first.record["score"] == max(at.score[at.valid])
        known = dict(zip(at.run_id, at.parent, strict=True))
        line = [s for s in story.scripts if "ancestor" in s.role]
        for child, parent in zip([first, *line], line, strict=False):
            assert known[child.run_id] == parent.run_id
            assert child.diff
        scripts = {s.run_id: s for s in story.scripts}
        raw = run.folder / "scripts" / f"{first.record['script_sha256']}.py"
        assert "x = 1 < 2" in raw.read_text()
        assert all(s.record["status"] in ("failed", "invalid") for s in
                   scripts.values() if s.role == "failure")  # fmt: skip
        chains = lineage.chain_rows(run)
        assert [c.best for c in chains] == sorted([c.best for c in chains])[::-1]
        assert sum(c.attempts for c in chains) == len(at)


def test_a_script_is_read_by_its_digest_alone(tmp_path):
    (tmp_path / "scripts").mkdir()
    (tmp_path / "secret.py").write_text("secret")
    assert texts.read_script(tmp_path, "../secret") is None
    assert texts.read_script(tmp_path, None) is None
    assert texts.read_script(tmp_path, 7) is None
    digest = "a" * 64
    assert texts.read_script(tmp_path, digest) is None
    (tmp_path / "scripts" / f"{digest}.py").write_bytes(b"x = '\xff'\r\ny = 2\n")
    assert texts.read_script(tmp_path, digest) == "x = '\ufffd'\ny = 2\n"


def test_long_scripts_are_cut_and_say_so():
    short, left = texts.cut("x = 1\n" * 1000)
    assert short.count("\n") == 399
    assert left == f"{6000 - len(short):,} further characters are in the file"
    assert texts.cut("x = 1\n") == ("x = 1", "")
    line, left = texts.cut("y" * 30_000)
    assert len(line) == texts.SCRIPT_CHARS
    assert "10,000" in left
    assert texts.tail("a" * 5000).startswith("…")
    assert texts.difference("a\nb", "a\nb") == ""
    assert "+c" in texts.difference("a\nb", "a\nc")


def test_a_missing_script_is_said_not_fatal(hostile, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(hostile, folder, ignore=shutil.ignore_patterns("scripts"))
    ((_, rows),), _ = lineage.stories(load([folder]))
    first = rows[0].scripts[0]
    assert first.cut == "its file is missing or unreadable"
    assert first.code == ""


def test_a_page_by_name_is_the_same_page(hostile, tmp_path):
    with helper.undrawn():
        page = build_report([hostile], tmp_path / "deep" / "mine.html")
        other = build_report([hostile], tmp_path / "folder")
    assert page == tmp_path / "deep" / "mine.html"
    assert (tmp_path / "deep" / "mine" / "arms.csv").exists()
    assert page.read_bytes() == other.read_bytes()


def test_figures_say_what_they_show(report):
    page = report.page
    text = check(page.read_text(encoding="utf-8")).text
    assert "higher is better" in text
    assert "a failed attempt costs its time and leaves the best as it is" in text
    assert "The data are synthetic" in text
    assert "rpg (learns from reward − ρ̂ · seconds)" in text
    assert "Thin dotted line: the sample submission" in text
    for stem in ("rates", "budget-tabular-2022", "steps-tabular-2022"):
        assert (page.parent / f"{stem}.png").read_bytes().startswith(b"\x89PNG")
        assert (page.parent / f"{stem}.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.slow
def test_ten_thousand_attempts(tmp_path):
    folder = helper.make_run(
        tmp_path / "run", arms=("rpg", "vanilla"), seeds=(0, 1), steps=5, chains=8
    )
    grow(folder, 1250)
    report = build(folder)
    total = sum(len(run.attempts) for run in report.experiment.runs)
    assert total >= 10_000
    assert report.page.stat().st_size < 12e6
    page = check(report.page.read_text(encoding="utf-8"))
    assert re.search(r"\d+ of 10,\d{3} attempts are shown", page.text)
