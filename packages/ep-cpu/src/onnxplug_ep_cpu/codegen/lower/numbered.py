"""Strings that a region takes and gives, as numbers."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from onnxplug.contract import TensorSpec, ValueView
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.tensor import Tensor


def numbered(words: Iterable[str], numbers: dict[str, int]) -> np.ndarray:
    """The words' numbers, int64; new ones get the next, from 1 on."""
    return np.array([numbers.setdefault(word, len(numbers) + 1) for word in words], np.int64)


def word_numbers(b: Lowering, value: ValueView) -> dict[str, int]:
    """The numbers, from 1 on, that words of an operand of the region get; what is not among them is 0."""
    tensor = b.values.get(value.name)
    if not isinstance(tensor, Tensor) or tensor.buffer.kind != "input":
        raise Unsupported(f"'{value.name}' is strings that are made in the region")
    return b.prepared.numbers.setdefault(value.name, {})


def spell(b: Lowering, value: ValueView, places: Tensor, words: list[str]) -> None:
    """The value is strings: those that ``places`` (int64) have in a list."""
    b.specs[value.name] = TensorSpec(np.dtype(np.int64), places.shape)
    table = b.words[value.name] = np.empty(len(words), object)
    table[:] = words
    b.define(value, places)
