"""Linear models of ``ai.onnx.ml``: one product with the coefficients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxplug.contract import NodeView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.matrices import by_weights
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
from onnxplug_ep_cpu.codegen.lower.support import attributes, typed, width_of
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.tensor import Tensor


def affine(
    b: Lowering, node: NodeView, x: Tensor, coefficients: Sequence[float], offsets: Sequence[float], count: int
) -> Pending:
    """x coefficients.T + offsets, (N, ``count``)."""
    features = int(x.shape[1])  # which says how the coefficients lie
    used = count * features
    if not 0 < used <= len(coefficients):
        raise Unsupported(f"{len(coefficients)} coefficients are too few for {count} targets of {features} features")
    weights = b.prepared.table(
        node, ("coefficients", features), lambda: np.asarray(coefficients[:used], np.float32).reshape(count, features)
    )
    shape = (x.shape[0], count)
    if 0 in (*x.shape, *shape):
        pending = Pending(shape, (("const", 0.0),), [])
    else:
        pending = by_weights(b, shape, x, weights, weights.shape, True)
    if offsets:
        added = b.read(b.prepared.table(node, "offsets", lambda: np.asarray(offsets, np.float32)))
        leaf = len(pending.leaves)
        build = ex.Build()
        total = build.include(pending.expr, [build("leaf", i) for i in range(leaf)])
        pending.expr = build.finish(build("add", total, build("leaf", leaf)))
        pending.leaves.append(added)
    return pending


def coefficients_suit(node: NodeView, count: int, size: int | None) -> str | None:
    """There are coefficients for each of ``size`` features (None: not known yet), ``count`` times."""
    given = len(node.attributes.get("coefficients", ()))
    if count < 1 or (size is not None and not 0 < count * size <= given):
        return f"{given} coefficients are too few for {count} targets of {size} features"
    offsets = len(node.attributes.get("intercepts", ()))
    return None if offsets in (0, 1, count) else f"there are {offsets} intercepts for {count} targets"


def _classes(node: NodeView, ints: str = "classlabels_ints") -> int:
    return max(len(node.attributes.get(ints, ())), len(node.attributes.get("classlabels_strings", ())))


def _machines(node: NodeView) -> int:
    return len(node.attributes.get("intercepts", ())) or max(_classes(node), 1)


def _classifier_supports(node: NodeView) -> str | None:
    count = _machines(node)
    if count > 1 and _classes(node) < count:
        return f"there are {_classes(node)} labels for {count} scores"
    return samples(node) or coefficients_suit(node, count, width_of(node.inputs[0]))


@lowering("LinearClassifier", supports=_classifier_supports, domain=ML)
def linear_classifier(b: Lowering, node: NodeView) -> None:
    """As ``onnxplug_kernels.ops.ml_linear.linear_classifier``."""
    (x,), (chosen, scores) = node.inputs, [*node.outputs, None][:2]
    assert x is not None
    given = attributes(node, classlabels_ints=(), classlabels_strings=(), intercepts=(), post_transform="NONE")
    names, words, transform = given["classlabels_ints"], given["classlabels_strings"], given["post_transform"]
    count = _machines(node)
    made = b.write(affine(b, node, features(b, x), given["coefficients"], given["intercepts"], count))
    written = Pending(made.shape, ex.IDENTITY, [made])
    if count > 1:
        label(b, node, chosen, best(b, made), names, words)
        transformed(b, scores, written, transform)
        return
    both = len(names) == 2 or len(words) == 2
    if not both:
        names, words = ((), ("0", "1")) if words else ((0, 1), ())
    label(b, node, chosen, above(b, made, 0.0), names, words)
    if both:
        two_columns(b, scores, made, transform, complement=True)
    else:
        transformed(b, scores, written, transform)


def _regressor_supports(node: NodeView) -> str | None:
    suit = coefficients_suit(node, node.attributes.get("targets", 1), width_of(node.inputs[0]))
    return samples(node) or suit or typed(node.outputs[0])


@lowering("LinearRegressor", supports=_regressor_supports, domain=ML)
def linear_regressor(b: Lowering, node: NodeView) -> None:
    """As ``onnxplug_kernels.ops.ml_linear.linear_regressor``."""
    (x,), (y,) = node.inputs, node.outputs
    assert x is not None
    given = attributes(node, coefficients=(), intercepts=(), post_transform="NONE", targets=1)
    made = affine(b, node, features(b, x), given["coefficients"], given["intercepts"], given["targets"])
    transformed(b, y, made, given["post_transform"])
