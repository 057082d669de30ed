"""Strict numerics for every test: a silent promotion is a bug in waiting."""

import contextlib
import os
import signal
from pathlib import Path

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background, as with nohup or `&` in a script: commands under test
    # would inherit it, and no Ctrl-C sent to them would arrive.
    with contextlib.suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Most of the tests' time is compilation: workers, commands under test and later runs
# share it. `make clean` drops it.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR",
    str(Path(__file__).parent.parent / ".pytest_cache" / "jax"),
)
# Small programs that run once: what LLVM's optimisations save is less than they cost
# (30% of the time of agents' and models' tests; no test is slower without). Commands
# under test inherit it.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.fixture
def key() -> jax.Array:
    """One fixed key: statistical tests use wide bands, never a lucky seed."""
    return jax.random.key(0)


@pytest.fixture(autouse=True, scope="module")
def _few_mappings():
    """Drop compiled programs before they use up the process's memory mappings.

    Each holds about 16; Linux allows 65,530 by default, and beyond it LLVM aborts.
    """
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 20_000:
        jax.clear_caches()


@pytest.fixture(autouse=True)
def _flags_of_the_command(request):
    """Tests of a module that names a COMMAND have that command's flags."""
    name = getattr(request.module, "COMMAND", None)
    if name is None:
        yield
        return
    import command_flags

    command_flags.load(name)
    with command_flags.active(name):
        yield
