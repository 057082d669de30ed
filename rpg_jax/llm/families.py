"""The model families that this package knows, by ``model_type``.

A family is one file (its configuration, its layers, its ``Family``) and one call of
``register_family``; the last lines here are those of the families that ship.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rpg_jax.llm import llama, qwen3_5
from rpg_jax.llm.config import ModelConfig, check_type
from rpg_jax.llm.transformer import Family

_BY_TYPE: dict[str, Family] = {}


def register_family(family: Family) -> None:
    """Make a family known to ``load_pretrained``, ``model_for`` and the commands.

    Args:
        family: its configuration class has a ``model_type`` of its own.

    Raises:
        ValueError: another family has one of its ``model_types``, or its class.
    """
    for known in _BY_TYPE.values():
        taken = sorted({*known.model_types} & {*family.model_types})
        if known is not family and (taken or known.config is family.config):
            raise ValueError(
                f"a family for {taken or known.model_types} is registered already"
            )
    _BY_TYPE.update(dict.fromkeys(family.model_types, family))


def family_of(config: ModelConfig) -> Family:
    """The family that implements a configuration.

    Raises:
        TypeError: no registered family has this class of configuration.
    """
    for family in _BY_TYPE.values():
        if isinstance(config, family.config):
            return family
    raise TypeError(f"not a model configuration: {type(config).__name__}")


def config_from_hf_json(raw: Mapping[str, Any]) -> ModelConfig:
    """Pick the configuration class by ``model_type`` and read the dictionary.

    Raises:
        ConfigError: unknown architecture, or a setting that is not implemented.
    """
    check_type(raw, _BY_TYPE)
    return _BY_TYPE[raw["model_type"]].config.from_hf_json(raw)


register_family(qwen3_5.FAMILY)
register_family(llama.FAMILY)
