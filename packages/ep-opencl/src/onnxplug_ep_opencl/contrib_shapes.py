"""Results of operators of com.microsoft that are not shaped like the first operand: attention, embeddings, products of packed weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from onnxplug.contract import TensorSpec

Shape = tuple[int, ...]
Given = Sequence[TensorSpec | None]


def contrib_specs(op_type: str, attributes: Mapping[str, Any], inputs: Given) -> list[TensorSpec] | None:
    """The specs of all results; None of other operators. ValueError where the operands do not fit."""
    rule = _RULES.get(op_type)
    try:
        return None if rule is None else rule(attributes, [*inputs, *[None] * (_MOST - len(inputs))])
    except IndexError:
        raise ValueError(f"{[spec and spec.shape for spec in inputs]}") from None


def _packed(attributes: Mapping[str, Any], inputs: Given) -> list[TensorSpec]:
    """MatMulNBits."""
    x, w, scales, zeros = _known(inputs[0]), _known(inputs[1]), _known(inputs[2]), inputs[3]
    rows, depth, block, bits = attributes["N"], attributes["K"], attributes["block_size"], attributes.get("bits", 4)
    blocks = -(-depth // block)
    sizes = rows * blocks * -(-block * bits // 8), rows * blocks
    points = (sizes[1], rows * -(-blocks * bits // 8))
    fits = (math.prod(w.shape), math.prod(scales.shape)) == sizes
    if x.shape[-1] != depth or not fits or (zeros is not None and math.prod(zeros.shape) not in points):
        raise ValueError(f"{x.shape} times {rows} rows of {depth} numbers in {w.shape}, with scales {scales.shape}")
    return [TensorSpec(x.dtype, (*x.shape[:-1], rows))]


def _rows(attributes: Mapping[str, Any], inputs: Given) -> list[TensorSpec]:
    """GatherBlockQuantized."""
    table, places, scales, zeros = _known(inputs[0]), _known(inputs[1]), _known(inputs[2]), inputs[3]
    (rows, width), bits = table.shape, attributes.get("bits", 4)
    depth = width * 8 // bits
    blocks = -(-depth // attributes.get("block_size", 128))
    suit = zeros is None or zeros.shape == (rows, -(-blocks * bits // 8))
    if scales.shape != (rows, blocks) or not suit:
        raise ValueError(
            f"{rows} rows of {blocks} blocks with scales {scales.shape}, zero points {zeros and zeros.shape}"
        )
    return [TensorSpec(scales.dtype, (*places.shape, depth))]


def _self_attention(attributes: Mapping[str, Any], inputs: Given) -> list[TensorSpec]:
    """Attention."""
    x, w, past = _known(inputs[0]), _known(inputs[1]), inputs[4]
    heads, sizes = attributes["num_heads"], attributes.get("qkv_hidden_sizes")
    width = sizes[2] if sizes else w.shape[1] // 3
    total = x.shape[1] + (0 if past is None else past.shape[3])
    return [
        TensorSpec(x.dtype, (*x.shape[:2], width)),
        TensorSpec(x.dtype, (2, x.shape[0], heads, total, width // heads)),
    ]


def _quantized_attention(attributes: Mapping[str, Any], inputs: Given) -> list[TensorSpec]:
    """QAttention: as Attention of floats whose past stands where that of Attention does."""
    x, w, scale = _known(inputs[0]), _known(inputs[1]), _known(inputs[3])
    floats = [TensorSpec(scale.dtype, x.shape), w, None, None, inputs[8], *[None] * _MOST]
    return _self_attention(attributes, floats)


def _attention(attributes: Mapping[str, Any], inputs: Given) -> list[TensorSpec]:
    """MultiHeadAttention: queries, keys and values apart, or packed with five dimensions."""
    query, key, value, past = _known(inputs[0]), inputs[1], inputs[2], inputs[6]
    heads, (batch, rows) = attributes["num_heads"], query.shape[:2]
    whole = query if key is None else key
    if value is None:  # the last dimension of what is packed
        keys, size, value_size = whole.shape[1], whole.shape[4], whole.shape[4]
    elif len(value.shape) == 4:
        keys, size, value_size = value.shape[2], whole.shape[3], value.shape[3]
    else:
        keys, size, value_size = value.shape[1], whole.shape[2] // heads, value.shape[2] // heads
    total = keys + (past.shape[2] if past is not None and (value is None or len(value.shape) == 3) else 0)
    shapes: list[Shape] = [
        (batch, rows, heads * value_size), (batch, heads, total, size), (batch, heads, total, value_size),
        (batch, heads, rows, total),
    ]  # fmt: skip
    return [TensorSpec(query.dtype, shape) for shape in shapes]


def _simplified(attributes: Mapping[str, Any], inputs: Given) -> list[TensorSpec]:
    """SimplifiedLayerNormalization: of the scale's type; the inverse roots have ones from the axis on."""
    x, scale = _known(inputs[0]), _known(inputs[1])
    axis = attributes.get("axis", -1) % max(len(x.shape), 1)
    roots = (*x.shape[:axis], *[1] * (len(x.shape) - axis))
    return [TensorSpec(scale.dtype, x.shape), TensorSpec(np.dtype(np.float32), roots)]


def _embedded(attributes: Mapping[str, Any], inputs: Given) -> list[TensorSpec]:
    """EmbedLayerNormalization."""
    ids, words = _known(inputs[0]), _known(inputs[2])
    made = TensorSpec(words.dtype, (*ids.shape[:2], words.shape[1]))
    return [made, TensorSpec(np.dtype(np.int32), ids.shape[:1]), made]


def _embedded_bytes(attributes: Mapping[str, Any], inputs: Given) -> list[TensorSpec]:
    """QEmbedLayerNormalization."""
    ids, words, scale = _known(inputs[0]), _known(inputs[2]), _known(inputs[8])
    made = TensorSpec(scale.dtype, (*ids.shape[:2], words.shape[1]))
    return [made, TensorSpec(np.dtype(np.int32), ids.shape[:1])]


def _recurrence(attributes: Mapping[str, Any], inputs: Given) -> list[TensorSpec]:
    """LinearAttention: values of the more numerous heads, and a matrix for each head of keys."""
    query, key, value, past = (*map(_known, inputs[:3]), inputs[3])
    queries, heads, window = attributes["q_num_heads"], attributes["kv_num_heads"], attributes.get("state_window", 0)
    size, value_size = key.shape[2] // heads, value.shape[2] // heads
    state = (*((window,) if window else ()), query.shape[0], heads, size, value_size)
    made = TensorSpec(query.dtype, (*query.shape[:2], max(queries, heads) * value_size))
    return [made, TensorSpec(query.dtype if past is None else past.dtype, state)]


def _causal(attributes: Mapping[str, Any], inputs: Given) -> list[TensorSpec]:
    """CausalConvWithState whose states are as long as its filter."""
    x, weight = _known(inputs[0]), _known(inputs[1])
    reach = (weight.shape[2] - 1) * attributes.get("dilation", 1)
    last = attributes.get("channels_last", 0)
    state = (x.shape[0], reach, *x.shape[2:]) if last else (*x.shape[:2], reach)
    return [x, TensorSpec(x.dtype, state)]


def _gates(attributes: Mapping[str, Any], inputs: Given) -> list[TensorSpec]:
    """LinearAttentionGate: shaped like a, and like b."""
    a, b = _known(inputs[0]), inputs[3]
    return [a, a if b is None else b]


def _routes(attributes: Mapping[str, Any], inputs: Given) -> list[TensorSpec]:
    """MoEGroupRouter: something for each token and expert, thrice."""
    logits, bias = _known(inputs[0]), _known(inputs[1])
    shape = (math.prod(logits.shape[:-1]), bias.shape[0])
    return [TensorSpec(logits.dtype, shape), *[TensorSpec(bias.dtype, shape)] * 2]


def _halved(attributes: Mapping[str, Any], inputs: Given) -> list[TensorSpec]:
    """BiasSplitGelu, and SwiGLU: half as wide where one operand holds both halves."""
    x, up = _known(inputs[0]), inputs[1]
    both = up is None or len(up.shape) != len(x.shape)
    if both and x.shape[-1] % 2:
        raise ValueError(f"{x.shape[-1]} elements do not hold two halves")
    return [TensorSpec(x.dtype, (*x.shape[:-1], x.shape[-1] // 2) if both else x.shape)]


def _summed(attributes: Mapping[str, Any], inputs: Given) -> list[TensorSpec]:
    """SkipGroupNorm: the result and the sum."""
    return [_known(inputs[0])] * 2


def _known(spec: TensorSpec | None) -> TensorSpec:
    assert spec is not None, "an operand that the operator cannot do without"
    return spec


_MOST = 9
_RULES: dict[str, Callable[[Mapping[str, Any], Given], list[TensorSpec]]] = {
    "Attention": _self_attention,
    "BiasSplitGelu": _halved,
    "CausalConvWithState": _causal,
    "EmbedLayerNormalization": _embedded,
    "GatherBlockQuantized": _rows,
    "LinearAttention": _recurrence,
    "LinearAttentionGate": _gates,
    "MatMulNBits": _packed,
    "MoEGroupRouter": _routes,
    "MultiHeadAttention": _attention,
    "QAttention": _quantized_attention,
    "QEmbedLayerNormalization": _embedded_bytes,
    "SimplifiedLayerNormalization": _simplified,
    "SkipGroupNorm": _summed,
    "SwiGLU": _halved,
}
