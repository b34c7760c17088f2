"""Normalisation by given statistics, which is an affine function of each channel; and over neighbouring channels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from onnxplug.contract import NodeView, ValueView
from onnxplug.contract.sizes import greatest, portion
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.lrn import Lrn
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.elementwise import MAX_COST, MAX_LEAVES
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.loops import write_map
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.support import attributes, floats, rank, single_output
from onnxplug_ep_cpu.codegen.lower.taps import even_pixels, evenly
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor, channels_last


def _batch_supports(node: NodeView) -> str | None:
    if node.attributes.get("training_mode", 0) or (node.since_version < 14 and len(node.outputs) > 1):
        return "training is not generated"
    if node.since_version < 7 and not node.attributes.get("is_test", 0):
        return "training is not generated"
    return single_output(node) or floats(node) or ("the rank is not known" if rank(node.inputs[0]) < 2 else None)


@lowering("BatchNormalization", supports=_batch_supports)
def batch_normalization(b: Lowering, node: NodeView) -> None:
    """scale (x - mean) / sqrt(variance + epsilon) + bias, its constants folded to one factor and one term a channel. Where any of them is
    computed, as Keras normalises layers, the mean is taken off first: it may be much larger than what remains."""
    x, *given = node.inputs
    (y, *_) = node.outputs
    assert x is not None and y is not None
    epsilon = attributes(node, epsilon=1e-5)["epsilon"]
    if not all(v is not None and b.is_constant(v) for v in given):
        b.pend(y, grown(b, b.pending(x), _NORMALIZED, _statistics(b, given, epsilon, b.shape(y))))
        return
    scale, bias, mean, variance = (_numbers(b, v) for v in given)
    with np.errstate(all="ignore"):  # of a variance that is none
        factor = scale / np.sqrt(variance + epsilon)
        term = bias - mean * factor
    shape = b.shape(y)
    leaves = [
        _by_channel(b, given[0], form, values, len(shape))
        for form, values in ((("factor", y.name), factor), (("term", y.name), term))
    ]
    b.pend(y, grown(b, b.pending(x), (("leaf", 0), ("leaf", 1), ("leaf", 2), ("fma", 0, 1, 2)), leaves))


_NORMALIZED = (("leaf", 0), ("leaf", 1), ("sub", 0, 1), ("leaf", 2), ("leaf", 3), ("fma", 2, 3, 4))
"""(x - mean) factor + bias."""


def _statistics(b: Lowering, given: Sequence[ValueView | None], epsilon: float, shape: Ints) -> list[Tensor]:
    """The mean, scale / sqrt(variance + epsilon) and the bias of each channel (dimension 1)."""
    scale, bias, mean, variance = (b.dense(v) for v in given if v is not None)
    factor = b.scratch(scale.shape)
    expr = (("leaf", 0), ("leaf", 1), ("const", epsilon), ("add", 1, 2), ("sqrt", 3), ("div", 0, 4))
    write_map(b.program, b.target, expr, [scale, variance], factor)
    sizes = (shape[1], *[1] * (len(shape) - 2))
    return [tensor.viewed(sizes, (1, *[0] * (len(shape) - 2))) for tensor in (mean, factor, bias)]


def _numbers(b: Lowering, value: ValueView | None) -> np.ndarray:
    array = b.constant(value)
    assert array is not None
    return array.astype(np.float64)


def _by_channel(b: Lowering, value: ValueView | None, form: object, values: np.ndarray, dims: int) -> Tensor:
    """Constants of the channels (dimension 1), kept with ``value``."""
    assert value is not None
    tensor = b.tensor_of(b.prepared.packed(value, form, lambda _: values.astype(np.float32)))
    return Tensor(tensor.buffer, (len(values), *[1] * (dims - 2)), (1, *[0] * (dims - 2)))


def grown(b: Lowering, held: Tensor | Pending, expr: ex.Expr, leaves: list[Tensor]) -> Pending:
    """``expr`` of a value and further leaves, as a part of what makes the value where that can take them."""
    if isinstance(held, Tensor):
        return Pending(held.shape, expr, [held, *leaves])
    fits = held.anchor is None or (held.takes is not None and all(map(held.takes, leaves)))
    if not fits or len(held.leaves) + len(leaves) > MAX_LEAVES or ex.cost(held.expr) > MAX_COST:
        return Pending(held.shape, expr, [b.write(held), *leaves])
    build = ex.Build()
    at = build.include(held.expr, [build("leaf", i) for i in range(len(held.leaves))])
    further = [build("leaf", len(held.leaves) + i) for i in range(len(leaves))]
    return replace(held, expr=build.finish(build.include(expr, [at, *further])), leaves=[*held.leaves, *leaves])


WIDEST = 128
"""Channels whose squares are summed one after the other in the code: a window that the model states has no bound."""


def _lrn_supports(node: NodeView) -> str | None:
    if (size := node.attributes["size"]) > WIDEST:
        return f"its window of {size} channels is wider than {WIDEST}"
    return floats(node) or ("the rank is not known" if rank(node.inputs[0]) < 3 else None)


@lowering("LRN", supports=_lrn_supports)
def lrn(b: Lowering, node: NodeView) -> None:
    """x / (bias + alpha / size sum of squares over neighbouring channels) ** beta."""
    (x,), (y,) = node.inputs, node.outputs
    assert x is not None and y is not None
    given = attributes(node, alpha=1e-4, beta=0.75, bias=1.0)
    size = given["size"]
    order = channels_last(len(b.shape(y)))
    source = b.channels_last(x)
    if even_pixels(source, images=True) is None:
        source = b.copied(source, order)
    target = b.output(y, order)
    pixels, channels = target.size // max(1, target.shape[1]), target.shape[1]
    block = portion(pixels, 2048 // greatest(1, channels // b.target.lanes))
    from_step = even_pixels(source, images=True)
    assert from_step is not None
    numbers = b.tensor_of(np.array([given["alpha"] / size, given["bias"]], np.float32))
    with evenly(b, target, images=True) as (written, to_step):
        b.program.call(
            Lrn((size - 1) // 2, size // 2, float(given["beta"])),
            [written.ref, source.ref, pixels, block, channels, 4 * to_step, 4 * from_step, numbers.ref],
            -(-pixels // block),
            math.prod(target.shape) / b.target.lanes * (size + 12),
        )
