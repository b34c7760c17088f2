"""Support vector machines of ``ai.onnx.ml``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from onnxplug.contract import NodeView
from onnxplug.contract.sizes import portion
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.pairwise import VECTORS, Pairwise
from onnxplug_ep_cpu.codegen.kernels.votes import Couple, Votes
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.matrices import by_weights
from onnxplug_ep_cpu.codegen.lower.ml_linear import affine, coefficients_suit
from onnxplug_ep_cpu.codegen.lower.ml_scores import (
    ML,
    above,
    best,
    features,
    label,
    samples,
    transformed,
    two_columns,
)
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.support import attributes, require, typed, width_of
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.program import Ref
from onnxplug_ep_cpu.codegen.tensor import Tensor

KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
MOST_WEIGHTS = 1 << 22
"""Weights of all pairs' machines as one matrix; where they are more, NumPy goes pair by pair."""
MOST_CLASSES = 64
"""Classes whose probabilities are coupled on the stack."""
MOST_FACTORS = 16
"""Powers up to this one are products."""


def _supports(node: NodeView) -> str | None:
    if (reason := samples(node)) is not None:
        return reason
    if node.op_type == "SVMRegressor" and (reason := typed(node.outputs[0])) is not None:
        return reason
    given, x = node.attributes, node.inputs[0]
    if given.get("kernel_type", "LINEAR") not in KERNELS:
        return f"kernel_type is {given['kernel_type']!r}"
    count, vectors, coefficients = _sizes(node)
    if not vectors:
        return coefficients_suit(node, count, width_of(x))
    if (reason := _vectors_suit(node, vectors, width_of(x))) is not None:
        return reason
    if len(given.get("coefficients", ())) != coefficients:
        return f"there are {len(given.get('coefficients', ()))} coefficients, {coefficients} were expected"
    pairs = count * (count - 1) // 2
    if node.op_type == "SVMClassifier":
        if count < 2 or len(given.get("rho", ())) < pairs:
            return "it has no machine for each pair of classes"
        if pairs * vectors > MOST_WEIGHTS or (given.get("prob_a") and count > MOST_CLASSES):
            return f"{count} classes are too many"
    return None


def _vectors_suit(node: NodeView, vectors: int, size: int | None) -> str | None:
    """The numbers are so many vectors of ``size`` features (None: not known yet)."""
    numbers = len(node.attributes.get("support_vectors", ()))
    if size is None or (size > 0 and numbers == vectors * size):
        return None
    return f"{numbers} numbers are no {vectors} rows of {size} features"


def _sizes(node: NodeView) -> tuple[int, int, int]:
    """Classes (or targets), support vectors, coefficients these ask for."""
    given = node.attributes
    if node.op_type == "SVMRegressor":
        vectors = max(0, given.get("n_supports", 0))
        return 1, vectors, vectors
    count = max(len(given.get("classlabels_ints", ())), len(given.get("classlabels_strings", ())))
    vectors = sum(given.get("vectors_per_class", ()))
    return count, vectors, (count - 1) * vectors


@lowering("SVMRegressor", supports=_supports, domain=ML)
def svm_regressor(b: Lowering, node: NodeView) -> None:
    """As ``onnxplug_kernels.ops.ml_linear.svm_regressor``."""
    (x,), (y,) = node.inputs, node.outputs
    assert x is not None
    given = attributes(node, coefficients=(), one_class=0, rho=())
    _, vectors, _ = _sizes(node)
    rows, rho = features(b, x), list(given["rho"][:1])
    if vectors:
        rows = _kernel(b, node, rows, vectors)
    made = affine(b, node, rows, given["coefficients"], rho, 1)
    if given["one_class"]:
        build = ex.Build()
        score = build.include(made.expr, [build("leaf", i) for i in range(ex.leaf_count(made.expr))])
        inside = build("greater", score, build("const", 0.0))
        made.expr = build.finish(build("where", inside, build("const", 1.0), build("const", -1.0)))
    transformed(b, y, made, "NONE")


@lowering("SVMClassifier", supports=_supports, domain=ML)
def svm_classifier(b: Lowering, node: NodeView) -> None:
    """As ``onnxplug_kernels.ops.ml_linear.svm_classifier``."""
    (x,), (chosen, scores) = node.inputs, [*node.outputs, None][:2]
    assert x is not None
    given = attributes(
        node, classlabels_ints=(), classlabels_strings=(), post_transform="NONE", prob_a=(), prob_b=(), rho=()
    )
    names, words, transform = given["classlabels_ints"], given["classlabels_strings"], given["post_transform"]
    count, vectors, _ = _sizes(node)
    rows = features(b, x)
    if not vectors:
        made = b.write(affine(b, node, rows, given["coefficients"], list(given["rho"][:1]) * count, count))
        if count == 1:
            label(b, node, chosen, above(b, made, 0.0), (0, 1), ("0", "1") if words else ())
        else:
            label(b, node, chosen, best(b, made), names, words)
        transformed(b, scores, Pending(made.shape, ex.IDENTITY, [made]), transform)
        return
    kernel = _kernel(b, node, rows, vectors)
    decisions = b.write(_decisions(b, node, kernel, count))
    by_pair = b.copied(decisions, (1, 0))
    label(b, node, chosen, _winners(b, by_pair, count), names, words)
    if given["prob_a"]:
        made = _probabilities(b, node, decisions, count)
        transformed(b, scores, Pending(made.shape, ex.IDENTITY, [made]), transform)
    elif count == 2:
        two_columns(b, scores, decisions, transform, complement=transform != "NONE")
    else:
        transformed(b, scores, Pending(decisions.shape, ex.IDENTITY, [decisions]), transform)


# ---- the kernel of rows and support vectors


def _kernel(b: Lowering, node: NodeView, x: Tensor, vectors: int) -> Tensor:
    """(N, vectors)."""
    require(_vectors_suit(node, vectors, x.shape[1]))
    kind = node.attributes.get("kernel_type", "LINEAR")
    gamma, coef0, degree = node.attributes.get("kernel_params") or (0.0, 0.0, 0.0)
    given = np.asarray(node.attributes["support_vectors"], np.float32)
    build = ex.Build()
    value = build("leaf", 0)
    if kind == "RBF":
        expr = build.finish(build("exp", build("mul", value, build("const", -gamma))))
        width = VECTORS * b.target.lanes
        table = b.prepared.table(node, f"panels of {width}", lambda: panels(given.reshape(vectors, -1), width))
        return distances(b, x, b.read(table), vectors, expr)
    table = b.prepared.table(node, "vectors", lambda: given.reshape(vectors, -1))
    line = build("add", build("mul", value, build("const", gamma)), build("const", coef0))
    result = {
        "LINEAR": lambda: value,
        "POLY": lambda: _power(build, line, degree),
        "SIGMOID": lambda: build("tanh", line),
    }
    pending = (
        by_weights(b, (x.shape[0], vectors), x, table, (vectors, x.shape[1]), True) if x.size else _nothing(vectors)
    )
    pending.expr = build.finish(result[kind]())
    return b.write(pending)


def _nothing(columns: int) -> Pending:
    return Pending((0, columns), ex.IDENTITY, [])


def _power(build: ex.Build, x: int, degree: float) -> int:
    if degree != int(degree) or not 0 <= degree <= MOST_FACTORS:
        return build("pow", x, build("const", degree))
    result, square, left = build("const", 1.0), x, int(degree)
    while left:
        if left & 1:
            result = build("mul", result, square)
        left >>= 1
        square = build("mul", square, square) if left else square
    return result


def panels(vectors: np.ndarray, width: int) -> np.ndarray:
    """Rows as [panel][feature][``width`` rows], the last panel filled up with zeros."""
    count, size = vectors.shape
    filled = np.zeros((-(-count // width) * width, size), np.float32)
    filled[:count] = vectors
    return np.ascontiguousarray(filled.reshape(-1, width, size).transpose(0, 2, 1))


def distances(b: Lowering, x: Tensor, packed: Tensor, columns: int, expr: ex.Expr) -> Tensor:
    """(N, columns): ``expr`` of the squared distances of rows to the columns in panels [panel][feature][width]."""
    count, size, width = packed.shape
    if x.shape[1] != size:
        raise Unsupported(f"rows have {x.shape[1]} features, those they are compared with {size}")
    if x.shape[1] > 1 and x.strides[1] != 1:
        x = b.copied(x, (0, 1))
    rows = x.shape[0]
    out = b.scratch((rows, count * width))
    block = portion(rows, 2048 // max(1, size))
    args: list[int | Ref] = [
        out.ref, x.ref, packed.ref, rows, size, count, 4 * count * width, 4 * x.strides[0], block,
    ]  # fmt: skip
    work = out.size * (size + ex.cost(expr)) * 0.5 / b.target.lanes
    b.program.call(Pairwise(expr), args, -(-rows // block) * count, work)
    return out.viewed((rows, columns), out.strides)


# ---- one machine for each pair of classes


def _decisions(b: Lowering, node: NodeView, kernel: Tensor, count: int) -> Pending:
    """(N, pairs): positive for the first class of a pair."""
    given = node.attributes
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]

    def weights() -> np.ndarray:  # of each pair for all vectors
        per_class: Sequence[int] = given["vectors_per_class"]
        total = sum(per_class)
        stored = np.asarray(given["coefficients"], np.float32).reshape(count - 1, total)
        starts = np.concatenate([[0], np.cumsum(per_class)])
        made = np.zeros((len(pairs), total), np.float32)
        for pair, (i, j) in enumerate(pairs):
            mine, theirs = slice(starts[i], starts[i + 1]), slice(starts[j], starts[j + 1])
            made[pair, mine], made[pair, theirs] = stored[j - 1, mine], stored[i, theirs]
        return made.reshape(-1)

    table: Any = b.prepared.made(node, weights)
    return affine(b, node, kernel, table, list(given["rho"][: len(pairs)]), len(pairs))


def _winners(b: Lowering, decisions: Tensor, count: int) -> Tensor:
    rows = decisions.shape[0]
    out = b.scratch((rows,), element="int64")
    args: list[int | Ref] = [out.ref, decisions.ref, 4 * rows, count, rows]
    b.program.call(Votes(), args, -(-rows // b.target.lanes), 2.0 * decisions.size)
    return out


def _probabilities(b: Lowering, node: NodeView, decisions: Tensor, count: int) -> Tensor:
    """(N, classes)."""
    pairs, rows = decisions.shape[1], decisions.shape[0]
    tables = [
        b.read(b.prepared.table(node, name, partial(np.asarray, node.attributes[name][:pairs], np.float32)))
        for name in ("prob_a", "prob_b")
    ]
    build = ex.Build()
    odds = build("add", build("mul", build("leaf", 0), build("leaf", 1)), build("leaf", 2))
    first = build("sub", build("const", 1.0), build("sigmoid", odds))
    held = build("min", build("max", first, build("const", 1e-7)), build("const", 1 - 1e-7))
    paired = b.copied(b.write(Pending(decisions.shape, build.finish(held), [decisions, *tables])), (1, 0))
    out = b.scratch((rows, count), (1, 0))
    args: list[int | Ref] = [out.ref, paired.ref, 4 * rows, count, rows]
    b.program.call(Couple(), args, -(-rows // b.target.lanes), 20.0 * rows * count * count)
    return out
