"""Weights and biases of recurrent layers as their kernels read them: of constants once, of what is computed in each run."""

from __future__ import annotations

import math

import numpy as np

from onnxplug.contract import ValueView
from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.loops import copy, write_map
from onnxplug_ep_cpu.codegen.lower.memory import scratch
from onnxplug_ep_cpu.codegen.program import Ref
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor, dense_strides

_SUM: ex.Expr = (("leaf", 0), ("leaf", 1), ("add", 0, 1))


@record(frozen=True, slots=True)
class Forms:
    """Of one layer; ``depth`` is its hidden size with the units that fill the last vector."""

    b: Lowering
    directions: int
    gates: int
    hidden: int
    depth: int

    def weights(self, value: ValueView, gates: slice) -> Tensor:
        """R as [direction][block][k][gate][lane], zeros where there are no units."""
        lanes, count = self.b.target.lanes, gates.stop - gates.start
        blocks = self.depth // lanes
        if self._is_computed(value):
            r = self._split(value, (self.gates, self.hidden, self.hidden), gates.start, count)
            made = self._nothing((self.directions, blocks, self.depth, count, lanes))
            units, within, k, gate, lane = made.strides[1], made.strides[4], made.strides[2], made.strides[3], lanes
            whole = self.hidden // lanes
            for first, shape in ((0, (whole, lane)), (whole, (1, self.hidden % lane))):
                if 0 in shape:
                    continue
                to = (self.directions, count, *shape, self.hidden)
                target = made.shift(first * units).viewed(to, (made.strides[0], gate, units, within, k))
                row = r.strides[2]
                source = r.shift(first * lane * row).viewed(to, (*r.strides[:2], lane * row, row, r.strides[3]))
                copy(self.b.program, self.b.target, source, target)
            return made

        def pack(given: np.ndarray) -> np.ndarray:
            given = given.reshape(self.directions, self.gates, self.hidden, self.hidden)[:, gates]
            padded = np.zeros((*given.shape[:2], self.depth, self.depth), np.float32)
            padded[:, :, : self.hidden, : self.hidden] = given
            parts = padded.reshape(self.directions, count, blocks, lanes, self.depth)
            return np.ascontiguousarray(parts.transpose(0, 2, 4, 1, 3), np.float32)

        return self.b.tensor_of(self.b.prepared.packed(value, ("recurrent", gates.start, gates.stop, lanes), pack))

    def padded(self, value: ValueView, form: str, first: int, count: int) -> Ref:
        """Rows of ``count`` x hidden of each direction, units padded."""
        if self._is_computed(value):
            rows = self.b.shape(value)[-1] // max(1, self.hidden)
            source = self._split(value, (rows, self.hidden), first, count)
            made = self._nothing((self.directions, count, self.depth))
            copy(self.b.program, self.b.target, source, made.viewed(source.shape, made.strides))
            return made.ref

        def pack(a: np.ndarray) -> np.ndarray:
            parts = a.reshape(self.directions, -1, self.hidden)[:, first : first + count]
            return np.pad(parts, ((0, 0), (0, 0), (0, self.depth - self.hidden)))

        return self.b.tensor_of(self.b.prepared.packed(value, ("recurrent", form), pack)).ref

    def summed(self, bias: ValueView, apart: int) -> Tensor:
        """Both biases of [direction][gate][unit]; of gates from ``apart`` on the first alone."""
        size = self.gates * self.hidden
        if self._is_computed(bias):
            made = scratch((self.directions, size))
            for start, stop in ((0, apart * self.hidden), (apart * self.hidden, size)):
                if start == stop:
                    continue
                own, other = (self._split(bias, (2 * size,), at + start, stop - start) for at in (0, size))
                target = made.shift(start).viewed(own.shape, made.strides)
                operands, expr = ([own, other], _SUM) if start == 0 else ([own], ex.IDENTITY)
                write_map(self.b.program, self.b.target, expr, operands, target)
            return made

        def pack(given: np.ndarray) -> np.ndarray:
            split = given.reshape(self.directions, 2, size)
            total = split.sum(axis=1, dtype=np.float32)
            total[:, apart * self.hidden :] = split[:, 0, apart * self.hidden :]
            return np.asarray(total.reshape(-1), np.float32)

        return self.b.tensor_of(self.b.prepared.packed(bias, ("recurrent", apart), pack))

    def _is_computed(self, value: ValueView) -> bool:
        return value.name not in self.b.prepared.constant

    def _split(self, value: ValueView, inner: Ints, first: int, count: int) -> Tensor:
        """``count`` of the first of ``inner`` dimensions of each direction, from ``first`` on."""
        strides = (math.prod(inner), *dense_strides(inner))
        shape = (self.directions, count, *inner[1:])
        return self.b.dense(value).shift(first * strides[1]).viewed(shape, strides)

    def _nothing(self, shape: Ints) -> Tensor:
        """Zeros that what is computed lies among."""
        made = scratch(shape)
        copy(self.b.program, self.b.target, Tensor(self.b.zeros(1).buffer, shape, (0,) * len(shape)), made)
        return made
