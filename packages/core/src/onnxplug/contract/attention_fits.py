"""Whether the operands of attention go together: queries with keys and values, masks and biases with both, caches of earlier calls with
what they are appended to. The rules are entered in ``fits``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from onnxplug.contract.shapes import Shape, operand, vectors, within


def projected(node: Any, shapes: Sequence[Shape | None]) -> bool:
    """ONNX's ``Attention``; com.microsoft's ``Attention`` and ``QAttention``, which project their input to queries, keys and values."""
    x, w = shapes[0], shapes[1]
    if not node.domain:
        lengths = operand(shapes, 6)
        return attended(node, shapes[:3]) and _remembered(shapes) and (x is None or vectors(x[0], lengths))
    if node.domain != "com.microsoft" or x is None or w is None:
        return True
    bias = operand(shapes, 2)
    if not (len(x) == 3 and len(w) == 2 and x[2] == w[0] and bias in (None, (w[1],))):
        return False
    past = operand(shapes, 4)
    return node.op_type == "QAttention" or _masked(
        operand(shapes, 3), x[0], x[1], x[1] + (0 if past is None else past[3])
    )


def attended(node: Any, shapes: Sequence[Shape | None]) -> bool:
    """``MultiHeadAttention``: as many values as keys, batches and heads as the queries have; caches, masks and biases to match."""
    q, k, v, added, mask, bias, *pasts = (operand(shapes, index) for index in range(8))
    if q is not None and len(q) == 5:  # (batch, rows, heads, 3, size): with keys and values
        q = k = v = (q[0], q[1], q[2] * q[4])
    elif k is not None and len(k) == 5:
        k = v = (k[0], k[1], k[2] * k[4])
    if q is None or k is None or v is None or len(k) != len(v) or not 3 <= len(k) <= 4:
        return True
    if not (q[0] == k[0] == v[0] and k[len(k) - 2] == v[len(v) - 2]):
        return False
    if added is not None and len(k) == 3 and added != (q[2] + k[2] + v[2],):
        return False
    total, heads = k[len(k) - 2], node.attributes.get("num_heads", 0)
    sizes = _size(q, node.attributes.get("q_num_heads", heads)), _size(k, node.attributes.get("kv_num_heads", heads))
    if None not in sizes and sizes[0] != sizes[1]:
        return False
    for past, new in zip(pasts, (k, v), strict=True):
        if past is not None and not _cached(past, q[0], heads, new[3] if len(new) == 4 else new[2] // max(heads, 1)):
            return False
    if pasts[0] is not None and len(k) == 3:
        total += pasts[0][2]
    rows = q[1] if len(q) == 3 else q[2]
    return _masked(mask, q[0], rows, total) and within(bias, (q[0], heads, rows, total))


def _size(shape: Shape, heads: int) -> int | None:
    """How wide a head is, None where that is not known."""
    return shape[3] if len(shape) == 4 else shape[2] // heads if heads > 0 else None


def _remembered(shapes: Sequence[Shape | None]) -> bool:
    """Whether a mask of ONNX's attention has no more keys than there are, those of earlier calls among them."""
    k, mask, past = shapes[1], operand(shapes, 3), operand(shapes, 4)
    if k is None or not mask or (past is None and len(shapes) > 4):  # which may be one of a shape that is not known
        return True
    return mask[-1] <= k[len(k) - 2] + (0 if past is None else past[2])


def grouped(node: Any, shapes: Sequence[Shape | None]) -> bool:
    """``GroupQueryAttention``: caches and lengths as many as the queries have batches, a sine for each cosine."""
    q, key = shapes[0], operand(shapes, 1)
    heads, shared = node.attributes["num_heads"], node.attributes["kv_num_heads"]
    if q is None or heads < 1 or shared < 1:
        return q is None
    size = q[2] // (heads if key is not None else heads + 2 * shared)
    lengths, cosines, sines = (operand(shapes, index) for index in (5, 7, 8))
    if cosines is not None and sines is not None and cosines != sines:
        return False
    return (lengths is None or math.prod(lengths) == q[0]) and all(
        past is None or node.attributes.get("kv_cache_bit_width", 0) or _cached(past, q[0], shared, size)
        for past in shapes[3:5]
    )


def _cached(past: Shape, batch: int, heads: int, size: int) -> bool:
    """Whether ``past``, keys or values of earlier calls, is (batch, heads, any length, size)."""
    return len(past) == 4 and (past[0], past[1], past[3]) == (batch, heads, size)


def _masked(mask: Shape | None, batch: int, rows: int, total: int) -> bool:
    """Whether ``mask`` has one of the shapes that com.microsoft's attention takes, for ``rows`` queries and ``total`` keys."""
    known: dict[int, list[Shape]] = {
        1: [(batch,), (2 * batch,), (3 * batch + 2,)],
        2: [(batch, total)],
        3: [(batch, rows, total)],
    }
    return mask is None or mask in known.get(len(mask), [mask])
