"""LinearAttention of ONNX and of ``com.microsoft``: attention as a recurrence over a matrix-valued state."""

from __future__ import annotations

import math
from typing import Any

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.ops.attention import split_heads
from onnxplug_kernels.precision import narrow, widen
from onnxplug_kernels.refusals import Refusal, braced

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
    given = [each for each in (query, key, value, decay, beta) if each is not None]
    if len({tuple(each.shape[:2]) for each in given}) > 1:
        raise Refusal(f"operands are of several batches or lengths: {', '.join(braced(each.shape) for each in given)}")
    output, states = recurrence(
        xp, query, key, value, past_state, decay, beta, q_num_heads, kv_num_heads, scale, update_rule, 1
    )
    return output, states[0]


@op("LinearAttention", 1, domain="com.microsoft")
def linear_attention_with_window(
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
    state_window: int = 0,
    update_rule: str = "gated_delta",
) -> tuple[Any, Any]:
    """LinearAttention-27; with ``state_window`` the states after the last so many tokens, the newest last, (window, batch, kv heads, key
    size, value size). There may be more heads of keys than of queries: each gives an output then."""
    if not 0 <= state_window <= 8:
        raise ValueError(f"state_window is {state_window}; it must be in 0..8")
    if past_state is not None and state_window:
        past_state = past_state[-1, ...]
    output, states = recurrence(
        xp,
        query,
        key,
        value,
        past_state,
        decay,
        beta,
        q_num_heads,
        kv_num_heads,
        scale,
        update_rule,
        max(1, state_window),
    )
    if not state_window:
        return output, states[0]
    missing = [xp.zeros_like(states[0])] * (state_window - len(states))
    return output, xp.stack([*missing, *states])


def recurrence(
    xp: Any,
    query: Any,
    key: Any,
    value: Any,
    past_state: Any,
    decay: Any,
    beta: Any,
    q_num_heads: int,
    kv_num_heads: int,
    scale: float,
    update_rule: str,
    window: int,
    deltas: list[Any] | None = None,
) -> tuple[Any, list[Any]]:
    """The output, and the states after the last ``window`` tokens, or before the first where there is none. To ``deltas`` is appended, for
    each token, what its key was multiplied by when the state learned it, (batch, kv heads, 1, value size)."""
    if update_rule not in ("linear", *_GATED, "delta"):
        raise ValueError(f"update_rule is {update_rule!r}; it must be linear, gated, delta or gated_delta")
    if (decay is None) == (update_rule in _GATED) or (beta is None) == (update_rule in _DELTA):
        raise ValueError(f"decay and beta given do not go with update_rule {update_rule!r}")
    batch, length, _ = query.shape
    if min(q_num_heads, kv_num_heads) < 1 or max(q_num_heads, kv_num_heads) % min(q_num_heads, kv_num_heads):
        raise ValueError(f"{q_num_heads} heads of queries and {kv_num_heads} of keys do not share evenly")
    group = max(1, q_num_heads // kv_num_heads)
    keys, values = (widen(xp, split_heads(xp, x, kv_num_heads)) for x in (key, value))
    size, value_size = keys.shape[3], values.shape[3]
    queries = widen(xp, split_heads(xp, query, q_num_heads)) * (scale or 1 / math.sqrt(size))
    if kv_num_heads > q_num_heads:
        queries = xp.repeat(queries, kv_num_heads // q_num_heads, axis=1)
    queries = xp.reshape(queries, (batch, kv_num_heads, group, length, size))
    # One factor per head or per key element, and one rate per head or for all, ready to broadcast against the state.
    factors = None if decay is None else xp.exp(widen(xp, split_heads(xp, decay, kv_num_heads)))
    rates = None if beta is None else widen(xp, split_heads(xp, beta, beta.shape[2]))
    whole = (batch, kv_num_heads, size, value_size)
    if past_state is not None and tuple(past_state.shape) != whole:
        raise Refusal(f"past_state has shape {braced(past_state.shape)}, expected is {braced(whole)}")
    state = xp.zeros(whole, dtype=xp.float32) if past_state is None else xp.astype(past_state, xp.float32)
    y = xp.zeros((batch, kv_num_heads, group, length, value_size), dtype=xp.float32)
    dtype, states = query.dtype if past_state is None else past_state.dtype, [state] if length == 0 else []
    for t in range(length):
        row, new = keys[:, :, t : t + 1, :], values[:, :, t : t + 1, :]
        if factors is not None:
            state = state * xp.matrix_transpose(factors[:, :, t : t + 1, :])
        if rates is not None:
            new = rates[:, :, t : t + 1, :] * (new - xp.matmul(row, state))
        if deltas is not None:
            deltas.append(new)
        state = state + xp.matrix_transpose(row) * new
        y[:, :, :, t, :] = xp.matmul(queries[:, :, :, t, :], state)
        if t >= length - window:
            states.append(state)
    heads = max(q_num_heads, kv_num_heads)
    y = xp.permute_dims(xp.reshape(y, (batch, heads, length, value_size)), (0, 2, 1, 3))
    output = narrow(xp, xp.reshape(y, (batch, length, heads * value_size)), query.dtype)
    return output, [narrow(xp, state, dtype) for state in states]
