"""Operands that do not go together: onnx.reference computes something of many. ONNX's inference refuses most; what it does not look at is
said here, by operators' texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, checker, defs, helper, numpy_helper, shape_inference

TOLD = 64
"""Elements of an operand up to which inference is told its values: axes, extents and the like."""
_STRICT = frozenset({"Range"})
"""Operators whose inference refuses what ONNX's own test data has: it wants scalars, and gets tensors of one element."""


class Inference:
    """ONNX's inference of one node."""

    def __init__(self, node: NodeProto, version: int) -> None:
        self._schema = defs.get_schema(node.op_type, version, node.domain)
        self._node = NodeProto()
        self._node.CopyFrom(node)
        for index, name in enumerate(node.output):
            self._node.output[index] = name or f"omitted{index}"
        self._imports = [helper.make_opsetid(node.domain, version)]
        self._rule = _RULES.get(node.op_type) if not node.domain else None
        self._told = {a.name: helper.get_attribute_value(a) for a in node.attribute} if self._rule else {}
        self._lenient = node.op_type in _STRICT and not node.domain

    def refusal(self, operands: Sequence[Any]) -> str | None:
        """Why tensors of these shapes and values are refused; None for others, and where nothing can be inferred."""
        if self._lenient:
            return None
        given = {
            name: value for name, value in zip(self._node.input, operands, strict=False) if name and value is not None
        }
        if len(given) < sum(map(bool, self._node.input)) or not all(isinstance(v, np.ndarray) for v in given.values()):
            return None
        types = {name: helper.make_tensor_type_proto(_code(value), value.shape) for name, value in given.items()}
        known = {name: value for name, value in given.items() if value.dtype == np.int64 and value.size <= TOLD}
        data = {name: numpy_helper.from_array(value, name) for name, value in known.items()}
        try:
            shape_inference.infer_node_outputs(self._schema, self._node, types, data, opset_imports=self._imports)
        except shape_inference.InferenceError as error:
            # types are the session's to look at; of an optional, what it holds is fed
            return None if "[TypeInferenceError]" in str(error) else str(error)
        except checker.ValidationError:
            return None
        return None if self._rule is None or self._rule[1](self._told, *operands) else self._rule[0]


def _code(value: np.ndarray) -> int:
    return TensorProto.STRING if value.dtype.kind in "OUST" else helper.np_dtype_to_tensor_dtype(value.dtype)


def _in_range(told: Mapping[str, Any], data: np.ndarray, places: np.ndarray, *rest: Any) -> bool:
    size = data.shape[told.get("axis", 0)]
    return bool(((places >= -size) & (places < size)).all())


def _scatters(told: Mapping[str, Any], data: np.ndarray, places: np.ndarray, updates: np.ndarray) -> bool:
    return places.shape == updates.shape and _in_range(told, data, places)


def _scatters_blocks(told: Mapping[str, Any], data: np.ndarray, places: np.ndarray, updates: np.ndarray) -> bool:
    return updates.shape == (*places.shape[:-1], *data.shape[places.shape[-1] :])


def _pads(told: Mapping[str, Any], data: np.ndarray, pads: Any = None, value: Any = None, axes: Any = None) -> bool:
    pads = np.asarray(told.get("pads", ()) if pads is None else pads).reshape(2, -1)
    chosen = range(data.ndim) if axes is None else np.asarray(axes).reshape(-1).tolist()
    return pads.shape[1] != len(chosen) or all(
        data.shape[axis] + pads[:, i].sum() >= 0 for i, axis in enumerate(chosen)
    )


def _recurs(told: Mapping[str, Any], x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, *states: Any) -> bool:
    """Weights, biases and states are those of as many directions, of a batch's length and of hidden_size."""
    batch, hidden = x.shape[told.get("layout", 0) == 0], told.get("hidden_size", r.shape[2])
    state = (batch, w.shape[0], hidden) if told.get("layout", 0) else (w.shape[0], batch, hidden)
    weights = r.shape == (w.shape[0], w.shape[1], hidden) and (b is None or b.shape == (w.shape[0], 2 * w.shape[1]))
    kept = all(s is None or s.shape == state for s in states[:2])
    peepholes = len(states) < 3 or states[2] is None or states[2].shape == (w.shape[0], 3 * hidden)
    return (
        weights and kept and peepholes and w.shape[2] == x.shape[2] and (lengths is None or lengths.shape == (batch,))
    )


def _filters(told: Mapping[str, Any], bins: Any, length: Any, rate: Any, lower: Any, upper: Any) -> bool:
    samples = int(length) // 2 + 1
    return min(int(bins), int(length), int(rate)) > 0 and int((int(length) + 1) * float(upper) / int(rate)) < samples


_RULES: Mapping[str, tuple[str, Callable[..., bool]]] = {
    "AffineGrid": (
        "size has an extent below one or another batch",
        lambda told, theta, size: bool((size > 0).all()) and size[0] == theta.shape[0],
    ),
    "GatherElements": ("indices are out of range", _in_range),
    "GRU": ("weights, biases, lengths and states are not of the same directions and sizes", _recurs),
    "LSTM": ("weights, biases, lengths and states are not of the same directions and sizes", _recurs),
    "MaxUnpool": ("X and I are not of one shape", lambda told, x, places, *size: x.shape == places.shape),
    "MelWeightMatrix": ("its numbers leave no filters, or filters beyond the last sample", _filters),
    "NonMaxSuppression": (
        "boxes and scores are of other numbers",
        lambda told, boxes, scores, *rest: boxes.shape[2] == 4 and boxes.shape[:2] == scores.shape[::2],
    ),
    "Pad": ("pads take more than there is", _pads),
    "RNN": ("weights, biases, lengths and states are not of the same directions and sizes", _recurs),
    "RotaryEmbedding": (
        "cos_cache and sin_cache are not of one shape",
        lambda told, x, cos, sin, *places: cos.shape == sin.shape,
    ),
    "ScatterElements": ("indices and updates are not of one shape, or out of range", _scatters),
    "ScatterND": ("updates are not of the shape that indices ask for", _scatters_blocks),
    "TopK": (
        "K is negative or larger than the axis",
        lambda told, x, *k: not k or 0 <= k[0].item() <= x.shape[told.get("axis", -1)],
    ),
}
"""What operands of an operator must be, and what is wrong where they are not."""
