"""Speedruns: train a model to a target loss in as few seconds as possible.

A speedrun is a folder with ``speedrun.toml``, its data, a template of the training
script and ``menu.toml``. The script trains and leaves one file, ``model.npz``; the
harness computes the loss itself (``declared``, ``callable_contract``).
"""
