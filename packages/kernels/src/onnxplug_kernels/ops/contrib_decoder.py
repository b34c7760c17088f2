"""Attention of one token to a buffer of past ones, in domain ``com.microsoft``: what decoders of beam searches hold."""

from __future__ import annotations

from typing import Any

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.ops.contrib_attention import multi_head_attention, self_attention
from onnxplug_kernels.precision import narrow, widen

MS = "com.microsoft"


@op("DecoderMaskedMultiHeadAttention", 1, domain=MS, host_inputs=(7,))
def decoder_masked_multi_head_attention(
    xp: Any,
    query: Any,
    key: Any = None,
    value: Any = None,
    mask_index: Any = None,
    attention_bias: Any = None,
    past_key: Any = None,
    past_value: Any = None,
    past_sequence_length: Any = None,
    beam_width: Any = None,
    cache_indirection: Any = None,
    bias: Any = None,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    output_qk: int = 0,
    past_present_share_buffer: int = 0,
    scale: float | None = None,
    n_outputs: int = 1,
) -> tuple[Any, ...]:
    """MultiHeadAttention of a query (batch, 1, hidden), to itself behind a past, or to keys and values (batch, heads, length, size).

    Without a key the query holds keys and values beside it. With ``past_present_share_buffer`` the pasts are buffers of which
    ``past_sequence_length`` tokens are filled.
    """
    _one_token(query)
    if key is None:
        third = query.shape[2] // 3
        query, key, value = query[..., :third], query[..., third : 2 * third], query[..., 2 * third :]
    return multi_head_attention(
        xp,
        query,
        key,
        value,
        bias,
        mask_index,
        attention_bias,
        past_key,
        past_value,
        past_sequence_length if past_present_share_buffer and past_key is not None else None,
        cache_indirection if past_key is not None else None,
        num_heads=num_heads,
        mask_filter_value=mask_filter_value,
        scale=scale or None,
        n_outputs=n_outputs,
    )


@op("DecoderMaskedSelfAttention", 1, domain=MS, host_inputs=(6,))
def decoder_masked_self_attention(
    xp: Any,
    x: Any,
    weights: Any,
    bias: Any,
    mask_index: Any,
    past: Any,
    attention_bias: Any,
    past_sequence_length: Any,
    beam_width: Any = None,
    cache_indirection: Any = None,
    *,
    num_heads: int,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    past_present_share_buffer: int = 0,
    scale: float | None = None,
    n_outputs: int = 1,
) -> tuple[Any, ...]:
    """Attention with its projection of one token, (batch, 1, hidden), behind a past (2, batch, heads, length, size)."""
    _one_token(x)
    if do_rotary:
        raise ValueError(
            "do_rotary has no portable meaning in DecoderMaskedSelfAttention: it takes no cosines and sines"
        )
    projected = narrow(xp, xp.matmul(widen(xp, x), widen(xp, weights)) + widen(xp, bias), x.dtype)
    third = weights.shape[1] // 3
    return self_attention(
        xp,
        projected,
        [third, third, third],
        mask_index,
        past,
        attention_bias,
        past_sequence_length if past_present_share_buffer else None,
        num_heads,
        mask_filter_value,
        scale,
        0,
        cache_indirection,
    )[:n_outputs]


def _one_token(query: Any) -> None:
    if query.ndim != 3 or query.shape[1] != 1:
        raise ValueError(f"the query has shape {tuple(query.shape)}, expected is (batch, 1, hidden)")
