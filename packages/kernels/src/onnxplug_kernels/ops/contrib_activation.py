"""Activations with a bias fused in, in domain ``com.microsoft``: the family of Gelu, BiasDropout, BiasSoftmax."""

from __future__ import annotations

from typing import Any

from onnxplug_kernels.activations import sigmoid
from onnxplug_kernels.arithmetic import in_float32
from onnxplug_kernels.catalogue import op
from onnxplug_kernels.ops.activation import gelu
from onnxplug_kernels.ops.dropout import dropout
from onnxplug_kernels.precision import narrow, widen
from onnxplug_kernels.refusals import require_axis

MS = "com.microsoft"


@op("Gelu", 1, domain=MS)
def gelu_(xp: Any, x: Any) -> Any:
    """x times the normal distribution function of x."""
    return gelu(xp, x)


@op("BiasGelu", 1, domain=MS)
@in_float32
def bias_gelu(xp: Any, x: Any, bias: Any) -> Any:
    """Gelu of x + bias, a vector over the last axis."""
    return gelu(xp, x + bias)


@op("FastGelu", 1, domain=MS)
@in_float32
def fast_gelu(xp: Any, x: Any, bias: Any = None) -> Any:
    """Gelu of x + bias by tanh, with onnxruntime's rounded constants."""
    x = x if bias is None else x + bias
    inner = xp.tanh(x * (0.035677408136300125 * x * x + 0.7978845608028654))
    return 0.5 * x * (1.0 + inner)


@op("GemmFastGelu", 1, domain=MS)
@in_float32
def gemm_fast_gelu(xp: Any, x: Any, w: Any, bias: Any = None) -> Any:
    """FastGelu of a matrix product plus bias."""
    return fast_gelu(xp, xp.matmul(x, w), bias)


@op("QuickGelu", 1, domain=MS)
@in_float32
def quick_gelu(xp: Any, x: Any, *, alpha: float = 1.702) -> Any:
    """x * sigmoid(alpha * x)."""
    return x * sigmoid(xp, alpha * x)


@op("SwiGLU", 1, domain=MS)
def clamped_swiglu(
    xp: Any,
    gate: Any,
    up: Any = None,
    *,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    limit: float = 0.0,
    round_activation: int = 0,
) -> Any:
    """gate * sigmoid(activation_alpha * gate) * (up + activation_beta); gate and up within ``limit``, if that is above 0.

    Without ``up`` the gate's last axis holds both. ``round_activation``: the first product is rounded to the type of the result."""
    wide, dtype = widen(xp, gate), gate.dtype
    if up is None:
        half, odd = divmod(gate.shape[-1], 2)
        if odd:
            raise ValueError(f"gate {tuple(gate.shape)} does not hold two halves")
        wide, linear = wide[..., :half], wide[..., half:]
    else:
        linear = widen(xp, up)
    if linear.shape != wide.shape:
        raise ValueError(f"gate {tuple(gate.shape)} and up {tuple(linear.shape)} must have one shape")
    if limit > 0:
        wide, linear = xp.clip(wide, None, limit), xp.clip(linear, -limit, limit)
    opened = wide * sigmoid(xp, activation_alpha * wide)
    if round_activation:
        opened = widen(xp, narrow(xp, opened, dtype))
    return narrow(xp, opened * (linear + activation_beta if activation_beta else linear), dtype)


@op("BiasSplitGelu", 1, domain=MS)
@in_float32
def bias_split_gelu(xp: Any, x: Any, bias: Any) -> Any:
    """The left half of x + bias times Gelu of the right half."""
    total = x + bias
    half = x.shape[-1] // 2
    return total[..., :half] * gelu(xp, total[..., half:])


@op("BiasAdd", 1, domain=MS)
@in_float32
def bias_add(xp: Any, x: Any, bias: Any, skip: Any) -> Any:
    """x + bias + skip."""
    return x + bias + skip


@op("BiasDropout", 1, domain=MS, host_inputs=(3, 4))
def bias_dropout(
    xp: Any,
    data: Any,
    bias: Any,
    residual: Any = None,
    ratio: Any = None,
    training_mode: Any = None,
    *,
    seed: int | None = None,
    n_outputs: int = 1,
) -> tuple[Any, ...]:
    """Dropout of data + bias, plus the residual; outputs: the result, and which elements were kept."""
    outputs = dropout(xp, data + bias, ratio, training_mode, seed=seed, n_outputs=n_outputs)
    y, *mask = outputs if isinstance(outputs, tuple) else (outputs,)
    return (y if residual is None else y + residual, *mask)


@op("BiasSoftmax", 1, domain=MS)
@in_float32
def bias_softmax(xp: Any, data: Any, bias: Any, *, is_inner_broadcast: int, axis: int = 1) -> Any:
    """Softmax of data + bias over all axes from ``axis`` on taken as one."""
    total = xp.reshape(data + bias, (*data.shape[: require_axis(axis, data.ndim)], -1))
    powers = xp.exp(total - xp.max(total, axis=-1, keepdims=True))
    return xp.reshape(powers / xp.sum(powers, axis=-1, keepdims=True), data.shape)
