"""DynamicQuantizeLSTM: X as a whole and the state of each step quantized by their own ranges, products of bytes, float gates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from onnxplug.contract import NodeView, ValueView
from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.qrecurrent import Arg, QuantizedRecurrence
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.loops import copy
from onnxplug_ep_cpu.codegen.lower.products import Matrix
from onnxplug_ep_cpu.codegen.lower.qdot import quad_product
from onnxplug_ep_cpu.codegen.lower.qgemm import Weights, integer_product, pack, tile_rows
from onnxplug_ep_cpu.codegen.lower.quads import QuadWeights, quad_weights
from onnxplug_ep_cpu.codegen.lower.quantize import dynamic_range, quantized_by
from onnxplug_ep_cpu.codegen.lower.quantized import MS, quantized_types
from onnxplug_ep_cpu.codegen.lower.recurrent import (
    MOST_CALLS,
    SHARED_STEP,
    Layer,
    activations,
    activations_support,
)
from onnxplug_ep_cpu.codegen.lower.support import FLOAT32, typed
from onnxplug_ep_cpu.codegen.program import Call, Ref
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor, dense_strides
from onnxplug_kernels import rational

_CONSTANT = (1, 2, 3, 7, 8, 9, 10, 11)
_SCALED: ex.Expr = (("leaf", 0), ("to_float32", 0), ("leaf", 1), ("leaf", 2), ("mul", 2, 3), ("mul", 1, 4))


def _supports(node: NodeView) -> str | None:
    for index, value in enumerate(node.inputs):
        if index not in (1, 2, 9, 11) and (reason := typed(value, ("int32",) if index == 4 else FLOAT32)):
            return reason
        if index in _CONSTANT and value is not None and value.constant is None:
            return f"'{value.name}', a weight or what it is quantized by, is computed"
    return quantized_types(node, 1, 2, 9, 11) or activations_support(node)


@lowering("DynamicQuantizeLSTM", domain=MS, supports=_supports)
def dynamic_quantize_lstm(b: Lowering, node: NodeView) -> None:
    """Y, Y_h and Y_c."""
    _Layer(b, node).write()


def _quotient(build: ex.Build, name: str, x: int) -> int:
    """Sigmoid and tanh as ``onnxplug_kernels.rational`` computes them."""
    bound, top, bottom = {
        "sigmoid": (18.0, rational.SIGMOID_P, rational.SIGMOID_Q),
        "tanh": (9.0, rational.TANH_P, rational.TANH_Q),
    }[name]
    x = build("min", build("max", x, build("const", -bound)), build("const", bound))
    square = build("mul", x, x)

    def polynomial(coefficients: Sequence[float]) -> int:
        value = build("const", coefficients[0])
        for coefficient in coefficients[1:]:
            value = build("fma", value, square, build("const", coefficient))
        return value

    value = build("div", build("mul", polynomial(top), x), polynomial(bottom))
    if name == "tanh":
        return value
    return build("max", build("add", value, build("const", 0.5)), build("const", 0.0))


@record(frozen=True, slots=True)
class _Factor:
    """The weights of W or R: as bytes, one for each direction, or as pairs of int16; and the scales of each direction."""

    quads: list[QuadWeights] | None
    pairs: Weights | None
    scales: list[Tensor]


class _Layer(Layer):
    """One node being lowered."""

    def _sizes(self, w: Ints, r: Ints) -> Ints:
        return r[0], r[1], 4

    def _factor(self, value: ValueView, at: int) -> _Factor:
        """A constant [direction][k][gate, unit]; its scale and zero point are inputs ``at`` and ``at`` + 1."""
        b = self.b
        scale, zero = (b.constant(v) for v in self.node.inputs[at : at + 2])
        assert scale is not None and zero is not None
        _, k, n = b.shape(value)
        points = zero.reshape(self.directions, -1)
        quads = [
            quad_weights(b, value, "recurrent", (k, n), lambda _: (k, 0, n, 1), points[d], first=d * k * n)
            for d in range(self.directions)
        ]
        rows = np.ascontiguousarray(scale.reshape(self.directions, -1), np.float32)
        scales = [b.tensor_of(row if len(row) > 1 else row.reshape(())) for row in rows]
        if None not in quads:
            return _Factor([q for q in quads if q is not None], None, scales)
        spread = np.broadcast_to(points, (self.directions, n))
        return _Factor(None, pack(b, value, "recurrent", lambda w: w[:, None], spread, n), scales)

    def _multiplied(
        self, source: Tensor, rows: int, row: int, factor: _Factor, targets: Sequence[tuple[int, Tensor, int]]
    ) -> None:
        """A matrix quantized by its range, then its product with the weights of (direction, result, row of the result)."""
        b, n = self.b, self.gates * self.hidden
        scale, zero, zero_float = dynamic_range(b, source)
        left = b.write(quantized_by(source, scale, zero_float, wide=factor.quads is None))
        nothing = b.tensor_of(np.zeros(n, np.int32))
        for d, target, step in targets:
            scales = factor.scales[d]
            operands = [
                ("scalar", scale, Matrix(scale.ref, 0)),
                ("column" if scales.shape else "scalar", scales, Matrix(scales.ref, 0)),
            ]
            c = Matrix(target.ref, step)
            if factor.quads is not None:
                quad_product(
                    b, rows, 1, (left, row, 0), zero, factor.quads[d], c, "float32", _SCALED, operands, nothing, b.prepared.varies,
                )  # fmt: skip
                continue
            assert factor.pairs is not None
            weights = factor.pairs
            weights = replace(weights, tensor=weights.tensor.shift(d * weights.step // weights.tensor.itemsize))
            integer_product(
                b, (rows, n), (1, 1), Matrix(left.ref, row), weights, c, "float32", _SCALED, operands, nothing,
                tile_rows(b.target, rows, weights.vectors, b.prepared.varies),
            )  # fmt: skip

    def _projected(self) -> Tensor:
        """x W of every step and both directions: rows as they lie in x, [direction][gate][unit] across."""
        b, n = self.b, self.gates * self.hidden
        x = b.dense(self.x)
        rows, k = self.steps * self.batch, x.shape[2]
        out = b.scratch((rows, self.directions, n))
        factor = self._factor(self.w, 8)
        targets = [(d, out.shift(d * n), self.directions * n) for d in range(self.directions)]
        self._multiplied(x, rows, k, factor, targets)
        return out

    def _rows_of(self, value: ValueView | None, form: str, count: int) -> Ref:
        """[direction][count][padded unit] of a constant; of a bias both halves' sum."""
        if value is None:
            return self.b.zeros(count * self.directions * self.depth).ref

        def made(a: np.ndarray) -> np.ndarray:
            parts = a.reshape(self.directions, -1, count, self.hidden).sum(axis=1, dtype=np.float32)
            return np.pad(parts, ((0, 0), (0, 0), (0, self.depth - self.hidden)))

        return self.b.tensor_of(self.b.prepared.packed(value, ("recurrent", form), made)).ref

    # ---- the recurrence

    def _recur(self, y: Tensor, state: Tensor, cell: Tensor) -> Tensor:
        b, n = self.b, self.gates * self.hidden
        if 0 in (self.steps, self.batch, self.hidden):
            return state
        projected = self._projected()
        seen = state
        if self.lengths is not None:
            seen = state.shift(self.directions * self.batch * self.depth)
            copy(b.program, b.target, state, seen)
        product = b.scratch((self.directions, self.batch, n))
        before = self._before(seen, product)
        chosen = activations(self.node, _quotient)
        assert chosen is not None
        peepholes = self.states[2]
        kernel = QuantizedRecurrence(
            tuple(chosen[0]), peepholes is not None, self.lengths is not None, self.coupled,
        )  # fmt: skip
        across = 4 * self.directions * n
        args: list[int | Ref] = [
            projected.ref, product.ref, state.ref, seen.ref, cell.ref, y.ref, self._rows_of(self.bias, "bias", 4),
            self._rows_of(peepholes, "peepholes", 3), b.dense(self.lengths).ref if self.lengths is not None else 0,
            0, self.steps, self.steps, self.batch, self.hidden, self.depth, self.blocks, self.blocks, 1, self.backward,
            self.batch * across, across, 4 * n, 4 * y.strides[0], 4 * y.strides[1], 4 * y.strides[2],
        ]  # fmt: skip
        self._calls(kernel, args, before)
        return state

    def _before(self, seen: Tensor, product: Tensor) -> list[list[Call]]:
        """Of each direction the calls that come before the gates of a step: quantizing the state, and the product."""
        b, n, depth = self.b, self.gates * self.hidden, self.depth
        factor = self._factor(self.r, 10)
        calls, found = b.program.calls, []
        begin, b.program.begin = b.program.begin, None  # they may become part of the gates' kernel
        for d in range(self.directions):
            first = len(calls)
            shape = (self.batch, depth)
            source = seen.shift(d * self.batch * depth).viewed(shape, dense_strides(shape))
            self._multiplied(source, self.batch, depth, factor, [(d, product.shift(d * self.batch * n), n)])
            found.append(calls[first:])
            del calls[first:]
        b.program.begin = begin
        return found

    def _calls(self, kernel: QuantizedRecurrence, args: list[int | Ref], before: list[list[Call]]) -> None:
        """One call where directions suffice for the threads, or a step is short; else those of each step."""
        program, threads = self.b.program, self.b.threads
        gates = self.directions * self.batch * self.depth * 10.0
        step = gates + sum(call.work for calls in before for call in calls)
        if self.directions >= threads or step < SHARED_STEP or self.steps > MOST_CALLS:
            kernel = replace(kernel, before=tuple((call.kernel, len(call.args)) for call in before[0]))
            args += [word for calls in before for call in calls for word in (call.items, *call.args)]
            program.call(kernel, args, self.directions, step * self.steps)
            return
        args[Arg.GROUP] = group = max(1, self.blocks * self.directions // (4 * threads))
        args[Arg.GROUPS] = groups = -(-self.blocks // group)
        for t in range(self.steps):
            for calls in before:
                program.calls += calls
            args[Arg.FIRST], args[Arg.END] = t, t + 1
            program.call(kernel, list(args), self.directions * groups, gates)
