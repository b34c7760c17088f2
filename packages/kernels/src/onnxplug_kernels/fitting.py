"""Operands whose sizes must go together, where NumPy would broadcast them or a sum would take some of them.

A rule has a word for each dimension of each operand, and ``|`` between operands: a letter is the same size wherever it stands, ``?`` any
size, ``@N`` the attribute N; ``*`` any number of dimensions, ``*A`` the same ones wherever it stands. ``#A`` alone is a tensor with as
many elements as others of that name, ``<`` one that broadcasts to the first operand, ``~`` whatever it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from onnxplug_kernels.refusals import braced

MS = "com.microsoft"
Shape = tuple[int, ...]
RULES: Mapping[tuple[str, str], str] = {
    (MS, "Attention"): "B S D | D N | N",
    (MS, "BiasGelu"): "* D | D",
    (MS, "CDist"): "M K | N K",
    (MS, "DecoderMaskedMultiHeadAttention"): "B * | B * | B * | B ?",
    (MS, "EngramGate"): "*A M H | *A M H | *A H | M H | M H",
    (MS, "FastGelu"): "* D | D",
    (MS, "LinearAttention"): "B S ? | B S ? | B S ? | B ? ? ? | B S ? | B S ?",
    (MS, "LinearAttentionGate"): "*A D | D | D | *A D",
    (MS, "MatMulNBits"): "* @K | @N ? ?",
    (MS, "MoE"): "* D | ? E | E ? ? | E ? | E ? ? | E D",
    (MS, "MultiHeadAttention"): "B * | B * | B *",
    (MS, "RotaryEmbedding"): "~ | ~ | C R | C R",
    (MS, "SkipLayerNormalization"): "* D | < | D | D | D",
    (MS, "SkipSimplifiedLayerNormalization"): "* D | < | D | D",
    (MS, "Unique"): "N",
    **{(domain, f"{way}Linear"): "~ | #A | #A" for domain in ("", MS) for way in ("Quantize", "Dequantize")},
}


def misfit(domain: str, op_type: str, shapes: Sequence[Shape | None], attributes: Mapping[str, Any]) -> str | None:
    """Which operand does not fit those before it; None where all do, or no rule is known. A shape of None is an omitted operand."""
    rule = RULES.get((domain, op_type))
    if rule is None:
        return None
    bound: dict[str, Any] = {}
    for index, (words, shape) in enumerate(zip(rule.split("|"), shapes, strict=False)):
        if shape is not None and not _fits(words.split(), tuple(shape), shapes[0], bound, attributes):
            return f"input {index} of {op_type} has shape {braced(shape)}, expected is{_read(words, bound)}"
    return None


def _fits(words: list[str], shape: Shape, first: Any, bound: dict[str, Any], attributes: Mapping[str, Any]) -> bool:
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
    return fixed is not None and all(
        _agrees(word, size, bound, attributes) for word, size in zip(words, fixed, strict=True)
    )


def _agrees(word: str, size: int, bound: dict[str, Any], attributes: Mapping[str, Any]) -> bool:
    if word[0] == "@":
        return bool(bound.setdefault(word, attributes[word[1:]]) == size)
    return word == "?" or bool(bound.setdefault(word, size) == size)


def _read(words: str, bound: Mapping[str, Any]) -> str:
    """The words of an operand, with what is known of them."""
    known = (f"{word}={bound[word]}" if word in bound else word for word in words.split())
    return f" ({', '.join(known)})"
