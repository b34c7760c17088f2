"""GatedDeltaNet of domain ``com.microsoft``: linear attention of sequences that stand one behind the other (Yang et al., Gated Delta
Networks, 2024; Kimi Delta Attention for the bounded gate)."""

from __future__ import annotations

import itertools
import math
from typing import Any

from onnxplug_kernels.activations import sigmoid
from onnxplug_kernels.catalogue import op
from onnxplug_kernels.ops.activation import softplus
from onnxplug_kernels.ops.contrib_packed import captured, check_capture
from onnxplug_kernels.ops.linear_attention import recurrence
from onnxplug_kernels.precision import narrow, widen

MS = "com.microsoft"
_SQUARES = 1e-12
"""What is added to the sum of a head's squares before the root is taken."""
_GATES = {"none": "none", "softplus": "softplus", "qwen": "softplus", "sigmoid": "sigmoid", "kda": "sigmoid"}


@op("GatedDeltaNet", 1, domain=MS, host_inputs=(3, 9, 10))
def gated_delta_net(
    xp: Any,
    query: Any,
    key: Any = None,
    value: Any = None,
    cu_seqlens: Any = None,
    decay: Any = None,
    beta: Any = None,
    initial_state: Any = None,
    a_log: Any = None,
    dt_bias: Any = None,
    capture_count: Any = None,
    state_update_active: Any = None,
    *,
    beta_activation: str = "none",
    chunk_size: int = 64,
    gate_activation: str = "none",
    gate_lower_bound: float = -5.0,
    qk_l2_norm: int = 0,
    scale: float = 0.0,
    state_update_capacity: int = 0,
    update_rule: str = "gated_delta",
    n_outputs: int = 1,
) -> tuple[Any, ...]:
    """LinearAttention-27 of queries and keys (tokens, heads, size) and values (tokens, value heads, value size), or (batch, length, ...),
    or of all three side by side in ``query``; the states (sequences, value heads, value size, size) in float32; and for the first
    ``capture_count`` tokens of each sequence the decays, keys and deltas that repeat what they did to the state.

    ``cu_seqlens`` tells where sequences begin; without it they are of one length. Several heads of values share one of keys.
    """
    query, key, value, cut, leading = _parts(xp, query, key, value, initial_state)
    tokens, heads, size = query.shape
    value_heads, value_size = value.shape[1:]
    if key.shape[1] != heads or value_heads % max(1, heads):
        raise ValueError(
            f"num_heads_q ({heads}) must equal num_heads_k ({key.shape[1]}) and divide num_heads_v ({value_heads})"
        )
    spans = _spans(cu_seqlens, tokens, leading, initial_state)
    check_capture(capture_count, state_update_capacity, len(spans))
    states = (len(spans), value_heads, value_size, size)
    if initial_state is None:
        initial_state = xp.zeros(states, dtype=xp.float32)
    if tuple(initial_state.shape) != states:
        raise ValueError(f"initial_state has shape {tuple(initial_state.shape)}, expected is {states}")
    queries, keys, values = widen(xp, query), widen(xp, key), widen(xp, value)
    if qk_l2_norm:
        queries, keys = _unit(xp, queries), _unit(xp, keys)
    factors = None
    if decay is not None:
        factors = _gate(xp, decay, a_log, dt_bias, (tokens, value_heads), size, gate_activation, gate_lower_bound)
    elif gate_activation not in _GATES or a_log is not None or dt_bias is not None:
        raise ValueError(f"gate_activation {gate_activation!r}, a_log and dt_bias need decay")
    rates = None if beta is None else xp.reshape(widen(xp, beta), (tokens, value_heads))
    if beta_activation not in ("none", "sigmoid"):
        raise ValueError(f"beta_activation is {beta_activation!r}; it must be none or sigmoid")
    if rates is not None and beta_activation == "sigmoid":
        rates = sigmoid(xp, rates)
    shared = value_heads // heads
    wide = [xp.repeat(x, shared, axis=1) if shared > 1 else x for x in (queries, keys)]
    active = state_update_active is None or bool(state_update_active[0])
    made, ends, updates = [], [], []
    for row, (start, stop) in enumerate(spans):
        deltas: list[Any] = []

        def lone(x: Any, start: int = start, stop: int = stop) -> Any:
            return None if x is None else xp.reshape(x[start:stop, ...], (1, stop - start, -1))

        past = xp.matrix_transpose(initial_state[row : row + 1, ...])
        y, after = recurrence(
            xp, lone(wide[0]), lone(wide[1]), lone(values), past, lone(factors), lone(rates),
            value_heads, value_heads, scale or 1 / math.sqrt(size), update_rule, 1, deltas,
        )  # fmt: skip
        made.append(y[0, ...])
        ends.append(xp.matrix_transpose(after[0]))
        if n_outputs > 2:
            told = captured(capture_count, row, state_update_capacity, stop - start) if active else 0
            width = value_heads if factors is None else math.prod(factors.shape[1:])
            decays = xp.ones((told, width), dtype=xp.float32)
            if factors is not None:
                decays = xp.reshape(xp.exp(factors[start : start + told, ...]), (told, width))
            learned = [xp.reshape(delta, (1, -1)) for delta in deltas[:told]]
            learned_all = xp.concat([*learned, xp.zeros((0, value_heads * value_size), dtype=xp.float32)], axis=0)
            parts = [decays, xp.reshape(keys[start : start + told, ...], (told, heads * size)), learned_all]
            updates.append(xp.concat([_filled(xp, part, state_update_capacity) for part in parts], axis=0))
    output = narrow(xp, xp.reshape(xp.concat(made, axis=0), (*cut, value_heads, value_size)), query.dtype)
    return (output, xp.concat(ends, axis=0), xp.stack(updates) if updates else None)[:n_outputs]


def _parts(xp: Any, query: Any, key: Any, value: Any, state: Any) -> tuple[Any, Any, Any, tuple[int, ...], int | None]:
    """Queries, keys and values (tokens, heads, size), the axes of tokens as given, and how many sequences these say there are."""
    if (key is None) != (value is None):
        raise ValueError("key and value are given together, or neither is")
    if key is None:
        if state is None:
            raise ValueError("packed queries, keys and values need initial_state, which tells their heads")
        _, value_heads, value_size, size = state.shape
        heads, odd = divmod(query.shape[-1] - value_heads * value_size, 2 * size)
        if odd or heads < 1:
            raise ValueError(
                f"rows of {query.shape[-1]} do not hold queries, keys and {value_heads} x {value_size} values"
            )
        query, key, value = (
            xp.reshape(query[..., start:stop], (*query.shape[:-1], n, wide))
            for start, stop, n, wide in (
                (0, heads * size, heads, size),
                (heads * size, 2 * heads * size, heads, size),
                (2 * heads * size, query.shape[-1], value_heads, value_size),
            )
        )
    if query.ndim not in (3, 4) or not query.ndim == key.ndim == value.ndim:
        raise ValueError(
            f"query, key and value have {query.ndim}, {key.ndim} and {value.ndim} axes; all must have 3, or 4"
        )
    cut = tuple(query.shape[:-2])
    if tuple(key.shape[:-2]) != cut or tuple(value.shape[:-2]) != cut or key.shape[-1] != query.shape[-1]:
        raise ValueError(f"query {query.shape}, key {key.shape} and value {value.shape} do not go together")
    flat = (xp.reshape(x, (math.prod(cut), *x.shape[-2:])) for x in (query, key, value))
    return (*flat, cut, cut[0] if len(cut) == 2 else None)


def _spans(cu_seqlens: Any, tokens: int, leading: int | None, state: Any) -> list[tuple[int, int]]:
    """(first token, behind the last) of each sequence, which may be empty."""
    if cu_seqlens is not None:
        ends = [int(n) for n in cu_seqlens]
        if leading is not None:
            raise ValueError("cu_seqlens is for tokens on one axis")
        if not ends or ends[0] != 0 or ends[-1] != tokens or sorted(ends) != ends:
            raise ValueError("cu_seqlens must start at 0, end at total_tokens and never fall")
    else:
        count = leading if leading is not None else None if state is None else state.shape[0]
        if count is None:
            raise ValueError("cu_seqlens is absent, so initial_state is required to determine batch size")
        if count < 1 or tokens % count:
            raise ValueError(f"{tokens} tokens are not {count} sequences of one length")
        ends = [i * (tokens // count) for i in range(count + 1)]
    return list(itertools.pairwise(ends))


def _unit(xp: Any, x: Any) -> Any:
    return x / xp.sqrt(xp.sum(x * x, axis=-1, keepdims=True) + _SQUARES)


def _gate(
    xp: Any, decay: Any, a_log: Any, dt_bias: Any, rows: tuple[int, int], size: int, activation: str, bound: float
) -> Any:
    """The logarithm of what is kept of the state, (tokens, heads) or (tokens, heads, size), in float32."""
    kind = _GATES.get(activation)
    if kind is None:
        raise ValueError(f"gate_activation is {activation!r}; it must be one of {', '.join(_GATES)}")
    if (kind == "none") != (a_log is None) or (kind == "none") != (dt_bias is None):
        raise ValueError("a_log and dt_bias go with gate_activation softplus or sigmoid, and only with these")
    given = widen(xp, decay)
    given = xp.reshape(given, rows if math.prod(given.shape) == math.prod(rows) else (*rows, size))
    if kind == "none":
        return given
    ones = (1,) * (given.ndim - 2)
    bias = xp.reshape(dt_bias, (rows[1], *(ones if math.prod(dt_bias.shape) == rows[1] else (size,))))
    rate = xp.reshape(xp.exp(a_log), (rows[1], *ones))
    if kind == "softplus":
        return -rate * softplus(xp, given + bias)
    if not math.isfinite(bound) or bound >= 0:
        raise ValueError(f"gate_lower_bound is {bound}; it must be finite and negative")
    return bound * sigmoid(xp, rate * (given + bias))


def _filled(xp: Any, part: Any, rows: int) -> Any:
    """The rows of a part, flat, zeros behind them where there are fewer than ``rows``."""
    missing = xp.zeros((rows - part.shape[0], part.shape[1]), dtype=part.dtype)
    return xp.reshape(xp.concat([part, missing], axis=0), (-1,))
