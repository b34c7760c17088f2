"""The kit's own structures: nodes that ONNX's backend data lacks, or has in newer versions only with another meaning.

Values are only examples of shape and range; the schema of ``version`` is the one they are written for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import AttributeProto, helper

F, N, S = "tensor(float)", "tensor(int64)", "tensor(string)"
ML = "ai.onnx.ml"


@dataclass(frozen=True)
class OwnNode:
    """A node: its attributes, example inputs and the type strings of its operands."""

    name: str
    domain: str
    op_type: str
    version: int
    attributes: Mapping[str, AttributeProto]
    inputs: Sequence[Any]
    input_types: Sequence[str]
    output_types: Sequence[str]


def _ramp(*shape: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    return np.linspace(low, high, int(np.prod(shape)), dtype=np.float32).reshape(shape)


def _ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def _node(
    op_type: str,
    version: int,
    inputs: Sequence[tuple[Any, str]],
    outputs: Sequence[str],
    domain: str = "",
    **attributes: Any,
) -> OwnNode:
    kept = {name: helper.make_attribute(name, value) for name, value in attributes.items()}
    name = "_".join([op_type.lower(), str(version), *sorted(attributes)])
    return OwnNode(name, domain, op_type, version, kept, [v for v, _ in inputs], [t for _, t in inputs], list(outputs))


def _consumed(version: int, flags: list[int]) -> dict[str, Any]:
    """Version 1 of some operators has a memory hint that must be there."""
    return {"consumed_inputs": flags} if version == 1 else {}


def own_nodes() -> Iterator[OwnNode]:
    """All of them."""
    yield from _old_versions()
    yield from _sequences_and_optionals()
    yield from _random()
    yield from _others()
    yield from _machine_learning()


def _old_versions() -> Iterator[OwnNode]:
    image, channels = (_ramp(1, 3, 4, 4), F), [(_ramp(3, low=0.5, high=1.5), F)] * 4
    for version in (1, 6):
        yield _node(
            "BatchNormalization",
            version,
            [image, *channels],
            [F],
            is_test=1,
            **_consumed(version, [0, 0, 0, 1, 1]),
        )
    for version in (7, 9):
        yield _node("BatchNormalization", version, [image, *channels], [F])
    yield _node("Pad", 1, [(_ramp(2, 3), F)], [F], paddings=[0, 1, 1, 0], mode="constant", value=1.5)
    yield _node("Pad", 2, [(_ramp(2, 3), F)], [F], pads=[0, 1, 1, 0], mode="edge")
    yield _node("TopK", 1, [(_ramp(3, 5), F)], [F, N], k=2, axis=1)
    yield _node("Upsample", 1, [(_ramp(1, 1, 2, 2), F)], [F], width_scale=2.0, height_scale=2.0, mode="nearest")
    yield _node("Upsample", 7, [(_ramp(1, 1, 2, 2), F)], [F], scales=[1.0, 1.0, 2.0, 3.0], mode="nearest")
    yield _node("LpPool", 1, [image], [F], kernel_shape=[2, 2], p=2.0)
    yield _node("Reshape", 1, [(_ramp(2, 6), F)], [F], shape=[3, -1])
    yield _node("Concat", 1, [(_ramp(2, 3), F), (_ramp(2, 3), F)], [F], axis=1)
    yield _node("Softmax", 1, [(_ramp(2, 3, 4), F)], [F], axis=1)
    yield _node("Split", 1, [(_ramp(6, 2), F)], [F, F], axis=0, split=[2, 4])
    yield _node("Squeeze", 1, [(_ramp(1, 3, 1, 2), F)], [F], axes=[0, 2])
    yield _node("Clip", 1, [(_ramp(3, 4), F)], [F], min=-1.0, max=1.0)
    yield _node("Cast", 1, [(_ramp(3, 4), F)], ["tensor(int32)"], to="INT32")
    yield _node("Gemm", 1, [(_ramp(2, 3), F), (_ramp(3, 4), F), (_ramp(2, 4), F)], [F])
    yield _node("PRelu", 1, [(_ramp(2, 3, 4), F), (_ramp(3), F)], [F])
    yield _node(
        "GridSample", 16, [(_ramp(1, 1, 4, 4), F), (_ramp(1, 3, 3, 2, low=-1, high=1), F)], [F], mode="bilinear"
    )
    yield _node("Resize", 10, [(_ramp(1, 1, 2, 2), F), (np.array([1, 1, 2, 2], np.float32), F)], [F], mode="nearest")
    yield _node("Dropout", 10, [(_ramp(3, 4), F)], [F, "tensor(bool)"])
    for version in (1, 6):
        yield _node("Dropout", version, [(_ramp(3, 4), F)], [F], is_test=1, **_consumed(version, [0]))


def _sequences_and_optionals() -> Iterator[OwnNode]:
    x, items = _ramp(2, 3), [_ramp(2, 3), _ramp(2, 3), _ramp(2, 3)]
    sequence = f"seq({F})"
    for text, value in ((F, x), (sequence, items)):
        yield _node("Optional", 15, [(value, text)], [f"optional({text})"])
        for held in (text, f"optional({text})"):
            version = 18 if held == text else 15
            yield _node("OptionalGetElement", version, [(value, held)], [text])
            yield _node("OptionalHasElement", version, [(value, held)], ["tensor(bool)"])
    for version, text, value in (
        (14, sequence, items),
        (16, f"optional({F})", x),
        (16, f"optional({sequence})", items),
    ):
        yield _node("Identity", version, [(value, text)], [text])
    yield _node("SequenceConstruct", 11, [(x, F), (x, F)], [sequence])
    yield _node("SequenceEmpty", 11, [], [sequence], dtype=1)
    yield _node("SequenceAt", 11, [(items, sequence), (np.array(1, np.int64), N)], [F])
    yield _node("SequenceErase", 11, [(items, sequence), (np.array(1, np.int64), N)], [sequence])
    yield _node("SequenceInsert", 11, [(items, sequence), (x, F), (np.array(1, np.int64), N)], [sequence])
    yield _node("SequenceLength", 11, [(items, sequence)], [N])
    yield _node("ConcatFromSequence", 11, [(items, sequence)], [F], axis=1)
    for version in (11, 24):
        yield _node("SplitToSequence", version, [(_ramp(6, 2), F), (_ints(2, 4), N)], [sequence], axis=0)


def _random() -> Iterator[OwnNode]:
    for name in ("RandomNormal", "RandomUniform"):
        yield _node(name, 1, [], [F], shape=[3, 4], seed=7.0)
        yield _node(f"{name}Like", 1, [(_ramp(3, 4), F)], [F], seed=7.0)
    yield _node("Multinomial", 7, [(_ramp(2, 5, low=0.1, high=1), F)], ["tensor(int32)"], sample_size=6, seed=7.0)


def _others() -> Iterator[OwnNode]:
    image = (_ramp(1, 3, 4, 4, low=0.1, high=2), F)
    yield _node("MeanVarianceNormalization", 9, [image], [F])
    for version in (1, 2):
        yield _node("GlobalLpPool", version, [image], [F], **({"p": 2.0} if version == 1 else {"p": 2}))
    yield _node("MaxRoiPool", 1, [image, (np.array([[0, 0, 0, 3, 3]], np.float32), F)], [F], pooled_shape=[2, 2])
    yield _node("RMSNormalization", 23, [(_ramp(2, 3, 4), F), (_ramp(4, low=0.5, high=1.5), F)], [F])
    yield _node("LayerNormalization", 17, [(_ramp(2, 3, 4), F), (_ramp(4, low=0.5, high=1.5), F)], [F])
    for op_type, gates in (("RNN", 1), ("GRU", 3)):
        w, r = _ramp(1, gates * 2, 3, low=-1, high=1), _ramp(1, gates * 2, 2, low=-1, high=1)
        lengths = (np.array([4, 4], np.int32), "tensor(int32)")
        yield _node(op_type, 7, [(_ramp(4, 2, 3), F), (w, F), (r, F), (None, ""), lengths], [F, F], hidden_size=2)


def _machine_learning() -> Iterator[OwnNode]:
    x = (_ramp(3, 4), F)
    yield _node("Scaler", 1, [x], [F], ML, offset=[0.5, 1.0, -1.0, 0.0], scale=[2.0, 0.5, 1.0, 3.0])
    for norm in ("MAX", "L1", "L2"):
        yield _node("Normalizer", 1, [x], [F], ML, norm=norm)
    yield _node("Imputer", 1, [x], [F], ML, imputed_value_floats=[1.5], replaced_value_float=0.0)
    yield _node(
        "Imputer",
        1,
        [(np.arange(12, dtype=np.int64).reshape(3, 4), N)],
        [N],
        ML,
        imputed_value_int64s=[7],
        replaced_value_int64=3,
    )
    yield _node("OneHotEncoder", 1, [(_ints(0, 2, 1, 2), N)], [F], ML, cats_int64s=[0, 1, 2])
    yield _node("OneHotEncoder", 1, [(np.array(["a", "b", "a"], object), S)], [F], ML, cats_strings=["a", "b", "c"])
    keys = {"int64s": [0, 1, 2], "strings": ["a", "b", "c"], "floats": [0.0, 1.0, 2.0]}
    values = {
        "int64s": (_ints(0, 2, 1), N),
        "strings": (np.array(["a", "c", "b"], object), S),
        "floats": (np.array([0, 2, 1], np.float32), F),
    }
    for one, (value, text) in values.items():
        for two, (_, result) in values.items():
            if one != two:
                yield _node(
                    "LabelEncoder",
                    2,
                    [(value, text)],
                    [result],
                    ML,
                    **{f"keys_{one}": keys[one], f"values_{two}": keys[two]},
                )
    for value, text, result in ((*values["int64s"], S), (*values["strings"], N)):
        yield _node("LabelEncoder", 1, [(value, text)], [result], ML, classes_strings=["a", "b", "c"])
        yield _node(
            "CategoryMapper", 1, [(value, text)], [result], ML, cats_int64s=[0, 1, 2], cats_strings=["a", "b", "c"]
        )
    yield _node("FeatureVectorizer", 1, [(_ramp(2, 2), F), (_ramp(2, 3), F)], [F], ML, inputdimensions=[2, 3])
    yield _node("LinearRegressor", 1, [x], [F], ML, coefficients=[0.5, -1.0, 0.25, 2.0], intercepts=[0.5], targets=1)
    yield _node(
        "LinearClassifier", 1, [x], [N, F], ML, coefficients=[0.5, -1.0, 0.25, 2.0] * 3, intercepts=[0.5, 0.0, -0.5],
        classlabels_ints=[0, 1, 2], post_transform="NONE",
    )  # fmt: skip
    tree: dict[str, Any] = {
        "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0], "nodes_values": [0.5, 0.0, 0.0],
        "nodes_hitrates": [1.0, 1.0, 1.0], "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0], "nodes_missing_value_tracks_true": [0, 0, 0],
    }  # fmt: skip
    leaf: dict[str, Any] = {"treeids": [0, 0], "nodeids": [1, 2], "ids": [0, 0], "weights": [1.5, -2.5]}
    yield _node(
        "TreeEnsembleRegressor", 1, [x], [F], ML, n_targets=1, **tree, **{f"target_{k}": v for k, v in leaf.items()}
    )
    votes = {**{f"class_{k}": v for k, v in leaf.items()}, "class_ids": [0, 1], "class_weights": [1.0, 1.0]}
    yield _node("TreeEnsembleClassifier", 1, [x], [N, F], ML, classlabels_int64s=[0, 1], **tree, **votes)
