"""Matrix products and convolutions with something fused in, in domain ``com.microsoft``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from onnxplug_kernels.activations import sigmoid
from onnxplug_kernels.arithmetic import in_float32
from onnxplug_kernels.catalogue import op
from onnxplug_kernels.ops.conv import conv
from onnxplug_kernels.ops.conv_transpose import conv_transpose
from onnxplug_kernels.ops.linalg import gemm, matmul
from onnxplug_kernels.refusals import FAIL, Refusal

MS = "com.microsoft"

# Name -> defaults of the parameters, in the order of ``activation_params``, and the function.
_ACTIVATIONS: dict[str, tuple[tuple[float, ...], Callable[..., Any]]] = {
    "Affine": ((1.0, 0.0), lambda xp, x, a, b: a * x + b),
    "Clip": ((-3.4028235e38, 3.4028235e38), lambda xp, x, low, high: xp.clip(x, low, high)),
    "Elu": ((1.0,), lambda xp, x, a: xp.where(x > 0, x, a * xp.expm1(xp.minimum(x, xp.zeros_like(x))))),
    "HardSigmoid": ((0.2, 0.5), lambda xp, x, a, b: xp.clip(a * x + b, 0.0, 1.0)),
    "HardSwish": ((), lambda xp, x: x * xp.clip(x / 6 + 0.5, 0.0, 1.0)),
    "LeakyRelu": ((0.01,), lambda xp, x, a: xp.where(x >= 0, x, a * x)),
    "ParametricSoftplus": ((1.0, 1.0), lambda xp, x, a, b: a * xp.logaddexp(b * x, xp.zeros_like(x))),
    "Relu": ((), lambda xp, x: xp.maximum(x, xp.zeros_like(x))),
    "ScaledTanh": ((1.0, 1.0), lambda xp, x, a, b: a * xp.tanh(b * x)),
    "Selu": (
        (1.6732631921768188, 1.0507010221481323),
        lambda xp, x, a, g: g * xp.where(x > 0, x, a * xp.expm1(xp.minimum(x, xp.zeros_like(x)))),
    ),
    "Sigmoid": ((), sigmoid),
    "Softplus": ((), lambda xp, x: xp.logaddexp(x, xp.zeros_like(x))),
    "Softsign": ((), lambda xp, x: x / (1 + xp.abs(x))),
    "Tanh": ((), lambda xp, x: xp.tanh(x)),
    "ThresholdedRelu": ((1.0,), lambda xp, x, a: xp.where(x > a, x, xp.zeros_like(x))),
}


def activate(xp: Any, x: Any, name: str, params: Sequence[float | None]) -> Any:
    """A fused activation of x; parameters that are missing or None take the operator's default."""
    if not name:
        return x
    if name not in _ACTIVATIONS:
        raise ValueError(f"activation is {name!r}; it must be one of {', '.join(_ACTIVATIONS)}")
    defaults, function = _ACTIVATIONS[name]
    given = [*params[: len(defaults)], *[None] * (len(defaults) - len(params))]
    return function(xp, x, *(d if p is None else p for p, d in zip(given, defaults, strict=True)))


@op("FusedMatMul", 1, domain=MS)
@in_float32
def fused_matmul(
    xp: Any,
    a: Any,
    b: Any,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Any:
    """alpha A B. ``trans`` swaps the last two axes; ``transBatch`` first brings axis 0 behind the batch axes."""
    y = matmul(xp, _arranged(xp, a, transA, transBatchA), _arranged(xp, b, transB, transBatchB))
    return y if alpha == 1.0 else y * alpha


@op("TransposeMatMul", 1, domain=MS)
def transpose_matmul(xp: Any, a: Any, b: Any, *, alpha: float = 1.0, transA: int = 0, transB: int = 0) -> Any:
    """The older name of FusedMatMul."""
    return fused_matmul(xp, a, b, alpha=alpha, transA=transA, transB=transB)


@op("FusedMatMulActivation", 1, domain=MS)
def fused_matmul_activation(
    xp: Any,
    a: Any,
    b: Any,
    *,
    activation: str,
    activation_alpha: float | None = None,
    activation_axis: int | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    **attributes: Any,
) -> Any:
    """FusedMatMul, and an activation of the product."""
    y = fused_matmul(xp, a, b, **attributes)
    return activate(xp, y, activation, (activation_alpha, activation_beta, activation_gamma))


@op("FusedGemm", 1, domain=MS)
@in_float32
def fused_gemm(
    xp: Any,
    a: Any,
    b: Any,
    c: Any = None,
    *,
    activation: str = "",
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Any:
    """Gemm, and an activation of the result."""
    y = gemm(xp, a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    # Selu is the one activation whose second parameter is called gamma.
    second = activation_gamma if activation_beta is None else activation_beta
    return activate(xp, y, activation, (activation_alpha, second))


@op("FusedConv", 1, domain=MS)
@in_float32
def fused_conv(
    xp: Any,
    x: Any,
    w: Any,
    b: Any = None,
    z: Any = None,
    *,
    activation: str = "",
    activation_params: Sequence[float] = (),
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Any:
    """Conv, plus ``z``, and an activation of the sum."""
    y = conv(
        xp,
        x,
        w,
        b,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    if z is not None and z.shape != y.shape:
        raise Refusal("output and sum shape must match", FAIL)
    return activate(xp, y if z is None else y + z, activation, activation_params)


@op("ConvTransposeWithDynamicPads", 1, domain=MS, host_inputs=(2,))
def conv_transpose_with_dynamic_pads(
    xp: Any, x: Any, w: Any, pads: Any = None, b: Any = None, **attributes: Any
) -> Any:
    """ConvTranspose with its padding (all begins, then all ends) as an input."""
    return conv_transpose(xp, x, w, b, pads=None if pads is None else pads.tolist(), **attributes)


def _arranged(xp: Any, x: Any, transpose: int, batch: int) -> Any:
    if batch and x.ndim > 2:
        x = xp.moveaxis(x, 0, -2)
    return xp.matrix_transpose(x) if transpose and x.ndim > 1 else x


@op("NhwcConv", 1, domain=MS)
def nhwc_conv(xp: Any, x: Any, w: Any, b: Any = None, **attributes: Any) -> Any:
    """Conv of (N, *spatial, C) with a filter (M, *kernel, C / group), to (N, *spatial, M). onnxruntime's list of operators has
    the filter as NhwcFusedConv takes it; its tools write, and its kernel reads, channels last."""
    return xp.moveaxis(conv(xp, xp.moveaxis(x, -1, 1), xp.moveaxis(w, -1, 1), b, **attributes), 1, -1)


@op("NhwcFusedConv", 1, domain=MS)
def nhwc_fused_conv(xp: Any, x: Any, w: Any, b: Any = None, z: Any = None, **attributes: Any) -> Any:
    """FusedConv of (N, *spatial, C) with a filter (M, C / group, *kernel), to (N, *spatial, M), in which ``z`` is too."""
    added = None if z is None else xp.moveaxis(z, -1, 1)
    return xp.moveaxis(fused_conv(xp, xp.moveaxis(x, -1, 1), w, b, added, **attributes), 1, -1)
