"""RotaryEmbedding, ONNX's and com.microsoft's, and the one of three places for each token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxplug.contract import NodeView
from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.kernels.rotary import Rotary
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.heads import split_heads
from onnxplug_ep_cpu.codegen.lower.loops import copy
from onnxplug_ep_cpu.codegen.lower.move import gathered
from onnxplug_ep_cpu.codegen.lower.support import FLOATS, attributes, rank, typed
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.program import STATUS_WORD, Ref
from onnxplug_ep_cpu.codegen.tensor import Tensor


@record(frozen=True, slots=True)
class Angles:
    """Cosines and sines, [positions, pairs] or [batch, rows, pairs]. Row i of an input stands at ``first`` + ``step`` i,
    plus its number in ``places`` [batch, rows] (sizes of 1 broadcast); None: at its own row."""

    cos: Tensor
    sin: Tensor
    places: Tensor | None = None
    first: int = 0
    step: int = 0


def rotate(b: Lowering, x: Tensor, y: Tensor, angles: Angles, interleaved: bool) -> None:
    """Heads [batch, heads, rows, size] with their first elements turned in pairs; the others are copied."""
    batch, heads, rows, size = x.shape
    cos, sin, places = angles.cos, angles.sin, angles.places
    pairs = cos.shape[-1]
    if 2 * pairs > size or cos.shape != sin.shape:
        raise Unsupported(f"{cos.shape} cosines and {sin.shape} sines do not turn heads of {size} elements")
    if x.size == 0:
        return
    x = x if x.strides[3] == 1 else b.copied(x, range(4))
    cos, sin = (t if t.is_dense else b.copied(t, range(len(t.shape))) for t in (cos, sin))
    strides = [4 * s for s in (*x.strides[:3], *y.strides[:3])]
    outer = 4 * cos.strides[0] if len(cos.shape) == 3 and cos.shape[0] > 1 else 0
    if places is None:
        if cos.shape[-2] < rows:
            raise Unsupported(f"there are {cos.shape[-2]} cosines for {rows} rows")
        where: list[int | Ref] = [0, 0]
    else:
        steps = places.broadcast((batch, rows)).strides
        where = [places.itemsize * s for s in steps]
    args: list[int | Ref] = [
        x.ref, y.ref, cos.ref, sin.ref, 0 if places is None else places.ref, Ref(STATUS_WORD), rows, heads, pairs,
        size - 2 * pairs, *strides, outer, 4 * pairs, cos.shape[-2], *where, angles.step, angles.first,
    ]  # fmt: skip
    kernel = Rotary(0 if places is None else 8 * places.itemsize, interleaved)
    b.program.call(kernel, args, batch * rows, x.size * 0.3 + 10.0 * batch * rows * heads)


def _supports(node: NodeView) -> str | None:
    x, *rest = [*node.inputs, *[None] * 4][:4]
    places = rest.pop(0 if node.domain else 2)
    if node.attributes.get("is_packed_batching", 0):
        return "sequences packed into one are not generated"
    if rank(x) not in (3, 4) or (places is not None and rank(places) not in (1, 2)):
        return "the rank of an operand is not what the operator takes"
    if not node.domain and rank(x) == 3 and not node.attributes.get("num_heads", 0):
        return "the number of heads is missing"
    reason = typed(places, {"int64"})
    return reason or next((r for v in (x, *rest, *node.outputs) if (r := typed(v, FLOATS))), None)


@lowering("RotaryEmbedding", supports=_supports)
@lowering("RotaryEmbedding", supports=_supports, domain="com.microsoft")
def rotary_embedding(b: Lowering, node: NodeView) -> None:
    """Heads turned by the angles of their positions; without positions there are angles for each row. In com.microsoft
    a single position is the first row's."""
    x, *rest = [*node.inputs, *[None] * 4][:4]
    places = rest.pop(0 if node.domain else 2)
    cos, sin = rest
    assert x is not None and cos is not None and sin is not None
    given = attributes(node, interleaved=0, num_heads=0, rotary_embedding_dim=0)
    cosines, sines, data = b.read(cos), b.read(sin), b.read(x)
    where = None if places is None else b.dense(places)
    if where is None:
        _turn_heads(b, node, data, Angles(cosines, sines), given)
        return
    alone = len(where.shape) == 1
    where = where.viewed((1, 1), (0, 0)) if alone else where
    _turn_heads(b, node, data, Angles(cosines, sines, where, 0, int(alone)), given)


def _turn_heads(b: Lowering, node: NodeView, data: Tensor, angles: Angles, given: dict[str, Any]) -> None:
    """Write the node's result: [batch, heads, rows, size], or [batch, rows, heads * size], turned."""
    (y,) = node.outputs
    assert y is not None
    pairs = angles.cos.shape[-1]
    target = b.output(y)
    heads, out = data, target
    if len(data.shape) == 3:
        count = given["num_heads"] or data.shape[2] // (2 * pairs)
        heads, out = split_heads(data, count), split_heads(target, count)
    width = given["rotary_embedding_dim"] or heads.shape[3]
    if 2 * pairs != width:
        raise Unsupported(f"the caches hold {pairs} angles, half of {width} are needed")
    rotate(b, heads, out, angles, bool(given["interleaved"]))


def _m_supports(node: NodeView) -> str | None:
    x, places, *caches = node.inputs
    section = node.attributes["mrope_section"]
    if rank(x) not in (3, 4) or rank(places) != 3 or any(rank(cache) != 2 for cache in caches):
        return "the rank of an operand is not what the operator takes"
    if len(section) != 3 or min(section) < 0 or node.attributes.get("mrope_layout", 0) not in (0, 1):
        return "its angles are not split in three"
    if node.attributes.get("scale", 1.0) != 1:
        return "what is turned is multiplied by a scale"
    return typed(places, {"int64"}) or next((r for v in (x, *caches, *node.outputs) if (r := typed(v, FLOATS))), None)


@lowering("MRotaryEmbedding", supports=_m_supports, domain="com.microsoft")
def m_rotary_embedding(b: Lowering, node: NodeView) -> None:
    """Heads turned by angles each of which is of a token's place in time, height or width."""
    x, places, *caches = node.inputs
    assert x is not None and places is not None
    given = attributes(node, interleaved=0, num_heads=0, rotary_embedding_dim=0, mrope_layout=0)
    section, where = node.attributes["mrope_section"], b.dense(places)
    cos, sin = (b.dense(cache) for cache in caches if cache is not None)
    data, pairs = b.read(x), cos.shape[1]
    batch, rows = data.shape[0], data.shape[-2]
    if sum(section) != pairs or where.shape != (3, batch, rows) or cos.shape != sin.shape:
        raise Unsupported(f"places {where.shape} and {section} of {cos.shape} angles do not belong together")
    cos, sin = (_chosen(b, cache, where, section, bool(given["mrope_layout"])) for cache in (cos, sin))
    _turn_heads(b, node, data, Angles(cos, sin), given)


def _chosen(b: Lowering, cache: Tensor, places: Tensor, section: Sequence[int], in_turns: bool) -> Tensor:
    """[batch, rows, pairs] of a cache [positions, pairs]: time's, and over them those of height and width."""
    _, batch, rows = places.shape
    count, pairs = batch * rows, cache.shape[1]
    made: list[Tensor] = []
    for axis in range(3 if count else 0):
        if axis == 0 or section[axis]:
            of = b.scratch((count, pairs))
            at = places.shift(axis * count).viewed((count,), (1,))
            table = cache.viewed((1, *cache.shape), (0, pairs, 1))
            gathered(b, of, table, at, cache.shape[:1], (pairs,), negative=False)
            made.append(of)
            whose = range(axis, min(3 * section[axis], pairs), 3)
            if not in_turns:
                whose = range(sum(section[:axis]), sum(section[: axis + 1]))
            if axis and whose:
                copy(b.program, b.target, *(_columns(t, whose) for t in (of, made[0])))
    return (made or [b.scratch((0, pairs))])[0].viewed((batch, rows, pairs), (rows * pairs, pairs, 1))


def _columns(rows: Tensor, whose: range) -> Tensor:
    return rows.shift(whose.start).viewed((rows.shape[0], len(whose)), (rows.shape[1], whose.step))
