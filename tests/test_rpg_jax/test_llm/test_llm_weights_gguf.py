"""GGUF files: weights, configuration, tokenizer, damage."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpg_jax.llm.config import ConfigError
from rpg_jax.llm.errors import CheckpointError
from rpg_jax.llm.llama import LlamaConfig
from rpg_jax.llm.models import model_for
from rpg_jax.llm.tensor_names import named_tensors
from rpg_jax.llm.tokenizer import chat_ids, load_tokenizer, stop_ids
from rpg_jax.llm.weights import load_pretrained

gguf = pytest.importorskip("gguf", reason="GGUF files need pip install rpg-jax[llm]")

CONFIG = LlamaConfig(
    vocab_size=270,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    rms_norm_eps=1e-5,
    rope_theta=1e5,
    tie_word_embeddings=True,
    max_position_embeddings=128,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=(2,),
)
NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if not enable_thinking | default(true) %}<nothink>{% endif %}{% endif %}"
)


def byte_letters():
    """The 256 characters by which byte-level BPE writes the bytes."""
    from tokenizers.pre_tokenizers import ByteLevel

    return sorted(ByteLevel.alphabet())


def laid_out(params):
    """The tensors under GGUF's names, rotary channels interleaved."""
    tensors = {}
    for name, spec, keys, index in named_tensors(CONFIG):
        leaf = params
        for key in keys:
            leaf = leaf[key]
        array = np.asarray(leaf if index is None else leaf[index])
        array = array.T if spec.kind == "kernel" else array
        if name == "model.embed_tokens.weight":
            tensors["token_embd.weight"] = array
        elif name == "model.norm.weight":
            tensors["output_norm.weight"] = array
        else:
            _, _, number, rest = name.split(".", 3)
            short = NAMES[rest.removesuffix(".weight")]
            if short in ("attn_q", "attn_k"):
                heads = array.shape[0] // CONFIG.head_dim
                array = array.reshape(heads, 2, CONFIG.head_dim // 2, -1)
                array = array.swapaxes(1, 2).reshape(-1, CONFIG.hidden_size)
            tensors[f"blk.{number}.{short}.weight"] = array
    return tensors


def write(path, params, *, change=None, quantise=False):
    """A GGUF file as llama.cpp's converter lays it out."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(CONFIG.num_hidden_layers)
    writer.add_context_length(CONFIG.max_position_embeddings)
    writer.add_embedding_length(CONFIG.hidden_size)
    writer.add_feed_forward_length(CONFIG.intermediate_size)
    writer.add_head_count(CONFIG.num_attention_heads)
    writer.add_head_count_kv(CONFIG.num_key_value_heads)
    writer.add_layer_norm_rms_eps(CONFIG.rms_norm_eps)
    writer.add_rope_freq_base(CONFIG.rope_theta)
    writer.add_rope_dimension_count(CONFIG.head_dim)
    writer.add_vocab_size(CONFIG.vocab_size)
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *byte_letters()]
    tokens += ["Ġa", "in", "1", "22"][: CONFIG.vocab_size - len(tokens)]
    tokens += [f"<unused{i}>" for i in range(CONFIG.vocab_size - len(tokens))]
    tokens = list(dict.fromkeys(tokens))
    tokens += [f"<more{i}>" for i in range(CONFIG.vocab_size - len(tokens))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 3] + [1] * (len(tokens) - 3))
    writer.add_token_merges(["Ġ a", "i n", "2 2"])
    writer.add_pad_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(TEMPLATE)
    tensors = laid_out(params)
    if change:
        change(tensors)
    for name, array in tensors.items():
        array = np.ascontiguousarray(array, np.float32)
        if quantise and array.ndim == 2:
            kind = gguf.GGMLQuantizationType.Q8_0
            data = gguf.quants.quantize(array, kind)
            writer.add_tensor(name, data, raw_dtype=kind)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def params():
    shapes = jax.eval_shape(model_for(CONFIG).init, jax.random.key(0))
    rng = np.random.default_rng(0)
    return jax.tree.map(
        lambda x: jnp.asarray(0.1 * rng.standard_normal(x.shape), x.dtype), shapes
    )


def test_weights_and_configuration(tmp_path, params):
    config, again = load_pretrained(write(tmp_path / "model.gguf", params))
    assert config == CONFIG
    for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(params), strict=True):
        np.testing.assert_array_equal(a, b)


def test_quantised_weights_are_close(tmp_path, params):
    path = write(tmp_path / "model.gguf", params, quantise=True)
    _, again = load_pretrained(path, dtype=jnp.bfloat16)
    assert again["embed"].dtype == jnp.bfloat16
    for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(params), strict=True):
        assert np.abs(np.asarray(a, np.float32) - b).max() < 0.005


def test_tokenizer(tmp_path, params):
    tokenizer = load_tokenizer(write(tmp_path / "model.gguf", params))
    text = "a in 2024\n\tprint('naïve') <|im_end|>"
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids) == text
    assert ids[-1] == 2
    # Digits stay apart whatever the merges say.
    vocabulary = tokenizer.get_vocab()
    assert ids.count(vocabulary["2"]) == 2
    assert vocabulary["Ġa"] in tokenizer.encode("b a", add_special_tokens=False)
    assert stop_ids(CONFIG, tokenizer) == (2, 0)
    chat = tokenizer.decode(chat_ids(tokenizer, "hi", system="be brief"))
    assert chat == (
        "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
        "<|im_start|>assistant\n<nothink>"
    )


def test_damage_is_named(tmp_path, params):
    path = write(tmp_path / "model.gguf", params)
    whole = path.read_bytes()
    for keep in (0.9, 0.02, 0.0):
        path.write_bytes(whole[: int(len(whole) * keep)])
        with pytest.raises(CheckpointError, match="no complete GGUF file"):
            load_pretrained(path)
    path.write_bytes(b"PK" + whole)
    with pytest.raises(CheckpointError, match="no complete GGUF file"):
        load_pretrained(path)
    write(path, params, change=lambda t: t.pop("blk.1.ffn_up.weight"))
    with pytest.raises(CheckpointError, match=r"blk\.1\.ffn_up"):
        load_pretrained(path)
    write(path, params, change=lambda t: t.update(strange=np.zeros(32)))
    with pytest.raises(CheckpointError, match="strange"):
        load_pretrained(path)
    write(path, params, change=lambda t: t.update({"rope_freqs.weight": np.ones(8)}))
    with pytest.raises(ConfigError, match="rotary"):
        load_pretrained(path)


def test_other_architectures_are_named(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "other.gguf", "mamba")
    writer.add_tensor("x", np.zeros(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ConfigError, match="mamba"):
        load_pretrained(tmp_path / "other.gguf")
