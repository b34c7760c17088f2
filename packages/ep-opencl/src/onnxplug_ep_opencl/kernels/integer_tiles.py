"""Products and convolutions of 8-bit tensors for processors: factors less their zero points, in int32, through the tiles in registers that
products of other types have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onnxplug.contract import NodeView
from onnxplug_ep_opencl.kernels.call import PANELS, Call
from onnxplug_ep_opencl.kernels.elementwise import launch
from onnxplug_ep_opencl.kernels.planes import Layout, two_dimensions
from onnxplug_ep_opencl.kernels.product import Product, Side, left_panels, multiply, panels
from onnxplug_ep_opencl.kernels.shared import shared
from onnxplug_ep_opencl.kernels.strips import strips
from onnxplug_ep_opencl.kernels.target import Target
from onnxplug_ep_opencl.kernels.tiles import by_registers
from onnxplug_ep_opencl.launch import Job, Launch, Ref
from onnxplug_ep_opencl.memory import ALIGNMENT
from onnxplug_kernel_text.factors import Packed, Shifted, Windows
from onnxplug_kernel_text.layout import Strides, dense, space
from onnxplug_kernel_text.nodes.integers import Multiplication
from onnxplug_kernel_text.nodes.integers import Side as Given
from onnxplug_kernel_text.nodes.unwritten import PRODUCTS, is_convolution
from onnxplug_kernel_text.nodes.windows import as_they_lie
from onnxplug_kernel_text.quantize import saturated
from onnxplug_kernel_text.tile import tile_for
from onnxplug_kernel_text.types import literal

_DEPTH = (2**31 - 1) // 255**2
"""Products whose sums stay within int32; sums beyond wrap, which only arithmetic without signs is sure to do."""
_FEW = 2
"""Rows up to which a convolution with a channel for each row is none of tiles."""


def fits(call: Call, made: Multiplication) -> bool:
    """Whether a product is one of tiles in registers."""
    return by_registers(call.target) and made.shape.depth <= _DEPTH


def tiled(call: Call, made: Multiplication) -> Job:
    """The launches of a batch of products."""
    return _Tiled(call, made).job()


@dataclass
class _Room:
    """Scratch memory that is given away piece by piece."""

    call: Call
    used: int

    def take(self, elements: int) -> Ref:
        """Room for int32 numbers. No numbers have some, too, of which kernels take the place."""
        first = -(-self.used // ALIGNMENT) * ALIGNMENT
        self.used = first + 4 * max(elements, 1)
        return self.call.scratch(4, first // 4)


class _Tiled:
    """A batch of products on its way to launches: entries of the batch are images, then groups."""

    def __init__(self, call: Call, made: Multiplication) -> None:
        self.call, self.made, self.room = call, made, _Room(call, made.workspace)
        self.launches = shared(call.target, made.before)
        s = made.shape
        self.depthwise = s.rank in (1, 2) and s.windows[0] == 1 and s.rows <= _FEW and s.period > 1
        self.strips = strips(s.windows[1:], s.rows) if self.depthwise else None
        self.tile = tile_for("i32", s.rows, call.target.vector)
        self.batch = (s.batch,) if s.period == s.batch else (s.batch // s.period, s.period)

    def job(self) -> Job:
        """The launches, and the bytes of scratch memory."""
        s, result = self.made.shape, self.made.result
        plain = result.kind == "float"  # its element is none of a product in int32: scaled in a pass behind it
        out = self.room.take(s.batch * s.rows * s.columns) if plain else result.ref
        others, body = self._epilogue()
        right = self._right()
        left = self._left(right)
        batch, rows, each = self.batch, s.rows, s.rows * s.columns
        where = self._spread(s.period * each, each)
        if self.strips is not None:
            batch, rows, where = (s.batch // s.period,), s.rows * s.period, (s.period * each,)
        made = Side(out, "i32" if plain else result.type, where, s.columns, 1)
        product = Product(left, right, made, batch, rows, s.columns, s.depth, self.strips or self.tile, others, body)
        first = -(-self.room.used // ALIGNMENT) * ALIGNMENT
        job = multiply(self.call.target, self.call.op_type, product, self.call.scratch(1, first))
        after = self._scaled(out) if plain else []
        return Job([*self.launches, *job.launches, *after], first + job.workspace)

    def _spread(self, image: int, group: int) -> Strides:
        """Strides over the batch."""
        return (image, group) if len(self.batch) > 1 else (group,)

    def _left(self, right: Side) -> Side:
        s, left, call = self.made.shape, self.made.left, self.call
        count = s.period if s.step or s.left[0] else 1
        apart = s.rows * s.depth if count > 1 else 0
        constant = _known(call, left, 0)
        if constant is not None:
            matrices = constant.reshape(count, s.rows, s.depth)
            if self.strips is not None:
                ref = call.owned.ref(("centred", 0), lambda: matrices)
                return Side(ref, "i32", (0,), s.depth, 1)
            rows = self.tile.rows
            ref = left_panels(call, lambda: matrices, rows, right)
            return Side(ref, "i32", self._spread(0, -(-s.rows // rows) * rows * s.depth if apart else 0), form=Packed)
        shape = (count, s.rows, s.depth)
        zeros = (s.step * left.zero_at, left.zero_at, 0)
        ref = self._centred(left, shape, s.left, zeros)
        if self.strips is not None:
            return Side(ref, "i32", (0,), s.depth, 1)
        return Side(ref, "i32", self._spread(0, apart), s.depth, 1)

    def _right(self) -> Side:
        s, right, call = self.made.shape, self.made.right, self.call
        if s.rank:
            return self._images()
        count = s.batch if s.right[0] else 1
        turned = s.right[1] == 1 and s.columns > 1
        constant = _known(call, right, 0 if turned else 1)
        if constant is not None:
            lines, lanes = (
                constant.reshape(s.columns, s.depth) if turned else constant.reshape(s.depth, s.columns).T,
                self.tile.columns,
            )
            ref = call.owned.ref((PANELS, lanes), lambda: panels(lines, lanes))
            return Side(ref, "i32", self._spread(0, 0), form=Packed)
        ref = self._centred(right, (count, s.depth, s.columns), s.right, (0, 0, right.zero_at))
        return Side(ref, "i32", self._spread(0, s.depth * s.columns if count > 1 else 0), s.columns, 1)

    def _images(self) -> Side:
        """The windows of images."""
        s, (own, *numbers) = self.made.shape, self.made.shape.windows
        (each,) = s.right
        ref = self._centred(self.made.right, (s.batch * each,), (1,), (0,))
        if self.strips is not None:
            return Side(ref, "i32", (s.period * each,), form=Windows, windows=(1, *numbers))
        batch = self._spread(s.period * each, each)
        if not own:  # sums of nothing
            return Side(ref, "i32", batch, 0, 1)
        plane = each // own
        if as_they_lie(numbers):
            return Side(ref, "i32", batch, plane, 1)
        both = two_dimensions(numbers)
        layout = None if both is None else Layout(*both, s.batch * own, own)
        if both is None or layout is None or own * layout.image >= 2**31:
            return Side(ref, "i32", batch, form=Windows, windows=(own, *numbers))
        image = own * layout.image
        return Side(
            ref, "i32", self._spread(s.period * image, image), form=Shifted, windows=(both[1][1], layout.extents[1]),
            layout=layout, table=self.call.owned.table(layout.table()),
        )  # fmt: skip

    def _centred(self, given: Given, shape: tuple[int, ...], strides: Sequence[int], zeros: Strides) -> Ref:
        """A factor less its zero points, densely, in scratch memory."""
        ref = self.room.take(math.prod(shape))
        inputs, walks, body = [(given.ref, given.type)], [tuple(strides)], "y0 = (i32)x0;"
        if given.zero is not None:
            inputs.append((given.zero, given.type))
            walks.append(zeros)
            body = "y0 = (i32)x0 - (i32)x1;"
        walked = space(shape, [*walks, dense(shape)])
        self.launches += launch(self.call.target, "centred", inputs, [(ref, "i32")], walked, body)
        return ref

    def _epilogue(self) -> tuple[list[Side], str]:
        """Operands and statements that make an element of the result of a sum."""
        s, left, right, result = self.made.shape, self.made.left, self.made.right, self.made.result
        others: list[Side] = []

        def operand(ref: Ref, type_: str, row: int = 0, column: int = 0) -> str:
            batch = (0,) if self.strips is not None else self._spread(0, s.step * row)
            others.append(Side(ref, type_, batch, row, column))
            return f"e{len(others) - 1}"

        total = "x"
        if result.bias is not None and result.bias_type == "i32":
            total = f"(i32)((u32)x + (u32){operand(result.bias, 'i32', *result.bias_at)})"
        if result.kind != "quantized":
            return others, f"y = {total};"
        assert (
            left.scale is not None and right.scale is not None and result.scale is not None and result.zero is not None
        )
        scale = " * ".join([
            *([] if result.alpha == 1 else [literal(result.alpha, "f32")]),
            operand(left.scale, result.scale_type, left.scale_at), operand(right.scale, result.scale_type, 0, right.scale_at),
        ])  # fmt: skip
        quotient = f"(f32)({total}) * (({scale}) / {operand(result.scale, result.scale_type, result.scale_at)})"
        zero = operand(result.zero, result.type, result.zero_at)
        return others, saturated("y", quotient, zero, result.type, relu=result.relu)

    def _scaled(self, sums: Ref) -> list[Launch]:
        """The pass that scales sums to floats."""
        s, left, right, result = self.made.shape, self.made.left, self.made.right, self.made.result
        assert left.scale is not None and right.scale is not None
        shape = (s.batch, s.rows, s.columns)
        inputs = [(sums, "i32"), (left.scale, result.scale_type), (right.scale, result.scale_type)]
        walks: list[Strides] = [dense(shape), (0, left.scale_at, 0), (0, 0, right.scale_at)]
        alpha = "" if result.alpha == 1 else f"{literal(result.alpha, 'f32')} * "
        value = f"(f32)x0 * ({alpha}x1 * x2)"
        if result.bias is not None and result.bias_type != "i32":
            inputs.append((result.bias, result.bias_type))
            walks.append((0, *result.bias_at))
            value += " + x3"
        walked = space(shape, [*walks, dense(shape)])
        return launch(self.call.target, "scaled", inputs, [(result.ref, result.type)], walked, f"y0 = {value};")


def packs(node: NodeView, target: Target) -> tuple[int, ...]:
    """The constant factor of a product and its zero point, which the kernel keeps on the device itself."""
    operands = PRODUCTS[node.op_type]
    numbers = [n for n in (operands.right, operands.zero) if n < len(node.inputs) and node.inputs[n] is not None]
    arrays = [value.constant for n in numbers if (value := node.inputs[n]) is not None]
    known = [array for array in arrays if array is not None]
    if len(known) < len(numbers):
        return ()
    return tuple(numbers) if kept(target, known[0], convolution=is_convolution(node)) else ()


def kept(target: Target, factor: np.ndarray, *, convolution: bool) -> bool:
    """Whether a constant factor is packed: one matrix, or the weights of a convolution."""
    depth = math.prod(factor.shape[1:]) if convolution else max(factor.shape, default=0)
    return by_registers(target) and depth <= _DEPTH and (convolution or factor.ndim == 2)


def _known(call: Call, given: Given, axis: int) -> np.ndarray | None:
    """A factor that the kernel keeps on the device itself, less its zero points, of which there may be one for each entry of ``axis``."""
    if given.ref.number not in call.packed:
        return None
    value = call.input(given.ref.number).constant
    zero = None if given.zero is None else call.input(given.zero.number).constant
    assert value is not None and (given.zero is None or zero is not None)
    wide = value.astype(np.int32)
    if zero is None:
        return wide
    shape = tuple(-1 if k == axis else 1 for k in range(wide.ndim))
    return np.asarray(wide - zero.astype(np.int32).reshape(shape if zero.size > 1 else ()))
