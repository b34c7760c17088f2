"""Resampling of images: every output pixel a weighted sum of input pixels, channels-last."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from onnxplug.contract import NodeView, ValueView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.resample import Resample
from onnxplug_ep_cpu.codegen.lower import planes
from onnxplug_ep_cpu.codegen.lower.blends import Blends, Sampling
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.loops import copy
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.qgemm import EIGHT_BITS, saturated
from onnxplug_ep_cpu.codegen.lower.quantized import floats_of
from onnxplug_ep_cpu.codegen.lower.support import FLOATS, attributes, axis_of, rank, typed
from onnxplug_ep_cpu.codegen.lower.taps import evenly
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor, channels_last

UNROLLED = ((1, 1), (1, 2), (2, 2))
"""Taps down and across of the kernels that are without inner loops."""
_ELEMENTS = ("float32", *EIGHT_BITS)


def _supports(node: NodeView) -> str | None:
    if node.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return "cropping is not generated"
    if node.attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return "keeping the aspect ratio is not generated"
    known = "the rank is not known" if rank(node.inputs[0]) < 1 else None
    allowed = FLOATS | EIGHT_BITS if _blends_bytes(node) or _rounds(node) else FLOATS
    return known or typed(node.inputs[0], allowed) or typed(node.outputs[0], allowed)


def _blends_bytes(node: NodeView) -> bool:
    """Whether results of bytes lie between the bytes they are made of."""
    a = attributes(node, mode="nearest", antialias=0, exclude_outside=0)
    return a["mode"] in ("nearest", "linear") and not a["antialias"] and not a["exclude_outside"]


def _rounds(node: NodeView) -> bool:
    """Whether results of bytes are sums of floats, rounded, which may lie beyond the bytes they are made of."""
    a = attributes(node, mode="nearest", antialias=0)
    return a["mode"] == "cubic" or (a["mode"] == "linear" and bool(a["antialias"]))


def _upsample_supports(node: NodeView) -> str | None:
    return "its oldest form is not generated" if node.since_version < 7 else _supports(node)


@lowering("Resize", supports=_supports)
@lowering("Upsample", supports=_upsample_supports)
def resize(b: Lowering, node: NodeView) -> None:
    """Nearest, linear and cubic interpolation of the spatial dimensions."""
    x, (y,) = node.inputs[0], node.outputs
    assert x is not None and y is not None
    given, made = b.shape(x), b.shape(y)
    factors = _factors(b, node, given, made)
    if 0 in made:
        b.output(y)
        return
    if 0 in given:
        raise Unsupported("there is nothing that the result could be made of")
    kept = [n == m and factor == 1.0 for n, m, factor in zip(given, made, factors, strict=True)]
    order = tuple(range(len(given)))
    flat = len(given) < 3 or not all(kept[:2])
    if flat and len(given) > 3 and kept[0] and kept[-1]:
        flat, order = False, (0, order[-1], *order[1:-1])  # an image whose channels are declared last
    axes = [_axis(node, given[axis], made[axis], factors[axis]) for axis in (order if flat else order[2:])]
    source, again = _source(b, node, x)
    written: list[Tensor] = []

    def result(order: Ints | None = None) -> Tensor:
        """Where to write."""
        order = None if flat else order
        target = b.output(y, order, source.element) if again is None else b.scratch(made, order, source.element)
        written.append(target)
        return _of_one_channel(target) if flat else target

    _made(
        b, _of_one_channel(source) if flat else source, result, y, (*range(len(order) + 2),) if flat else order, axes
    )  # fmt: skip
    if again is not None:
        b.define(y, again(written[0]))


def _of_one_channel(tensor: Tensor) -> Tensor:
    """A tensor of whatever dimensions as an image of one channel."""
    return tensor.viewed((1, 1, *tensor.shape), (tensor.size, tensor.size, *tensor.strides))


def _source(b: Lowering, node: NodeView, x: ValueView) -> tuple[Tensor, Callable[[Tensor], Tensor | Pending] | None]:
    """What to resample, and what makes the result of it, None where it is the result: elements that are only picked may be bytes
    that are dequantized behind that, and floats become bytes again."""
    held = b.values.get(x.name)
    if isinstance(held, Pending) and held.cheap and attributes(node, mode="nearest")["mode"] == "nearest":
        source, again = b.unread(x)
        if source.element in _ELEMENTS:
            return source, again
    tensor = b.read(x)
    if tensor.element not in EIGHT_BITS or not _rounds(node):
        return tensor, None
    element, widened, build = tensor.element, ex.Build(), ex.Build()
    expr = widened.finish(floats_of(widened, widened("leaf", 0), tensor, widened("const", 1.0), 0))
    rounded = build.finish(saturated(build, build("leaf", 0), 0, element, False))
    return b.write(Pending(tensor.shape, expr, [tensor])), lambda made: Pending(
        made.shape, rounded, [made], element=element
    )


def _made(
    b: Lowering, source: Tensor, result: Callable[..., Tensor], y: ValueView, order: Ints, axes: list[Sampling],
) -> None:  # fmt: skip
    """Write the result to what ``result`` gives for a layout."""
    if order[1] != 1:
        source, target = source.transposed(order), result()
        turned = target.transposed(order)
        if not _stepped(b, source, turned, axes):
            source = source if source.is_channels_last else b.copied(source, channels_last(len(order)))
            _resampled(b, source, turned, _blends(source, axes))
        return
    if planes.suits(b, source, y):
        target = result()
        if not _stepped(b, source, target, axes):
            blend = planes.resampled if source.element == "float32" else planes.bytes_resampled
            blend(b, source, target, _blends(source, axes))
        return
    source = source if source.is_channels_last else b.copied(source, channels_last(len(order)))
    target = result(channels_last(len(order)))
    _resampled(b, source, target, _blends(source, axes))


def _resampled(b: Lowering, source: Tensor, target: Tensor, blends: Blends) -> None:
    """Append the call that fills ``target``, channels-last, with weighted sums."""
    images, channels, lanes = *source.shape[:2], b.target.lanes
    vectors = next((n for n in (4, 2) if n * lanes <= channels), 1)
    rows, columns, unit = blends.rows, blends.columns, source.itemsize
    taps = rows[1], columns[1]
    tables = *blends.of_lines(b), *blends.of_columns(b, source.strides[-1])
    with evenly(b, target) as (written, pixel_step):
        b.program.call(
            Resample(vectors, channels < lanes, taps if taps in UNROLLED else None, source.element),
            [
                written.ref, source.ref, *tables, *rows, *columns, channels, unit * pixel_step,
                unit * written.strides[0], unit * source.strides[0],
            ],
            images * rows[0] * -(-channels // (vectors * lanes)),
            images * math.prod(rows) * math.prod(columns) * channels / lanes * 0.8,
            even=False,
        )  # fmt: skip


def _blends(source: Tensor, axes: Sequence[Sampling]) -> Blends:
    """What the result is made of, by lines and columns of the source."""
    return Blends(tuple(axes[:-1]), source.strides[2 : 1 + len(axes)], axes[-1])


def _stepped(b: Lowering, source: Tensor, result: Tensor, axes: Sequence[Sampling]) -> bool:
    """Copy where along every axis each element is repeated equally often, or every so manieth is taken; else return False."""
    shape, strides, shift = list(source.shape[:2]), list(source.strides[:2]), 0
    for axis, stride in zip(axes, source.strides[2:], strict=True):
        if (repeated := axis.repeated) is None:
            return False
        count, first, step = repeated
        shape += [axis.output // count, count]
        strides += [step * stride, 0]
        shift += first * stride
    steps = [*result.strides[:2]]
    for count, stride in zip(shape[3::2], result.strides[2:], strict=True):
        steps += [count * stride, stride]
    parts = result.viewed(tuple(shape), tuple(steps))
    copy(b.program, b.target, source.shift(shift).viewed(tuple(shape), tuple(strides)), parts)
    return True


def _factors(b: Lowering, node: NodeView, given: tuple[int, ...], made: tuple[int, ...]) -> list[float]:
    """The scale of every dimension."""
    scales = _scales(b, node)
    if scales is not None and not (scales > 0).all():
        raise Unsupported("a scale is not positive")
    sizes = None if len(node.inputs) < 4 or node.inputs[3] is None else b.numbers(node.inputs[3])
    if sizes is not None and any(n < 0 for n in sizes):
        raise Unsupported("a size is negative")
    axes = [axis_of(a, len(given)) for a in node.attributes.get("axes", range(len(given)))]
    if any((n == 0) != (given[axis] == 0) for n, axis in zip(sizes or (), axes, strict=False)):
        raise Unsupported("of an axis and its new size one is zero")
    factors = [1.0] * len(given)
    for i, axis in enumerate(axes):
        exact = made[axis] / given[axis] if given[axis] else 1.0
        factors[axis] = float(scales[i]) if scales is not None and scales.size else exact
    return factors


def _scales(b: Lowering, node: NodeView) -> np.ndarray | None:
    if "scales" in node.attributes:
        return np.array(node.attributes["scales"], np.float32)
    place = 1 if _is_old(node) else 2
    given = node.inputs[place] if place < len(node.inputs) else None
    scales = b.constant(given)
    if (
        given is not None and scales is None and len(node.inputs) < 4
    ):  # 7 of 5 may be 1.5 times as many as well as 1.4 times
        raise Unsupported("the scales are computed")
    return scales


def _is_old(node: NodeView) -> bool:
    """Element i of the result lies at i / scale; nearest is up where an axis shrinks, else down."""
    return node.op_type == "Upsample" or node.since_version < 11


def _axis(node: NodeView, size: int, output: int, factor: float) -> Sampling:
    """How an axis is resampled."""
    a = attributes(
        node, antialias=0, coordinate_transformation_mode="half_pixel", cubic_coeff_a=-0.75, exclude_outside=0,
        mode="nearest", nearest_mode="round_prefer_floor",
    )  # fmt: skip
    if _is_old(node):
        a |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "ceil" if factor < 1 else "floor"}
    return Sampling(
        size, output, factor, a["coordinate_transformation_mode"], a["mode"], a["nearest_mode"], a["cubic_coeff_a"],
        bool(a["exclude_outside"]), bool(a["antialias"]),
    )  # fmt: skip
