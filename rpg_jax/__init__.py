"""Reward-rate policy gradient in JAX: learn to earn reward per second."""

__version__ = "0.1.0"
