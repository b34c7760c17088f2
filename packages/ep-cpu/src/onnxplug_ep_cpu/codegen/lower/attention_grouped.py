"""GroupQueryAttention: causal attention over caches of sequences that may differ in length."""

from __future__ import annotations

import math

from onnxplug.contract import NodeView, ValueView
from onnxplug_ep_cpu.codegen.kernels.cache import ROWS, Append
from onnxplug_ep_cpu.codegen.kernels.recurrent import Lengths
from onnxplug_ep_cpu.codegen.lower.attention import Heads
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.heads import cache, optional, part, present_of, split_heads, write_attention
from onnxplug_ep_cpu.codegen.lower.loops import converted
from onnxplug_ep_cpu.codegen.lower.masks import Scores, Window, by_batch
from onnxplug_ep_cpu.codegen.lower.rotary import Angles, rotate
from onnxplug_ep_cpu.codegen.lower.support import FLOATS, attributes, rank, typed
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.program import STATUS_WORD, Ref
from onnxplug_ep_cpu.codegen.tensor import NARROW, Tensor

_NAMES = (
    "query", "key", "value", "past_key", "past_value", "seqlens_k", "total", "cos", "sin", "position_ids", "bias", "sink",
    "k_scale", "v_scale", "q_norm", "k_norm", "query_lengths",
)  # fmt: skip


def _inputs(node: NodeView) -> dict[str, ValueView | None]:
    return dict(zip(_NAMES, [*node.inputs, *[None] * len(_NAMES)], strict=False))


def _supports(node: NodeView) -> str | None:
    given = _inputs(node)
    if given["k_scale"] is not None or given["v_scale"] is not None:
        return "quantized caches are not generated"
    if given["sink"] is not None or node.attributes.get("smooth_softmax", 0) == 1:
        return "a score of no key is not generated"
    if given["q_norm"] is not None or given["k_norm"] is not None:
        return "normalized queries and keys are not generated"
    if given["query_lengths"] is not None:
        return "new rows that do not count are not generated"
    if node.attributes.get("sliding_window_cache", 0):
        return "a cache that lets go of old keys is not generated"
    if len(node.outputs) > 3 and node.outputs[3] is not None:
        return "the scores are wanted"
    if (given["key"] is None) != (given["value"] is None) or (given["past_key"] is None) != (
        given["past_value"] is None
    ):
        return "of two operands that go together one is missing"
    if rank(given["query"]) != 3 or (node.attributes.get("do_rotary", 0) and given["cos"] is None):
        return "the operands are not what the operator takes"
    integers = {"seqlens_k": "int32", "total": "int32", "position_ids": "int64"}
    for name, value in given.items():
        if reason := typed(value, {integers[name]} if name in integers else FLOATS):
            return reason
    return next((reason for value in node.outputs if (reason := typed(value))), None)


@lowering("GroupQueryAttention", supports=_supports, domain="com.microsoft")
def group_query_attention(b: Lowering, node: NodeView) -> None:
    """Queries and keys turned by their positions, keys and values put into the caches, attention over those.

    The first step has as many new rows as there are keys; sequences then begin the caches and are padded on the right.
    """
    inputs = _inputs(node)
    (y, *presents) = [*node.outputs, None, None][:3]
    lengths, total = inputs["seqlens_k"], inputs["total"]
    assert lengths is not None and total is not None and y is not None
    limit = b.numbers(total)
    if not limit:
        raise Unsupported("the total length depends on data")
    given = attributes(
        node, do_rotary=0, rotary_interleaved=0, scale=0.0, softcap=0.0, causal=1, local_window_size=-1,
    )  # fmt: skip
    q, k, v = _heads(b, inputs, node.attributes["num_heads"], node.attributes["kv_num_heads"])
    batch, _, rows, size = q.shape
    keys = limit[0]
    held = 0 if inputs["past_key"] is None else b.shape(inputs["past_key"])[2]
    if len(limit) > 1 or keys < rows or (keys > held and keys != held + k.shape[2]):
        raise Unsupported(f"the total length is {limit}, of {rows} new rows behind {held}")
    before = by_batch(b, lengths, 0, batch)  # plus one: the lengths with the new rows
    starts = None if rows == keys else before
    if starts is None:  # of those that begin elsewhere, each row of the caches sees to it
        room = max(keys, held)
        b.program.call(Lengths(), [b.dense(lengths).ref, Ref(STATUS_WORD), batch, room], 1, 1.0 * batch)
    if given["do_rotary"]:
        angles = _angles(b, inputs, starts, rows)
        q, k = (_rotated(b, x, angles, bool(given["rotary_interleaved"])) for x in (q, k))
    k, v = (
        _cached(b, inputs[f"past_{name}"], new, starts, keys, present)
        for name, new, present in (("key", k, presents[0]), ("value", v, presents[1]))
    )
    heads = Heads(q, part(k, 2, 0, keys), part(v, 2, 0, keys))
    scores = Scores(b, heads.scores)
    scores.scale(given["scale"] or 1 / math.sqrt(size))
    scores.cap(given["softcap"])
    if inputs["bias"] is not None:
        bias = b.read(inputs["bias"])
        scores.add(part(bias, 3, 0, keys))
    left = given["local_window_size"] - 1 if given["local_window_size"] > 0 else None
    seen = 1 if given["causal"] and left is None and starts is None else None
    if seen is None:
        place = 0 if starts is None else 1 - rows
        if given["causal"]:
            window = Window(place, starts, left, 0)
        else:
            window = Window(ends=before, past=1)
        mask = window.seen(b, rows, keys)
        assert mask is not None
        scores.keep(mask)
    write_attention(b, y, heads, scores, seen)


def _heads(b: Lowering, inputs: dict[str, ValueView | None], heads: int, shared: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values as [batch, heads, rows, size]; without keys they lie side by side in the queries."""
    query, key, value = (optional(b, inputs[name]) for name in ("query", "key", "value"))
    assert query is not None
    if key is None or value is None:
        packed = split_heads(query, heads + 2 * shared)
        return part(packed, 1, 0, heads), part(packed, 1, heads, shared), part(packed, 1, heads + shared, shared)
    return split_heads(query, heads), split_heads(key, shared), split_heads(value, shared)


def _angles(b: Lowering, inputs: dict[str, ValueView | None], starts: Tensor | None, rows: int) -> Angles:
    """Positions are those given, of which a first step uses the very first; else those the lengths say."""
    cos, sin, places = (optional(b, inputs[name]) for name in ("cos", "sin", "position_ids"))
    assert cos is not None and sin is not None
    if places is not None:
        if starts is None:
            return Angles(cos, sin, places.viewed((1, 1), (0, 0)), 0, 1)
        return Angles(cos, sin, places if places.is_dense else b.copied(places, range(2)))
    if starts is None:
        return Angles(cos, sin)
    return Angles(cos, sin, starts.viewed((starts.shape[0], 1), (1, 0)), 1 - rows, 1)


def _rotated(b: Lowering, x: Tensor, angles: Angles, interleaved: bool) -> Tensor:
    made = b.scratch(x.shape, (0, 2, 1, 3))
    rotate(b, x, made, angles, interleaved)
    return made


def _cached(
    b: Lowering, past: ValueView | None, new: Tensor, starts: Tensor | None, keys: int, present: ValueView | None
) -> Tensor:
    """The cache with new rows behind each sequence's old ones, zeros behind them."""
    batch, heads, rows, size = new.shape
    old = cache(b, past)
    room = max(keys, 0 if old is None else old.shape[2])
    element = "float32" if old is None else old.element
    target = b.scratch((batch, heads, room, size), element=element) if present is None else present_of(b, present, old)
    assert target is not None
    if target.shape != (batch, heads, room, size):
        raise Unsupported(f"a present of shape {target.shape} does not hold {(batch, heads, room, size)}")
    if target.size == 0:
        return target
    if new.element != element:
        wide, new = new, b.scratch(new.shape, element=element)
        converted(b.program, b.target, wide, new)
    new = new if new.strides[3] == 1 or size == 1 else b.copied(new, range(4))
    before = new if old is None else old
    if before.strides[3] != 1 and size != 1:
        before = b.copied(before, range(4))
    args: list[int | Ref] = [
        target.ref, before.ref, new.ref, 0 if starts is None else starts.ref, Ref(STATUS_WORD),
        0 if starts is None else 1 - rows, heads, room, 0 if old is None else old.shape[2], rows, size, keys,
        *(t.itemsize * s for t in (target, before, new) for s in t.strides[:3]),
    ]  # fmt: skip
    kernel = Append(starts is not None, "bits16" if element in NARROW else element)
    b.program.call(kernel, args, batch * heads * -(-room // ROWS), target.size * 0.3)
    return target
