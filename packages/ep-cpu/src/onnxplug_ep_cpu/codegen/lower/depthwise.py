"""Depthwise convolution: every channel with a filter of its own."""

from __future__ import annotations

from onnxplug.contract import ValueView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.depthwise import Depthwise
from onnxplug_ep_cpu.codegen.lower.context import Lowering, Pending
from onnxplug_ep_cpu.codegen.lower.loops import copy
from onnxplug_ep_cpu.codegen.lower.products import pending_product
from onnxplug_ep_cpu.codegen.program import Ref
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor, channels_last
from onnxplug_kernels.windows import Windows

PART = 4
"""Vectors of channels one item does."""
PIXELS = 4
"""Results made together."""


def depthwise(b: Lowering, source: Tensor, w: ValueView, weights: Ints, shape: Ints, moves: Windows) -> Pending:
    """The convolution as a pending value; a line is an image of one row."""
    height, width = (1, *weights[2:])[-2:]
    channels, taps = weights[0], height * width
    strides, dilations, begins = (
        (one, *many)[-2:] for one, many in ((1, moves.strides), (1, moves.dilations), (0, moves.begins))
    )
    rows, columns = (1, *shape[2:])[-2:]
    tall, wide = (1, *source.shape[2:])[-2:]

    lanes = b.target.lanes
    blocks = -(-channels // lanes)

    def fill(given: Tensor, result: Tensor) -> None:
        for first, start, count in ((0, 0, channels // lanes), (blocks - 1, channels - lanes, 1)):
            lies = Tensor(given.buffer, (count, taps, lanes), (lanes * taps, 1, taps), given.offset).shift(start * taps)
            kept = Tensor(result.buffer, (count, taps, lanes), (taps * lanes, lanes, 1), result.offset)
            copy(b.packing, b.target, lies, kept.shift(first * taps * lanes))

    packed = b.pack(w, "depthwise", (blocks * taps * lanes,), fill)
    image, row, pixel = _steps(source)
    zeros = b.zeros(wide * pixel // 4 + lanes)
    part = PART * lanes
    parts = -(-channels // part)

    def emit(expr: ex.Expr, operands: list[tuple[str, Tensor]], target: Tensor) -> None:
        out_image, out_row, out_pixel = _steps(target)
        args: list[int | Ref] = [
            target.ref, source.ref, packed.ref, zeros.ref, channels, parts, part, rows, columns, tall, wide,
            begins[0], begins[1], strides[0], dilations[0], out_pixel, out_row, out_image, pixel, row, image,
        ]  # fmt: skip
        for kind, leaf in operands:
            steps = _steps(leaf.broadcast(shape)) if kind == "full" else (0, 0, 0)
            args += [leaf.ref, *reversed(steps)]
        kinds = tuple(kind for kind, _ in operands)
        kernel = Depthwise(height, width, strides[1], dilations[1], min(PIXELS, columns), expr, kinds)
        work = shape[0] * rows * columns * channels / lanes * (0.25 * taps + 1)
        b.program.call(kernel, args, shape[0] * rows * parts, work, even=False)

    return pending_product(b, shape, 1, channels_last(len(shape)), emit)


def _steps(tensor: Tensor) -> Ints:
    """Bytes between images, rows and pixels."""
    row, pixel = (0, *tensor.strides[2:])[-2:]
    return 4 * tensor.strides[0], 4 * row, 4 * pixel
