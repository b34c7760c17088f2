"""Depthwise convolution of quantized tensors whose windows slide along rows of pixels."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.neighbours import Neighbours
from onnxplug_ep_cpu.codegen.kernels.qsliding import QSliding
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.qgemm import remaining_zero
from onnxplug_ep_cpu.codegen.lower.quantized import constant_numbers
from onnxplug_ep_cpu.codegen.lower.sliding import pixels, steps
from onnxplug_ep_cpu.codegen.program import Ref
from onnxplug_ep_cpu.codegen.target import Target
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor
from onnxplug_kernels.windows import Windows

FEW_PIXELS = 4
"""Results of a row from which what they share pays."""
WIDEST = 5
"""Taps across whose weights fit the registers beside the sums; longer rows of taps are done in pieces."""
CONVERTING = 2
"""Instructions that make a vector of floats of bytes, for each product's one."""

Emit = Callable[[ex.Expr, list[tuple[str, Tensor]], Tensor], None]


def slides(target: Target, shape: Ints, moves: Windows) -> bool:
    """Whether results of a row share what they read, and channels make a vector."""
    width, stride, channels = moves.kernel[-1], moves.strides[-1], shape[1]
    fine = len(shape) in (3, 4) and 0 not in shape and channels >= target.lanes
    # By strides little is shared, and the other kernel does as well if it has no single channels left over.
    shares = stride == 1 or (stride < width and (width > 3 or channels % target.lanes != 0))
    return fine and shape[-1] >= FEW_PIXELS and width > 1 and shares


def _pieces(width: int, stride: int, dilation: int, together: int) -> tuple[int, int]:
    """Taps of a piece of a row of ``width``, and how many pieces: the least work for so many pixels, with taps of zero at the end."""

    def work(taps: int) -> int:
        columns = len(Neighbours(together, taps, stride, dilation).uses())
        return -(-width // taps) * (CONVERTING * columns + together * taps)

    taps = width if width <= WIDEST else min(range(2, WIDEST + 1), key=work)
    return taps, -(-width // taps)


def sliding(
    b: Lowering,
    shape: Ints,
    source: Tensor,
    x_zero: Tensor,
    moves: Windows,
    weights: np.ndarray,
    bias: np.ndarray,
    varies: bool,
) -> Emit:
    """Sums of a window of each channel of a channels-last tensor; ``weights`` are [tap, channel] float32."""
    height, width = (1, *moves.kernel)[-2:]
    strides, dilations, begins = (
        (one, *many)[-2:] for one, many in ((1, moves.strides), (1, moves.dilations), (0, moves.begins))
    )
    rows, columns = (1, *shape[2:])[-2:]
    tall, wide = (1, *source.shape[2:])[-2:]
    channels, lanes = shape[1], b.target.lanes
    vectors = -(-channels // lanes)
    zero = remaining_zero(source, x_zero)
    together = pixels(columns, varies)
    taps, pieces = _pieces(width, strides[1], dilations[1], together)
    rest = ((0, 0), (0, taps * pieces - width), (0, 0))
    weights = np.pad(weights.reshape(height, width, channels), rest).reshape(-1, channels)
    firsts = np.minimum(np.arange(vectors) * lanes, channels - lanes)
    by_vector = weights[:, firsts[:, None] + np.arange(lanes)].transpose(1, 0, 2)
    factors = constant_numbers(b, by_vector)
    held = b.tensor_of((bias - zero * weights.sum(axis=0, dtype=np.float64)).astype(np.int32))
    image, row, pixel = steps(source)

    def emit(expr: ex.Expr, operands: list[tuple[str, Tensor]], target: Tensor) -> None:
        kernel = QSliding(
            taps, strides[1], dilations[1], together, source.element, expr,
            tuple((kind, leaf.element) for kind, leaf in operands), target.element, pieces,
        )  # fmt: skip
        reach = kernel.reach * source.strides[-1] + b.target.lanes
        padding = b.tensor_of(np.full(reach, zero, source.element))
        out_image, out_row, out_pixel = steps(target)
        args: list[int | Ref] = [
            target.ref, source.ref, factors.ref, padding.ref, held.ref, channels, rows, columns, tall, wide, begins[0],
            begins[1], strides[0], dilations[0], height, out_pixel, out_row, out_image, pixel, row, image,
        ]  # fmt: skip
        for kind, leaf in operands:
            args += [leaf.ref, *(reversed(steps(leaf.broadcast(shape))) if kind == "full" else (0, 0, 0))]
        work = math.prod(shape) * (1.0 + 0.6 * height * width) / b.target.lanes
        b.program.call(kernel, args, shape[0] * rows * vectors, work, even=False)

    return emit
