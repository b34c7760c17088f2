"""Scaled dot-product attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from operators.case import Case
from operators.oracle import oracle
from operators.values import element_name, is_float


def _odd_mask(case: Case) -> bool:
    """onnx.reference adds an integer mask to minus infinity, computes double partly in float32, caps the scores it gives out."""
    if case.attributes.get("softcap") and len(case.present) > 3:
        return True
    mask = case.types.get("U", "tensor(bool)")
    return (mask != "tensor(bool)" and not is_float(element_name(mask))) or "double" in case.types["T1"] + case.types[
        "T2"
    ] + mask


@oracle(
    "Attention",
    sentence="Y = softmax(softcap(Q K^T scale) + mask) V; an integer mask is added to the scores as they are; masked rows give zeros",
    wrong=_odd_mask,
)
def attention(case: Case, x: list[Any]) -> Any:
    attributes = case.attributes
    q, k, v, mask, past_k, past_v, valid = [*x, None, None, None, None][:7]
    flat = q.ndim == 3
    if flat:
        q, k, v = (_heads(a, attributes[n]) for a, n in ((q, "q_num_heads"), (k, "kv_num_heads"), (v, "kv_num_heads")))
    past = 0 if past_k is None else past_k.shape[2]
    if past_k is not None:
        k, v = np.concatenate([past_k, k], 2), np.concatenate([past_v, v], 2)
    group = q.shape[1] // k.shape[1]
    keys, values = np.repeat(k, group, 1), np.repeat(v, group, 1)
    raw = np.einsum("bhqd,bhkd->bhqk", q, keys) * attributes.get("scale", 1 / math.sqrt(q.shape[3]))
    cap = attributes.get("softcap", 0.0)
    capped = cap * np.tanh(raw / cap) if cap else raw
    bias = np.zeros(raw.shape)
    if mask is not None:
        full = np.where(mask, 0, -np.inf) if mask.dtype == bool else mask.astype(np.float64)
        bias = bias + full
    i, j = np.arange(raw.shape[2])[:, None], np.arange(raw.shape[3])
    offset = np.array(past) if valid is None else (valid - raw.shape[2])[:, None, None, None]
    if attributes.get("is_causal"):
        bias = np.where(j <= i + offset, bias, -np.inf)
    if valid is not None:
        bias = np.where(j < valid[:, None, None, None], bias, -np.inf)
    scores = capped + bias
    top = scores.max(3, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = weights.sum(3, keepdims=True)
    weights = weights / np.where(total == 0, 1, total)
    y = np.einsum("bhqk,bhkd->bhqd", weights, values)
    if flat:
        y = y.transpose(0, 2, 1, 3).reshape(y.shape[0], y.shape[2], -1)
    return y, k, v, (raw, capped, scores, weights)[attributes.get("qk_matmul_output_mode", 0)]


def _heads(x: np.ndarray, heads: int) -> np.ndarray:
    return x.reshape(x.shape[0], x.shape[1], heads, -1).transpose(0, 2, 1, 3)


@oracle(
    "FlexAttention",
    domain="ai.onnx.preview",
    sentence="Y = softmax(Q K^T scale) V, each key head shared by a group of query heads",
)
def flex_attention(case: Case, x: list[Any]) -> Any:
    q, k, v = x
    keys, values = (np.repeat(a, q.shape[1] // k.shape[1], 1) for a in (k, v))
    scores = np.einsum("bhqd,bhkd->bhqk", q, keys) * case.attributes.get("scale", 1 / math.sqrt(q.shape[3]))
    weights = np.exp(scores - scores.max(3, keepdims=True))
    return np.einsum("bhqk,bhkd->bhqd", weights / weights.sum(3, keepdims=True), values)
