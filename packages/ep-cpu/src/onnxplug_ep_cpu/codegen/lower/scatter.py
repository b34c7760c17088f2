"""Writing by index, and reading element by element: what one place receives comes in the order of the updates."""

from __future__ import annotations

import math
from collections.abc import Sequence

from onnxplug.contract import NodeView, ValueView
from onnxplug.contract.sizes import portion
from onnxplug_ep_cpu.codegen.kernels.map import SIZES
from onnxplug_ep_cpu.codegen.kernels.scatter import JOINED, MOVES, ScatterElements, ScatterSlices
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.loops import copy, loops
from onnxplug_ep_cpu.codegen.lower.move import refuse_none
from onnxplug_ep_cpu.codegen.lower.support import NUMBERS, attributes, axis_of, rank, typed
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.program import STATUS_WORD, Ref
from onnxplug_ep_cpu.codegen.tensor import Tensor

BLOCK = 2048
"""Elements of one item at least, where a line's elements are so many."""


def _supports(node: NodeView) -> str | None:
    reduction = node.attributes.get("reduction", "none")
    if reduction not in ("none", "add", "mul", "max", "min"):
        return f"reduction is {reduction!r}"
    allowed = SIZES if reduction == "none" else NUMBERS
    values = (node.inputs[0], *node.inputs[2:], *node.outputs)
    known = next((r for v in values if (r := typed(v, allowed))), None)
    return known or typed(node.inputs[1], {"int32", "int64"}) or _scalar(node)


def _gather_supports(node: NodeView) -> str | None:
    values = (node.inputs[0], *node.outputs)
    known = next((r for v in values if (r := typed(v, SIZES))), None)
    return known or typed(node.inputs[1], {"int32", "int64"}) or _scalar(node)


def _scalar(node: NodeView) -> str | None:
    return "its operand is a scalar" if rank(node.inputs[0]) < 1 else None


@lowering("ScatterElements", "Scatter", supports=_supports)
def scatter_elements(b: Lowering, node: NodeView) -> None:
    """Each update at its own place with the axis replaced by its index."""
    (x, indices, updates), (y,) = node.inputs, node.outputs
    assert x is not None and indices is not None and updates is not None and y is not None
    if b.shape(indices) != b.shape(updates):
        raise Unsupported("indices and updates differ in shape")
    place, out = _copied(b, x, y)
    axis = axis_of(attributes(node, axis=0)["axis"], len(out.shape))
    moved(b, node.attributes.get("reduction", "none"), axis, out, b.read(updates), b.read(indices))
    _deliver(b, out, place)


@lowering("GatherElements", supports=_gather_supports)
def gather_elements(b: Lowering, node: NodeView) -> None:
    """The element at each index's own place with the axis replaced by the index."""
    (x, indices), (y,) = node.inputs, node.outputs
    assert x is not None and indices is not None and y is not None
    data, names = b.read(x), b.read(indices)
    axis = axis_of(attributes(node, axis=0)["axis"], len(data.shape))
    moved(b, "gather", axis, data, b.output(y, element=data.element), names)


@lowering("ScatterND", supports=_supports)
def scatter_nd(b: Lowering, node: NodeView) -> None:
    """Slices at the places that index tuples name."""
    (x, indices, updates), (y,) = node.inputs, node.outputs
    assert x is not None and indices is not None and updates is not None and y is not None
    kind = node.attributes.get("reduction", "none")
    tuples, source = b.dense(indices), b.dense(updates)
    place, out = _copied(b, x, y)
    depth = tuples.shape[-1]
    if source.shape != (*tuples.shape[:-1], *out.shape[depth:]):
        raise Unsupported("the updates have not the shape that indices and data ask for")
    count, many = math.prod(out.shape[depth:]), math.prod(tuples.shape[:-1])
    sizes, strides = out.shape[:depth], out.strides[:depth]
    _slices(b, kind, (1, many, count), (out, source, tuples), (0, 0, 0), (count, depth), sizes, strides)
    _deliver(b, out, place)


def _copied(b: Lowering, x: ValueView, y: ValueView) -> tuple[Tensor, Tensor]:
    """(where the result belongs, a copy of the operand without gaps: there, or elsewhere)."""
    data = b.read(x)
    place = b.output(y, element=data.element)
    out = place if place.is_dense else b.scratch(place.shape, element=data.element)
    copy(b.program, b.target, data, out)
    return place, out


def _deliver(b: Lowering, out: Tensor, place: Tensor) -> None:
    if out is not place:
        copy(b.program, b.target, out, place)


def moved(
    b: Lowering, kind: str, axis: int, indexed: Tensor, other: Tensor, indices: Tensor, negative: bool = True
) -> None:
    """Join what lies at the places of ``other`` with the elements of ``indexed`` at these places but for the axis, where the
    indices say; or take it from there. ``negative``: indices below 0 count from the end."""
    if indices.size == 0:
        return
    covered = indices.shape
    if len(covered) != len(indexed.shape) or any(
        n > size for d, (n, size) in enumerate(zip(covered, indexed.shape, strict=True)) if d != axis
    ):
        raise Unsupported("indices go beyond the data")
    refuse_none((indexed.shape[axis],))
    tensors = (indexed, other, indices)
    rest = [d for d in range(len(covered)) if d != axis]
    shape = tuple(covered[d] for d in rest)
    order = (1, 0, 2)
    found = loops([tensors[i].viewed(shape, tuple(tensors[i].strides[d] for d in rest)) for i in order])
    dims = [(n, s[1], s[0], s[2]) for n, *s in found]
    size, stride = indexed.shape[axis], indexed.strides[axis]
    if dims[-1][1:] == (1, 1, 0) and len(dims) <= 2:
        outer = dims[0] if len(dims) == 2 else (1, 0, 0, 0)
        steps = (other.strides[axis], indices.strides[axis])
        _slices(
            b, kind, (outer[0], covered[axis], dims[-1][0]), tensors, outer[1:], steps, (size,), (stride,), negative,
        )  # fmt: skip
        return
    axis_loop = (covered[axis], 0, other.strides[axis], indices.strides[axis])
    block = portion(dims[-1][0], BLOCK // covered[axis])
    pair = [(axis_loop, covered[axis]), (dims[-1], block)]
    if axis_loop[2] < dims[-1][2] or dims[-1][0] == 1:
        pair.reverse()
    args: list[int | Ref] = [Ref(STATUS_WORD), size, stride * indexed.itemsize]
    items = math.prod(d[0] for d in dims[:-1])
    for (n, *_), many in pair:
        args += [n, many, -(-n // many)]
        items *= -(-n // many)
    args += [d[0] for d in dims[:-1]]
    for i, tensor in enumerate(tensors):
        strides = (*(d[1 + i] for d, _ in pair), *(d[1 + i] for d in dims[:-1]))
        args += [tensor.ref, *(s * tensor.itemsize for s in strides)]
    even = kind == "gather" and _gathers(b, pair[1][0], pair[1][1], indexed)
    kernel = ScatterElements(kind, _element(kind, indexed), 8 * indices.itemsize, len(dims) - 1, negative, even)
    b.program.call(kernel, args, items, 2.0 * indices.size)


def _gathers(b: Lowering, inner: Sequence[int], many: int, indexed: Tensor) -> bool:
    """Whether an inner loop (size, strides of what is indexed, of what is taken and of indices) had better take vectors: AVX2 gathers
    no faster than one by one."""
    return b.target.name == "avx512" and indexed.itemsize in (4, 8) and inner[2:] == (1, 1) and many >= b.target.lanes


def _slices(
    b: Lowering,
    kind: str,
    sizes: tuple[int, int, int],
    tensors: tuple[Tensor, Tensor, Tensor],
    outer: Sequence[int],
    steps: tuple[int, int],
    indexed: Sequence[int],
    strides: Sequence[int],
    negative: bool = True,
) -> None:
    """Slices of ``sizes`` (outer, tuples, elements); ``tensors`` are the indexed one, the other and the indices, of ``outer``
    strides; ``steps`` those of the latter two from tuple to tuple; ``indexed`` and ``strides`` those of the indexed dimensions."""
    (many, tuples, count), (target, other, indices) = sizes, tensors
    if many * tuples * count == 0:
        return
    refuse_none(indexed)
    block = count if tuples * count < 2 * BLOCK else max(16 * b.target.lanes, BLOCK // tuples)
    blocks = -(-count // block)
    args: list[int | Ref] = [
        target.ref, other.ref, indices.ref, Ref(STATUS_WORD), count, block, blocks, tuples,
        steps[0] * other.itemsize, steps[1] * indices.itemsize,
    ]  # fmt: skip
    args += [s * t.itemsize for s, t in zip(outer, tensors, strict=True)]
    for size, stride in zip(indexed, strides, strict=True):
        args += [size, stride * target.itemsize]
    kernel = ScatterSlices(kind, _element(kind, target), len(indexed), 8 * indices.itemsize, negative)
    b.program.call(kernel, args, blocks * many, many * tuples * (4.0 + 0.1 * count * target.itemsize))


def _element(kind: str, tensor: Tensor) -> str | int:
    """As the kernels are told: what is only moved by its size."""
    assert kind in MOVES or tensor.element in JOINED
    return tensor.itemsize if kind in MOVES else tensor.element
