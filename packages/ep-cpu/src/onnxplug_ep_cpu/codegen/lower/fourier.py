"""Fourier transforms as products with constant matrices: one, or for long lines two of factors of the length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from onnxplug.contract import NodeView, ValueView
from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.loops import copy, write_map
from onnxplug_ep_cpu.codegen.lower.matrices import by_weights, product_of_tensors
from onnxplug_ep_cpu.codegen.lower.support import axis_of, rank, typed
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.tensor import Tensor

MOST = 1 << 22
"""Elements of a matrix; longer lines of awkward lengths are left to NumPy."""
COPIES = 100
"""Operations that the copies around two products cost for each element of a line."""


@record(frozen=True, slots=True)
class Plan:
    """A transform of lines of ``size`` elements of ``parts`` (1: real, 2: complex), padded with zeros to ``length``, into
    ``made`` elements."""

    length: int
    size: int
    parts: int
    made: int
    inverse: bool = False
    real: bool = False
    """The result is real: the spectrum's other half mirrors what is given."""

    @property
    def factors(self) -> tuple[int, int] | None:
        """The factors of the length for two products, where these take less time than one."""
        pairs = [(self.length // n, n) for n in range(2, math.isqrt(self.length) + 1) if self.length % n == 0]
        if not pairs or self.real or self.size < self.length:
            return None
        first, second = pairs[-1]
        two = self.length * (4 * self.parts * first + 8 * second + COPIES)
        return pairs[-1] if two < 4 * self.size * self.parts * self.made else None

    @property
    def elements(self) -> int:
        """Of the largest matrix."""
        if self.factors is not None:
            return 4 * self.length * self.factors[1]
        return self.size * self.parts * self.made * (1 if self.real else 2)

    def matrix(self) -> np.ndarray:
        """[size parts, made (1 or 2)]: the whole transform."""
        waves = self._waves(np.outer(np.arange(self.size), np.arange(self.made)), self.length) * self._scale
        if not self.real:
            return _pairs(waves, self.parts)
        waves[1 : (self.length + 1) // 2] *= (
            2.0  # the first element, and the middle one of an even length, have no mirror
        )
        return np.ascontiguousarray(_pairs(waves, self.parts)[:, ::2])

    def first(self, n: int) -> np.ndarray:
        """[n parts, n 2]: transforms of every m-th element, of the factors n and m."""
        return _pairs(self._waves(np.outer(np.arange(n), np.arange(n)), n), self.parts)

    def second(self, n: int, m: int) -> np.ndarray:
        """[n, m 2, m 2]: the transforms across these, turned by the angles between them."""
        k, i, j = np.ogrid[:n, :m, :m]
        return np.stack([_pairs(w, 2) for w in self._waves(i * (k + n * j), self.length) * self._scale])

    @property
    def _scale(self) -> float:
        return 1.0 / self.length if self.inverse else 1.0

    def _waves(self, steps: np.ndarray, period: int) -> Any:
        """exp(-2 pi i steps / period), or its inverse."""
        angle = 2 * math.pi * (steps % period / period)
        return np.exp((1j if self.inverse else -1j) * angle)


def _pairs(waves: np.ndarray, parts: int) -> np.ndarray:
    """Complex factors [k, n] as [k parts, n 2], as they act on pairs of numbers or on real ones."""
    k, n = waves.shape
    table = np.stack([waves.real, waves.imag, -waves.imag, waves.real], -1).reshape(k, n, 2, 2).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(table[:, :parts].reshape(k * parts, 2 * n), np.float32)


# ---- the operators


def _number(value: ValueView | None) -> int | None:
    """The one integer of a constant."""
    return None if value is None or value.constant is None else int(value.constant.reshape(-1)[0])


def _optional(node: NodeView, index: int) -> ValueView | None:
    return node.inputs[index] if index < len(node.inputs) else None


def _axis(node: NodeView) -> int:
    """The axis of DFT."""
    if node.since_version < 20:
        return int(node.attributes.get("axis", 1))
    found = _number(_optional(node, 2))
    return -2 if found is None else found


def _dft_plan(node: NodeView, shape: Sequence[Any]) -> Plan:
    """What DFT does with an operand of a shape."""
    inverse, half = bool(node.attributes.get("inverse", 0)), bool(node.attributes.get("onesided", 0))
    size = int(shape[_axis(node) % len(shape)])
    length = _number(_optional(node, 1))
    if length is None:
        length = 2 * (size - 1) if inverse and half else size
    if inverse and half:
        return Plan(length, min(size, length // 2 + 1), int(shape[-1]), length, True, True)
    made = length // 2 + 1 if half else length
    return Plan(length, min(size, length), int(shape[-1]), made, inverse)


def _too_long(plan: Plan) -> str | None:
    return f"lines of {plan.length} are long" if plan.elements > MOST else None


def _dft_supports(node: NodeView) -> str | None:
    for index, what in ((1, "length"), (2, "axis")):
        value = _optional(node, index)
        if value is not None and value.constant is None:
            return f"a {what} that is computed is not generated"
    x = node.inputs[0]
    if reason := typed(x) or typed(node.outputs[0]):
        return reason
    if x is None or x.shape is None or not -rank(x) <= _axis(node) < rank(x) or _axis(node) in (-1, rank(x) - 1):
        return "its operand has no axis of numbers"
    known = x.shape[_axis(node)], x.shape[-1]
    return _too_long(_dft_plan(node, x.shape)) if all(isinstance(n, int) and n > 0 for n in known) else None


@lowering("DFT", supports=_dft_supports)
def dft(b: Lowering, node: NodeView) -> None:
    """Transforms of the lines along an axis."""
    x, (y,) = node.inputs[0], node.outputs
    assert x is not None and y is not None
    source = b.read(x)
    dims = len(source.shape)
    axis = axis_of(_axis(node), dims)
    plan = _dft_plan(node, source.shape)
    if math.prod(b.shape(y)) == 0 or plan.size < 1 or (reason := _too_long(plan)) is not None:
        raise Unsupported("a line is empty" if plan.size < 1 else reason or "the result is empty")
    order = [*(d for d in range(dims) if d not in (axis, dims - 1)), axis, dims - 1]
    turned = source.transposed(order)
    lines = turned.viewed((*turned.shape[:-2], plan.size, plan.parts), turned.strides)
    result = _transformed(b, node, plan, lines, None)
    b.define(y, result.transposed([order.index(d) for d in range(dims)]))


def _stft_plan(node: NodeView, shape: Sequence[Any]) -> Plan:
    window, length = _optional(node, 2), _number(_optional(node, 3))
    if length is None:
        length = int(shape[1] if window is None else window.constant.shape[0])  # type: ignore[union-attr]
    half = bool(node.attributes.get("onesided", 1))
    return Plan(length, length, int(shape[2]) if len(shape) > 2 else 1, length // 2 + 1 if half else length)


def _stft_supports(node: NodeView) -> str | None:
    x, window = node.inputs[0], _optional(node, 2)
    if any(v is not None and v.constant is None for v in node.inputs[1:]):
        return "steps, windows and lengths that are computed are not generated"
    if reason := typed(x) or typed(window) or typed(node.outputs[0]):
        return reason
    if x is None or x.shape is None or rank(x) not in (2, 3):
        return "its operand is no batch of signals"
    known = window is not None or _optional(node, 3) is not None or isinstance(x.shape[1], int)
    if rank(x) == 3 and not isinstance(x.shape[2], int):
        return "whether the signal is real is not known"
    return _too_long(_stft_plan(node, x.shape)) if known else None


@lowering("STFT", supports=_stft_supports)
def stft(b: Lowering, node: NodeView) -> None:
    """Transforms of the frames of signals, each times a window."""
    x, (y,) = node.inputs[0], node.outputs
    assert x is not None and y is not None
    source, plan, step = b.read(x), _stft_plan(node, b.shape(x)), _number(node.inputs[1])
    assert step is not None
    if math.prod(b.shape(y)) == 0 or (reason := _too_long(plan)) is not None:
        raise Unsupported(reason if math.prod(b.shape(y)) else "the result is empty")
    batch, time, *rest = source.strides
    frames = source.viewed((*b.shape(y)[:2], plan.size, plan.parts), (batch, step * time, time, rest[0] if rest else 0))
    b.define(y, _transformed(b, node, plan, frames, _optional(node, 2)))


def _transformed(b: Lowering, node: NodeView, plan: Plan, lines: Tensor, window: ValueView | None) -> Tensor:
    """Transforms of [..., size, parts], times a window, as [..., made, 1 or 2]."""
    lead = lines.shape[:-2]
    seen = None if window is None else b.constant(window)

    def windowed() -> np.ndarray:
        table = plan.matrix()
        return table if seen is None else table * np.repeat(seen, plan.parts)[:, None].astype(np.float32)

    if plan.factors is not None:
        weights = None if window is None else b.read(window)
        return _by_factors(b, node, plan, lines, weights, plan.factors)
    table = b.prepared.table(node, plan, windowed)
    flat = lines.reshaped((*lead, plan.size * plan.parts))
    if flat is None or (flat.strides[-1] != 1 and flat.shape[-1] != 1):
        flat = b.copied(lines, range(len(lines.shape))).reshaped((*lead, plan.size * plan.parts))
    assert flat is not None
    width = table.constant.shape[1]
    made = b.write(by_weights(b, (*lead, width), flat, table, table.constant.shape, False))
    return _reshaped(made, (*lead, plan.made, width // plan.made))


def _by_factors(
    b: Lowering, node: NodeView, plan: Plan, lines: Tensor, window: Tensor | None, factors: tuple[int, int]
) -> Tensor:
    """Element m i + j of a line and k + n l of its spectrum: first over i for each j, then over j for each k (Cooley and
    Tukey's way)."""
    n, m = factors
    *lead, _, parts = lines.shape
    *outer, step, inner = lines.strides
    rows = math.prod(lead)
    apart = lines.viewed((*lead, m, n, parts), (*outer, step, m * step, inner))
    columns = b.scratch(apart.shape)
    if window is None:
        copy(b.program, b.target, apart, columns)
    else:
        over = window.viewed((m, n, 1), (window.strides[0], m * window.strides[0], 0))
        write_map(b.program, b.target, (("leaf", 0), ("leaf", 1), ("mul", 0, 1)), [apart, over], columns)
    table = b.prepared.table(node, (plan, 1), lambda: plan.first(n))
    left = _reshaped(columns, (rows * m, n * parts))
    spectra = _reshaped(
        b.write(by_weights(b, (rows * m, 2 * n), left, table, (n * parts, 2 * n), False)), (rows, m, n, 2)
    )
    turned = b.scratch((n, rows, m, 2))
    _copy_pairs(b, spectra.transposed((2, 0, 1, 3)), turned)
    right = b.read(b.prepared.table(node, (plan, 2), lambda: plan.second(n, m)))
    product = b.write(product_of_tensors(b, (n, rows, 2 * m), _reshaped(turned, (n, rows, 2 * m)), right))
    whole = b.scratch((rows, m, n, 2))
    _copy_pairs(b, _reshaped(product, (n, rows, m, 2)).transposed((1, 2, 0, 3)), whole)
    result = _reshaped(whole, (*lead, plan.length, 2))
    return replace(result, shape=(*lead, plan.made, 2))


def _copy_pairs(b: Lowering, source: Tensor, result: Tensor) -> None:
    """A copy of complex numbers, which move as one element each."""
    halves = [
        replace(t, shape=t.shape[:-1], strides=tuple(s // 2 for s in t.strides[:-1]), element="int64")
        for t in (source, result)
    ]
    copy(b.program, b.target, *halves)


def _reshaped(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    view = tensor.reshaped(tuple(shape))
    assert view is not None, "what is written has no gaps"
    return view
