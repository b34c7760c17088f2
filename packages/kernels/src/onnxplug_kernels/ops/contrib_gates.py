"""Gates of hybrid language models, in domain ``com.microsoft``: linear attention's, Engram's, and those of streams that are mixed
(hyper-connections, Zhu et al., 2024)."""

from __future__ import annotations

import math
from typing import Any

from onnxplug_kernels.activations import sigmoid
from onnxplug_kernels.catalogue import op
from onnxplug_kernels.ops.activation import softplus
from onnxplug_kernels.precision import narrow, widen

MS = "com.microsoft"


@op("GatedAdd", 1, domain=MS)
def gated_add(xp: Any, x: Any, y: Any, gate: Any, gate_weight: Any = None) -> Any:
    """x + y * gate, each step rounded; ``gate`` is (..., 1), or with ``gate_weight`` (K, 1) the sigmoid of (..., K) times it."""
    if gate_weight is not None:
        _fit(tuple(gate_weight.shape) == (gate.shape[-1], 1), gate, gate_weight)
        gate = narrow(xp, xp.matmul(widen(xp, gate), widen(xp, gate_weight)), x.dtype)
        gate = narrow(xp, sigmoid(xp, widen(xp, gate)), x.dtype)
    _fit(tuple(x.shape) == tuple(y.shape) and tuple(gate.shape) == (*x.shape[:-1], 1), x, y, gate)
    product = narrow(xp, widen(xp, y) * widen(xp, gate), x.dtype)
    return narrow(xp, widen(xp, x) + widen(xp, product), x.dtype)


@op("ScaledSiLU", 1, domain=MS)
def scaled_silu(xp: Any, x: Any, scale: Any = None, *, alpha: float = 1.0) -> Any:
    """z * sigmoid(z) for z = scale * x, each step rounded; ``alpha`` where there is no ``scale`` (one number)."""
    factor = alpha if scale is None else widen(xp, xp.reshape(scale, ()))
    z = narrow(xp, widen(xp, x) * factor, x.dtype)
    gate = narrow(xp, sigmoid(xp, widen(xp, z)), x.dtype)
    return narrow(xp, widen(xp, z) * widen(xp, gate), x.dtype)


@op("LinearAttentionGate", 1, domain=MS)
def linear_attention_gate(
    xp: Any, a: Any, dt_bias: Any, decay_scale: Any, b: Any = None, *, n_outputs: int = 1
) -> tuple[Any, ...]:
    """decay_scale * softplus(a + dt_bias), and the sigmoid of b."""
    decay = narrow(xp, decay_scale * softplus(xp, widen(xp, a) + dt_bias), a.dtype)
    if n_outputs < 2:
        return (decay,)
    if b is None:
        raise ValueError("output beta is asked for, input b is not given")
    return decay, narrow(xp, sigmoid(xp, widen(xp, b)), b.dtype)


@op("GatedRMSNorm", 1, domain=MS)
def gated_rms_norm(xp: Any, x: Any, scale: Any, gate: Any, *, activation: str = "silu", epsilon: float = 1e-5) -> Any:
    """Root-mean-square normalisation of each run of C elements of the last axis, times ``scale`` (C,) and the activated gate."""
    if activation not in ("silu", "swish", "sigmoid"):
        raise ValueError(f"activation is {activation!r}; it must be silu, swish or sigmoid")
    size = scale.shape[0]
    _fit(size > 0 and x.shape[-1] % size == 0 and tuple(gate.shape) == tuple(x.shape), x, scale, gate)
    runs, opened = (xp.reshape(widen(xp, part), (*x.shape[:-1], -1, size)) for part in (x, gate))
    open_ = sigmoid(xp, opened)
    y = root_mean_square(xp, runs, epsilon) * widen(xp, scale) * (open_ if activation == "sigmoid" else opened * open_)
    return narrow(xp, xp.reshape(y, x.shape), x.dtype)


@op("BranchwiseRMSNorm", 1, domain=MS)
def branchwise_rms_norm(xp: Any, x: Any, scale: Any = None, *, epsilon: float = 1e-5, num_branches: int = 0) -> Any:
    """Root-mean-square normalisation of each branch, (..., C, H) or flattened; ``scale`` is (C * H,), (C, H) or (H,)."""
    grouped = _grouped(xp, widen(xp, x), num_branches)
    y = root_mean_square(xp, grouped, epsilon)
    if scale is not None:
        whole = scale.ndim == 1 and scale.shape[0] != grouped.shape[-1]
        y = y * widen(xp, xp.reshape(scale, grouped.shape[-2:]) if whole else scale)
    return narrow(xp, xp.reshape(y, x.shape), x.dtype)


@op("HyperConnectionPreMix", 1, domain=MS)
def hyper_connection_pre_mix(
    xp: Any, streams: Any, pre_mix: Any, *, num_branches: int = 0, reduction_scale: float = 1.0
) -> Any:
    """The sum of C streams, (..., C, H) or flattened, each times its gate: (..., H)."""
    grouped = _grouped(xp, widen(xp, streams), num_branches)
    return narrow(xp, reduction_scale * xp.sum(grouped * _gates(xp, pre_mix, grouped), axis=-2), streams.dtype)


@op("HyperConnectionPostMix", 1, domain=MS)
def hyper_connection_post_mix(
    xp: Any, streams: Any, block_output: Any, post_mix: Any, stream_mix: Any = None, *, num_branches: int = 0
) -> Any:
    """Streams mixed by ``stream_mix`` (..., C, C), plus what a block gave, (..., H), times each stream's gate."""
    grouped = _grouped(xp, widen(xp, streams), num_branches)
    mixed = grouped if stream_mix is None else xp.matmul(xp.matrix_transpose(widen(xp, stream_mix)), grouped)
    y = mixed + _gates(xp, post_mix, grouped) * xp.expand_dims(widen(xp, block_output), axis=-2)
    return narrow(xp, xp.reshape(y, streams.shape), streams.dtype)


@op("EngramGate", 1, domain=MS)
def engram_gate(
    xp: Any,
    key: Any,
    query: Any,
    value: Any,
    key_norm_scale: Any,
    query_norm_scale: Any,
    conv_norm_scale: Any = None,
    *,
    epsilon: float = 1e-5,
    n_outputs: int = 1,
) -> tuple[Any, ...]:
    """Values (batch, length, H) times the gate of each hyper-connection, (batch, length, C, H); then normalised by their root mean square.

    The gate is the sigmoid of the signed root of the product of normalised keys and queries (batch, length, C, H).
    """
    normed = [
        root_mean_square(xp, widen(xp, x), epsilon) * widen(xp, scale)
        for x, scale in ((key, key_norm_scale), (query, query_norm_scale))
    ]
    dot = xp.sum(normed[0] * normed[1], axis=-1, keepdims=True) / math.sqrt(key.shape[-1])
    gate = sigmoid(xp, xp.sign(dot) * xp.sqrt(xp.maximum(xp.abs(dot), xp.asarray(1e-6, dtype=dot.dtype))))
    gated = gate * xp.expand_dims(widen(xp, value), axis=-2)
    made = narrow(xp, gated, key.dtype)
    if n_outputs < 2:
        return (made,)
    if conv_norm_scale is None:
        raise ValueError("output gated_value_normed is asked for, input conv_norm_scale is not given")
    return made, narrow(xp, root_mean_square(xp, gated, epsilon) * widen(xp, conv_norm_scale), key.dtype)


def root_mean_square(xp: Any, x: Any, epsilon: float) -> Any:
    """x over its root mean square on the last axis."""
    return x / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + epsilon)


def _grouped(xp: Any, x: Any, branches: int) -> Any:
    """(..., C, H), from that or from (..., C * H)."""
    if branches == 0:
        if x.ndim < 2:
            raise ValueError(f"streams of shape {tuple(x.shape)} have no axis for their branches")
        return x
    if branches < 0 or x.shape[-1] % branches:
        raise ValueError(f"{x.shape[-1]} elements are not {branches} branches")
    return xp.reshape(x, (*x.shape[:-1], branches, x.shape[-1] // branches))


def _gates(xp: Any, mix: Any, grouped: Any) -> Any:
    """Gates (..., C), (..., C, 1), (..., C, H) or (..., C * H) as what broadcasts against streams (..., C, H)."""
    *_, branches, size = grouped.shape
    mix = widen(xp, mix)
    if mix.ndim == grouped.ndim:
        return mix
    return xp.reshape(mix, (*mix.shape[:-1], branches, 1 if mix.shape[-1] == branches else size))


def _fit(fits: bool, *arrays: Any) -> None:
    if not fits:
        raise ValueError(f"shapes {[tuple(a.shape) for a in arrays]} do not go together")
