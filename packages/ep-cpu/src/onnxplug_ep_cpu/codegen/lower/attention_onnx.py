"""ONNX's Attention: one operator for what exporters used to write out (ONNX operator spec, Attention-23 to 25)."""

from __future__ import annotations

import math

from onnxplug.contract import NodeView, ValueView
from onnxplug_ep_cpu.codegen.lower.attention import Heads
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.heads import cache, joined, part, present_of, split_heads, write_attention
from onnxplug_ep_cpu.codegen.lower.masks import Scores, Window, by_batch
from onnxplug_ep_cpu.codegen.lower.support import FLOATS, attributes, rank, typed
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.tensor import Tensor

_FLOAT = 1
"""ONNX's number of float32."""


def _supports(node: NodeView) -> str | None:
    q, k, v, mask, past_key, past_value, lengths = [*node.inputs, *[None] * 7][:7]
    if len(node.outputs) > 3 and node.outputs[3] is not None:
        return "the scores are wanted"
    if node.attributes.get("softmax_precision", _FLOAT) != _FLOAT:
        return "the softmax is generated in float32 alone"
    if {rank(q), rank(k), rank(v)} not in ({3}, {4}):
        return "queries, keys and values differ in rank, or have neither 3 nor 4 dimensions"
    if rank(q) == 3 and not (node.attributes.get("q_num_heads") and node.attributes.get("kv_num_heads")):
        return "the numbers of heads are missing"
    if (past_key is None) != (past_value is None) or (past_key is not None and lengths is not None):
        return "a past and lengths of the sequences exclude each other"
    if mask is not None and rank(mask) > 4:
        return "the mask has more than 4 dimensions"
    reason = typed(mask, FLOATS | {"bool"}) or typed(lengths, {"int64"})
    return reason or next(
        (r for value in (q, k, v, past_key, past_value, node.outputs[0]) if (r := typed(value))), None
    )


@lowering("Attention", supports=_supports)
def attention(b: Lowering, node: NodeView) -> None:
    """softmax(Q K^T scale + mask) V per head, with shared heads, a past, causal and sliding windows."""
    query, key, value, mask, past_key, past_value, lengths = [*node.inputs, *[None] * 7][:7]
    y, *presents = [*node.outputs, None, None][:3]
    assert query is not None and key is not None and value is not None and y is not None
    given = attributes(
        node, is_causal=0, q_num_heads=0, kv_num_heads=0, left_window_size=-1, right_window_size=-1, scale=None,
        softcap=0.0,
    )  # fmt: skip
    q, k, v = (b.read(x) for x in (query, key, value))
    packed = len(q.shape) == 3
    if packed:
        q, k, v = (split_heads(x, given[f"{side}_num_heads"]) for side, x in (("q", q), ("kv", k), ("kv", v)))
    pasts = [cache(b, past) for past in (past_key, past_value)]
    k, v = (
        joined(b, past, new, present_of(b, present, past))
        for past, new, present in zip(pasts, (k, v), presents, strict=True)
    )
    offset = 0 if pasts[0] is None else pasts[0].shape[2]
    left, right = given["left_window_size"], 0 if given["is_causal"] else given["right_window_size"]
    seen = offset + 1 if right == 0 and left < 0 and lengths is None else None
    masked = None if mask is None else b.read(mask)
    if masked is not None and masked.shape and masked.shape[-1] < k.shape[2]:
        k, v = (part(x, 2, 0, masked.shape[-1]) for x in (k, v))  # keys behind the mask are not to be seen
    heads = Heads(q, k, v)
    scores = Scores(b, heads.scores)
    scores.scale(1.0 / math.sqrt(q.shape[3]) if given["scale"] is None else given["scale"])
    scores.cap(given["softcap"])
    if masked is not None:
        _check(masked, heads)
        (scores.keep if masked.element == "bool" else scores.add)(masked)
    if seen is None:
        window = _window(b, lengths, heads, offset, left, right).seen(b, *heads.scores[2:])
        if window is not None:
            scores.keep(window)
    write_attention(b, y, heads, scores, seen, packed)


def _check(mask: Tensor, heads: Heads) -> None:
    """The mask broadcasts to the scores."""
    wanted = heads.scores[len(heads.scores) - len(mask.shape) :]
    if any(n not in (1, m) for n, m in zip(mask.shape, wanted, strict=True)):
        raise Unsupported(f"a mask of shape {mask.shape} does not fit scores of shape {heads.scores}")


def _window(b: Lowering, lengths: ValueView | None, heads: Heads, offset: int, left: int, right: int) -> Window:
    before, behind = left if left >= 0 else None, right if right >= 0 else None
    if lengths is None:
        return Window(offset, left=before, right=behind)
    ends = by_batch(b, lengths, 0, heads.scores[0])
    return Window(-heads.scores[2], ends, before, behind, ends)
