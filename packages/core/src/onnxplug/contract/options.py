"""Provider options: a frozen dataclass gives keys, types, defaults and documentation; strings come in, typed values
come out.

::

    @dataclass(frozen=True)
    class AcmeOptions:
        device_id: int = option(0, "index of the device")
        mode: str = option("fast", "arithmetic", choices=("fast", "exact"))
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_type_hints

from onnxplug.contract.records import record

Options = TypeVar("Options")
_TRUE, _FALSE = {"1", "true"}, {"0", "false"}


@record(frozen=True)
class NoOptions:
    """The options of a provider that has none; unknown keys are an error."""


def option(
    default: Any, doc: str, *, choices: Sequence[str] | None = None, least: float | None = None, idle: bool = False
) -> Any:
    """A documented option field. ``least``: numbers below it are refused. ``idle``: it is accepted for programs that give it and changes
    nothing; the conformance kit fails a provider that never reads an option without this mark."""
    metadata = {"doc": doc, "choices": choices, "least": least, "idle": idle}
    return dataclasses.field(default=default, metadata=metadata)


def parse_options(cls: type[Options], given: Mapping[str, str]) -> Options:
    """Typed options from a string dictionary. RuntimeError names the unknown key or the value that cannot be read.

    A class with ``ignore_unknown = True`` drops keys it does not know. It is there for the CPU provider, which takes what
    onnxruntime's takes; the conformance kit fails every other provider that sets it, since misspelt options would go unnoticed.
    """
    fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    hints = get_type_hints(cls) if given else {}
    values = {}
    for key, text in given.items():
        if key not in fields:
            if getattr(cls, "ignore_unknown", False):
                continue
            raise RuntimeError(f'Unknown provider option: "{key}". Known options: {", ".join(fields) or "none"}.')
        metadata = fields[key].metadata
        value = values[key] = _read(key, text, hints[key], metadata.get("choices"))
        least = metadata.get("least")
        if least is not None and isinstance(value, (int, float)) and not value >= least:  # nor NaN
            raise RuntimeError(f'Failed to parse provider option "{key}": {text} is less than {least}')
    return cls(**values)


def dump_options(options: Any) -> dict[str, str]:
    """All effective options as strings, booleans as 1 and 0, None as ''."""
    return {f.name: _write(getattr(options, f.name)) for f in dataclasses.fields(options)}


def _read(key: str, text: str, kind: Any, choices: Sequence[str] | None) -> Any:
    if choices is not None and text not in choices:
        raise RuntimeError(f'Failed to parse provider option "{key}": "{text}" is not one of {", ".join(choices)}')
    lowered = text.lower()
    if kind is bool:
        if lowered in _TRUE or lowered in _FALSE:
            return lowered in _TRUE
        raise RuntimeError(f'Failed to parse provider option "{key}": "{text}" is not a boolean (0, 1, true, false)')
    if kind == (int | None) and text in ("", "None"):
        return None
    if kind in (int, float) or kind == (int | None):
        number = float if kind is float else int
        try:
            return number(text)
        except ValueError:
            raise RuntimeError(
                f'Failed to parse provider option "{key}": "{text}" is not {"a number" if kind is float else "an integer"}'
            ) from None
    return text


def _write(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return "" if value is None else str(value)
