"""What the elements of a resampled image are blended of."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.program import Ref
from onnxplug_ep_cpu.codegen.recipes import decided
from onnxplug_ep_cpu.codegen.tensor import Ints
from onnxplug_kernels.interpolation import coordinates, nearest, weighted

_MOST = 1 << 24
"""Table entries; beyond it the tables would cost more than the operator."""


@record(frozen=True, slots=True)
class Sampling:
    """How an axis of ``size`` elements becomes one of ``output``, ``factor`` times as long; the others are the operator's attributes."""

    size: int
    output: int
    factor: float
    transformation: str
    mode: str
    nearest: str
    cubic: float
    excludes: bool
    antialiased: bool

    @property
    def taps(self) -> int:
        """Elements that one of the result is made of."""
        return decided(_taps, self)

    @property
    def repeated(self) -> tuple[int, int, int] | None:
        """(how often each element is taken, the first, from one to the next), where that is the same for all."""
        return decided(_repeated, self)


@record(frozen=True, slots=True)
class Blends:
    """Of which elements, as [result, tap] tables: those of the lines, along the ``lines`` axes whose elements are ``steps`` apart, with
    their shares, and the columns ``across`` them with their weights."""

    lines: tuple[Sampling, ...]
    steps: Ints
    across: Sampling

    @property
    def rows(self) -> tuple[int, int]:
        """Lines of the result, and of the source for each. Unsupported for too many."""
        count = taps = 1
        for axis in self.lines:
            count, taps = count * axis.output, taps * axis.taps
            if count * taps > _MOST:
                raise Unsupported("the image is too large to be resampled by tables")
        return count, taps

    @property
    def columns(self) -> tuple[int, int]:
        """Columns of the result, and of the source for each."""
        return self.across.output, self.across.taps

    def of_lines(self, b: Lowering) -> tuple[Ref, Ref]:
        """Offsets of lines and their shares."""
        return b.derived(_offsets, self.lines, self.steps), b.derived(_shares, self.lines)

    def of_columns(self, b: Lowering, step: int = 1, turned: bool = False) -> tuple[Ref, Ref]:
        """Columns, ``step`` elements apart, and their weights; ``turned``: as [tap, result]."""
        return b.derived(_columns, self.across, step, turned), b.derived(_weights, self.across, turned)


@functools.lru_cache(64)
def _sampled(axis: Sampling) -> tuple[np.ndarray, np.ndarray]:
    """(input element, weight) of each tap of each output element."""
    size, output, factor = axis.size, axis.output, axis.factor
    if output == size and factor == 1.0:
        return np.arange(size)[:, None], np.ones((size, 1))
    at = coordinates(axis.transformation, size, output, factor, rounded=axis.mode == "nearest")
    if axis.mode == "nearest":
        indices = nearest(at, size, axis.nearest).indices
        return indices, np.ones(indices.shape)
    how = weighted(
        at, size, axis.mode, cubic_coeff_a=axis.cubic, exclude_outside=axis.excludes,
        stretch=max(1.0, 1 / factor) if axis.antialiased else 1.0,
    )  # fmt: skip
    assert how.weights is not None
    if axis.mode == "linear" and how.indices.shape[1] == 2 and not axis.excludes:
        return how.indices, _at_edges(how.indices, how.weights, size)
    return how.indices, how.weights


def _at_edges(indices: np.ndarray, weights: np.ndarray, size: int) -> np.ndarray:
    """The weights with those of two taps on one element as onnxruntime has them, whose sums are rounded with them: all for the
    first at the beginning of an axis, halves at its end."""
    at = indices[:, 0]
    edge = np.where(at == size - 1, 0.5, 1.0)
    return np.where((at == indices[:, 1])[:, None], np.stack([edge, 1 - edge], axis=1), weights)


def _taps(axis: Sampling) -> int:
    return int(_sampled(axis)[0].shape[1])


def _repeated(axis: Sampling) -> tuple[int, int, int] | None:
    indices = _sampled(axis)[0]
    if indices.shape[1] != 1:
        return None
    where = indices[:, 0]
    count = max(1, len(where) // axis.size)
    first, step = int(where[0]), int(where[count] - where[0]) if count < len(where) else 1
    even = np.array_equal(where, first + np.arange(len(where)) // count * step) and len(where) % count == 0
    return (count, first, step) if even else None


def _offsets(lines: tuple[Sampling, ...], steps: Ints) -> np.ndarray:
    tables = [(_sampled(axis)[0] * step).astype(np.int32) for axis, step in zip(lines, steps, strict=True)]
    return _crossed(np.add, tables or [np.zeros((1, 1), np.int32)])


def _shares(lines: tuple[Sampling, ...]) -> np.ndarray:
    tables = [_sampled(axis)[1] for axis in lines]
    return np.ascontiguousarray(_crossed(np.multiply, tables or [np.ones((1, 1))]), np.float32)


def _crossed(combine: np.ufunc, tables: Sequence[np.ndarray]) -> np.ndarray:
    """A table of each combination of rows and of columns, from first to last."""

    def both(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        made: np.ndarray = combine(left[:, None, :, None], right[None, :, None, :])
        return made.reshape(len(left) * len(right), -1)

    return functools.reduce(both, tables)


def _columns(axis: Sampling, step: int, turned: bool) -> np.ndarray:
    table = (_sampled(axis)[0] * step).astype(np.int32)
    return np.ascontiguousarray(table.T if turned else table)


def _weights(axis: Sampling, turned: bool) -> np.ndarray:
    table = _sampled(axis)[1].astype(np.float32)
    return np.ascontiguousarray(table.T if turned else table)
