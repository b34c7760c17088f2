"""Affine operators behind a convolution, folded into its weights and bias: BatchNormalization, Mul and Add of
per-channel constants."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.sources import Scaled
from onnxplug.graph.value import Value

_TARGETS = frozenset({"Conv", "ConvTranspose"})


def fold_affine(graph: Graph, context: Any) -> bool:
    """Conv followed by y = a*x + b per output channel becomes one Conv. float32 and double only: halves would round
    twice."""
    gone: set[Node] = set()
    own, results = set(graph.nodes), set(graph.outputs)
    for conv in [n for n in graph.nodes if n.op_type in _TARGETS and n.domain == ""]:
        while (step := _next(conv, own, results)) is not None:
            node, scale, shift = step
            if not _absorb(graph, conv, scale, shift):
                break
            result = node.outputs[0]
            assert result is not None
            result.producer, conv.outputs = conv, [result]
            gone.add(node)
    graph.nodes = [n for n in graph.nodes if n not in gone]
    return bool(gone)


def _next(conv: Node, own: set[Node], results: set[Value]) -> tuple[Node, np.ndarray, np.ndarray] | None:
    """The one reader of the convolution's output, when it is affine per channel."""
    made, weight = conv.outputs[0], conv.inputs[1]
    bias = conv.inputs[2] if len(conv.inputs) > 2 else None
    if made is None or weight is None or weight.constant is None or made in results or len(made.consumers) != 1:
        return None
    if (bias is not None and bias.constant is None) or weight.constant.dtype not in (np.float32, np.float64):
        return None
    node = made.consumers[0]
    if node not in own or node.domain or made in node.captures:
        return None
    channels = _channels(conv)
    if channels is None:
        return None
    if any(v is not None and (v.consumers or v in results) for v in node.outputs[1:]):
        return None
    if node.op_type == "BatchNormalization":
        affine = _batch_norm(node, made)
    elif node.op_type in ("Mul", "Add"):
        affine = _per_channel(node, made, channels, weight.constant.ndim)
    else:
        return None
    return None if affine is None or affine[0].shape != (channels,) else (node, *affine)


def _channels(conv: Node) -> int | None:
    """Output channels; None for a weight that is none."""
    weight, group = conv.inputs[1], int(conv.attributes.get("group", 1))
    assert weight is not None and weight.constant is not None
    shape: tuple[int, ...] = weight.constant.shape
    if len(shape) < 3 or group < 1 or shape[0] % group:
        return None
    return shape[0] if conv.op_type == "Conv" else shape[1] * group


def _batch_norm(node: Node, made: Value) -> tuple[np.ndarray, np.ndarray] | None:
    if node.inputs[0] is not made or node.attributes.get("training_mode", 0) or not node.attributes.get("spatial", 1):
        return None
    if node.since_version < 7 and not node.attributes.get("is_test", 0):
        return None
    arrays = [v.constant if v is not None else None for v in node.inputs[1:5]]
    if any(a is None for a in arrays):
        return None
    gamma, beta, mean, variance = (np.asarray(a, np.float64) for a in arrays)
    with np.errstate(all="ignore"):
        scale = gamma / np.sqrt(variance + node.attributes.get("epsilon", 1e-5))
        return scale, beta - mean * scale


def _per_channel(node: Node, made: Value, channels: int, rank: int) -> tuple[np.ndarray, np.ndarray] | None:
    other = node.inputs[1] if node.inputs[0] is made else node.inputs[0]
    if other is None or other is made or other.constant is None or node.since_version < 7:
        return None
    array = other.constant
    if array.ndim > rank or array.size not in (1, channels):
        return None
    if array.size > 1 and (array.ndim < rank - 1 or array.shape[array.ndim - rank + 1] != channels):
        return None
    values = np.broadcast_to(array.reshape(-1).astype(np.float64), (channels,))
    return (values, np.zeros(channels)) if node.op_type == "Mul" else (np.ones(channels), values)


def _absorb(graph: Graph, conv: Node, scale: np.ndarray, shift: np.ndarray) -> bool:
    """Put y = scale * x + shift into the convolution's weight and bias; False when a number would leave the type's range."""
    weight = conv.inputs[1]
    assert weight is not None and weight.constant is not None
    array = weight.constant
    old = conv.inputs[2] if len(conv.inputs) > 2 else None
    again = Scaled(weight, _along_channels(conv, scale, array.shape))
    with np.errstate(all="ignore"):
        scaled = again()
        before = np.zeros_like(shift) if old is None or old.constant is None else old.constant.astype(np.float64)
        bias = (before * scale + shift).astype(array.dtype)
    if not (np.isfinite(scaled).all() and np.isfinite(bias).all()):
        return False
    if not np.array_equal(scale, np.ones_like(scale)):
        weight.release()
        weight = graph.add_constant(weight.name, scaled, again)
    conv.inputs = [conv.inputs[0], weight, graph.add_constant(f"{conv.name}_bias", bias)]
    return True


def _along_channels(conv: Node, scale: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Factors of the output channels, shaped to multiply a weight of this shape."""
    if conv.op_type == "Conv":
        return scale.reshape(-1, *[1] * (len(shape) - 1))
    group = int(conv.attributes.get("group", 1))  # the weight of ConvTranspose: (C, M / group, ...), group by group
    per_group = np.repeat(scale.reshape(group, -1), shape[0] // group, axis=0)
    return per_group.reshape(*per_group.shape, *[1] * (len(shape) - 2))
