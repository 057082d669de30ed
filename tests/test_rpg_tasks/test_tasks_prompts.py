"""Prompts say what is on the disk and in the record, and answers are read strictly."""

import fnmatch
import io
import json
import struct
import wave
import zipfile

import pytest
from synthetic_helpers import SHORTS, shared_cache, small_data

from rpg_tasks import TaskError, get_task
from rpg_tasks.checks import read_text
from rpg_tasks.prompts import (
    Attempt,
    NoScript,
    StatedLimits,
    describe,
    extract_script,
    fit,
    installed_packages,
    prompt,
    render,
)
from rpg_tasks.prompts.render import fence, tail


def image_bytes(size, mode="RGB", kind="PNG"):
    from PIL import Image

    buffer = io.BytesIO()
    Image.new(mode, size).save(buffer, kind)
    return buffer.getvalue()


def aiff_bytes(seconds=0.5, rate=2000):
    frames = int(seconds * rate)
    mantissa = rate << (63 - 10)
    common = struct.pack(">hIhHQ", 1, frames, 16, 16383 + 10, mantissa)
    sound = struct.pack(">II", 0, 0) + bytes(2 * frames)
    body = b"AIFF" + b"COMM" + struct.pack(">I", 18) + common
    body += b"SSND" + struct.pack(">I", len(sound)) + sound
    return b"FORM" + struct.pack(">I", len(body)) + body


@pytest.fixture
def folder(tmp_path):
    """A folder with one of everything."""
    root = tmp_path / "public"
    root.mkdir()
    wide = [f"f_{i:02d}" for i in range(20)]
    (root / "train.csv").write_text(
        "\ufeffid,text,n,x,label,empty\n"
        '007,"two\nlines, one row",1,,a,\n1e5,b,2,0.5,b,\n',
        encoding="utf-8",
    )
    (root / "wide.csv").write_text(
        ",".join(["id", *wide]) + "\n" + ",".join(["1"] + ["0.5"] * 20) + "\n"
    )
    (root / "empty.csv").write_text("")
    (root / "sample_submission.csv").write_text("id,EAP,HPL,MWS\n7,1,0,0\n8,1,0,0\n")
    (root / "rows.json").write_text(json.dumps([{"a": 1, "b": "x"}] * 3))
    (root / "notes.txt").write_text("one\ntwo\nthree\nfour\n")
    for part in ("train", "test"):
        (root / part).mkdir()
        for i in range(6):
            (root / part / f"{i}.png").write_bytes(image_bytes((64, 48)))
    for i in range(6):
        (root / "cells" / str(i)).mkdir(parents=True)
        (root / "cells" / str(i) / "geometry.xyz").write_text("#cell\natom 0 0 0\n")
    with wave.open(str(root / "one.wav"), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(bytes(16000))
    with zipfile.ZipFile(root / "clips.zip", "w") as archive:
        for i in range(7):
            archive.writestr(f"clips/{i}.aif", aiff_bytes())
        archive.writestr("__MACOSX/._0.aif", "x")
    with zipfile.ZipFile(root / "table.csv.zip", "w") as archive:
        archive.writestr("table.csv", "a,b\n1,x\n2,y\n3,z\n")
    with zipfile.ZipFile(root / "rows.zip", "w") as archive:
        archive.write(root / "rows.json", "rows.json")
    return root


def test_the_listing_is_what_is_there(folder):
    listing = {entry.name: entry for entry in describe(folder)}
    assert listing["train.csv"].what == (
        "2 rows: id (str), text (str), n (int), x (float, may be blank), "
        "label (str), empty (blank)"
    )
    assert listing["train.csv"].head.startswith("id,text,n,x,label,empty\n007,")
    assert listing["wide.csv"].what == "1 row: id (int), f_00..f_19 (float)"
    assert listing["empty.csv"].what == "empty"
    assert listing["rows.json"].what == "JSON list of 3 records: a (int), b (str)"
    assert listing["notes.txt"].what == "4 lines of text"
    assert listing["notes.txt"].head == "one\ntwo\nthree"
    assert listing["train/*.png"].what == "6 files, first 0.png, 64x48 RGB"
    assert listing["test/*.png"].what == "6 files, first 0.png, 64x48 RGB"
    assert listing["cells/*/geometry.xyz"].what == "6 files, first geometry.xyz"
    assert listing["one.wav"].what == "1 s, 8000 Hz, 1 ch, 16 bit"
    assert listing["clips.zip > clips/*.aif"].what == (
        "7 files, first 0.aif, 0.5 s, 2000 Hz, 1 ch, 16 bit"
    )
    assert listing["table.csv.zip > table.csv"].what == "3 rows: a (int), b (str)"
    assert listing["rows.zip"].what == "rows.json once more, zipped"
    assert len(listing) == 13


def test_many_columns_are_abbreviated(folder):
    names = [f"{c}_class" for c in "abcdefgh"]
    (folder / "classes.csv").write_text(",".join(["id", *names]) + "\n1" + ",0.1" * 8)
    entry = next(e for e in describe(folder, 4) if e.name == "classes.csv")
    assert entry.what == (
        "1 row: id (int), a_class (float), b_class (float), ... h_class (float); "
        "9 columns, all float"
    )


def test_odd_files_are_listed_not_fatal(folder):
    (folder / "broken.png").write_bytes(b"not an image")
    (folder / "latin.csv").write_bytes(b"a,b\n\xe9,1\n")
    (folder / "bad.json").write_text("{")
    listing = {entry.name: entry.what for entry in describe(folder)}
    assert listing["broken.png"] == "12 bytes"
    assert listing["latin.csv"] == "text, 8 bytes"
    assert listing["bad.json"] == "JSON, 1 bytes"
    with pytest.raises(TaskError, match="no data folder"):
        describe(folder / "none")
    (folder / "cut.zip").write_bytes(b"PK\x03\x04")
    with pytest.raises(TaskError, match="not a readable archive"):
        describe(folder, 3)


def test_the_base_prompt_holds_record_data_and_limits(folder):
    task = get_task("spooky-author")
    text = prompt(task, folder)
    assert task.summary in text
    assert f"Score: {task.metric_text}; lower is better." in text
    assert "train.csv: 2 rows" in text
    assert "the same 2 rows as sample_submission.csv" in text
    assert "At most 600 seconds" in text
    assert "1 CPU core, 16 GB of memory, no GPU, no network" in text
    assert "./submission.csv" in text
    assert "./input" in text
    assert "$" not in text
    for package in installed_packages(("numpy", "pandas", "scikit-learn")):
        assert package in text
    assert "tensorflow" not in text or "tensorflow" in " ".join(installed_packages())
    assert "Previous" not in text


def test_limits_are_the_sandboxs(folder):
    limits = StatedLimits(wall_s=30, memory_mb=2048, cores=2, gpus=1)
    text = prompt("spooky-author", folder, limits=limits)
    assert "At most 30 seconds" in text
    assert "2 CPU cores, 2 GB of memory, 1 GPU" in text
    compact = prompt("spooky-author", folder, style="compact", limits=limits)
    assert "Limit 30 s, 2 CPU cores." in compact


def test_the_improve_prompt_shows_script_score_and_seconds(folder):
    attempt = Attempt("print('hello')\n", seconds=5.04, score=0.46913, output="hello\n")
    for style in ("full", "compact"):
        text = prompt("spooky-author", folder, attempt, style=style)
        assert "```python\nprint('hello')\n```" in text
        assert "score 0.46913 in 5.0 s" in text
        assert "a lower score in less time" in text
        assert "```\nhello\n```" in text
    better = prompt("spooky-author", folder, attempt).replace("lower", "")
    assert "higher" not in better
    with pytest.raises(TaskError, match=r"no sample submission sampleSubmission\.csv"):
        prompt("pizza", folder, attempt)


def test_the_improve_prompt_shows_what_failed(folder):
    error = "Traceback (most recent call last):\n" + "x\n" * 2000 + "KeyError: 'author'"
    attempt = Attempt("import x", 1.0, failure="exit code 1\nno file", output=error)
    text = prompt("spooky-author", folder, attempt)
    assert "it failed after 1.0 s: exit code 1 no file." in text
    assert "KeyError: 'author'" in text
    assert "a script that runs" in text
    assert len(text) < 6000
    assert "score None" not in text


def test_an_attempt_has_a_score_or_a_failure():
    with pytest.raises(ValueError, match="either"):
        Attempt("x", 1.0)
    with pytest.raises(ValueError, match="either"):
        Attempt("x", 1.0, score=0.1, failure="y")


def test_backticks_in_scripts_and_output_do_not_end_the_block(folder):
    script = 's = """\n```\n"""\nprint(s)'
    attempt = Attempt(script, 1.0, score=1.0, output="````\n")
    text = prompt("spooky-author", folder, attempt)
    assert f"````python\n{script}\n````" in text
    assert "`````\n````\n`````" in text
    assert fence("a ``` b ````` c") == "``````"


def test_dollar_signs_in_scripts_survive(folder):
    attempt = Attempt("price = '$5 $task ${x}'", 1.0, score=1.0)
    assert "price = '$5 $task ${x}'" in prompt("spooky-author", folder, attempt)


def test_tail_keeps_the_end():
    assert tail("short", 10) == "short"
    assert tail("", 10) == ""
    assert tail("first line\nlast line", 14) == "...\nlast line"
    assert tail("x" * 100, 20) == "...\n" + "x" * 16
    assert tail("x" * 100, 0) == ""


def test_fit_drops_detail_but_never_the_script(folder):
    attempt = Attempt("a = 1\n" * 30, 1.0, score=1.0, output="o\n" * 1000)
    lengths = [
        len(fit(len, limit, "spooky-author", folder, attempt))
        for limit in (10_000, 3600, 2600)
    ]
    assert lengths == sorted(lengths, reverse=True)
    assert len(set(lengths)) == 3
    for limit in (10_000, 3600, 2600):
        text = fit(len, limit, "spooky-author", folder, attempt)
        assert len(text) <= limit
        assert ("a = 1\n" * 30).strip() in text
    compact = fit(len, 1500, "spooky-author", folder, style="compact")
    assert len(compact) <= 1500
    with pytest.raises(TaskError, match=r"improve prompt has \d+ tokens at least"):
        fit(len, 400, "spooky-author", folder, attempt)


def test_styles(folder):
    compact = prompt("spooky-author", folder, style="compact")
    assert len(compact) < 0.7 * len(prompt("spooky-author", folder))
    with pytest.raises(ValueError, match="style"):
        prompt("spooky-author", folder, style="long")


class Chat:
    """Stands for a tokenizer with a chat template."""

    chat_template = "x"

    def apply_chat_template(self, messages, **options):
        assert options == {
            "tokenize": False,
            "add_generation_prompt": True,
            "enable_thinking": False,
        }
        (message,) = messages
        return f"<{message['role']}>{message['content']}</><assistant>"


def test_rendering_goes_through_the_chat_template():
    assert render("hi") == "hi"
    assert render("hi", Chat()) == "<user>hi</><assistant>"


def test_a_real_chat_template(tmp_path):
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    from rpg_tasks.prompts.tokenizer import load_tokenizer

    with pytest.raises(TaskError, match="no tokenizer folder"):
        load_tokenizer(str(tmp_path / "none"))
    with pytest.raises(TaskError, match="no tokenizer in"):
        load_tokenizer(str(tmp_path))
    plain = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel({"a": 0}, unk_token="a"))
    )
    plain.save_pretrained(tmp_path)
    with pytest.raises(TaskError, match="no chat template"):
        load_tokenizer(str(tmp_path))
    plain.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
        "{% if not enable_thinking %}<think>\n\n</think>\n{% endif %}{% endif %}"
    )
    plain.save_pretrained(tmp_path)
    text = render("hi", load_tokenizer(str(tmp_path)))
    assert text == (
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n"
    )


@pytest.mark.parametrize(
    ("answer", "script"),
    [
        ("A plan.\n```python\nx = 1\n```\n", "x = 1\n"),
        ("```py\nx = 1\n```", "x = 1\n"),
        ("```\nx = 1\n```", "x = 1\n"),
        ("````python\ns = '```'\n```\n````", "s = '```'\n```\n"),
        ("~~~python\nx\n~~~", "x\n"),
        ("```bash\nls\n```\nthen\n```python\nx\n```", "x\n"),
        ("Use `a` and ``b``.\n```Python\nx\n```", "x\n"),
    ],
)
def test_one_script_is_found(answer, script):
    assert extract_script(answer) == script


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("no code", "no fenced"),
        ("", "no fenced"),
        ("```bash\nls\n```", "no fenced"),
        ("```python\nx = 1\n", "not finished"),
        ("```python\nx\n```\n```python\ny\n```", "2 Python blocks"),
        ("```python\n\n```", "empty"),
    ],
)
def test_other_answers_are_refused(answer, words):
    with pytest.raises(NoScript, match=words):
        extract_script(answer)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    cache = shared_cache(tmp_path_factory)
    return lambda short: small_data(cache, short)


@pytest.mark.parametrize("short", SHORTS)
def test_every_task_is_described_by_its_files(prepared, short):
    data = prepared(short)
    task = data.task
    names = [entry.name for entry in describe(data.public)]
    listed = [name.split(" > ")[0] for name in names]
    for pattern in task.files:
        # A few files are listed one by one, many as one pattern.
        assert fnmatch.filter(listed, pattern), names
    sample = read_text(data.sample)
    for style, limit in (("full", 4500), ("compact", 2500)):
        text = prompt(task, data.public, style=style)
        assert len(text) < limit
        assert str(len(sample)) in text
        assert task.id_column in text
        assert list(sample.columns)[-1] in text
        assert f"{task.wall_limit_s:g} s" in text
        # Nothing of the answers' own folder, and no path of this machine.
        assert str(data.answers.parent) not in text
        assert str(data.public) not in text
