"""Activation functions, element by element (over an axis: ``softmax``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from onnxplug_kernels.arithmetic import in_float32, is_integer
from onnxplug_kernels.catalogue import op
from onnxplug_kernels.precision import narrow
from onnxplug_kernels.special import erf

# Attribute defaults are ONNX's, which are float32 numbers.
_POINT_ZERO_ONE = 0.009999999776482582
_POINT_TWO = 0.20000000298023224


@op("Relu", 1, 14)
@in_float32
def relu(xp: Any, x: Any, *, consumed_inputs: Sequence[int] | None = None) -> Any:
    """max(0, x)."""
    return xp.maximum(x, 0)


@op("LeakyRelu", 1, 16)
@in_float32
def leaky_relu(xp: Any, x: Any, *, alpha: float = _POINT_ZERO_ONE, consumed_inputs: Sequence[int] | None = None) -> Any:
    """x, or alpha x below zero."""
    return xp.where(x < 0, x * alpha, x)


@op("PRelu", 7, 16)
@in_float32
def prelu(xp: Any, x: Any, slope: Any) -> Any:
    """x, or slope x below zero; slope broadcasts to x."""
    return xp.where(x < 0, slope * x, x)


@op("PRelu", 1, 6)
def prelu_1(xp: Any, x: Any, slope: Any, *, consumed_inputs: Sequence[int] | None = None) -> Any:
    """x, or slope x below zero; a vector of slopes goes with the channels."""
    if slope.ndim == 1 and x.ndim > 2:
        slope = xp.reshape(slope, (-1,) + (1,) * (x.ndim - 2))
    return prelu(xp, x, slope)


@op("ThresholdedRelu", 1)  # one of ONNX's experiments, which onnxruntime still runs, and old converters of Keras wrote
@op("ThresholdedRelu", 10, 22)
@in_float32
def thresholded_relu(xp: Any, x: Any, *, alpha: float = 1.0) -> Any:
    """x above alpha, otherwise 0."""
    return xp.where(x > alpha, x, 0.0)


@op("Elu", 1, 22)
@in_float32
def elu(xp: Any, x: Any, *, alpha: float = 1.0, consumed_inputs: Sequence[int] | None = None) -> Any:
    """x, or alpha (exp(x) - 1) below zero."""
    return xp.where(x < 0, alpha * xp.expm1(xp.minimum(x, 0.0)), x)


@op("Celu", 12, 28)
@in_float32
def celu(xp: Any, x: Any, *, alpha: float = 1.0) -> Any:
    """max(0, x) + min(0, alpha (exp(x / alpha) - 1))."""
    return xp.maximum(x, 0.0) + xp.minimum(alpha * xp.expm1(x / alpha), 0.0)


@op("Selu", 6, 22)
@in_float32
def selu(xp: Any, x: Any, *, alpha: float = 1.6732631921768188, gamma: float = 1.0507010221481323) -> Any:
    """gamma x, or gamma alpha (exp(x) - 1) below zero."""
    return gamma * xp.where(x <= 0, alpha * xp.expm1(xp.minimum(x, 0.0)), x)


@op("Selu", 1)
def selu_1(
    xp: Any,
    x: Any,
    *,
    alpha: float = 1.673200011253357,
    gamma: float = 1.0506999492645264,
    consumed_inputs: Sequence[int] | None = None,
) -> Any:
    """Selu with the shorter default constants."""
    return selu(xp, x, alpha=alpha, gamma=gamma)


@op("Gelu", 20)
@in_float32
def gelu(xp: Any, x: Any, *, approximate: str = "none") -> Any:
    """x times the normal distribution function of x, or its approximation by tanh."""
    if approximate == "tanh":
        inner = xp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))
    else:
        inner = erf(xp, x * math.sqrt(0.5))
    inner += 1.0
    inner *= 0.5  # first, as twice the largest number is infinite
    inner *= x
    return inner


@op("Sigmoid", 1, 13)
@in_float32
def sigmoid(xp: Any, x: Any, *, consumed_inputs: Sequence[int] | None = None) -> Any:
    """1 / (1 + exp(-x)); an exponential that overflows gives the limit, 0."""
    y = xp.exp(-x)
    y += 1.0
    return xp.reciprocal(y)


@op("HardSigmoid", 1, 22)
@in_float32
def hard_sigmoid(
    xp: Any,
    x: Any,
    *,
    alpha: float = _POINT_TWO,
    beta: float = 0.5,
    consumed_inputs: Sequence[int] | None = None,
) -> Any:
    """alpha x + beta, limited to [0, 1]."""
    y = alpha * x
    y += beta
    return xp.clip(y, 0.0, 1.0)


@op("HardSwish", 14, 22)
@in_float32
def hard_swish(xp: Any, x: Any) -> Any:
    """x HardSigmoid(x) with alpha = 1/6, beta = 1/2."""
    y = hard_sigmoid(xp, x, alpha=1 / 6, beta=0.5)
    y *= x
    return y


@op("Swish", 24)
@in_float32
def swish(xp: Any, x: Any, *, alpha: float = 1.0) -> Any:
    """x Sigmoid(alpha x)."""
    y = sigmoid(xp, x if alpha == 1.0 else alpha * x)
    y *= x
    return y


@op("SwiGLU", 28)
@in_float32
def swiglu(xp: Any, gate: Any, linear: Any, *, alpha: float = 1.0) -> Any:
    """Swish(gate) linear, in shapes that are equal."""
    y = swish(xp, gate, alpha=alpha)
    y *= linear
    return y


@op("Softplus", 1, 22)
@in_float32
def softplus(xp: Any, x: Any) -> Any:
    """log(1 + exp(x)), with an exponential that cannot overflow."""
    y = xp.log1p(xp.exp(-xp.abs(x)))
    y += xp.maximum(x, 0.0)
    return y


@op("Mish", 18, 22)
@in_float32
def mish(xp: Any, x: Any) -> Any:
    """x tanh(Softplus(x)), as a ratio of polynomials in exp(x).

    The ratio is 1 in float64 from 20 on, where the exponential is cut off.
    """
    e = xp.exp(xp.minimum(x, 20.0))
    ratio = e * (e + 2.0)
    ratio /= ratio + 2.0
    ratio *= x
    return ratio


@op("Softsign", 1, 22)
@in_float32
def softsign(xp: Any, x: Any) -> Any:
    """x / (1 + abs(x))."""
    return x / (1.0 + xp.abs(x))


@op("Shrink", 9)
@in_float32
def shrink(xp: Any, x: Any, *, bias: float = 0.0, lambd: float = 0.5) -> Any:
    """x + bias below -lambd, x - bias above lambd, otherwise 0; integers are computed in float64."""
    value = xp.astype(x, xp.float64) if is_integer(x.dtype) else x
    y = xp.where(value < -lambd, value + bias, xp.where(value > lambd, value - bias, 0.0))
    return narrow(xp, y, x.dtype)
