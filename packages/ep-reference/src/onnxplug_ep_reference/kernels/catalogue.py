"""Which class of onnx.reference implements which operator in which schema version, and why others are left out.

The class is the one ``ReferenceEvaluator`` would take. onnx.reference keeps the semantics of old versions only where it has a class named
after them (``Softmax`` follows version 13 whatever the node's version is), so the versions that such a class gets wrong are listed here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from onnx import defs
from onnx.reference import ops
from onnx.reference.op_run import OpRun
from onnx.reference.ops import aionnx_preview, aionnx_preview_training, aionnxml

from onnxplug_ep_reference.kernels.corrections import CORRECTED

OpClass: TypeAlias = type[OpRun]
Key: TypeAlias = tuple[str, str, int]
"""Domain, operator, schema version."""

CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})

_LOADERS: dict[str, Callable[..., Any]] = {
    "": ops.load_op,
    "ai.onnx.ml": aionnxml.load_op,
    "ai.onnx.preview": aionnx_preview.load_op,
    "ai.onnx.preview.training": aionnx_preview_training.load_op,
}

# Versions that the evaluator's rule does not find although the class of a later version computes the same.
_SAME_AS_LATER: dict[tuple[str, str], dict[int, int]] = {("", "DequantizeLinear"): {10: 19, 13: 19}}

_FLATTENS = "it flattens the input to two dimensions at axis, onnx.reference works along one axis"
_OUTPUT_SEQUENCE = "its attribute output_sequence is unknown to onnx.reference"
_WRONG: dict[tuple[str, str], dict[int, str]] = {
    ("", "BatchNormalization"): {
        7: "onnx.reference computes batch statistics for it",
        9: "onnx.reference computes batch statistics for it",
    },
    ("", "Cast"): {1: "its attribute to is a string"},
    ("", "Concat"): {1: "its axis is optional"},
    ("", "GRU"): {1: _OUTPUT_SEQUENCE, 3: _OUTPUT_SEQUENCE},
    ("", "GridSample"): {16: "its modes have the names bilinear and bicubic"},
    ("", "Hardmax"): {1: _FLATTENS, 11: _FLATTENS},
    ("", "LSTM"): {1: _OUTPUT_SEQUENCE},
    ("", "LogSoftmax"): {1: _FLATTENS, 11: _FLATTENS},
    ("", "LpPool"): {1: "its kernel_shape is optional"},
    ("", "OneHot"): {9: "its negative indices are out of range, onnx.reference counts them from the end"},
    ("", "Optional"): {15: "onnx.reference wraps the value in a list", 28: "onnx.reference wraps the value in a list"},
    ("", "PRelu"): {1: "its slope is per channel", 6: "its slope is per channel"},
    ("", "Resize"): {10: "it has two inputs"},
    ("", "RoiAlign"): {10: "it has no half pixel offset"},
    ("", "Softmax"): {1: _FLATTENS, 11: _FLATTENS},
    ("", "Tile"): {1: "it repeats along one axis"},
    ("", "Upsample"): {1: "its scales are attributes", 7: "its scales are an attribute"},
    ("ai.onnx.ml", "DictVectorizer"): {1: "onnx.reference gives no rows and the types of Python's numbers"},
    ("ai.onnx.ml", "LabelEncoder"): {1: "its classes are one list of strings"},
}


@functools.cache
def implementations() -> Mapping[Key, OpClass]:
    """The class for every schema version that onnx.reference implements faithfully."""
    found = {}
    for schema in defs.get_all_schemas_with_history():
        key = (schema.domain, schema.name, schema.since_version)
        if schema.deprecated or schema.name in CONTROL_FLOW or schema.domain not in _LOADERS:
            continue
        if schema.since_version in _WRONG.get(key[:2], {}):
            continue
        implementation = _load(*key)
        if implementation is not None:
            found[key] = implementation
    return found


def absence(domain: str, op_type: str, version: int) -> str:
    """Why ``implementations`` lacks this version of this operator."""
    if not domain and op_type in CONTROL_FLOW:
        return f"{op_type} is control flow, which the core runs"
    if domain not in _LOADERS:
        return f"onnx.reference has no operators of domain {domain}"
    wrong = _WRONG.get((domain, op_type), {}).get(version)
    if wrong is not None:
        return f"version {version} of {op_type}: {wrong}"
    if any(key[:2] == (domain, op_type) for key in implementations()):
        return f"onnx.reference has no version {version} of {op_type}"
    return f"onnx.reference has no class for {op_type}"


def _load(domain: str, op_type: str, version: int) -> OpClass | None:
    version = _SAME_AS_LATER.get((domain, op_type), {}).get(version, version)
    try:
        loaded = _LOADERS[domain](domain, op_type, version)
    except Exception:  # each kind of absence raises its own class, a function body fails for want of an evaluator
        return None
    if not (isinstance(loaded, type) and issubclass(loaded, OpRun)):
        return None
    return CORRECTED.get(loaded, loaded)
