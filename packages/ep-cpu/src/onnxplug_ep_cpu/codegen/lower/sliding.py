"""Convolution of few channels to each result: groups, and images' first layers."""

from __future__ import annotations

import math

from onnxplug.contract import ValueView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.neighbours import Neighbours
from onnxplug_ep_cpu.codegen.kernels.sliding import Sliding
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.loops import copy
from onnxplug_ep_cpu.codegen.lower.packing import in_form
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.pending_products import pending_product
from onnxplug_ep_cpu.codegen.lower.tiles import best_rows
from onnxplug_ep_cpu.codegen.program import Ref
from onnxplug_ep_cpu.codegen.recipes import remembered
from onnxplug_ep_cpu.codegen.target import Target
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor, channels_last, dense_strides
from onnxplug_kernels.windows import Windows

FEW_CHANNELS = 4
"""Input channels that are read from planes of their own: those of images."""
PIXELS = 8
"""Results made together: as many sums as hide the latency of a product."""

SPARE = 2
"""Registers that stay free."""


@remembered
def pixels(columns: int, varies: bool) -> int:
    """Results made together in rows of so many: groups of them overlap little. ``varies``: see ``best_rows``."""
    if varies:
        return best_rows(PIXELS, max(1, columns), varies, lambda together: (together + 1) * -(-columns // together))
    return max(1, -(-columns // -(-columns // PIXELS)))


def in_registers(target: Target, beside: int, together: int, width: int) -> bool:
    """Whether registers hold the sums of so many vectors and pixels, and the weights of a row of taps."""
    return beside * (together + width) + 1 + SPARE <= target.registers


def vectors_beside(target: Target, per_group: int, width: int, together: int, spread: int) -> int:
    """Vectors of output channels whose sums are made together: two where registers hold them, so that what windows share is read
    once for both."""
    return 2 if not spread and per_group % 2 == 0 and in_registers(target, 2, together, width) else 1


def sliding(
    b: Lowering,
    source: Tensor,
    w: ValueView,
    weights: Ints,
    shape: Ints,
    moves: Windows,
    groups: int,
    spread: int,
    varies: bool,
) -> Pending:
    """The convolution of ``source``, in whatever layout unless inputs are ``spread``, as a pending value."""
    outputs, channels = weights[:2]
    height, width = (1, *weights[2:])[-2:]
    strides, dilations, begins = (
        (one, *many)[-2:] for one, many in ((1, moves.strides), (1, moves.dilations), (0, moves.begins))
    )
    rows, columns = (1, *shape[2:])[-2:]
    tall, wide = (1, *source.shape[2:])[-2:]
    lanes, taps = b.target.lanes, height * width
    vectors, together = outputs // lanes, pixels(columns, varies)

    def fill(given: Tensor, result: Tensor) -> None:
        dims = (vectors, height, channels, width, lanes)
        lies = Tensor(given.buffer, dims, (lanes * channels * taps, width, taps, 1, channels * taps), given.offset)
        copy(b.packing, b.target, lies, result.viewed(dims, dense_strides(dims)))

    packed = in_form(b, w, "sliding", (outputs * channels * taps,), fill)
    image, row, pixel = steps(source)
    step = source.strides[1]
    per_group = max(1, vectors // groups)
    beside = vectors_beside(b.target, per_group, width, together, spread)
    known = pixel if channels <= FEW_CHANNELS and not spread else 0
    reach = Neighbours(together, width, strides[1], dilations[1]).reach
    zeros = b.zeros((channels - 1) * step + max(lanes, known // 4 * reach + 1))

    def emit(expr: ex.Expr, operands: list[tuple[str, Tensor]], target: Tensor) -> None:
        out_image, out_row, out_pixel = steps(target)
        args: list[int | Ref] = [
            target.ref, source.ref, packed.ref, zeros.ref, vectors, channels, per_group, rows, columns, tall, wide,
            begins[0], begins[1], strides[0], dilations[0], height, out_pixel, out_row, out_image, pixel, row, image,
            4 * step, 4 * (lanes if spread else channels * step),
        ]  # fmt: skip
        for kind, leaf in operands:
            args += [leaf.ref, *(reversed(steps(leaf.broadcast(shape))) if kind == "full" else (0, 0, 0))]
        kinds = tuple(kind for kind, _ in operands)
        kernel = Sliding(width, strides[1], dilations[1], together, spread, beside, known, expr, kinds)
        work = 0.3 * math.prod(shape) / lanes * channels * taps
        b.program.call(kernel, args, shape[0] * rows * vectors // beside, work, even=False)

    return pending_product(b, shape, 1, channels_last(len(shape)), emit)


def steps(tensor: Tensor) -> Ints:
    """Bytes between images, rows and pixels."""
    unit = tensor.itemsize
    row, pixel = (0, *tensor.strides[2:])[-2:]
    return unit * tensor.strides[0], unit * row, unit * pixel
