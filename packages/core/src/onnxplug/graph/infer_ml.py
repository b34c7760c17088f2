"""Output shapes of ``ai.onnx.ml``, most of which onnx's own inference leaves open; element types are the schemas'.

A rule takes the node and its inputs' shapes (None: not known) and gives the outputs' shapes. A label of a classifier is one for
each row; a vector counts as one row (ai.onnx.ml specification; the scores' columns are those onnxruntime gives).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeGuard

from onnxplug.contract.types import Dim, Shape, TensorType, ValueType

if TYPE_CHECKING:
    from onnxplug.graph.ir import Node

ML = "ai.onnx.ml"
Rule = Callable[["Node", Sequence[Shape | None]], list[Shape | None]]

_rules: dict[str, Rule] = {}


def with_shapes(
    node: Node, inputs: Sequence[ValueType | None], found: list[ValueType | None]
) -> list[ValueType | None]:
    """The types found, with the shapes that follow from those of the inputs."""
    if node.op_type not in _rules or not inputs:
        return found
    shapes = output_shapes_ml(node, [t.shape if isinstance(t, TensorType) else None for t in inputs])
    return [
        TensorType(type_.element, shape) if isinstance(type_, TensorType) and shape is not None else type_
        for type_, shape in zip(found, [*shapes, *[None] * len(found)], strict=False)
    ]


def output_shapes_ml(node: Node, shapes: Sequence[Shape | None]) -> list[Shape | None]:
    """Shapes of the outputs of an operator that there is a rule for."""
    return _rules[node.op_type](node, shapes)


def _rule(*op_types: str) -> Callable[[Rule], Rule]:
    def enter(function: Rule) -> Rule:
        _rules.update((op_type, function) for op_type in op_types)
        return function

    return enter


@_rule("Binarizer", "CategoryMapper", "Imputer", "LabelEncoder", "Normalizer", "Scaler")
def _same(node: Node, shapes: Sequence[Shape | None]) -> list[Shape | None]:
    return [shapes[0]]


@_rule("ArrayFeatureExtractor")
def _extracted(node: Node, shapes: Sequence[Shape | None]) -> list[Shape | None]:
    x, y = shapes
    if not x or y is None:
        return [None]
    count = _product(y)
    return [(1, count) if len(x) == 1 else (*x[:-1], count)]


@_rule("DictVectorizer")
def _listed(node: Node, shapes: Sequence[Shape | None]) -> list[Shape | None]:
    words = node.attributes.get("string_vocabulary") or node.attributes.get("int64_vocabulary", ())
    return [(1, len(words))]


@_rule("FeatureVectorizer")
def _vectorized(node: Node, shapes: Sequence[Shape | None]) -> list[Shape | None]:
    given = node.attributes.get("inputdimensions", ())
    if any(not s or len(s) > 2 for s in shapes) or any(width < 0 for width in given):
        return [(None, None)]
    widths = list(given)[: len(shapes)] if given else [s[-1] for s in shapes if s]
    known = [w for w in widths if is_known(w)]
    total = sum(known) if len(known) == len(widths) else None
    return [(_rows(shapes[0]), total)]


@_rule("OneHotEncoder")
def _hot(node: Node, shapes: Sequence[Shape | None]) -> list[Shape | None]:
    x = shapes[0]
    count = len(node.attributes.get("cats_int64s", ())) or len(node.attributes.get("cats_strings", ()))
    return [None if x is None else (*x, count)]


@_rule("LinearRegressor", "SVMRegressor", "TreeEnsembleRegressor", "TreeEnsemble")
def _targets(node: Node, shapes: Sequence[Shape | None]) -> list[Shape | None]:
    if not _is_rows(shapes[0]):
        return [None]
    given = node.attributes
    if node.op_type == "TreeEnsemble":
        count = given.get("n_targets") or max(given.get("leaf_targetids", (0,)), default=0) + 1
    else:
        name = {"LinearRegressor": "targets", "TreeEnsembleRegressor": "n_targets"}.get(node.op_type, "")
        count = given.get(name, 1)
    return [(_rows(shapes[0]), int(count))]


@_rule("LinearClassifier", "SVMClassifier", "TreeEnsembleClassifier")
def _scores(node: Node, shapes: Sequence[Shape | None]) -> list[Shape | None]:
    if not _is_rows(shapes[0]):
        return [None, None]
    rows, given = _rows(shapes[0]), node.attributes
    integers = "classlabels_int64s" if node.op_type == "TreeEnsembleClassifier" else "classlabels_ints"
    count = max(len(given.get(integers, ())), len(given.get("classlabels_strings", ())))
    if node.op_type == "LinearClassifier":
        machines = len(given.get("intercepts", ())) or max(count, 1)
        count = 2 if machines == 1 and count == 2 else machines
    elif node.op_type == "SVMClassifier" and sum(given.get("vectors_per_class", ())) and not given.get("prob_a"):
        count = 2 if count == 2 else count * (count - 1) // 2
    return [(rows,), (rows, count)]


def _is_rows(shape: Shape | None) -> bool:
    return shape is not None and len(shape) in (1, 2)


def _rows(shape: Shape | None) -> Dim:
    return None if shape is None else 1 if len(shape) == 1 else shape[0]


def _product(shape: Shape) -> Dim:
    known = [dim for dim in shape if is_known(dim)]
    if len(known) < len(shape):
        return shape[0] if len(shape) == 1 else None
    return math.prod(known)


def is_known(dim: Dim) -> TypeGuard[int]:
    """Whether it is a number, or one that is followed (``contract.sizes``)."""
    return dim is not None and not isinstance(dim, str)
