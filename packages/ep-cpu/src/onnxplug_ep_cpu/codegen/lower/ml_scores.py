"""What the classifiers and regressors of ``ai.onnx.ml`` share: rows of features, post transforms, labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxplug.contract import NodeView, ValueView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.rows import Operand
from onnxplug_ep_cpu.codegen.kernels.softmax import Softmax
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.extremes import places
from onnxplug_ep_cpu.codegen.lower.lines import Lines, Work
from onnxplug_ep_cpu.codegen.lower.loops import write_map
from onnxplug_ep_cpu.codegen.lower.move import gathered
from onnxplug_ep_cpu.codegen.lower.numbered import spell
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.reduce import reduced
from onnxplug_ep_cpu.codegen.lower.support import rank, typed
from onnxplug_ep_cpu.codegen.tensor import Tensor

ML = "ai.onnx.ml"
FEATURES = frozenset({"float32", "int32", "int64"})
"""Element types that are computed in float32, as the NumPy kernels do; doubles they compute in double."""
TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")


def samples(node: NodeView) -> str | None:
    """The operand is rows of features, or one row, and the transform is known. Classifiers take doubles as singles, which their
    numbers are; onnxruntime does so too."""
    allowed = FEATURES | {"float64"} if node.op_type.endswith("Classifier") else FEATURES
    if rank(node.inputs[0]) not in (1, 2):
        return typed(node.inputs[0], allowed) or "its operand is neither rows nor one row"
    transform = node.attributes.get("post_transform", "NONE")
    if transform not in TRANSFORMS:
        return f"post_transform is {transform!r}"
    return typed(node.inputs[0], allowed)


def features(b: Lowering, x: ValueView) -> Tensor:
    """The operand as (N, F) float32."""
    tensor = b.read(x)
    if len(tensor.shape) == 1:
        tensor = tensor.viewed((1, *tensor.shape), (0, *tensor.strides))
    if tensor.element == "float32":
        return tensor
    return b.write(Pending(tensor.shape, (("leaf", 0), ("to_float32", 0)), [tensor]))


# ---- scores


def transformed(b: Lowering, y: ValueView | None, scores: Pending, name: str) -> None:
    """``y`` is the post transform of ``scores``, (N, classes); of one score only PROBIT."""
    if y is None:
        return
    if scores.shape[1] == 1 and name != "PROBIT":
        name = "NONE"
    build = ex.Build()
    if name in ("NONE", "LOGISTIC", "PROBIT"):
        x = build.include(scores.expr, [build("leaf", i) for i in range(ex.leaf_count(scores.expr))])
        scores.expr = build.finish({"NONE": lambda *_: x, "LOGISTIC": _logistic, "PROBIT": _probit}[name](build, x))
        b.pend(y, scores)
    elif name == "SOFTMAX":
        b.pend(y, _softmax(b, b.write(scores)))
    else:
        b.pend(y, _softmax_zero(b, b.write(scores)))


def _logistic(build: ex.Build, x: int) -> int:
    return build("sigmoid", x)


def _probit(build: ex.Build, x: int) -> int:
    """Winitzki's approximation (see ``onnxplug_kernels.ops.ml_scores.probit``) without its cancellations, which float32 would not
    bear: 1 - y^2 and its logarithm at both ends of y's range and near 0, and the difference of a root and ``v``."""
    one, zero = build("const", 1.0), build("const", 0.0)
    y = build("sub", build("add", x, x), one)
    square = build("mul", y, y)
    rest = build("mul", build("add", x, x), build("mul", build("const", 2.0), build("sub", one, x)))
    small = build("neg", build("log1p", build("div", square, rest)))
    log = build("where", build("less", square, build("const", 0.5)), small, build("log", rest))
    v = build("add", build("const", 2 / (3.14159 * 0.147)), build("mul", log, build("const", 0.5)))
    u = build("mul", log, build("const", -1 / 0.147))
    root = build("sqrt", build("add", build("mul", v, v), u))
    apart = build("div", u, build("add", root, v))
    magnitude = build("sqrt", build("where", build("greater", v, zero), apart, build("sub", root, v)))
    signed = build("where", build("less", y, zero), build("neg", magnitude), magnitude)
    return build("mul", signed, build("const", 1.41421356))


def _softmax(b: Lowering, x: Tensor) -> Pending:
    def make(
        lines: Lines, expr: ex.Expr, post: ex.Expr, operands: tuple[Operand, ...], further: tuple[Operand, ...]
    ) -> Softmax:
        return Softmax(lines.along, len(lines.outer), operands, further, expr, post, False)

    held = [b.scratch((x.shape[0], 1)) for _ in range(2)]
    return Work(b, [1], ex.IDENTITY, [x], make, 20.0, held).pending(x.shape, (0, 1))


def _softmax_zero(b: Lowering, x: Tensor) -> Pending:
    """Scores of zero keep probability zero."""
    build = ex.Build()
    score, top = build("leaf", 0), build("leaf", 1)
    some = build("greater", build("abs", score), build("const", 1e-7))
    power = build("exp", build("sub", score, top))
    none = build("mul", score, build("exp", build("neg", top)))
    powers = build.finish(build("where", some, power, none))
    highest = reduced(b, "max", ex.IDENTITY, [x], x.shape, [1], "float32")
    made = b.write(Pending(x.shape, powers, [x, highest]))
    total = reduced(b, "add", ex.IDENTITY, [made], x.shape, [1], "float32")
    return Pending(x.shape, (("leaf", 0), ("leaf", 1), ("div", 0, 1)), [made, total])


def two_columns(b: Lowering, y: ValueView | None, score: Tensor, name: str, complement: bool) -> None:
    """Scores of both classes from the (N, 1) ``score`` of the second one: its negation, or with ``complement`` 1 less it, is the
    first one's. Logistic always acts on (-score, score), softmax not at all."""
    if y is None:
        return
    build = ex.Build()
    given = build("leaf", 0)
    fills_up = complement and name != "LOGISTIC"
    other = build.finish(build("sub", build("const", 1.0), given) if fills_up else build("neg", given))
    both = b.scratch((score.shape[0], 2))
    for column, expr in enumerate((other, ex.IDENTITY)):
        place = both.shift(column).viewed(score.shape, (2, 1))
        write_map(b.program, b.target, expr, [score], place)
    transformed(b, y, Pending(both.shape, ex.IDENTITY, [both]), name if name in ("LOGISTIC", "PROBIT") else "NONE")


# ---- labels


def best(b: Lowering, scores: Tensor) -> Tensor:
    """(N,) the first column with the highest score."""
    return places(b, scores, 1).viewed((scores.shape[0],), (1,))


def above(b: Lowering, score: Tensor, threshold: float) -> Tensor:
    """(N,) 1 where the (N, 1) ``score`` is above the threshold, else 0."""
    build = ex.Build()
    expr = build.finish(build("to_int64", build("greater", build("leaf", 0), build("const", threshold))))
    made = b.write(Pending(score.shape, expr, [score], element="int64"))
    return made.viewed((score.shape[0],), (1,))


def label(
    b: Lowering, node: NodeView, y: ValueView | None, index: Tensor, ints: Sequence[int], strings: Sequence[str]
) -> None:
    """``y`` is what the places ``index`` (N,) have in the list of labels."""
    if y is None:
        return
    if strings:
        spell(b, y, index, list(strings))
    elif list(ints) == list(range(len(ints))):
        b.define(y, index)
    else:
        table = b.read(b.prepared.table(node, "labels", lambda: np.array(ints, np.int64)))
        made = b.output(y, element="int64")
        gathered(b, made, table.viewed((1, len(ints), 1), (0, 1, 1)), index, (len(ints),), (1,))
