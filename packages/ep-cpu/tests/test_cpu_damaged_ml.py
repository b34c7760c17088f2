"""Trees and support vector machines with one attribute changed: refused when a session is created, as by onnxruntime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from ml_models import model

import onnxplug as ort
from onnxplug.contract.errors import Fail

CPU = ["CPUExecutionProvider"]
NODES: dict[str, Any] = {
    "nodes_treeids": [0, 0, 0, 0, 0, 1, 1, 1],
    "nodes_nodeids": [0, 1, 2, 3, 4, 0, 1, 2],
    "nodes_featureids": [0, 1, 0, 0, 0, 2, 0, 0],
    "nodes_values": [0.0, 0.5, 0.0, 0.0, 0.0, 0.1, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "BRANCH_LEQ", "LEAF", "LEAF", "LEAF", "BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 2, 0, 0, 0, 1, 0, 0],
    "nodes_falsenodeids": [4, 3, 0, 0, 0, 2, 0, 0],
}
VOTES = {"treeids": [0, 0, 0, 1, 1], "nodeids": [2, 3, 4, 1, 2], "ids": [0, 1, 2, 0, 1], "weights": [1.0, 2.0, 3.0, 4.0, 5.0]}  # fmt: skip
KERNEL: dict[str, Any] = {"kernel_params": [0.5, 0.0, 3.0], "kernel_type": "RBF", "post_transform": "NONE"}
WHOLE: dict[str, tuple[int, dict[str, Any]]] = {
    "TreeEnsembleRegressor": (1, {**NODES, **{f"target_{k}": v for k, v in VOTES.items()}, "n_targets": 3, "base_values": [1.0, 2.0, 3.0]}),
    "TreeEnsembleClassifier": (2, {**NODES, **{f"class_{k}": v for k, v in VOTES.items()}, "classlabels_int64s": [0, 1, 2]}),
    "SVMRegressor": (1, {**KERNEL, "coefficients": [1.0, 2.0], "n_supports": 2, "rho": [0.3], "support_vectors": [0.1] * 6}),
    "SVMClassifier": (
        2,
        {
            **KERNEL,
            "coefficients": [0.1] * 8, "rho": [0.3, 0.2, 0.1], "support_vectors": [0.1] * 12, "vectors_per_class": [1, 2, 1],
            "classlabels_ints": [0, 1, 2], "prob_a": [1.0] * 3, "prob_b": [0.0] * 3,
        },
    ),
}  # fmt: skip
TAKEN = {"support_vectors gone", "classlabels_int64s short", "vectors_per_class gone"}
"""What is no fault until samples come, or none to one of the two runtimes."""


def changes() -> list[tuple[str, str, str, Any]]:
    return [change for change in _changes() if f"{change[1]} {change[2]}" not in TAKEN]


def _changes() -> Iterator[tuple[str, str, str, Any]]:
    for op_type, (_, given) in WHOLE.items():
        for name, value in given.items():
            if isinstance(value, list):
                yield op_type, name, "short", value[:-1] or None
                yield op_type, name, "gone", None
                yield op_type, name, "long", value + value[-1:]
            if name in ("target_ids", "class_ids"):
                yield from ((op_type, name, f"has {wrong}", [*value[:-1], wrong]) for wrong in (-1, 3))
            if isinstance(value, str) or (isinstance(value, list) and isinstance(value[0], str)):
                yield op_type, name, "unknown", "XX" if isinstance(value, str) else ["XX"] * len(value)


def created(runtime: Any, op_type: str, **attributes: Any) -> Any:
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    outputs, given = WHOLE[op_type]
    proto = model(
        op_type, [x], outputs, version=1, **{k: v for k, v in {**given, **attributes}.items() if v is not None}
    )
    session = runtime.InferenceSession(proto.SerializeToString(), options, providers=CPU)
    return session.run(None, {"x0": x})[-1]


@pytest.mark.parametrize(("op_type", "name", "how", "value"), changes(), ids=lambda v: v if isinstance(v, str) else "")
def test_lists_that_do_not_go_together_are_refused(
    op_type: str, name: str, how: str, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    theirs = pytest.importorskip("onnxruntime")
    try:
        wanted = created(theirs, op_type, **{name: value})
    except Exception as error:  # onnxruntime's own classes
        assert type(error).__name__ == "Fail"
        with pytest.raises(Fail, match=rf"{op_type}.*{name}"):
            created(ort, op_type, **{name: value})
    else:
        np.testing.assert_allclose(created(ort, op_type, **{name: value}), wanted, rtol=1e-5)
    assert "fault" not in caplog.text


@pytest.mark.parametrize("op_type", WHOLE)
def test_whole_ones_run(op_type: str) -> None:
    theirs = pytest.importorskip("onnxruntime")
    np.testing.assert_allclose(created(ort, op_type), created(theirs, op_type), rtol=1e-5)
