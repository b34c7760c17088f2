"""Causal convolution with a state, in domain ``com.microsoft``: ONNX's, with dilation, channels last and a window of states."""

from __future__ import annotations

from typing import Any

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.ops.conv import causal_conv

MS = "com.microsoft"


@op("CausalConvWithState", 1, domain=MS)
def causal_conv_with_states(
    xp: Any,
    x: Any,
    weight: Any,
    bias: Any = None,
    past_state: Any = None,
    *,
    activation: str = "none",
    channels_last: int = 0,
    dilation: int = 1,
    ndim: int = 1,
    state_window: int = 0,
) -> tuple[Any, Any]:
    """CausalConvWithState-27 of (N, C, L), or of (N, L, *channels) with ``channels_last``, and its last (k - 1) * dilation inputs laid out
    likewise; with ``state_window`` these after each of the last so many positions, the newest last, (window, N, ...)."""
    if ndim != 1:
        raise ValueError(f"ndim is {ndim}; states are defined for 1")
    if dilation < 1 or not 0 <= state_window <= 8:
        raise ValueError(f"dilation {dilation} or state_window {state_window} is not in 1.. or 0..8")
    channels = tuple(x.shape[2:]) if channels_last else tuple(x.shape[1:2])
    if past_state is not None and state_window:
        past_state = past_state[-1, ...]
    first = None if past_state is None else _channels_first(xp, past_state, channels_last)
    y, sequence = causal_conv(xp, _channels_first(xp, x, channels_last), weight, bias, first, activation, dilation)
    length, kept = y.shape[2], sequence.shape[2] - y.shape[2]

    def laid(part: Any) -> Any:
        if not channels_last:
            return xp.asarray(part, copy=True)
        return xp.reshape(xp.permute_dims(part, (0, 2, 1)), (part.shape[0], part.shape[2], *channels))

    if not state_window:
        return laid(y), laid(sequence[:, :, length:])
    states = [laid(sequence[:, :, end : end + kept]) for end in range(max(1, length - state_window + 1), length + 1)]
    empty = xp.zeros_like(laid(sequence[:, :, :kept]))
    return laid(y), xp.stack([*[empty] * (state_window - len(states)), *states])


def _channels_first(xp: Any, x: Any, last: int) -> Any:
    """(N, C, L), from that or from (N, L, *channels)."""
    if not last:
        return x
    return xp.permute_dims(xp.reshape(x, (x.shape[0], x.shape[1], -1)), (0, 2, 1))
