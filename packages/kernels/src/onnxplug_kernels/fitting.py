"""Operands whose sizes must go together, where NumPy would broadcast them or a sum would take some of them.

A rule has a word for each dimension of each operand, and ``|`` between operands: a letter is the same size wherever it stands, ``?`` any
size; ``*`` any number of dimensions, ``*A`` the same ones wherever it stands, ``&A`` the product of these. ``#A``
alone is a tensor with as many elements as others of that name, ``<`` one that broadcasts to the first operand, ``~`` whatever it is.
Where sizes follow from others by arithmetic, a function takes a rule's place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onnxplug_kernels.refusals import INVALID_ARGUMENT, Refusal, braced

MS = "com.microsoft"
Shape = tuple[int, ...]
Shapes = Sequence[Shape | None]
Unfit = tuple[int, Sequence[Shape]]
"""The index of an operand, and the shapes that it may have."""


def _experts(shapes: Shapes, given: Mapping[str, Any]) -> Unfit | None:
    """QMoE: layers of packed weights (experts, outputs, bytes), scales by output or block, biases, and zero
    points, packed along blocks or else outputs."""
    x, router, *layers = (*shapes, *[None] * 14)[:14]
    first, third = layers[0], layers[6]
    if x is None or router is None or first is None:
        return None
    experts, hidden, size = router[-1], x[-1], given.get("block_size", 0)
    if len(first) != 3:
        return 2, [(experts, *first)[:3]]
    inner = first[1] // 2 if given.get("activation_type", "relu") == "swiglu" and third is None else first[1]
    if tuple(router) != (due := (math.prod(x[:-1]), experts)):
        return 1, [due]
    for layer, (rows, depth) in enumerate(((first[1], hidden), (hidden, inner), (inner, hidden))):
        bits = given.get(f"fc{layer + 1}_expert_weight_bits", 0) or given.get("expert_weight_bits", 4)
        blocks = -(-depth // size) if size > 0 else 1
        scales = [(experts, rows, blocks), (experts, rows)]
        due_shapes: tuple[list[Shape], ...] = ([(experts, rows, -(-depth * bits // 8))], scales, [(experts, rows)])
        for place, expected in enumerate(due_shapes):
            if (shape := layers[3 * layer + place]) is not None and tuple(shape) not in expected:
                return 2 + 3 * layer + place, expected
        shape, step = layers[9 + layer], layers[3 * layer + 1]
        inside = size > 0 and step is not None and len(step) == 3
        points = (experts, rows, -(-blocks * bits // 8)) if inside else (experts, -(-rows * bits // 8))
        if shape is not None and tuple(shape) != points:
            return 11 + layer, [points]
    return None


def _rotated(shapes: Shapes, given: Mapping[str, Any]) -> Unfit | None:
    """RotaryEmbedding: caches (batch, length, angles), or (places, angles) where there are positions."""
    x, cos, sin, places = (*shapes, None)[:4]
    if x is None or cos is None or sin is None or len(x) not in (3, 4):
        return None
    heads = given.get("num_heads", 0)
    size = x[-1] // heads if len(x) == 3 and heads else x[-1]
    angles = (given.get("rotary_embedding_dim", 0) or size) // 2
    if places is None:
        due: Shape = (x[0], x[1] if len(x) == 3 else x[2], angles)
    else:
        due = (cos[0] if cos else 0, angles)
    return next(((index, [due]) for index, cache in ((1, cos), (2, sin)) if tuple(cache) != due), None)


def _attended(shapes: Shapes, given: Mapping[str, Any]) -> Unfit | None:
    """MultiHeadAttention: (batch, length, width) each; keys and values as (batch, heads, length, size), or packed with the values, or the
    queries with both, as (batch, length, heads, 2 or 3, size)."""
    q, k, v = (*shapes, None, None)[:3]
    heads = given.get("num_heads", 0)
    if q is None or len(q) not in (3, 5) or heads < 1:
        return None
    size = q[-1] // heads if len(q) == 3 else q[-1]
    due: list[tuple[Shape | None, list[Shape]]] = [(q, [tuple(q)]), (k, []), (v, [])]
    if len(q) == 5:
        due[0] = (q, [(*q[:2], heads, 3, size)])
    elif k is not None and len(k) == 5:
        due[1] = (k, [(q[0], k[1], heads, 2, size)])
    elif k is not None and len(k) == 4:
        due[1:] = [(k, [(q[0], heads, k[2], size)]), (v, [(q[0], heads, k[2], v[-1] if v else size)])]
    else:
        length = k[1] if k is not None and len(k) == 3 else q[1]
        due[1:] = [(k, [(q[0], length, q[2])]), (v, [(q[0], length if k is not None else v[1], v[-1])] if v else [])]
    return next(
        ((n, known) for n, (shape, known) in enumerate(due) if shape is not None and tuple(shape) not in known), None
    )


def _turned(shapes: Shapes, given: Mapping[str, Any]) -> Unfit | None:
    """com.microsoft's RotaryEmbedding: a place for each token, or the first row's alone; as many sines as cosines."""
    x, places, *caches = shapes[:4]
    if x is not None and places is not None and len(x) in (3, 4):
        due: list[Shape] = [(), (1,), (x[0], x[-2])]
        if tuple(places) not in due:
            return 1, due
    table = caches[0]
    if table is None:
        return None
    return next(
        ((n, [table[-2:]]) for n, cache in enumerate(caches, 2) if cache not in (None, tuple(table[-2:]))), None
    )


def _grouped(shapes: Shapes, given: Mapping[str, Any]) -> Unfit | None:
    """GroupQueryAttention: caches (batch, heads, length, ...) as long as one another, or none; as many new values as keys, behind a cache
    as queries; a place for each at least."""
    q, k, v, keys, values, *_, places = (*shapes, *[None] * 10)[:10]
    if q is None or len(q) != 3:
        return None
    if k is not None and keys is not None and len(k) == 3 and k[1] not in (0, q[1]):
        return 1, [(*q[:2], k[2])]
    if k is not None and v is not None and tuple(v[:2]) != tuple(k[:2]):
        return 2, [(*k[:2], *v[2:])]
    if places is not None and (len(places) != 2 or places[0] != q[0] or places[1] < q[1]):
        return 9, [tuple(q[:2])]
    if keys is None or values is None:
        return next(((n, []) for n, cache in ((3, keys), (4, values)) if cache is not None), None)
    if len(keys) != 4:
        return None
    held = (q[0], given.get("kv_num_heads", 0), keys[2])
    return next(((n, [(*held, *cache[3:])]) for n, cache in ((3, keys), (4, values)) if tuple(cache[:3]) != held), None)


def _few_bits(shapes: Shapes, given: Mapping[str, Any]) -> Unfit | None:
    """MatMulNBits: (N, blocks, bytes) weights, a scale and a zero point for each block, flat or by column; packed zero points are fewer."""
    x, weights, scales, zeros, _, bias = (*shapes, *[None] * 6)[:6]
    depth, rows, size, bits = (given.get(name, n) for name, n in (("K", 0), ("N", 0), ("block_size", 0), ("bits", 4)))
    if x is not None and x[-1:] != (depth,):
        return 0, [(*x[:-1], depth)]
    if bias is not None and bias != (rows,):
        return 5, [(rows,)]
    if size < 1 or given.get("weight_prepacked", 0):
        return None
    blocks = -(-depth // size)
    packed = -(-blocks * bits // 8)
    by_block: list[Shape] = [(rows * blocks,), (rows, blocks)]
    due: Sequence[tuple[Shape | None, Sequence[Shape]]] = (
        (weights, [(rows, blocks, -(-size * bits // 8))]), (scales, by_block), (zeros, [(rows * packed,), (rows, packed), *by_block]),
    )  # fmt: skip
    return next(
        ((n, known) for n, (shape, known) in enumerate(due, 1) if shape is not None and tuple(shape) not in known), None
    )


def _written(shapes: Shapes, given: Mapping[str, Any]) -> Unfit | None:
    """TensorScatter: an update is as large as the cache but along the axis, and a batch has an index."""
    cache, update, places = (*shapes, None)[:3]
    axis = given.get("axis", -2)
    if cache is None or update is None or not -len(cache) <= axis < len(cache):
        return None
    axis %= len(cache)
    length = min(update[axis], cache[axis]) if len(update) == len(cache) else cache[axis]
    if tuple(update) != (due := (*cache[:axis], length, *cache[axis + 1 :])):
        return 1, [due]
    return (2, [(cache[0],)]) if places is not None and tuple(places) != (cache[0],) else None


RULES: Mapping[tuple[str, str], str | Callable[[Shapes, Mapping[str, Any]], Unfit | None]] = {
    (MS, "Attention"): "B S D | D N | N",
    (MS, "BiasDropout"): "* D | D | <",
    (MS, "BiasGelu"): "* D | D",
    (MS, "CDist"): "M K | N K",
    (MS, "DecoderMaskedMultiHeadAttention"): "B * | B * | B * | B ?",
    (MS, "EmbedLayerNormalization"): "B S | B S | ? D | ? D | ? D | D | D",
    (MS, "EngramGate"): "*A M H | *A M H | *A H | M H | M H",
    (MS, "FastGelu"): "* D | D",
    (MS, "GemmaRotaryEmbedding"): "B S D | B H S D | B H S D | B H S D | B H S D",
    (MS, "GroupQueryAttention"): _grouped,
    (MS, "LinearAttention"): "B S ? | B S ? | B S ? | * B ? ? ? | B S ? | B S ?",
    (MS, "LinearAttentionGate"): "*A D | D | D | *A D",
    (MS, "MRotaryEmbedding"): "B * S ? | ? B S | C R | C R",
    (MS, "MatMulNBits"): _few_bits,
    (MS, "MoE"): "*A D | &A E | E ? ? | E ? | E ? ? | E D",
    (MS, "MultiHeadAttention"): _attended,
    (MS, "QMoE"): _experts,
    ("", "RotaryEmbedding"): _rotated,
    ("", "TensorScatter"): _written,
    (MS, "RotaryEmbedding"): _turned,
    (MS, "SkipLayerNormalization"): "* D | < | D | D | D",
    (MS, "SkipSimplifiedLayerNormalization"): "* D | < | D | D",
    (MS, "Unique"): "N",
    **{(domain, f"{way}Linear"): "~ | #A | #A" for domain in ("", MS) for way in ("Quantize", "Dequantize")},
}


def misfit(domain: str, op_type: str, shapes: Shapes, attributes: Mapping[str, Any]) -> str | None:
    """Which operand does not fit those before it; None where all do, or no rule is known. A shape of None is an omitted operand."""
    rule = RULES.get((domain, op_type))
    if rule is None:
        return None
    if not isinstance(rule, str):
        if (unfit := rule(shapes, attributes)) is None:
            return None
        expected = " or ".join(map(braced, unfit[1])) or "none"
        return f"input {unfit[0]} of {op_type} has shape {braced(shapes[unfit[0]])}, expected is {expected}"
    bound: dict[str, Any] = {}
    for index, (words, shape) in enumerate(zip(rule.split("|"), shapes, strict=False)):
        if shape is not None and not _fits(words.split(), tuple(shape), shapes[0], bound):
            return f"input {index} of {op_type} has shape {braced(shape)}, expected is{_read(words, bound)}"
    return None


def fitted(domain: str, op_type: str, attributes: Mapping[str, Any], function: Callable[..., Any], *inputs: Any) -> Any:
    """``function`` of arrays that fit one another. Refusal where one does not."""
    shapes = [None if x is None else x.shape for x in inputs]
    if (reason := misfit(domain, op_type, shapes, attributes)) is not None:
        raise Refusal(reason, INVALID_ARGUMENT)
    return function(*inputs)


def _fits(words: list[str], shape: Shape, first: Any, bound: dict[str, Any]) -> bool:
    if words == ["~"]:
        return True
    if words == ["<"]:
        inner = tuple(first)[len(first) - len(shape) :]
        return len(shape) <= len(first) and all(a in (1, b) for a, b in zip(shape, inner, strict=True))
    if words[0][0] == "#":
        return bool(bound.setdefault(words[0], math.prod(shape)) == math.prod(shape))
    many = next((i for i, word in enumerate(words) if word[0] == "*"), None)
    if many is None:
        fixed = shape if len(shape) == len(words) else None
    else:
        behind = len(words) - 1 - many
        fixed = None
        if len(shape) >= len(words) - 1:
            middle, end = shape[many : len(shape) - behind], shape[len(shape) - behind :]
            if words[many] != "*" and bound.setdefault(words[many], middle) != middle:
                return False
            fixed, words = (*shape[:many], *end), [*words[:many], *words[many + 1 :]]
    return fixed is not None and all(_agrees(word, size, bound) for word, size in zip(words, fixed, strict=True))


def _agrees(word: str, size: int, bound: dict[str, Any]) -> bool:
    if word[0] == "&":
        return bool(bound.setdefault(word, math.prod(bound[f"*{word[1:]}"])) == size)
    return word == "?" or bool(bound.setdefault(word, size) == size)


def _read(words: str, bound: Mapping[str, Any]) -> str:
    """The words of an operand, with what is known of them."""
    known = (f"{word}={bound[word]}" if word in bound else word for word in words.split())
    return f" ({', '.join(known)})"
