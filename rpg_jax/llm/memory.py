"""What a step needs of a device's memory: XLA's own analysis of the compiled program.

No weight is made: the real functions are compiled for shapes alone, which also works on
a machine that could never run them. A CPU's analysis differs from a GPU's where the
compilers fuse differently; sizes of arguments and results are exact.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rpg_jax.llm import decoding, ppo
from rpg_jax.llm.batch import PPOBatch
from rpg_jax.llm.config import ModelConfig
from rpg_jax.llm.decoding import Plan
from rpg_jax.llm.epoch import Setup, epoch_donating
from rpg_jax.llm.hyper import PPOHyper
from rpg_jax.llm.models import init_params, model_for
from rpg_jax.llm.objective import Fixed
from rpg_jax.llm.sampling import Request, bucket, knobs_of

GIB = 2.0**30


class Memory(NamedTuple):
    """Bytes of one compiled program.

    Attributes:
        arguments: what it is given.
        results: what it returns beside what it writes over its arguments.
        temporary: what it needs meanwhile.
    """

    arguments: int
    results: int
    temporary: int

    @property
    def peak(self) -> int:
        """Bytes at its largest, if nothing else is on the device."""
        return self.arguments + self.results + self.temporary


class StepMemory(NamedTuple):
    """Bytes of the parts of one step of a run, on one device.

    Attributes:
        resident: training state, there all the time.
        weights: the sampler's weights, there while answers are written.
        prefill, decode, update: the three programs.
    """

    resident: int
    weights: int
    prefill: Memory
    decode: Memory
    update: Memory

    @property
    def peaks(self) -> dict[str, int]:
        """Bytes at the largest moment of each phase, with what stays beside it."""
        # The update's arguments are the state itself.
        return {
            "prefill": self.resident + self.prefill.peak,
            "decode": self.resident + self.weights + self.decode.peak,
            "update": self.update.peak,
        }

    @property
    def peak(self) -> int:
        """The largest of all."""
        return max(self.peaks.values())


def step_memory(
    config: ModelConfig,
    hyper: PPOHyper,
    *,
    rows: int,
    prompt: int,
    completion: int,
    group: int = 0,
    dtype: Any = jnp.bfloat16,
) -> StepMemory:
    """Memory of one step: answers for every row, then one update on them.

    Args:
        config: model.
        hyper: microbatch, adapters, remat, types.
        rows: answers of a step.
        prompt: longest prompt, tokens.
        completion: longest answer, tokens.
        group: answers sampled at one time; 0: all.
        dtype: of the model's stored weights.
    """
    setup = Setup(model_for(config), hyper, None)
    key = jax.eval_shape(lambda: jax.random.key(0))
    params = jax.eval_shape(lambda k: init_params(config, k, dtype), key)
    state = jax.eval_shape(lambda k, p: ppo.start(setup, k, p), key, params)
    view = jax.eval_shape(lambda s: ppo.policy_view(setup, s), state)
    prefill, decode, weights = _sampling(
        config, view, group or rows, bucket(prompt), completion
    )
    return StepMemory(
        resident=size_of(state),
        weights=weights,
        prefill=prefill,
        decode=decode,
        update=_update(setup, state, key, (rows, prompt, completion)),
    )


def size_of(tree: Any) -> int:
    """Bytes of a tree of arrays, or of their shapes."""
    return sum(int(np.prod(x.shape)) * _bytes(x.dtype) for x in jax.tree.leaves(tree))


def _array(shape: tuple[int, ...], dtype: Any) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def _bytes(dtype: Any) -> int:
    if jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key):
        return 8
    return int(np.dtype(dtype).itemsize)


def _analysis(lowered: Any) -> Memory:
    found = lowered.compile().memory_analysis()
    return Memory(
        arguments=found.argument_size_in_bytes,
        results=found.output_size_in_bytes - found.alias_size_in_bytes,
        temporary=found.temp_size_in_bytes,
    )


def _update(
    setup: Setup, state: ppo.PPOState, key: Any, sizes: tuple[int, int, int]
) -> Memory:
    rows, prompt, completion = sizes
    rows += -rows % (setup.hyper.microbatch * setup.hyper.minibatches)
    answers = (rows, completion)
    batch: PPOBatch[Any] = PPOBatch(
        prompt=_array((rows, prompt), jnp.int32),
        prompt_mask=_array((rows, prompt), jnp.bool_),
        completion=_array(answers, jnp.int32),
        completion_mask=_array(answers, jnp.bool_),
        sampler_log_prob=_array(answers, jnp.float32),
        reward=_array((rows,), jnp.float32),
        group=_array((rows,), jnp.int32),
        weight=_array((rows,), jnp.float32),
    )
    fixed = Fixed(*[_array(answers, jnp.float32)] * len(Fixed._fields))
    return _analysis(
        epoch_donating.lower(
            setup,
            state.params,
            state.opt_state,
            state.frozen,
            batch,
            fixed,
            key,
            _array((), jnp.bool_),
        )
    )


def _sampling(
    config: ModelConfig, params: Any, rows: int, prompt: int, completion: int
) -> tuple[Memory, Memory, int]:
    """Prefill, decode, and the bytes of the weights as decoding reads them."""
    request = Request(
        max_new_tokens=completion,
        num_samples=1,
        temperature=1.0,
        top_k=None,
        top_p=None,
        presence_penalty=0.0,
        logit_mask=None,
        stop_ids=None,
        pad_id=None,
        rows=None,
        compute_dtype=None,
    )
    plan = Plan(
        length=bucket(completion),
        samples=1,
        greedy=False,
        top_k=None,
        top_p=False,
        penalty=False,
        few_rows=False,
        dtype=jnp.dtype(params["embed"].dtype).name,
    )
    knobs = jax.eval_shape(lambda: knobs_of(jax.random.key(0), request, config, rows))
    tokens = _array((rows, prompt), jnp.int32)
    mask = _array((rows, prompt), jnp.bool_)
    call = (params, tokens, mask, knobs)
    lowered = decoding.prefill.lower(*call, config=config, plan=plan)
    state = jax.eval_shape(
        lambda *args: decoding.prefill(*args, config=config, plan=plan), *call
    )
    weights = jax.eval_shape(
        lambda p: decoding.decoding_weights(
            p, config=config, dtype=plan.dtype, transpose=False
        ),
        params,
    )
    limit = _array((), jnp.int32)
    decode = decoding.decode_until.lower(
        weights, state, knobs, limit, config=config, plan=plan
    )
    return _analysis(lowered), _analysis(decode), size_of(params)
