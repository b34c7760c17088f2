"""Causal convolution with a state, in domain ``com.microsoft``: ONNX's, with dilation, channels last, a window of states, and states of
another length and layout."""

from __future__ import annotations

import math
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
    input_channel_offset: int = 0,
    input_channels: int = 0,
    ndim: int = 1,
    state_channels_last: int = -1,
    state_length: int = 0,
    state_update_capacity: int = 0,
    state_window: int = 0,
    n_outputs: int = 2,
) -> tuple[Any, ...]:
    """CausalConvWithState-27 of (N, C, L), or of (N, L, *channels) with ``channels_last``, and its last (k - 1) * dilation inputs laid out
    likewise; with ``state_window`` these after each of the last so many positions, the newest last, (window, N, ...).

    Of an input (N, L, C) the ``input_channels`` from ``input_channel_offset`` may be all that is convolved. States may be longer than
    the filter needs (``state_length``) and of the other layout (``state_channels_last``, -1: the input's). The third output is the
    first ``state_update_capacity`` rows of what is convolved, (N, capacity, C), zeros where there are fewer.
    """
    if ndim != 1:
        raise ValueError(f"ndim is {ndim}; states are defined for 1")
    if dilation < 1 or not 0 <= state_window <= 8:
        raise ValueError(f"dilation {dilation} or state_window {state_window} is not in 1.. or 0..8")
    reach = (weight.shape[2] - 1) * dilation
    other = (input_channel_offset, input_channels, state_length, state_channels_last, state_update_capacity)
    if other != (0, 0, 0, -1, 0):
        last_axis = input_channel_offset or input_channels or state_update_capacity
        _check_extended(x, bool(channels_last), bool(last_axis), other, state_window, reach)
        if channels_last:
            x = x[:, :, input_channel_offset : input_channel_offset + (input_channels or x.shape[2])]
    state_last = channels_last if state_channels_last < 0 else state_channels_last
    kept = state_length or reach
    channels = tuple(x.shape[2:]) if channels_last else tuple(x.shape[1:2])
    if past_state is not None and state_window:
        past_state = past_state[-1, ...]
    given = _channels_first(xp, x, channels_last)
    if past_state is None:
        past = xp.zeros((given.shape[0], given.shape[1], kept), dtype=x.dtype)
    else:
        past = _channels_first(xp, past_state, state_last)
        if tuple(past.shape) != (given.shape[0], given.shape[1], kept):
            raise ValueError(
                f"past_state {tuple(past_state.shape)} does not hold {kept} positions of {tuple(given.shape)}"
            )
    y, _ = causal_conv(xp, given, weight, bias, past[:, :, kept - reach :], activation, dilation)
    sequence, length = xp.concat([past, given], axis=2), y.shape[2]

    def laid(part: Any, last: int) -> Any:
        if not last:
            return xp.asarray(part, copy=True)
        return xp.reshape(xp.permute_dims(part, (0, 2, 1)), (part.shape[0], part.shape[2], *channels))

    made = laid(y, channels_last)
    if not state_window:
        state = laid(sequence[:, :, length:], state_last)
        return (made, state, _update(xp, x, state_update_capacity))[:n_outputs]
    states = [
        laid(sequence[:, :, end : end + kept], state_last)
        for end in range(max(1, length - state_window + 1), length + 1)
    ]
    empty = xp.zeros_like(laid(past, state_last))
    return (made, xp.stack([*[empty] * (state_window - len(states)), *states]))[:n_outputs]


def _check_extended(x: Any, last: bool, last_only: bool, attributes: tuple[int, ...], window: int, reach: int) -> None:
    offset, width, length, layout, capacity = attributes
    if window or x.ndim != 3 or (last_only and not last):
        raise ValueError(
            "slices of channels and captured updates are for inputs (N, L, C) with channels_last, other states for three axes, "
            f"without state_window; got {tuple(x.shape)} and state_window {window}"
        )
    if (
        offset < 0
        or width < 0
        or (last and offset + (width or x.shape[2] - offset) > x.shape[2])
        or (offset and not width)
    ):
        raise ValueError(f"channels {offset} to {offset + width} are not in {tuple(x.shape)}")
    if (length and length < reach) or layout not in (-1, 0, 1) or not 0 <= capacity <= 8:
        raise ValueError(
            f"state_length {length} is less than {reach}, state_channels_last {layout} not in -1..1, or state_update_capacity "
            f"{capacity} not in 0..8"
        )


def _update(xp: Any, x: Any, capacity: int) -> Any:
    rows = x[:, :capacity, :] if capacity else x[:, :0, ...]
    missing = xp.zeros((x.shape[0], capacity - rows.shape[1], *x.shape[2:]), dtype=x.dtype)
    return xp.concat([rows, missing], axis=1)


def _channels_first(xp: Any, x: Any, last: int) -> Any:
    """(N, C, L), from that or from (N, L, *channels)."""
    if not last:
        return x
    return xp.permute_dims(xp.reshape(x, (x.shape[0], x.shape[1], math.prod(x.shape[2:]))), (0, 2, 1))
