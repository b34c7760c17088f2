"""One element-wise operator to be written, and templates of its text."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxplug_kernel_text.types import FLOATS, arithmetic, literal


@dataclass(frozen=True)
class Call:
    """One operator to be written: operand texts, their types, the result's type, the node's attributes."""

    values: Sequence[str]
    types: Sequence[str]
    result: str
    attributes: Mapping[str, Any]

    @property
    def held(self) -> str:
        """The type of arithmetic on the first operand."""
        return arithmetic(self.types[0])

    @property
    def is_float(self) -> bool:
        return self.types[0] in FLOATS

    def number(self, value: float) -> str:
        """A literal of the first operand's type."""
        return literal(value, self.types[0])

    def attribute(self, name: str, default: float) -> str:
        """A float attribute; ``default`` as such an attribute holds it, which is seen where the arithmetic is in double."""
        return self.number(self.attributes.get(name, _single(default)))


def _single(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


Write = Callable[[Call], str]
"""What gives the text of a call."""


def template(text: str) -> Write:
    """A template over ``{a}``, ``{b}``, ``{c}`` (operands), ``{t}`` (their arithmetic type), ``{one}`` and ``{zero}``."""

    def write(call: Call) -> str:
        names = dict(zip("abc", call.values, strict=False))
        return text.format(**names, t=call.held, one=call.number(1), zero=call.number(0))

    return write
