"""A convolution as cuDNN is asked for it: sizes, and what is fused behind it."""

from __future__ import annotations

from dataclasses import dataclass

from onnxplug.contract import NodeView, TensorSpec
from onnxplug_kernels.ops.conv_transpose import placement, reaches
from onnxplug_kernels.windows import windows

Ints = tuple[int, ...]


@dataclass(frozen=True)
class Clip:
    """An activation that cuts values off; None is no bound."""

    low: float | None
    high: float | None


@dataclass(frozen=True)
class Convolution:
    """y = clip(x * w + bias + residual) over one to three spatial axes; sizes in the order (N, C, *spatial), in memory everything lies
    channels last. ``transposed``: the gradient of a convolution by its input, of which x is the output and y the input; w is that
    convolution's."""

    dtype: str
    x: Ints
    w: Ints
    y: Ints
    begins: Ints
    ends: Ints
    strides: Ints
    dilations: Ints
    bias: bool = False
    residual: bool = False
    clip: Clip | None = None
    transposed: bool = False

    @classmethod
    def of(cls, node: NodeView, x: TensorSpec, w: TensorSpec, *, bias: bool) -> Convolution:
        """The convolution of a Conv or ConvTranspose. ValueError where its attributes do not fit the shapes."""
        if node.op_type == "ConvTranspose":
            return cls._transposed(node, x, w, bias=bias)
        a = node.attributes
        names = ("strides", "dilations", "pads", "auto_pad")
        moves = windows(x.shape[2:], w.shape[2:], **{n: a[n] for n in names if n in a})
        return cls(
            x.dtype.name, x.shape, w.shape, (x.shape[0], w.shape[0], *moves.output), tuple(moves.begins),
            tuple(moves.ends), tuple(moves.strides), tuple(moves.dilations), bias,
        )  # fmt: skip

    @classmethod
    def _transposed(cls, node: NodeView, x: TensorSpec, w: TensorSpec, *, bias: bool) -> Convolution:
        a, spatial, kernel = node.attributes, x.shape[2:], w.shape[2:]
        names = ("strides", "dilations", "pads", "auto_pad", "output_padding", "output_shape")
        begins, sizes = placement(spatial, kernel, **{n: a[n] for n in names if n in a})
        ones = (1,) * len(spatial)
        strides, dilations = tuple(a.get("strides") or ones), tuple(a.get("dilations") or ones)
        reach = reaches(spatial, kernel, strides, dilations)
        ends = tuple(max(0, r - b - n) for r, b, n in zip(reach, begins, sizes, strict=True))
        made = (x.shape[0], w.shape[1] * a.get("group", 1), *sizes)
        return cls(x.dtype.name, x.shape, w.shape, made, tuple(begins), ends, strides, dilations, bias, transposed=True)

    @property
    def groups(self) -> int:
        """Groups of channels."""
        return self.y[1] // self.w[1] if self.transposed else self.x[1] // self.w[1]


def nhwc(shape: Ints) -> Ints:
    """Sizes (N, C, *spatial) in the order of memory."""
    return (shape[0], *shape[2:], shape[1])
