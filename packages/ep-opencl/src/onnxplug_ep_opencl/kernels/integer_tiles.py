"""Products and convolutions of 8-bit tensors for processors: factors less their zero points through the tiles in registers that products of
other types have.

Numbers of the factors are int16, two of them in a word: neighbours along the depth of matrices, channels of images and the weights'
numbers for these. Two products and their sum are one instruction then. In strips, and where there is nothing to pair, numbers are
int32."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

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
        self.taps = max(1, math.prod(s.windows[3::6])) if s.rank else 1
        tile = tile_for("i32", s.rows, call.target.vector)
        self.tile = replace(tile, paired=self.strips is None and s.depth > self.taps)
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
        tile = self.strips or self.tile
        product = Product(left, right, made, batch, rows, s.columns, self._depth, tile, others, body)
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
        own, depth = s.depth // self.taps, self._depth
        apart = s.rows * depth if count > 1 else 0
        constant = _known(call, left, 0)
        if constant is not None:
            if self.strips is not None:
                ref = call.owned.ref(("centred", 0), lambda: constant.reshape(count, s.rows, s.depth))
                return Side(ref, "i32", (0,), depth, 1)
            matrices = self._joined(constant.reshape(count, s.rows, own, self.taps))
            rows = self.tile.rows
            ref = left_panels(call, lambda: matrices.reshape(count, s.rows, depth), rows, right)
            return Side(ref, "i32", self._spread(0, -(-s.rows // rows) * rows * depth if apart else 0), form=Packed)
        shape = (count, s.rows, own, self.taps)
        strides = (*s.left[:2], s.left[2] * self.taps, s.left[2])
        ref = self._centred(left, shape, strides, (s.step * left.zero_at, left.zero_at, 0, 0), 2)
        if self.strips is not None:
            return Side(ref, "i32", (0,), depth, 1)
        return Side(ref, "i32", self._spread(0, apart), depth, 1)

    def _right(self) -> Side:
        s, right, call = self.made.shape, self.made.right, self.call
        if s.rank:
            return self._images()
        count = s.batch if s.right[0] else 1
        turned = s.right[1] == 1 and s.columns > 1
        constant = _known(call, right, 0 if turned else 1)
        if constant is not None:
            lines = constant.reshape(s.columns, s.depth) if turned else constant.reshape(s.depth, s.columns).T
            joined, lanes = self._joined(lines[..., None])[..., 0], self.tile.columns
            ref = call.owned.ref((PANELS, lanes), lambda: panels(joined, lanes))
            return Side(ref, "i32", self._spread(0, 0), form=Packed)
        ref = self._centred(right, (count, s.depth, s.columns), s.right, (0, 0, right.zero_at), 1)
        each = self._depth * s.columns if count > 1 else 0
        return Side(ref, "i32", self._spread(0, each), s.columns, 1)

    def _images(self) -> Side:
        """The windows of images."""
        s, (channels, *numbers) = self.made.shape, self.made.shape.windows
        (each,) = s.right
        plane = each // channels if channels else 0
        ref = self._centred(self.made.right, (s.batch, channels, plane), (each, plane, 1), (0, 0, 0), 1)
        if self.strips is not None:
            return Side(ref, "i32", (s.period * each,), form=Windows, windows=(1, *numbers))
        own = self._words(channels)
        batch = self._spread(s.period * own * plane, own * plane)
        if not own:  # sums of nothing
            return Side(ref, "i32", batch, 0, 1)
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

    def _words(self, numbers: int) -> int:
        """Words of that many neighbours."""
        return -(-numbers // 2) if self.tile.paired else numbers

    @property
    def _depth(self) -> int:
        """Words along the depth."""
        return self._words(self.made.shape.depth // self.taps) * self.taps

    def _joined(self, numbers: np.ndarray) -> np.ndarray:
        """The words of a constant factor, whose axis before the last is the one along which they are neighbours."""
        if not self.tile.paired:
            return numbers
        first, second = numbers[..., ::2, :], numbers[..., 1::2, :]
        words = first & 0xFFFF
        words[..., : second.shape[-2], :] |= second << 16
        return words

    def _centred(self, given: Given, shape: tuple[int, ...], strides: Strides, zeros: Strides, axis: int) -> Ref:
        """A factor less its zero points, densely, in scratch memory: numbers, or words of neighbours along an axis."""
        if not self.tile.paired:
            ref = self.room.take(math.prod(shape))
            self._launch(given, (0,), ref, shape, (strides, zeros, dense(shape)))
            return ref
        count = shape[axis]
        made = (*shape[:axis], -(-count // 2), *shape[axis + 1 :])
        ref, step, to = self.room.take(math.prod(made)), strides[axis], dense(made)
        paired = (*strides[:axis], 2 * step, *strides[axis + 1 :])
        whole, last = ((*shape[:axis], n, *shape[axis + 1 :]) for n in (count // 2, count % 2))
        self._launch(given, (0, step), ref, whole, (paired, zeros, to))
        if count % 2:
            behind = replace(ref, offset=ref.offset + count // 2 * to[axis])
            self._launch(given, ((count - 1) * step,), behind, last, (paired, zeros, to), alone=True)
        return ref

    def _launch(
        self,
        given: Given,
        places: Sequence[int],
        to: Ref,
        shape: tuple[int, ...],
        walks: tuple[Strides, Strides, Strides],
        *,
        alone: bool = False,
    ) -> None:
        """The launch that makes elements of a factor of the one or two numbers at ``places``; ``alone``: of one that has no neighbour."""
        strides, zeros, dense_ = walks
        inputs = [(replace(given.ref, offset=given.ref.offset + at), given.type) for at in places]
        taken = [strides] * len(places)
        numbers = [f"(i32)x{n}" for n in range(len(places))]
        if given.zero is not None:
            inputs.append((given.zero, given.type))
            taken.append(zeros)
            numbers = [f"({x} - (i32)x{len(places)})" for x in numbers]
        body = numbers[0] if len(places) == 1 and not alone else f"{numbers[0]} & 65535"
        if len(places) > 1:
            body = f"({body}) | {numbers[1]} << 16"
        walked = space(shape, [*taken, dense_])
        self.launches += launch(self.call.target, "centred", inputs, [(to, "i32")], walked, f"y0 = {body};")

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
