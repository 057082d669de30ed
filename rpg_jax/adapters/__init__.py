"""Wrappers that give other trainers a relative reward: ``trl``, ``verl``, ``tunix``.

None of them imports the trainer. Each wraps a function that executes completions and
returns rewards and seconds, keeps the rate estimator's state, and hands the trainer
``reward - rate * seconds`` in the form that it calls for.
"""

from rpg_jax.adapters.relative import RelativeReward

__all__ = ["RelativeReward"]
