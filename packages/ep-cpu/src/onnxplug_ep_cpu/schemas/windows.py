"""Convolution and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxplug.contract.types import Dim, Shape
from onnxplug_ep_cpu.schemas.declare import Call, Required, contrib
from onnxplug_ep_cpu.schemas.norm import BYTES
from onnxplug_kernels.windows import windows

_WINDOW: dict[str, Any] = {"auto_pad": "NOTSET", "pads": list[int], "strides": list[int]}
_CONV: dict[str, Any] = {**_WINDOW, "dilations": list[int], "group": 1, "kernel_shape": list[int]}
_POOL: dict[str, Any] = {**_WINDOW, "ceil_mode": 0, "kernel_shape": Required(list[int])}
_REALS = ("float16", "float", "double")


@contrib(
    "FusedConv",
    "X: T, W: T, B: T?, Z: T? -> Y: T",
    {**_CONV, "activation": str, "activation_params": list[float]},
    T=_REALS,
)
def fused_conv(call: Call) -> Sequence[Shape | None]:
    """A convolution."""
    return [_convolved(call, 0, 1)]


@contrib(
    "NhwcFusedConv",
    "X: T, W: T, B: T?, Z: T? -> Y: T",
    {**_CONV, "activation": str, "activation_params": list[float]},
    T=("float16", "float"),
)
def nhwc_fused_conv(call: Call) -> Sequence[Shape | None]:
    """A convolution, channels last but in the filter."""
    return [_convolved(call, 0, 1, 1)]


@contrib("NhwcConv", "X: T, W: T, B: T? -> Y: T", _CONV, T=_REALS)
def nhwc_conv(call: Call) -> Sequence[Shape | None]:
    """A convolution, channels last."""
    return [_convolved(call, 0, 1, 1, filter_last=1)]


@contrib(
    "QLinearConv",
    "x: T1, x_scale: float, x_zero_point: T1, w: T2, w_scale: float, w_zero_point: T2, y_scale: float, "
    "y_zero_point: T3, B: T4? -> y: T3",
    {**_CONV, "channels_last": 0},
    T1=BYTES,
    T2=BYTES,
    T3=BYTES,
    T4=("int32",),
)
def quantized_conv(call: Call) -> Sequence[Shape | None]:
    """A convolution, perhaps channels last."""
    return [_convolved(call, 0, 3, call.attribute("channels_last"))]


@contrib(
    "QLinearAveragePool",
    "X: T, x_scale: float, x_zero_point: T?, y_scale: float, y_zero_point: T? -> Y: T",
    {**_POOL, "count_include_pad": 0, "channels_last": 0},
    T=BYTES,
)
def average_pool(call: Call) -> Sequence[Shape | None]:
    """A pooling, perhaps channels last."""
    return [_pooled(call, call.attribute("channels_last"))]


@contrib(
    "MaxpoolWithMask",
    "X: T, M: int32 -> Y: T",
    {**_WINDOW, "kernel_shape": list[int], "storage_order": 0},
    T=("float",),
)
def masked_max_pool(call: Call) -> Sequence[Shape | None]:
    """A pooling; ValueError without a kernel's shape."""
    if not call.attribute("kernel_shape"):
        raise ValueError("Attribute kernel_shape must be specified")
    return [_pooled(call, 0, 0)]


@contrib("NhwcMaxPool", "x: T -> y: T", {**_POOL, "dilations": list[int]}, T=BYTES)
def max_pool(call: Call) -> Sequence[Shape | None]:
    """A pooling, channels last."""
    return [_pooled(call, 1)]


@contrib(
    "QLinearGlobalAveragePool",
    "X: T, x_scale: float, x_zero_point: T, y_scale: float, y_zero_point: T -> Y: T",
    {"channels_last": 0},
    T=BYTES,
)
def global_average_pool(call: Call) -> Sequence[Shape | None]:
    """Ones for the spatial axes."""
    x = call.shape(0)
    if x is None:
        return [None]
    ones = (1,) * (len(x) - 2)
    return [_ordered(x[0], _channels(x, call.attribute("channels_last")), ones, call.attribute("channels_last"))]


@contrib(
    "ConvTransposeWithDynamicPads",
    "X: T, W: T, Pads: int64?, B: T? -> Y: T",
    {**{k: v for k, v in _CONV.items() if k != "pads"}, "output_padding": list[int]},
    T=_REALS,
)
def conv_transpose(call: Call) -> Sequence[Shape | None]:
    """Known where the padding is constant."""
    x, w = call.shape(0), call.shape(1)
    if x is None or w is None:
        return [None]
    rank = len(x) - 2
    channels = w[1] * call.attribute("group") if isinstance(w[1], int) else None
    kernel = call.attribute("kernel_shape") or w[2:]
    pads = call.ints(2) if call.element(2) is not None else [0] * 2 * rank
    if pads is None or call.attribute("auto_pad") not in ("NOTSET", "VALID"):
        return [(x[0], channels, *(None,) * rank)]
    strides, dilations = (call.attribute(name) or [1] * rank for name in ("strides", "dilations"))
    extra = call.attribute("output_padding") or [0] * rank
    spatial = [
        (n - 1) * strides[i] + extra[i] + (k - 1) * dilations[i] + 1 - pads[i] - pads[i + rank]
        if isinstance(n, int) and isinstance(k, int)
        else None
        for i, (n, k) in enumerate(zip(x[2:], kernel, strict=True))
    ]
    return [(x[0], channels, *spatial)]


def _convolved(call: Call, x_index: int, w_index: int, channels_last: int = 0, filter_last: int = 0) -> Shape | None:
    x, w = call.shape(x_index), call.shape(w_index)
    if x is None or w is None:
        return None
    spatial = _slid(call, _spatial(x, channels_last), call.attribute("kernel_shape") or _spatial(w, filter_last))
    return _ordered(x[0], w[0], spatial, channels_last)


def _pooled(call: Call, channels_last: int, ceil_mode: int | None = None) -> Shape | None:
    x = call.shape(0)
    if x is None:
        return None
    ceil_mode = call.attribute("ceil_mode") if ceil_mode is None else ceil_mode
    spatial = _slid(call, _spatial(x, channels_last), call.attribute("kernel_shape"), ceil_mode)
    return _ordered(x[0], _channels(x, channels_last), spatial, channels_last)


def _slid(call: Call, spatial: Shape, kernel: Sequence[Dim], ceil_mode: int | None = None) -> Shape:
    """The output sizes of a sliding kernel, axis by axis, so that an unknown size leaves the others known."""
    rank = len(spatial)
    strides, dilations = (call.attribute(name) or [1] * rank for name in ("strides", "dilations"))
    pads = call.attribute("pads") or [0] * 2 * rank
    return tuple(
        windows(
            (n,),
            (k,),
            strides=(strides[i],),
            dilations=(dilations[i],),
            pads=(pads[i], pads[i + rank]),
            auto_pad=call.attribute("auto_pad"),
            ceil_mode=ceil_mode,
        ).output[0]
        if isinstance(n, int) and isinstance(k, int)
        else None
        for i, (n, k) in enumerate(zip(spatial, kernel, strict=True))
    )


def _spatial(x: Shape, channels_last: int) -> Shape:
    return x[1:-1] if channels_last else x[2:]


def _channels(x: Shape, channels_last: int) -> Dim:
    return x[-1] if channels_last else x[1]


def _ordered(batch: Dim, channels: Dim, spatial: Shape, channels_last: int) -> Shape:
    return (batch, *spatial, channels) if channels_last else (batch, channels, *spatial)
