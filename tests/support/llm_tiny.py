"""Tiny models and a token bandit that the LLM training tests share."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from rpg_jax.llm.batch import make_batch
from rpg_jax.llm.llama import LlamaConfig
from rpg_jax.llm.models import model_for

STOP = 0  # the bandit's stop token


def llama(vocab: int = 8, layers: int = 2, tied: bool = True) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=vocab,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        tie_word_embeddings=tied,
        initializer_range=0.3,
    )


@functools.partial(jax.jit, static_argnums=(2, 5))
def rollout(
    key, params, config, prompt, prompt_mask, length, temperature=1.0, allowed=None
):
    """Completions by full forward passes: an independent, slow sampler.

    Returns tokens, mask and log-probabilities, `[B, L]`; stops after `STOP`.
    """
    model = model_for(config)
    rows, start = prompt.shape
    tokens = jnp.pad(prompt, ((0, 0), (0, length)))
    mask = jnp.pad(prompt_mask, ((0, 0), (0, length)))

    def step(carry, t):
        tokens, mask, alive = carry
        hidden, _ = model.forward(params, tokens, mask)
        last = jax.lax.dynamic_index_in_dim(hidden, start + t - 1, 1, keepdims=False)
        logits = model.logits(params, last) / temperature
        if allowed is not None:
            logits = jnp.where(allowed[None], logits, -jnp.inf)
        log_p = jax.nn.log_softmax(logits)
        token = jax.random.categorical(jax.random.fold_in(key, t), logits)
        token = token.astype(jnp.int32)
        tokens = tokens.at[:, start + t].set(jnp.where(alive, token, STOP))
        mask = mask.at[:, start + t].set(alive)
        log_prob = jnp.take_along_axis(log_p, token[:, None], 1)[:, 0]
        return (tokens, mask, alive & (token != STOP)), log_prob

    carry = tokens, mask, jnp.ones(rows, bool)
    (tokens, mask, _), log_probs = jax.lax.scan(step, carry, jnp.arange(length))
    return tokens[:, start:], mask[:, start:], log_probs.T


def prompts(rows: int, length: int = 3, vocab: int = 8):
    """Left-padded prompts of one to `length` tokens."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(1, vocab, (rows, length)).astype(np.int32)
    real = 1 + np.arange(rows) % length
    return tokens, np.arange(length)[None, :] >= (length - real)[:, None]


def random_batch(
    config, params, *, rows=8, length=6, seed=0, temperature=1.0, allowed=None
):
    """A batch sampled from `params`, with random rewards in two groups."""
    prompt, prompt_mask = prompts(rows, vocab=config.vocab_size)
    tokens, mask, log_prob = rollout(
        jax.random.key(seed),
        params,
        config,
        *(prompt, prompt_mask, length, temperature, allowed),
    )
    reward = np.random.default_rng(seed).normal(size=rows)
    group = np.arange(rows) % 2
    return make_batch(
        prompt,
        prompt_mask,
        *(tokens, mask, log_prob),
        reward,
        group=group,
        logit_mask=allowed,
    )
