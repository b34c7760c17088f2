"""Ensembles of decision trees: TreeEnsemble, TreeEnsembleRegressor, TreeEnsembleClassifier."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from onnxplug.contract import NodeView
from onnxplug.contract.sizes import greatest, portion
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.crossing import CrossOut
from onnxplug_ep_cpu.codegen.kernels.trees import WAYS, Walk
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.leaf_words import leaf_words
from onnxplug_ep_cpu.codegen.lower.loops import copy, write_map
from onnxplug_ep_cpu.codegen.lower.ml_scores import ML, TRANSFORMS, above, best, label, transformed, two_columns
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.support import attributes, rank, typed
from onnxplug_ep_cpu.codegen.lower.tree_tables import ensemble
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.program import Ref
from onnxplug_ep_cpu.codegen.tensor import Tensor
from onnxplug_kernels.ops.ml_tree import AGGREGATES, ensemble_trees, trees_by_id
from onnxplug_kernels.ops.ml_tree_tables import Trees

ELEMENTS = frozenset({"float32", "float64", "int32", "int64"})
BLOCKS = 8
"""Blocks of rows that go through a tree before the next one is read."""
ITEMS = 16
"""Rows that are fewer than make so many items of ``BLOCKS`` come in smaller ones."""
_FILLED: ex.Expr = (("leaf", 0), ("isnan", 0), ("const", -math.inf), ("where", 1, 2, 0))
"""-inf for NaN."""
_KINDS = {"SUM": "add", "AVERAGE": "add", "MIN": "min", "MAX": "max"}


def _supports(node: NodeView) -> str | None:
    x = node.inputs[0]
    if (reason := typed(x, ELEMENTS)) is not None:
        return reason
    transform, aggregate = _settings(node)
    if transform not in TRANSFORMS or aggregate not in AGGREGATES:
        return f"post_transform is {transform!r}, aggregate_function {aggregate!r}"
    if rank(x) not in (1, 2):
        return "its operand is neither rows nor one row"
    if node.op_type == "TreeEnsemble" and transform != "NONE" and typed(x) is not None:
        return "a transform in double precision is not generated"
    return typed(node.outputs[0], {"float32", "float64"}) if node.op_type != "TreeEnsembleClassifier" else None


def _settings(node: NodeView) -> tuple[str, str]:
    """Post transform and aggregate by name."""
    given = node.attributes
    if node.op_type != "TreeEnsemble":
        return given.get("post_transform", "NONE"), given.get("aggregate_function", "SUM")
    transforms, aggregates = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"), AGGREGATES
    transform, aggregate = given.get("post_transform", 0), given.get("aggregate_function", 1)
    known = 0 <= transform < len(transforms) and 0 <= aggregate < len(aggregates)
    return (transforms[transform], aggregates[aggregate]) if known else ("", "")


@lowering("TreeEnsemble", supports=_supports, domain=ML)
def tree_ensemble(b: Lowering, node: NodeView) -> None:
    """As ``onnxplug_kernels.ops.ml_tree.tree_ensemble``."""
    own = {"aggregate_function", "post_transform"}
    rest = {name: value for name, value in node.attributes.items() if name not in own}
    _regression(b, node, lambda: ensemble_trees(np, **rest), None)


@lowering("TreeEnsembleRegressor", supports=_supports, domain=ML)
def tree_ensemble_regressor(b: Lowering, node: NodeView) -> None:
    """As ``onnxplug_kernels.ops.ml_tree.tree_ensemble_regressor``."""
    count = node.attributes.get("n_targets", 1)
    _regression(b, node, lambda: _by_id(node, count, "target"), _base(node))


def _regression(b: Lowering, node: NodeView, make: Any, base: np.ndarray | None) -> None:
    (y,) = node.outputs
    assert y is not None
    transform, aggregate = _settings(node)
    forest = _Forest(b, node, make, aggregate)
    made = forest.scores(b.shape(y)[1], _where_voted(forest, base))
    if b.element(y) == "float32":
        made = _single(b, made)
    transformed(b, y, Pending(made.shape, ex.IDENTITY, [made], element=made.element), transform)


def _where_voted(forest: _Forest, base: np.ndarray | None) -> np.ndarray | None:
    """Base values, 0 for targets of several that nothing votes for."""
    if base is None or len(voted := forest.voted) < 2:
        return base
    if None in voted:
        raise Unsupported("which targets get their base values depends on the sample")
    return np.where(np.array(voted), base, 0.0)


@lowering("TreeEnsembleClassifier", supports=_supports, domain=ML)
def tree_ensemble_classifier(b: Lowering, node: NodeView) -> None:
    """As ``onnxplug_kernels.ops.ml_tree.tree_ensemble_classifier``."""
    chosen, scores = [*node.outputs, None][:2]
    given = attributes(
        node, class_ids=(), class_weights=(), class_weights_as_tensor=None, classlabels_int64s=(), classlabels_strings=(),
        post_transform="NONE",
    )  # fmt: skip
    names, words, transform = given["classlabels_int64s"], given["classlabels_strings"], given["post_transform"]
    count = max(len(names), len(words))
    weights = given["class_weights"] if given["class_weights_as_tensor"] is None else given["class_weights_as_tensor"]
    base = _base(node)
    sizes = 0 if base is None else len(base)
    forest = _Forest(b, node, lambda: _by_id(node, count, "class"), "SUM")
    probabilities = bool(np.all(np.asarray(weights) >= 0))
    if count == 1 or (count == 2 and set(given["class_ids"]) == {0} and sizes < 2):
        made = forest.scores(1, None if base is None else base[:1])
        if count == 1:
            names, words = (0, 1), ("0", *words) if words else ()
        label(b, node, chosen, above(b, made, 0.5 if probabilities and count == 2 else 0.0), names, words)
        if count == 2:
            two_columns(b, scores, _single(b, made), transform, complement=probabilities)
            return
    else:
        if count == 2 and base is not None and len(base) == 1:
            base = _where_voted(forest, np.append(base, 0.0))
        made = forest.scores(count, base)
        if count == 2 and sizes < 2 and set(given["class_ids"]) == {1}:
            won = above(
                b, made.shift(made.strides[1]).viewed((made.shape[0], 1), made.strides), 0.5 if probabilities else 0.0
            )
        else:
            won = best(b, made)
        label(b, node, chosen, won, names, words)
    transformed(b, scores, Pending(made.shape, ex.IDENTITY, [_single(b, made)]), transform)


def _single(b: Lowering, scores: Tensor) -> Tensor:
    """As float32."""
    if scores.element == "float32":
        return scores
    return b.write(Pending(scores.shape, (("leaf", 0), ("to_float32", 0)), [scores]))


def _by_id(node: NodeView, count: int, prefix: str) -> Trees:
    given = node.attributes
    weights = given.get(f"{prefix}_weights_as_tensor")
    return trees_by_id(
        np,
        count,
        given.get(f"{prefix}_treeids", ()),
        given.get(f"{prefix}_nodeids", ()),
        given.get(f"{prefix}_ids", ()),
        given.get(f"{prefix}_weights", ()) if weights is None else weights,
        **{name: value for name, value in given.items() if name.startswith("nodes_")},
    )


def _base(node: NodeView) -> np.ndarray | None:
    """Base values, in the precision they were given in."""
    tensor = node.attributes.get("base_values_as_tensor")
    given = node.attributes.get("base_values", ()) if tensor is None else tensor
    values = np.asarray(given, None if isinstance(given, np.ndarray) else np.float32)
    return values.astype(np.float64) if values.size else None


class _Forest:
    """The calls that walk the rows of a node's operand down its trees."""

    def __init__(self, b: Lowering, node: NodeView, make: Any, aggregate: str) -> None:
        self._b, self._node, self._aggregate = b, node, aggregate
        self._made = functools.cache(make)
        (x,) = node.inputs
        assert x is not None
        tensor = b.read(x)
        if len(tensor.shape) == 1:
            tensor = tensor.viewed((1, *tensor.shape), (0, *tensor.strides))
        self._x = tensor
        wide = tensor.element != "float32"
        self._kind, self._total = _KINDS[aggregate], "float64" if tensor.element == "float64" else "float32"
        try:
            self._trees = b.prepared.made(
                node, lambda: ensemble(self._made(), self._kind, self._total, wide, tensor.itemsize)
            )
        except ValueError as refusal:  # the kernel, which is asked next, says it as the node's
            raise Unsupported(str(refusal)) from None
        if self._trees.features > tensor.shape[1]:
            raise Unsupported(f"a tree reads feature {self._trees.features - 1} of {tensor.shape[1]}")

    @property
    def voted(self) -> tuple[bool | None, ...]:
        """As of ``Trees``."""
        voted: tuple[bool | None, ...] = self._trees.voted
        return voted

    def scores(self, targets: int, base: np.ndarray | None) -> Tensor:
        """(N, targets), float64 for doubles: the aggregate of all trees plus base values."""
        b, trees, rows = self._b, self._trees, self._x.shape[0]
        if not rows * targets:
            return b.scratch((rows, targets), element=self._total)
        made = self._crossed(targets) or self._walked(targets)
        build = ex.Build()
        finished = start = build("leaf", 0)
        leaves: list[Tensor | None] = [made]
        if self._kind != "add":  # what no leaf votes for
            magnitude = build("abs", start)
            finished = build("where", build("equal", magnitude, build("const", np.inf)), build("const", 0.0), start)
        if self._aggregate == "AVERAGE":
            finished = build("div", finished, build("const", float(max(trees.trees, 1))))
        if base is not None:
            added = np.zeros(targets, self._total)
            added += base
            finished = build("add", finished, build("leaf", 1))
            leaves.append(b.tensor_of(added))
        if finished == start:
            return made
        return b.write(Pending(made.shape, build.finish(finished), leaves, element=self._total))

    def _crossed(self, targets: int) -> Tensor | None:
        """The sums by crossing out leaves, a vector of rows at a time; None where that is not quicker or not possible. Between features
        there is an odd number of vectors, so that they do not exclude each other from the cache. Those beyond the last row are not
        initialised."""
        b, x, lanes = self._b, self._x, self._b.target.lanes
        rows, features = x.shape
        if rows == 1 or self._kind != "add" or x.element != "float32" or self._trees.equality:
            return None
        tables = b.prepared.made(self._node, lambda: leaf_words(self._made(), features), ("crossing", features))
        blocks = -(-rows // lanes)
        if tables is None or blocks * tables.time(features) > rows * self._trees.time:
            return None
        laid = b.scratch((features * (2 if tables.both else 1), lanes * (blocks + 1 - blocks % 2)))
        plain = laid.viewed((rows, features), (1, laid.strides[0]))
        copy(b.program, b.target, x, plain)
        if tables.filled:
            filled = plain.shift(features * laid.strides[0] if tables.both else 0)
            write_map(b.program, b.target, _FILLED, [plain], filled)
        sums = b.scratch((targets, lanes * blocks))
        at_once = portion(blocks // ITEMS, BLOCKS)
        args: list[int | Ref] = [
            laid.ref, 4 * laid.strides[0], *(b.tensor_of(t).ref for t in tables.arrays), sums.ref, 4 * sums.strides[0],
            targets, len(tables.trees), blocks, at_once,
        ]  # fmt: skip
        b.program.call(CrossOut(tables.small), args, -(-blocks // at_once), blocks * tables.time(0))
        return sums.viewed((rows, targets), (1, sums.strides[0]))

    def _walked(self, targets: int) -> Tensor:
        """The sums by walking down the trees."""
        rows, trees = self._x.shape[0], self._trees
        single = rows * -(-trees.trees // WAYS) <= -(-rows // WAYS) * trees.trees
        sums = self._b.scratch((rows if single else greatest(rows, WAYS), trees.columns), element=self._total)
        self._walk(sums, single)
        return sums.viewed((rows, targets), sums.strides)

    def _walk(self, sums: Tensor, single: bool) -> None:
        x = self._x
        if x.strides[0] == 0 or (x.strides[1] != 1 and x.shape[1] != 1):
            x = self._b.copied(x, (0, 1))
        rows, features = x.shape
        if single:
            self._call(x, sums, 0, rows)
            return
        if rows < WAYS:  # what fills up the block is not initialised
            block = self._b.scratch((WAYS, features), element=x.element)
            copy(self._b.program, self._b.target, x, block.viewed(x.shape, block.strides))
            self._call(block, sums, WAYS, 1)
            return
        self._call(x, sums, WAYS, rows // WAYS)
        if rows % WAYS:  # the last block, some of whose rows are had twice
            first = rows - WAYS
            self._call(x.shift(first * x.strides[0]), sums.shift(first * sums.strides[0]), WAYS, 1)

    def _call(self, x: Tensor, sums: Tensor, ways: int, units: int) -> None:
        """``units`` times ``ways`` rows, or with 0 ``units`` rows."""
        b, trees = self._b, self._trees
        tables = [b.tensor_of(t).ref for t in (trees.nodes, trees.roots, trees.weights)]
        targets = tables[1] if trees.dense else b.tensor_of(trees.targets).ref
        step = x.itemsize * x.strides[0]
        kernel = Walk(
            x.element, self._total, trees.wide, trees.missing, trees.equality, trees.depth,
            trees.width if trees.width <= 4 else 0, trees.dense, self._kind, step if ways else 0, not ways,
        )  # fmt: skip
        at_once = portion(units // ITEMS, BLOCKS)
        args: list[int | Ref] = [
            x.ref, max(ways, 1) * step, *tables, targets, sums.ref, trees.columns, trees.width, trees.trees, units, at_once,
        ]  # fmt: skip
        b.program.call(kernel, args, -(-units // at_once), units * max(ways, 1) * trees.time)
