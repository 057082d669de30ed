"""The sampler half of bench_llm: tokens per second against Hugging Face generate."""

import statistics
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from rpg_jax.llm.errors import CheckpointError
from rpg_jax.llm.export import export_pretrained
from rpg_jax.llm.models import count_parameters, model_for
from rpg_jax.llm.qwen3_5 import Qwen35Config
from rpg_jax.llm.sampling import sample
from rpg_jax.llm.weights import load_pretrained

QWEN = {
    # About the size of the embedded policy.
    "qwen-7m": {
        "vocab_size": 4096,
        "hidden_size": 256,
        "intermediate_size": 704,
        "num_hidden_layers": 8,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "linear_num_key_heads": 4,
        "linear_num_value_heads": 8,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
    },
    "qwen-100m": {
        "vocab_size": 49152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 20,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "linear_num_key_heads": 8,
        "linear_num_value_heads": 16,
        "linear_key_head_dim": 64,
        "linear_value_head_dim": 64,
    },
}


def load(name):
    """(config, params) in float32 of a named random model or a checkpoint."""
    if name in QWEN:
        raw = {"model_type": "qwen3_5_text", "tie_word_embeddings": True}
        config = Qwen35Config.from_hf_json(raw | QWEN[name])
        return config, model_for(config).init(jax.random.key(0))
    return load_pretrained(name, dtype=jnp.float32)


def reference(config, params):
    """The same weights in transformers, float32."""
    import transformers

    with tempfile.TemporaryDirectory() as scratch:
        path = export_pretrained(Path(scratch) / "model", config, params)
        model = transformers.AutoModelForCausalLM.from_pretrained(path)
    return model.float().eval()


def bandwidth():
    """Bytes per second of reading a large float32 array with every core: the bound."""
    x = jnp.ones((1 << 26,), jnp.float32)
    total = jax.jit(jnp.sum)
    total(x).block_until_ready()
    times = []
    for _ in range(7):
        begin = time.perf_counter()
        total(x).block_until_ready()
        times.append(time.perf_counter() - begin)
    return x.nbytes / min(times)


def prompts(config, batch, length):
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, (batch, length))
    return tokens, np.ones_like(tokens, bool)


def ours(config, params, batch, length, new):
    args = prompts(config, batch, length)

    def run(seed):
        out = sample(
            jax.random.key(seed),
            params,
            config,
            *args,
            max_new_tokens=new,
            stop_ids=(),
        )
        return out.tokens.block_until_ready()

    return run


def theirs(model, config, batch, length, new):
    import torch

    tokens, mask = (torch.tensor(x) for x in prompts(config, batch, length))

    def run(seed):
        torch.manual_seed(seed)
        with torch.no_grad():
            return model.generate(
                input_ids=tokens,
                attention_mask=mask.long(),
                do_sample=True,
                top_k=0,
                max_new_tokens=new,
                min_new_tokens=new,
                pad_token_id=0,
            )

    return run


def side_by_side(runs, repeats):
    """Median seconds of every function, run in turn."""
    for run in runs:
        run(0)
    times = [[] for _ in runs]
    for seed in range(1, repeats + 1):
        for run, kept in zip(runs, times, strict=True):
            begin = time.perf_counter()
            run(seed)
            kept.append(time.perf_counter() - begin)
    return [statistics.median(t) for t in times]


def step_bytes(config, batch, length):
    """Bytes that one decode step must move: the weights, states and caches once."""
    cache = jax.eval_shape(
        lambda: model_for(config).init_cache(batch, length, jnp.float32)
    )
    sizes = [x.size * x.dtype.itemsize for x in jax.tree.leaves(cache.layers)]
    return 4 * count_parameters(config) + sum(sizes)


def measure(*, models, batches, prompt_tokens, new_tokens, repeats, growth, report):
    """Tokens per second of both sides, their ratio, the share of the memory bound."""
    bound = bandwidth()
    report(f"memory: {bound / 1e9:.1f} GB/s read by one fused sum")
    result = {"bytes_per_second": bound, "models": {}}
    for name in models:
        try:
            config, params = load(name)
        except CheckpointError as error:
            report(f"{name}: skipped, {error}")
            continue
        model = reference(config, params)
        size = count_parameters(config)
        entry = {"parameters": size, "against_generate": [], "growth": []}
        for batch in batches:
            mine, other = side_by_side(
                [
                    ours(config, params, batch, prompt_tokens, new_tokens),
                    theirs(model, config, batch, prompt_tokens, new_tokens),
                ],
                repeats,
            )
            rate = batch * new_tokens / mine
            moved = step_bytes(config, batch, prompt_tokens + new_tokens)
            row = {
                "batch": batch,
                "prompt_tokens": prompt_tokens,
                "new_tokens": new_tokens,
                "tokens_per_second": rate,
                "generate_tokens_per_second": batch * new_tokens / other,
                "ratio": other / mine,
                "share_of_bound": moved * new_tokens / mine / bound,
            }
            entry["against_generate"].append(row)
            report(
                f"{name} ({size / 1e6:.0f} M) batch {batch}: {rate:.0f} tokens/s, "
                f"{row['ratio']:.2f}x generate, "
                f"{row['share_of_bound']:.0%} of the memory bound"
            )
        for batch, new in _growth(batches, new_tokens) if growth else ():
            (mine,) = side_by_side(
                [ours(config, params, batch, prompt_tokens, new)], repeats
            )
            rate = batch * new / mine
            entry["growth"].append(
                {"batch": batch, "new_tokens": new, "tokens_per_second": rate}
            )
            report(f"{name} batch {batch}, {new} new: {rate:.0f} tokens/s")
        result["models"][name] = entry
    return result


def _growth(batches, new_tokens):
    """Doublings of the batch at one length, and of the length at one batch."""
    top = max(batches)
    yield from ((b, new_tokens) for b in (2, 4, 8, 2 * top) if b not in batches)
    yield from ((batches[0], new_tokens * k) for k in (2, 4))
