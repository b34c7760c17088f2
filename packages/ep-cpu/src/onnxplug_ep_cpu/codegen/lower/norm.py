"""Normalisations by the statistics of a line: of layers, instances and groups."""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug.contract import NodeView, ValueView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.normalize import Normalize
from onnxplug_ep_cpu.codegen.kernels.rows import Operand
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.lines import Lines, Work, source, split
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.reduce import reduced
from onnxplug_ep_cpu.codegen.lower.support import attributes, axis_of, floats, rank, since, typed
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor

_SCALED: ex.Expr = (("leaf", 0), ("leaf", 1), ("mul", 0, 1))
_SHIFTED: ex.Expr = (("leaf", 0), ("leaf", 1), ("leaf", 2), ("fma", 0, 1, 2))


def normalized(
    b: Lowering,
    shape: Ints,
    axes: Sequence[int],
    x: tuple[ex.Expr, list[Tensor], Ints],
    affine: Sequence[Tensor],
    epsilon: float,
    centred: bool = True,
    kept: Tensor | None = None,
    statistics: tuple[Tensor, Tensor] | None = None,
) -> Pending:
    """``x`` normalised along ``axes``, times ``affine[0]``, plus ``affine[1]``; x itself is stored in ``kept``, mean and factor
    in ``statistics``."""
    expr, leaves, order = x
    others = [*([] if kept is None else [kept]), *(statistics or ())]

    def make(
        lines: Lines, expr: ex.Expr, post: ex.Expr, operands: tuple[Operand, ...], further: tuple[Operand, ...]
    ) -> Normalize:
        return Normalize(
            lines.along, len(lines.outer), operands, further, epsilon, centred, expr, post,
            kept is not None, statistics is not None,
        )  # fmt: skip

    post = (ex.IDENTITY, _SCALED, _SHIFTED)[len(affine)]
    return Work(b, axes, expr, leaves, make, 6.0, others).pending(shape, order, post, affine)


def _from_axis(node: NodeView, dims: int) -> range:
    return range(axis_of(node.attributes.get("axis", -1), dims), dims)


def _statistics(
    b: Lowering, mean: ValueView | None, factor: ValueView | None, shape: Ints
) -> tuple[Tensor, Tensor] | None:
    """Where mean and factor go, if either is wanted."""
    if mean is None and factor is None:
        return None
    first, second = (b.scratch(shape) if v is None else b.output(v) for v in (mean, factor))
    return first, second


@lowering("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization", supports=floats)
@lowering("SimplifiedLayerNormalization", supports=floats, domain="com.microsoft")
def layer_normalization(b: Lowering, node: NodeView) -> None:
    """Over the dimensions from ``axis`` on."""
    x, *affine = node.inputs
    y, mean, factor = [*node.outputs, None, None][:3]
    assert x is not None and y is not None
    shape = b.shape(y)
    axes = _from_axis(node, len(shape))
    centred = node.op_type == "LayerNormalization"
    if not centred:
        mean, factor = None, mean
    small = tuple(1 if d in axes else n for d, n in enumerate(shape))
    statistics = _statistics(b, mean, factor, small)
    parts = [b.read(v) for v in affine if v is not None]
    epsilon = attributes(node, epsilon=1e-5)["epsilon"]
    pending = normalized(b, shape, axes, source(b, x), parts, epsilon, centred, statistics=statistics)
    b.pend(y, pending)
    if statistics is not None:
        b.read(y)


@lowering("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", supports=floats, domain="com.microsoft")
def skip_layer_normalization(b: Lowering, node: NodeView) -> None:
    """LayerNormalization of input + skip + bias; the sum may be a result as well."""
    centred = node.op_type == "SkipLayerNormalization"
    x, skip, gamma, *rest = [*node.inputs, None, None][:5]
    beta, bias = (rest[0], rest[1]) if centred else (None, rest[0])
    y, mean, factor, total = [*node.outputs, None, None, None][:4]
    assert x is not None and skip is not None and gamma is not None and y is not None
    shape = b.shape(y)
    given = [b.read(v) for v in (x, skip, bias) if v is not None]
    expr: ex.Expr = (("leaf", 0), ("leaf", 1), ("add", 0, 1))
    if bias is not None:
        expr = (*expr, ("leaf", 2), ("add", 2, 3))
    statistics = _statistics(b, mean, factor, (*shape[:-1], 1))
    kept = None if total is None else b.output(total)
    parts = [b.read(v) for v in (gamma, beta) if v is not None]
    epsilon = attributes(node, epsilon=1e-12)["epsilon"]
    order = tuple(range(len(shape)))
    axes = (len(shape) - 1,)
    pending = normalized(b, shape, axes, (expr, given, order), parts, epsilon, centred, kept, statistics)
    b.pend(y, pending)
    if kept is not None or statistics is not None:
        b.read(y)


def _over_axes(node: NodeView) -> str | None:
    return floats(node) or ("its older form is not generated" if node.since_version < 9 else None)


@lowering("MeanVarianceNormalization", supports=_over_axes)
def mean_variance_normalization(b: Lowering, node: NodeView) -> None:
    """What is off the mean over ``axes``, divided by the standard deviation plus 1e-9, as the function body has it."""
    (x,), (y,) = node.inputs, node.outputs
    assert x is not None and y is not None
    tensor = b.read(x)
    shape = tensor.shape
    axes = sorted({axis_of(axis, len(shape)) for axis in attributes(node, axes=(0, 2, 3))["axes"]})
    build = ex.Build()
    off = build("sub", build("leaf", 0), build("leaf", 1))
    square = build.finish(build("mul", off, off))
    mean = reduced(b, "mean", ex.IDENTITY, [tensor], shape, axes, "float32")
    variance = reduced(b, "mean", square, [tensor, mean], shape, axes, "float32")
    deviation = build("add", build("sqrt", build("leaf", 2)), build("const", 1e-9))
    b.pend(y, Pending(shape, build.finish(build("div", off, deviation)), [tensor, mean, variance]))


def _spatial(node: NodeView) -> str | None:
    return floats(node) or ("the rank is not known" if rank(node.inputs[0]) < 3 else None)


@lowering("InstanceNormalization", supports=_spatial)
def instance_normalization(b: Lowering, node: NodeView) -> None:
    """Over the pixels of each channel."""
    (x, *affine), (y,) = node.inputs, node.outputs
    assert x is not None and y is not None
    shape = b.shape(y)
    check_channels(b, affine, shape[1])
    parts = [_by_channel(b.read(v), len(shape)) for v in affine if v is not None]
    epsilon = attributes(node, epsilon=1e-5)["epsilon"]
    b.pend(y, normalized(b, shape, range(2, len(shape)), source(b, x), parts, epsilon))


def check_channels(b: Lowering, values: Sequence[ValueView | None], channels: int) -> None:
    """A vector over channels has one number for each; otherwise NumPy's kernel says what is wrong."""
    for value in values:
        if value is not None and b.shape(value) != (channels,):
            raise Unsupported(f"'{value.name}' has shape {b.shape(value)} for {channels} channels")


def _by_channel(tensor: Tensor, dims: int) -> Tensor:
    """A value for each channel, as it is broadcast."""
    view = tensor.reshaped((tensor.size, *[1] * (dims - 2)))
    assert view is not None, "one dimension has a view with dimensions of size 1 behind it"
    return view


def _group_supports(node: NodeView) -> str | None:
    # its schema does not infer the shape of the result
    return next((r for v in node.inputs if (r := typed(v))), None)


@lowering("GroupNormalization", supports=since(21, _group_supports))
def group_normalization(b: Lowering, node: NodeView) -> None:
    """Over the channels and pixels of each group: statistics first, then an element-wise pass."""
    (x, scale, bias), (y,) = node.inputs, node.outputs
    assert x is not None and scale is not None and bias is not None and y is not None
    shape, epsilon = b.shape(y), attributes(node, epsilon=1e-5)["epsilon"]
    given = b.read(x)
    b.define(y, b.reshaped(b.write(by_groups(b, given, node.attributes["num_groups"], (scale, bias), epsilon)), shape))


def by_groups(
    b: Lowering, given: Tensor, groups: int, affine: tuple[ValueView, ValueView], epsilon: float, swish: bool = False
) -> Pending:
    """(N, channels, ...) as (N, groups, channels of a group, ...): normalised, times a number of each channel, plus one, and
    ``swish``: times its own sigmoid."""
    shape, dims = given.shape, len(given.shape)
    check_channels(b, affine, shape[1])
    if groups < 1 or shape[1] % groups:
        raise Unsupported(f"{shape[1]} channels are not {groups} groups")
    grouped = (shape[0], groups, shape[1] // groups, *shape[2:])
    small = (shape[0], groups, 1, *[1] * (dims - 2))
    mean, factor = b.scratch(small), b.scratch(small)
    view = b.reshaped(given, grouped)
    _line_statistics(b, view, range(2, dims + 1), mean, factor, epsilon)
    parts = []
    for value in affine:
        part = b.dense(value).reshaped((groups, shape[1] // groups, *[1] * (dims - 2)))
        assert part is not None
        parts.append(part)
    build = ex.Build()
    centred = build("sub", build("leaf", 0), build("leaf", 1))
    result = build("fma", build("mul", centred, build("leaf", 2)), build("leaf", 3), build("leaf", 4))
    leaves: list[Tensor | None] = [view, mean, factor, *parts]
    if swish:
        result = build("mul", result, build("sigmoid", result))
    return Pending(grouped, build.finish(result), leaves)


def _line_statistics(b: Lowering, x: Tensor, axes: Sequence[int], mean: Tensor, factor: Tensor, epsilon: float) -> None:
    """Mean and 1 / sqrt(variance + epsilon) of each line."""
    dims = range(len(x.shape))
    for again in (False, True):
        tensor = b.copied(x, dims) if again else x
        lines = split([mean.broadcast(x.shape), factor.broadcast(x.shape), tensor], axes, main=2)
        if lines is not None:
            kernel = Normalize(
                lines.along, len(lines.outer), lines.operands((2,)), (), epsilon, statistics=True, finishes=False
            )
            lines.call(b, kernel, 4.0)
            return
