"""LinearAttention, of ONNX and of com.microsoft: recurrences over a state of each head."""

from __future__ import annotations

import math

from onnxplug.contract import NodeView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.linear import Linear
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.loops import write_map
from onnxplug_ep_cpu.codegen.lower.quantized import MS
from onnxplug_ep_cpu.codegen.lower.support import FLOATS, attributes, floats, ranked, require
from onnxplug_ep_cpu.codegen.program import Ref
from onnxplug_ep_cpu.codegen.tensor import Tensor

GATED, DELTA = ("gated", "gated_delta"), ("delta", "gated_delta")
MOST = 8
"""Queries that read a state at once."""
VECTORS = 2
"""Columns of a state that are followed at once."""


def _supports(node: NodeView) -> str | None:
    query, key, value, past, decay, beta = [*node.inputs, *[None] * 3][:6]
    given = attributes(node, update_rule="gated_delta", state_window=0)
    rule = given["update_rule"]
    if given["state_window"]:
        return "the states of several tokens are not generated"
    if (
        rule not in ("linear", *GATED, *DELTA)
        or (decay is None) == (rule in GATED)
        or (beta is None) == (rule in DELTA)
    ):
        return "decay and beta do not go with the rule"
    reason = floats(node) or ranked(past, FLOATS, 4)
    return reason or next((why for v in (query, key, value, decay, beta) if (why := ranked(v, FLOATS, 3))), None)


@lowering("LinearAttention", supports=_supports)
@lowering("LinearAttention", supports=_supports, domain=MS)
def linear_attention(b: Lowering, node: NodeView) -> None:
    """Token by token, the columns of every head's state apart."""
    query, key, value, past, decay, beta = [*node.inputs, *[None] * 3][:6]
    y, present = [*node.outputs, None][:2]
    assert query is not None and key is not None and value is not None and y is not None
    given = attributes(node, scale=0.0, update_rule="gated_delta")
    asking, heads = int(given["q_num_heads"]), int(given["kv_num_heads"])
    require(_shares(asking, heads))
    group, shared = max(1, asking // heads), max(1, heads // asking)
    q, k, v = (b.dense(x) for x in (query, key, value))
    batch, tokens, width = v.shape
    size, width = k.shape[2] // heads, width // heads
    wanted = [(batch, tokens, n) for n in (asking * size, heads * size, heads * width)]
    require(None if [x.shape for x in (q, k, v)] == wanted else "queries, keys and values do not suit each other")
    shape = (batch, heads, size, width)
    before = None if past is None else b.dense(past)
    require(None if before is None or before.shape == shape else "the state does not suit keys and values")
    rates, kind, factors = None, "none", None
    if decay is not None:
        factors = b.scratch(b.shape(decay))
        each = factors.shape[2] // heads
        require(None if factors.shape == (batch, tokens, heads * each) and each in (1, size) else "decays do not suit")
        write_map(b.program, b.target, (("leaf", 0), ("exp", 0)), [b.read(decay)], factors)
        kind = "head" if each == 1 else "key"
    if beta is not None:
        rates = b.dense(beta)
        require(None if rates.shape[:2] == (batch, tokens) and rates.shape[2] in (1, heads) else "rates do not suit")
    result = b.output(y)
    require(None if b.shape(y) == (batch, tokens, heads * group * width) else "the result has another shape")
    state = b.scratch(shape) if present is None else b.output(present)
    if present is not None:
        require(None if b.shape(present) == shape else "the state has another shape")
    if tokens == 0:
        write_map(b.program, b.target, ex.IDENTITY, [b.zeros(1).viewed((), ()) if before is None else before], state)
        return
    masked = width % b.target.lanes != 0
    vectors = VECTORS if width % (VECTORS * b.target.lanes) == 0 else 1
    items = batch * heads * -(-width // (vectors * b.target.lanes))
    held = b.scratch((items, size, vectors * b.target.lanes) if tokens > 1 else (1,))
    scale = given["scale"] or 1 / math.sqrt(size)
    kernel = Linear(kind, rates is not None, group, before is not None, vectors, masked, scale)
    before = b.zeros(vectors * b.target.lanes) if before is None else before
    args: list[int | Ref] = [q.ref, k.ref, v.ref, *(_ref(x, v) for x in (before, factors, rates)), state.ref]
    args += [result.ref, held.ref, tokens, heads, asking, shared, size, width, 1 if rates is None else rates.shape[2]]
    work = items * size * tokens * vectors * (1.0 + 0.3 * group)
    b.program.call(kernel, args, items, work, even=False)


def _shares(asking: int, heads: int) -> str | None:
    """Why heads of queries do not go with heads of keys, or None."""
    if min(asking, heads) < 1 or max(asking, heads) % min(asking, heads):
        return "heads of queries and keys do not share evenly"
    return "so many queries of a state are not generated" if asking > MOST * heads else None


def _ref(tensor: Tensor | None, other: Tensor) -> Ref:
    """Where the tensor is; some address where there is none."""
    return (other if tensor is None else tensor).ref
