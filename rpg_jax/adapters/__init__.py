"""The price of time in other trainers: ``trl``, ``verl``, ``tunix``, and any other.

None of them imports a trainer. ``RelativeReward`` turns rewards and seconds into
``reward - rate * seconds`` in one process, or in all ranks of a job alike;
``RewardRateServer`` keeps one rate for many threads, processes and machines. The
default price is the policy's own recent rate: it is computed in NumPy and starts no JAX
backend, so that the accelerator stays the trainer's.
"""

from rpg_jax.adapters.objective import MaxAtK
from rpg_jax.adapters.relative import RelativeReward
from rpg_jax.adapters.server import RewardRateServer

__all__ = ["MaxAtK", "RelativeReward", "RewardRateServer"]
