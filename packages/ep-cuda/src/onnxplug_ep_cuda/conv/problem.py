"""A convolution as cuDNN is asked for it: sizes, and what is fused behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnxplug.contract import NodeView, TensorSpec
from onnxplug_kernels.windows import windows

Four = tuple[int, int, int, int]
Two = tuple[int, int]


@dataclass(frozen=True)
class Clip:
    """An activation that cuts values off; None is no bound."""

    low: float | None
    high: float | None


@dataclass(frozen=True)
class Convolution:
    """y = clip(x * w + bias + residual) in NCHW sizes (w: KCRS); in memory everything lies channels last."""

    dtype: str
    x: Four
    w: Four
    y: Four
    begins: Two
    ends: Two
    strides: Two
    dilations: Two
    bias: bool = False
    residual: bool = False
    clip: Clip | None = None

    @classmethod
    def of(cls, node: NodeView, x: TensorSpec, w: TensorSpec, *, bias: bool) -> Convolution:
        """The convolution of a Conv over two spatial axes. ValueError where its attributes do not fit the shapes."""
        a = node.attributes
        names = ("strides", "dilations", "pads", "auto_pad")
        moves = windows(x.shape[2:], w.shape[2:], **{n: a[n] for n in names if n in a})
        return cls(
            x.dtype.name, _four(x.shape), _four(w.shape), _four((x.shape[0], w.shape[0], *moves.output)),
            _two(moves.begins), _two(moves.ends), _two(moves.strides), _two(moves.dilations), bias,
        )  # fmt: skip


def _four(shape: Sequence[int]) -> Four:
    n, c, h, w = shape
    return n, c, h, w


def _two(pair: Sequence[int]) -> Two:
    first, second = pair
    return first, second


def nhwc(shape: tuple[int, ...]) -> Four:
    """NCHW sizes in the order of memory."""
    n, c, h, w = shape
    return n, h, w, c
