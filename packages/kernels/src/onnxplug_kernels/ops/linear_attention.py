"""LinearAttention: attention as a recurrence over a matrix-valued state."""

from __future__ import annotations

import math
from typing import Any

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.ops.attention import split_heads
from onnxplug_kernels.precision import narrow, widen

_GATED = ("gated", "gated_delta")
_DELTA = ("delta", "gated_delta")


@op("LinearAttention", 27)
def linear_attention(
    xp: Any,
    query: Any,
    key: Any,
    value: Any,
    past_state: Any = None,
    decay: Any = None,
    beta: Any = None,
    *,
    q_num_heads: int,
    kv_num_heads: int,
    chunk_size: int = 64,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
) -> tuple[Any, Any]:
    """Run the recurrence of ``update_rule`` token by token; (output, state after the last token).

    The state is (batch, kv heads, key size, value size), in float32 throughout; query heads share their group's.
    """
    if update_rule not in ("linear", *_GATED, "delta"):
        raise ValueError(f"update_rule is {update_rule!r}; it must be linear, gated, delta or gated_delta")
    if (decay is None) == (update_rule in _GATED) or (beta is None) == (update_rule in _DELTA):
        raise ValueError(f"decay and beta given do not go with update_rule {update_rule!r}")
    batch, length, _ = query.shape
    group = q_num_heads // kv_num_heads
    keys, values = (widen(xp, split_heads(xp, x, kv_num_heads)) for x in (key, value))
    size, value_size = keys.shape[3], values.shape[3]
    queries = widen(xp, split_heads(xp, query, q_num_heads)) * (scale or 1 / math.sqrt(size))
    queries = xp.reshape(queries, (batch, kv_num_heads, group, length, size))
    # One factor per head or per key element, and one rate per head or for all, ready to broadcast against the state.
    factors = None if decay is None else xp.exp(widen(xp, split_heads(xp, decay, kv_num_heads)))
    rates = None if beta is None else widen(xp, split_heads(xp, beta, beta.shape[2]))
    if past_state is None:
        state = xp.zeros((batch, kv_num_heads, size, value_size), dtype=xp.float32)
    else:
        state = xp.astype(past_state, xp.float32)
    y = xp.zeros((batch, kv_num_heads, group, length, value_size), dtype=xp.float32)
    for t in range(length):
        row, new = keys[:, :, t : t + 1, :], values[:, :, t : t + 1, :]
        if factors is not None:
            state = state * xp.matrix_transpose(factors[:, :, t : t + 1, :])
        if rates is not None:
            new = rates[:, :, t : t + 1, :] * (new - xp.matmul(row, state))
        state = state + xp.matrix_transpose(row) * new
        y[:, :, :, t, :] = xp.matmul(queries[:, :, :, t, :], state)
    y = xp.permute_dims(xp.reshape(y, (batch, q_num_heads, length, value_size)), (0, 2, 1, 3))
    output = narrow(xp, xp.reshape(y, (batch, length, q_num_heads * value_size)), query.dtype)
    return output, narrow(xp, state, query.dtype if past_state is None else past_state.dtype)
