"""Sequences of several lengths that stand one behind the other, in domain ``com.microsoft``: causal convolution with a state."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.ops.conv import causal_conv

MS = "com.microsoft"


def request_spans(cumulative: Any, tokens: int) -> list[tuple[int, int]]:
    """(first token, behind the last) of each sequence. ValueError, in onnxruntime's words, where they do not stand so."""
    ends = [int(n) for n in np.asarray(cumulative)]
    if not ends or ends[0] != 0:
        raise ValueError("cumulative_sequence_length[0] must be 0")
    if ends[-1] != tokens:
        raise ValueError("cumulative_sequence_length[batch_size] must equal total_tokens")
    if any(stop <= start for start, stop in itertools.pairwise(ends)):
        raise ValueError(
            "cumulative_sequence_length must be strictly increasing because every request must contain at least one token"
        )
    return list(itertools.pairwise(ends))


def check_capture(count: Any, capacity: int, requests: int) -> None:
    """ValueError where ``count`` is not one for each sequence, or is there without a capacity to fill."""
    if not 0 <= capacity <= 8:
        raise ValueError(f"state_update_capacity is {capacity}; it must be in 0..8")
    if (count is not None) != (capacity > 0):
        raise ValueError("capture_count must be present exactly when state_update_capacity is positive")
    if count is not None and tuple(count.shape) != (requests,):
        raise ValueError(f"capture_count has shape {tuple(count.shape)}, expected is {(requests,)}")


def captured(count: Any, row: int, capacity: int, length: int) -> int:
    """How many tokens of a sequence of ``length`` are to be told."""
    return 0 if count is None else max(0, min(int(count[row]), capacity, length))


@op("VarlenCausalConvWithState", 1, domain=MS, host_inputs=(2, 5))
def varlen_causal_conv_with_state(
    xp: Any,
    x: Any,
    weight: Any,
    cumulative_sequence_length: Any,
    bias: Any = None,
    initial_state: Any = None,
    capture_count: Any = None,
    kernel_delta: Any = None,
    previous_mask: Any = None,
    *,
    activation: str = "none",
    delta_offset: int = 0,
    dilation: int = 1,
    group_size: int = 1,
    state_update_capacity: int = 0,
    n_outputs: int = 2,
) -> tuple[Any, ...]:
    """CausalConvWithState of x (tokens, channels), whose sequences begin where ``cumulative_sequence_length`` says; the state of each,
    (sequences, channels, (k - 1) * dilation), and its first ``capture_count`` inputs, (sequences, capacity, channels)."""
    if kernel_delta is not None or previous_mask is not None:
        raise ValueError("kernel_delta and previous_mask, the dynamic mode, are of CUDA alone")
    if dilation < 1:
        raise ValueError(f"dilation is {dilation}; it must be at least 1")
    spans = request_spans(cumulative_sequence_length, x.shape[0])
    check_capture(capture_count, state_update_capacity, len(spans))
    channels, kept = x.shape[1], (weight.shape[2] - 1) * dilation
    if tuple(initial_state.shape) != (len(spans), channels, kept):
        raise ValueError(
            f"initial_state has shape {tuple(initial_state.shape)}, expected is {(len(spans), channels, kept)}"
        )
    made, states, updates = [], [], []
    for row, (start, stop) in enumerate(spans):
        given = xp.matrix_transpose(x[start:stop, :])[None, ...]
        y, sequence = causal_conv(xp, given, weight, bias, initial_state[row : row + 1, ...], activation, dilation)
        made.append(xp.matrix_transpose(y[0, ...]))
        states.append(sequence[:, :, stop - start :])
        rows = x[start : start + captured(capture_count, row, state_update_capacity, stop - start), :]
        missing = xp.zeros((state_update_capacity - rows.shape[0], channels), dtype=x.dtype)
        updates.append(xp.concat([rows, missing], axis=0))
    return (xp.concat(made, axis=0), xp.concat(states, axis=0), xp.stack(updates))[:n_outputs]
