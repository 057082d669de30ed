"""Frozen dataclasses as plain JSON types, and back."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any


def later(default: Any) -> Any:
    """A field that older records lack: left out of JSON while it has its default.

    So a run recorded before the field was there still compares equal.
    """
    return dataclasses.field(default=default, metadata={"later": True})


def to_plain(value: Any) -> dict[str, Any]:
    """A dataclass as JSON holds it: dicts, lists, strings, numbers, None."""
    return {
        field.name: _plain(getattr(value, field.name))
        for field in dataclasses.fields(value)
        if not (
            field.metadata.get("later") and getattr(value, field.name) == field.default
        )
    }


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return to_plain(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def from_plain(kind: Any, value: Any) -> Any:
    """What ``to_plain`` made, as ``kind`` again; unknown keys are left out.

    Raises:
        ValueError: a field without default is missing, or a value does not fit.
    """
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        if not isinstance(value, Mapping):
            raise ValueError(f"{kind.__name__} wants an object, not {value!r}")
        hints = typing.get_type_hints(kind)
        known = {
            field.name: from_plain(hints[field.name], value[field.name])
            for field in dataclasses.fields(kind)
            if field.name in value
        }
        try:
            return kind(**known)
        except TypeError as error:
            raise ValueError(str(error)) from error
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        if value is None:
            return None
        return from_plain(next(a for a in arguments if a is not type(None)), value)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ValueError(f"want a list, not {value!r}")
        return tuple(from_plain(arguments[0], item) for item in value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind):
        raise ValueError(f"want {kind.__name__}, not {value!r}")
    return value
