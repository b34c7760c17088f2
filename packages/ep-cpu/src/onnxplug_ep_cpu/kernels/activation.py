"""Activation functions as chains of ufuncs over cache-sized blocks.

Every body reads ``x`` for the last time before or while it first writes ``y``, so that ``y`` may lie over it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from onnxplug.contract import Into
from onnxplug_ep_cpu.kernels.blocks import Scratch, blockwise
from onnxplug_ep_cpu.kernels.forms import FLOAT, INTEGER, Specs, highest, into, lowest, scalar
from onnxplug_kernels.special import SINGLE as ERF_RATIO

_FLOAT32 = frozenset({"float32"})
Body = Callable[..., None]


@into("Relu", 6, 14, dtypes=FLOAT | INTEGER | {"float16"}, inplace=(0,))
def relu(inputs: Specs, outputs: Specs) -> Into | None:
    """max(x, 0)."""
    zero, top = _above(inputs[0].dtype)
    return Into(lambda x, y: x.clip(zero, top, y))


def _above(dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Limits that leave the positive part."""
    return scalar(0, dtype), highest(dtype)


def _below(dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Limits that leave the negative part."""
    return lowest(dtype), scalar(0, dtype)


@into("LeakyRelu", 6, 16, dtypes=FLOAT, inplace=(0,))
def leaky_relu(inputs: Specs, outputs: Specs, *, alpha: float = 0.009999999776482582) -> Into | None:
    """x, or alpha x below zero."""
    if not 0 < alpha < np.inf:  # the larger of two numbers is then not that of a side
        return None
    slope = scalar(alpha, inputs[0].dtype)
    larger = np.maximum if alpha <= 1 else np.minimum

    def body(x: np.ndarray, y: np.ndarray, scaled: np.ndarray) -> None:
        np.multiply(x, slope, scaled)
        larger(x, scaled, out=y)

    return blockwise(body, inputs[0], scratch=1)


@into("PRelu", 7, 16, dtypes=FLOAT, inplace=(0,))
def prelu(inputs: Specs, outputs: Specs) -> Into | None:
    """x, or slope x below zero; slope broadcasts to x."""
    x, zero, space = inputs[0], scalar(0, inputs[0].dtype), Scratch()
    scaled_of, below_of = space.array(x.shape, x.dtype), space.array(x.shape, np.dtype(bool))

    def call(x: np.ndarray, slope: np.ndarray, y: np.ndarray, workspace: np.ndarray) -> None:
        scaled, below = scaled_of(workspace), below_of(workspace)
        np.less(x, zero, below)
        np.multiply(x, slope, scaled)
        np.copyto(y, x)
        np.copyto(y, scaled, where=below)

    return Into(call, space.nbytes)


@into("Sigmoid", 6, 13, dtypes=FLOAT, inplace=(0,))
def sigmoid(inputs: Specs, outputs: Specs) -> Into | None:
    """1 / (1 + exp(-x))."""
    return blockwise(_sigmoid(inputs[0].dtype), inputs[0])


def _sigmoid(dtype: np.dtype) -> Body:
    one = scalar(1, dtype)

    def body(x: np.ndarray, y: np.ndarray) -> None:
        np.negative(x, y)
        np.exp(y, y)
        np.add(y, one, y)
        np.reciprocal(y, y)

    return body


@into("QuickGelu", 1, 1, dtypes=FLOAT, inplace=(0,), domain="com.microsoft")
def quick_gelu(inputs: Specs, outputs: Specs, *, alpha: float = 1.702) -> Into | None:
    """Swish with another default."""
    return swish(inputs, outputs, alpha=alpha)


@into("Swish", 24, 24, dtypes=FLOAT, inplace=(0,))
def swish(inputs: Specs, outputs: Specs, *, alpha: float = 1.0) -> Into | None:
    """x / (1 + exp(-alpha x))."""
    one, negative = scalar(1, inputs[0].dtype), scalar(-alpha, inputs[0].dtype)

    def body(x: np.ndarray, y: np.ndarray, e: np.ndarray) -> None:
        np.multiply(x, negative, e)
        np.exp(e, e)
        np.add(e, one, e)
        np.divide(x, e, y)

    return blockwise(body, inputs[0], scratch=1)


@into("HardSigmoid", 6, 22, dtypes=FLOAT, inplace=(0,))
def hard_sigmoid(
    inputs: Specs, outputs: Specs, *, alpha: float = 0.20000000298023224, beta: float = 0.5
) -> Into | None:
    """alpha x + beta limited to [0, 1]."""
    return blockwise(_hard_sigmoid(inputs[0].dtype, alpha, beta), inputs[0])


def _hard_sigmoid(dtype: np.dtype, alpha: float, beta: float) -> Body:
    a, b, zero, one = (scalar(v, dtype) for v in (alpha, beta, 0, 1))

    def body(x: np.ndarray, y: np.ndarray) -> None:
        np.multiply(x, a, y)
        np.add(y, b, y)
        y.clip(zero, one, y)

    return body


@into("HardSwish", 14, 22, dtypes=FLOAT, inplace=(0,))
def hard_swish(inputs: Specs, outputs: Specs) -> Into | None:
    """x times x / 6 + 1/2 limited to [0, 1]."""
    gate = _hard_sigmoid(inputs[0].dtype, 1 / 6, 0.5)

    def body(x: np.ndarray, y: np.ndarray, open_: np.ndarray) -> None:
        gate(x, open_)
        np.multiply(x, open_, y)

    return blockwise(body, inputs[0], scratch=1)


@into("Elu", 6, 22, dtypes=FLOAT, inplace=(0,))
def elu(inputs: Specs, outputs: Specs, *, alpha: float = 1.0) -> Into | None:
    """x, or alpha (exp(x) - 1) below zero."""
    return _exponential_unit(inputs, alpha, 1.0)


@into("Selu", 6, 22, dtypes=FLOAT, inplace=(0,))
def selu(
    inputs: Specs, outputs: Specs, *, alpha: float = 1.6732631921768188, gamma: float = 1.0507010221481323
) -> Into | None:
    """gamma x, or gamma alpha (exp(x) - 1) below zero."""
    return _exponential_unit(inputs, alpha * gamma, gamma)


def _exponential_unit(inputs: Specs, below: float, above: float) -> Into | None:
    if not (np.isfinite(below) and np.isfinite(above)):  # sides of which one is zero cannot be added
        return None
    dtype = inputs[0].dtype
    low, high, positive, negative = scalar(below, dtype), scalar(above, dtype), _above(dtype), _below(dtype)

    def body(x: np.ndarray, y: np.ndarray, part: np.ndarray) -> None:
        x.clip(*negative, part)
        np.expm1(part, part)
        np.multiply(part, low, part)
        x.clip(*positive, y)
        if above != 1.0:
            np.multiply(y, high, y)
        np.add(y, part, y)

    return blockwise(body, inputs[0], scratch=1)


@into("Softplus", 1, 22, dtypes=FLOAT, inplace=(0,))
def softplus(inputs: Specs, outputs: Specs) -> Into | None:
    """log(1 + exp(x)), with an exponential that cannot overflow."""
    positive = _above(inputs[0].dtype)

    def body(x: np.ndarray, y: np.ndarray, part: np.ndarray) -> None:
        np.absolute(x, part)
        np.negative(part, part)
        np.exp(part, part)
        np.log1p(part, part)
        x.clip(*positive, y)
        np.add(y, part, y)

    return blockwise(body, inputs[0], scratch=1)


@into("Softsign", 1, 22, dtypes=FLOAT, inplace=(0,))
def softsign(inputs: Specs, outputs: Specs) -> Into | None:
    """x / (1 + abs(x))."""
    one = scalar(1, inputs[0].dtype)

    def body(x: np.ndarray, y: np.ndarray, size: np.ndarray) -> None:
        np.absolute(x, size)
        np.add(size, one, size)
        np.divide(x, size, y)

    return blockwise(body, inputs[0], scratch=1)


@into("Mish", 18, 22, dtypes=FLOAT, inplace=(0,))
def mish(inputs: Specs, outputs: Specs) -> Into | None:
    """x tanh(log(1 + exp(x))) as x e (e + 2) / (e (e + 2) + 2); the ratio is 1 from 20 on."""
    two, low, top = scalar(2, inputs[0].dtype), lowest(inputs[0].dtype), scalar(20, inputs[0].dtype)

    def body(x: np.ndarray, y: np.ndarray, product: np.ndarray, e: np.ndarray) -> None:
        x.clip(low, top, e)
        np.exp(e, e)
        np.add(e, two, product)
        np.multiply(product, e, product)
        np.add(product, two, e)
        np.divide(product, e, product)
        np.multiply(x, product, y)

    return blockwise(body, inputs[0], scratch=2)


@into("Erf", 9, 13, dtypes=_FLOAT32, inplace=(0,))
def erf(inputs: Specs, outputs: Specs) -> Into | None:
    """The error function."""
    ratio = _erf(inputs[0].dtype)

    def body(x: np.ndarray, y: np.ndarray, *scratch: np.ndarray) -> None:
        ratio(x, *scratch)
        np.copyto(y, scratch[0])

    return blockwise(body, inputs[0], scratch=3)


def _erf(dtype: np.dtype) -> Body:
    """``body(x, result, square, part)``: x P(x**2) / Q(x**2), limited to where it is 1 in float32."""
    (*numerator,), (*denominator,) = ([scalar(c, dtype) for c in reversed(side)] for side in ERF_RATIO)
    bound, minus_bound, one, minus_one = (scalar(v, dtype) for v in (3.92, -3.92, 1, -1))

    def polynomial(coefficients: list[np.ndarray], s: np.ndarray, value: np.ndarray) -> None:
        np.multiply(s, coefficients[0], value)
        np.add(value, coefficients[1], value)
        for c in coefficients[2:]:
            np.multiply(value, s, value)
            np.add(value, c, value)

    def body(x: np.ndarray, result: np.ndarray, square: np.ndarray, part: np.ndarray) -> None:
        x.clip(minus_bound, bound, result)
        np.square(result, square)
        polynomial(numerator, square, part)
        np.multiply(result, part, result)
        polynomial(denominator, square, part)
        np.divide(result, part, result)
        result.clip(minus_one, one, result)

    return body


@into("Gelu", 20, 20, dtypes=_FLOAT32, inplace=(0,))
@into("Gelu", 1, 1, dtypes=_FLOAT32, inplace=(0,), domain="com.microsoft")
def gelu(inputs: Specs, outputs: Specs, *, approximate: str = "none") -> Into | None:
    """x / 2 times 1 + erf(x / sqrt(2)), or its approximation by tanh."""
    dtype = inputs[0].dtype
    half, one, root = scalar(0.5, dtype), scalar(1, dtype), scalar(math.sqrt(0.5), dtype)
    inner, cubic, ratio = scalar(math.sqrt(2 / math.pi), dtype), scalar(0.044715, dtype), _erf(dtype)

    def by_erf(x: np.ndarray, y: np.ndarray, result: np.ndarray, square: np.ndarray, part: np.ndarray) -> None:
        np.multiply(x, root, result)
        ratio(result, result, square, part)
        np.add(result, one, result)
        np.multiply(result, half, result)
        np.multiply(x, result, y)

    def by_tanh(x: np.ndarray, y: np.ndarray, result: np.ndarray) -> None:
        np.square(x, result)
        np.multiply(result, cubic, result)
        np.add(result, one, result)
        np.multiply(result, x, result)
        np.multiply(result, inner, result)
        np.tanh(result, result)
        np.add(result, one, result)
        np.multiply(result, half, result)
        np.multiply(x, result, y)

    return blockwise(by_tanh, inputs[0], 1) if approximate == "tanh" else blockwise(by_erf, inputs[0], 3)
