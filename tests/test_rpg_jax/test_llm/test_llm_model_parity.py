"""Agreement with the reference implementation in transformers, in float32."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpg_jax.llm.export import export_pretrained
from rpg_jax.llm.models import model_for
from rpg_jax.llm.weights import load_pretrained

torch = pytest.importorskip(
    "torch", reason="parity with transformers needs torch: pip install rpg-jax[parity]"
)
transformers = pytest.importorskip("transformers")

TOLERANCE = 5e-4  # relative to the largest logit
LENGTH = 80  # more than one chunk of the delta rule

QWEN = {
    "vocab_size": 97,
    "hidden_size": 40,
    "intermediate_size": 56,
    "num_hidden_layers": 8,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "head_dim": 16,
    "linear_num_key_heads": 3,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10_000_000.0,
        "partial_rotary_factor": 0.25,
    },
}
VARIANTS = {
    "qwen-tied": {"tie_word_embeddings": True},
    "qwen-untied-odd": {
        "tie_word_embeddings": False,
        "num_hidden_layers": 7,  # one whole period and a tail of three
        "num_attention_heads": 5,
        "num_key_value_heads": 1,
        "linear_num_key_heads": 5,
        "linear_num_value_heads": 5,
    },
}
LLAMA = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 56,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "head_dim": 12,
    "tie_word_embeddings": True,
}


def build_reference(name):
    """A random model: norms away from their start, decays from weak to strong."""
    torch.manual_seed(0)
    if name == "llama":
        config = transformers.LlamaConfig(**LLAMA)
        model = transformers.LlamaForCausalLM(config)
    else:
        config = transformers.Qwen3_5TextConfig(**(QWEN | VARIANTS[name]))
        model = transformers.Qwen3_5ForCausalLM(config)
    with torch.no_grad():
        for key, p in model.named_parameters():
            if "norm" in key:
                p.add_(0.3 * torch.randn_like(p))
            elif key.endswith("A_log"):
                p.copy_(torch.linspace(-5.0, 4.0, p.numel()))
            elif key.endswith("dt_bias"):
                p.copy_(torch.randn_like(p))
            elif "conv1d" in key:
                p.copy_(0.5 * torch.randn_like(p))
            else:
                p.copy_(0.12 * torch.randn_like(p))
    return model.eval()


CASES = [
    "qwen-tied",
    pytest.param("qwen-untied-odd", marks=pytest.mark.slow),
    "llama",
]


@pytest.fixture(scope="module", params=CASES)
def pair(request, tmp_path_factory):
    """The reference, and our model read from the folder that the reference saved."""
    reference = build_reference(request.param)
    folder = tmp_path_factory.mktemp(request.param)
    reference.save_pretrained(folder)
    config, params = load_pretrained(folder)
    model = model_for(config)
    forward = jax.jit(lambda p, t, m: model.logits(p, model.forward(p, t, m)[0]))
    return reference, model, params, forward


def batch(lengths, total=LENGTH, vocab=97):
    """Left-padded random rows of the given lengths."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, vocab, (len(lengths), total))
    mask = np.arange(total)[None] >= total - np.asarray(lengths)[:, None]
    return tokens, mask


def reference_logits(reference, tokens, mask):
    with torch.no_grad():
        return (
            reference(
                input_ids=torch.tensor(tokens), attention_mask=torch.tensor(mask).long()
            )
            .logits.float()
            .numpy()
        )


def assert_close(got, want, mask):
    error = np.abs(np.asarray(got) - want)[mask].max() / np.abs(want[mask]).max()
    assert error < TOLERANCE, error


def test_logits_of_full_and_ragged_rows(pair):
    reference, _, params, forward = pair
    tokens, mask = batch([LENGTH, LENGTH - 17, 5])
    got = forward(params, jnp.asarray(tokens), jnp.asarray(mask))
    assert_close(got, reference_logits(reference, tokens, mask), mask)


def test_padding_changes_no_row(pair):
    reference, _, params, forward = pair
    tokens, mask = batch([LENGTH, 33, 5])
    got = forward(params, jnp.asarray(tokens), jnp.asarray(mask))
    for row, length in enumerate((LENGTH, 33, 5)):
        alone = tokens[row : row + 1, -length:]
        want = reference_logits(reference, alone, np.ones_like(alone, bool))
        assert_close(got[row : row + 1, -length:], want, np.ones_like(alone, bool))


@pytest.mark.parametrize(
    "layout", ["stacked", pytest.param("unstacked", marks=pytest.mark.slow)]
)
def test_prefill_and_decode(pair, layout):
    reference, model, params, _ = pair
    tokens, mask = batch([LENGTH, LENGTH - 17, 9])
    split = LENGTH - 6
    if layout == "unstacked":
        params = model.unstack(params)
    step = jax.jit(lambda p, t, m, c: model.forward(p, t, m, cache=c))
    cache = model.init_cache(3, LENGTH + 4, jnp.float32)
    tokens_j, mask_j = jnp.asarray(tokens), jnp.asarray(mask)
    hidden, cache = step(params, tokens_j[:, :split], mask_j[:, :split], cache)
    parts = [hidden]
    for t in range(split, LENGTH):
        hidden, cache = step(
            params, tokens_j[:, t : t + 1], mask_j[:, t : t + 1], cache
        )
        parts.append(hidden)
    got = model.logits(params, jnp.concatenate(parts, axis=1))
    assert_close(got, reference_logits(reference, tokens, mask), mask)


def test_gradients(pair, tmp_path):
    reference, model, params, _ = pair
    remat = model.config.tie_word_embeddings
    tokens, mask = batch([LENGTH, 33])
    targets = np.roll(tokens, -1, axis=1)
    weight = mask & (np.arange(LENGTH) < LENGTH - 1)[None]

    def loss(p):
        hidden, _ = model.forward(
            p, jnp.asarray(tokens), jnp.asarray(mask), remat=remat
        )
        log_probs = jax.nn.log_softmax(model.logits(p, hidden), axis=-1)
        picked = jnp.take_along_axis(log_probs, jnp.asarray(targets)[..., None], -1)
        return -jnp.sum(jnp.where(jnp.asarray(weight), picked[..., 0], 0.0))

    value, grads = jax.jit(jax.value_and_grad(loss))(params)
    reference.zero_grad()
    logits = reference(
        input_ids=torch.tensor(tokens), attention_mask=torch.tensor(mask).long()
    ).logits
    picked = torch.log_softmax(logits, -1).gather(-1, torch.tensor(targets)[..., None])
    want = -(picked[..., 0] * torch.tensor(weight)).sum()
    want.backward()
    assert float(value) == pytest.approx(want.item(), rel=1e-5)

    # The export names our gradients as the reference names its parameters.
    from safetensors.numpy import load_file

    export_pretrained(tmp_path / "grads", model.config, grads)
    ours = load_file(tmp_path / "grads" / "model.safetensors")
    for name, p in reference.named_parameters():
        theirs = p.grad.numpy()
        error = np.abs(ours[name] - theirs).max() / max(np.abs(theirs).max(), 1e-3)
        assert error < 2e-3, (name, error)


def test_export_reads_back_in_transformers(pair, tmp_path):
    reference, model, params, _ = pair
    export_pretrained(tmp_path / "out", model.config, params, max_shard_bytes=20_000)
    again = type(reference).from_pretrained(tmp_path / "out").eval()
    tokens, mask = batch([LENGTH, 33])
    np.testing.assert_array_equal(
        reference_logits(again, tokens, mask), reference_logits(reference, tokens, mask)
    )


def test_bfloat16_loses_no_more_than_the_reference(pair):
    reference, model, params, _ = pair
    tokens, mask = batch([LENGTH, 33])
    want = reference_logits(reference, tokens, mask)
    low = copy.deepcopy(reference).to(torch.bfloat16)
    theirs = reference_logits(low, tokens, mask)

    @jax.jit
    def run(p, t, m):
        hidden, _ = model.forward(p, t, m, compute_dtype=jnp.bfloat16)
        return hidden, model.logits(p, hidden)

    hidden, ours = run(params, jnp.asarray(tokens), jnp.asarray(mask))
    assert hidden.dtype == jnp.bfloat16
    assert ours.dtype == jnp.float32
    lost, allowed = (
        np.sqrt(np.mean((np.asarray(x) - want)[mask] ** 2)) for x in (ours, theirs)
    )
    assert lost < 1.25 * allowed
