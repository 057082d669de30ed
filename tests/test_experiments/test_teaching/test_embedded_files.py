"""The embedded policy's files: what is listed, what damage says."""

import pytest

from experiments.teaching.tiny_model import write_sums
from rpg_jax.llm import load_tokenizer
from rpg_jax.llm.embedded import check_sums, embedded_folder
from rpg_jax.llm.errors import CheckpointError
from rpg_jax.llm.tokenizer import chat_ids


@pytest.fixture
def shipped(tmp_path):
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    write_sums(folder)
    return folder


def test_a_card_may_change_and_a_list_may_not_be_cut(shipped):
    (shipped / "README.md").write_text("card")
    assert "README.md" not in write_sums(shipped).read_text()
    assert embedded_folder(shipped) == shipped
    lines = (shipped / "SHA256SUMS").read_text().splitlines()
    (shipped / "SHA256SUMS").write_text(lines[0] + "\n")
    with pytest.raises(CheckpointError, match=r"does not list model\.safetensors"):
        embedded_folder(shipped)


def test_whole_files_pass(shipped):
    assert embedded_folder(shipped) == shipped


def test_damage_is_one_line_that_names_the_file(shipped):
    (shipped / "model.safetensors").write_bytes(b"weighty")
    with pytest.raises(CheckpointError, match=r"model\.safetensors is damaged") as e:
        check_sums(shipped)
    assert "\n" not in str(e.value)
    (shipped / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model\.safetensors cannot be read"):
        check_sums(shipped)
    (shipped / "SHA256SUMS").write_text("nonsense\n")
    with pytest.raises(CheckpointError, match="SHA256SUMS cannot be read"):
        check_sums(shipped)
    with pytest.raises(CheckpointError, match=r"experiments\.pretrain"):
        embedded_folder(shipped / "nowhere")


def test_the_short_way_to_the_embedded_tokenizer_gives_the_same():
    short, long = load_tokenizer("tiny"), load_tokenizer(embedded_folder())
    assert short.eos_token_id == long.eos_token_id
    assert short.pad_token_id == long.pad_token_id
    for text in ("def f(x):\n\treturn x", "caf\u00e9 <|im_end|>"):
        assert chat_ids(short, text) == chat_ids(long, text)
        assert short.decode(chat_ids(short, text)) == long.decode(chat_ids(long, text))
