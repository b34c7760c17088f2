"""Operators of com.microsoft that onnxruntime's optimizer joins in diffusion models: group normalisation behind a sum and before a
Swish, sums with a bias, gates."""

from __future__ import annotations

from onnxplug.contract import NodeView, ValueView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.lower.activation import gelu_of
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.elementwise import combine
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.norm import by_groups, check_channels
from onnxplug_ep_cpu.codegen.lower.pad import part
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.quantized import MS
from onnxplug_ep_cpu.codegen.lower.support import attributes, floats, rank
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor

_SUM: ex.Expr = (("leaf", 0), ("leaf", 1), ("add", 0, 1))
_SUM_OF_THREE: ex.Expr = (*_SUM, ("leaf", 2), ("add", 2, 3))


def _image(node: NodeView) -> str | None:
    return floats(node) or (None if rank(node.inputs[0]) > 2 else "there are no pixels")


@lowering("GroupNorm", "SkipGroupNorm", domain=MS, supports=_image)
def group_norm(b: Lowering, node: NodeView) -> None:
    """GroupNormalization of x, of x + skip + bias; the sum may be a result as well. Channels lie last unless an attribute says not."""
    x, gamma, beta, skip, bias = [*node.inputs, None, None][:5]
    y, total = [*node.outputs, None][:2]
    assert x is not None and gamma is not None and beta is not None and y is not None
    given = attributes(node, channels_last=1, epsilon=1e-5, activation=0)
    shape = b.shape(x)
    second = (0, len(shape) - 1, *range(1, len(shape) - 1)) if given["channels_last"] else tuple(range(len(shape)))
    source = b.read(x)
    if skip is not None:
        check_channels(b, (bias,), shape[second[1]])
        leaves = [source, _skipped(b, skip, shape, second)]
        leaves += [] if bias is None else [_by_channel(b.read(bias), shape, second)]
        source = b.scratch(shape) if total is None else b.output(total)
        b.write_to(Pending(shape, _SUM if bias is None else _SUM_OF_THREE, [*leaves]), source)
    made = by_groups(
        b, source.transposed(second), node.attributes["groups"], (gamma, beta), given["epsilon"], bool(given["activation"])
    )  # fmt: skip
    target = b.output(y).transposed(second).reshaped(made.shape)
    assert target is not None, "one dimension has a view as two"
    b.write_to(made, target)


def _skipped(b: Lowering, skip: ValueView, shape: Ints, second: Ints) -> Tensor:
    """What is added to an image: another one, or a number for each channel of an instance, as it is broadcast."""
    given, channels = b.shape(skip), shape[second[1]]
    small = tuple(n if d in second[:2] else 1 for d, n in enumerate(shape))
    if given in (shape, small):
        return b.read(skip)
    if given != (shape[0], channels):
        raise Unsupported(f"'{skip.name}' has shape {given} beside {shape}")
    return b.reshaped(b.read(skip), small)


def _by_channel(bias: Tensor, shape: Ints, second: Ints) -> Tensor:
    view = bias.reshaped(tuple(n if d == second[1] else 1 for d, n in enumerate(shape)))
    assert view is not None, "one dimension has a view with dimensions of size 1 around it"
    return view


@lowering("BiasAdd", domain=MS, supports=floats)
def bias_add(b: Lowering, node: NodeView) -> None:
    """x + bias + skip."""
    combine(b, node, _SUM_OF_THREE, node.inputs)


@lowering("BiasSplitGelu", domain=MS, supports=floats)
def bias_split_gelu(b: Lowering, node: NodeView) -> None:
    """The left half of x + bias times Gelu of the right one."""
    (x, bias), (y,) = node.inputs, node.outputs
    assert x is not None and bias is not None and y is not None
    shape, last = b.shape(y), len(b.shape(y)) - 1
    half = shape[last]
    if b.shape(x)[last] != 2 * half or b.shape(bias) != (2 * half,):
        raise Unsupported(f"'{bias.name}' has shape {b.shape(bias)} for {b.shape(x)}")
    halves = [
        part(tensor, axis, start, start + half)
        for tensor, axis in ((b.read(x), last), (b.read(bias), 0))
        for start in (0, half)
    ]
    build = ex.Build()
    left, right = (build("add", build("leaf", at), build("leaf", 2 + at)) for at in (0, 1))
    b.pend(y, Pending(shape, build.finish(build("mul", left, gelu_of(build, right, "none"))), [*halves]))
