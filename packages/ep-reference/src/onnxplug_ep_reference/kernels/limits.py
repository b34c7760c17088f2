"""What onnx.reference's classes compute wrongly or not at all, found from the node: each is declined with the reason.

The entries come from reading the classes and from comparing them with another runtime over varied shapes and attributes.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import numpy as np

from onnxplug.contract import NodeView, ValueView
from onnxplug_ep_reference.kernels.catalogue import absence, implementations
from onnxplug_ep_reference.kernels.nodes import unsupported_attribute

Limit = Callable[[NodeView], str | None]


def refusal(node: NodeView) -> str | None:
    """Why onnx.reference cannot be trusted with this node; None when it can."""
    implementation = implementations().get((node.domain, node.op_type, node.since_version))
    if implementation is None:
        return absence(node.domain, node.op_type, node.since_version)
    limit = _LIMITS.get((node.domain, node.op_type))
    return unsupported_attribute(node, implementation) or (limit(node) if limit is not None else None)


def _input(node: NodeView, index: int) -> ValueView | None:
    return node.inputs[index] if index < len(node.inputs) else None


def _shape(node: NodeView, index: int) -> tuple[int | None, ...] | None:
    """The known dimensions of an input, None where one is not."""
    value = _input(node, index)
    if value is None or value.shape is None:
        return None
    return tuple(dim if isinstance(dim, int) else None for dim in value.shape)


def _only(attribute: str, default: str | int, *taken: str | int) -> Limit:
    """The attribute has one of these values."""

    def limit(node: NodeView) -> str | None:
        value = node.attributes.get(attribute, default)
        return None if value in taken else f"onnx.reference does not compute {attribute}={value}"

    return limit


def _recurrent(*activations: str) -> Limit:
    """Recurrent layers ignore sequence lengths, clipping, coupled gates and activation functions."""

    def limit(node: NodeView) -> str | None:
        attributes = node.attributes
        if _input(node, 4) is not None:
            return "onnx.reference ignores sequence_lens"
        for name in ("clip", "input_forget"):
            if attributes.get(name):
                return f"onnx.reference ignores attribute {name}"
        default = list(activations) * (2 if attributes.get("direction") == "bidirectional" else 1)
        given = attributes.get("activations") or default
        if [name.lower() for name in given] != [name.lower() for name in default]:
            return f"onnx.reference computes the activations {', '.join(default)} only"
        return None

    return limit


def _batch_normalization(node: NodeView) -> str | None:
    if node.since_version == 6 and not (node.attributes.get("is_test") and node.attributes.get("spatial", 1)):
        return "onnx.reference computes version 6 for is_test=1, spatial=1 only"
    return None


def _auto_padded(node: NodeView) -> bool:
    return node.attributes.get("auto_pad", "NOTSET") not in ("", "NOTSET")


def _has_steps(node: NodeView, *names: str) -> bool:
    return any(step != 1 for name in names for step in node.attributes.get(name) or ())


def _dropout(node: NodeView) -> str | None:
    if node.since_version < 12 and len(node.outputs) > 1:
        return "onnx.reference gives the mask of version 12, which other runtimes take to be false before"
    return None


def _average_pool(node: NodeView) -> str | None:
    if node.since_version == 1 and (any(node.attributes.get("pads") or ()) or _auto_padded(node)):
        return "onnx.reference counts padding in, which version 1 has no attribute for"
    return _pool(node)


def _skips(node: NodeView) -> str | None:
    """A window that is narrower than its stride leaves pixels out, for which auto_pad computes a negative padding."""
    strides, kernel = node.attributes.get("strides") or (), node.attributes.get("kernel_shape") or ()
    skips = any(step > size for step, size in zip(strides, kernel, strict=False))
    return (
        "onnx.reference pads by less than nothing where strides exceed the window"
        if _auto_padded(node) and skips
        else None
    )


def _pool(node: NodeView) -> str | None:
    if _auto_padded(node) and node.attributes.get("ceil_mode"):
        return "onnx.reference does not combine ceil_mode with auto_pad"
    if _auto_padded(node) and _has_steps(node, "dilations"):
        return "onnx.reference leaves dilations out of auto_pad"
    return _skips(node)


def _max_pool(node: NodeView) -> str | None:
    if _has_steps(node, "strides", "dilations"):
        if node.attributes.get("auto_pad") == "SAME_LOWER":
            return "onnx.reference pads SAME_LOWER as SAME_UPPER when there are strides or dilations"
        return _skips(node)
    data = _input(node, 0)
    if any(node.attributes.get("pads") or ()):
        return "onnx.reference pads for some sizes only when there are no strides"
    if len(node.outputs) > 1:
        return "onnx.reference computes wrong indices without strides"
    if node.attributes.get("auto_pad", "").startswith("SAME"):
        if data is None or data.shape is None or len(data.shape) != 4:
            return "onnx.reference pads images (rank 4) only when there are no strides"
        if data.dtype == np.int8:
            return "onnx.reference pads int8 with zeros"
    return _pool(node)


def _global_max_pool(node: NodeView) -> str | None:
    shape = _shape(node, 0)
    return None if shape is not None and len(shape) == 4 else "onnx.reference pools images (rank 4) only"


def _conv_transpose(node: NodeView) -> str | None:
    group, weights = node.attributes.get("group", 1), _shape(node, 1)
    if node.attributes.get("auto_pad", "").startswith("SAME") and _has_steps(node, "strides"):
        steps = node.attributes["strides"]
        if weights is None or any(k is None or k < step for k, step in zip(weights[2:], steps, strict=False)):
            return "onnx.reference adds behind windows narrower than their strides what other runtimes do not"
    if group == 1 or (weights is not None and weights[:2] == (group, 1) and _input(node, 2) is None):
        return None
    return "onnx.reference mixes up the channels of groups"


def _lrn(node: NodeView) -> str | None:
    shape = _shape(node, 0)
    if shape is None or len(shape) != 4 or shape[1] is None or shape[0] != shape[1]:
        return "onnx.reference normalises as many channels as the batch is long"
    return None


def _resize(node: NodeView) -> str | None:
    mode = node.attributes.get("coordinate_transformation_mode", "half_pixel")
    return f"onnx.reference has no coordinate transformation {mode}" if mode == "tf_half_pixel_for_nn" else None


def _grid_sample(node: NodeView) -> str | None:
    if node.attributes.get("mode") == "cubic" and node.attributes.get("padding_mode") == "border":
        return "onnx.reference moves the centre of a cubic sample to the border, not the pixels it reads"
    return None


def _pad(node: NodeView) -> str | None:
    given = node.attributes.get("pads") or node.attributes.get("paddings") or ()
    return "onnx.reference cannot crop in versions before 11" if min(given, default=0) < 0 else None


def _linear(node: NodeView) -> str | None:
    if not node.attributes.get("intercepts"):
        return "onnx.reference gives NaN without intercepts"
    return _NO_TRANSFORM(node) if node.op_type == "LinearRegressor" else None


def _ensemble(node: NodeView) -> str | None:
    if node.attributes.get("aggregate_function", 1) > 1:
        return "onnx.reference gives infinities for the least and largest weight where a target has none"
    return _only("post_transform", 0, 0)(node)


def _trees(node: NodeView) -> str | None:
    tensors = sorted(name for name in node.attributes if name.endswith("_as_tensor"))
    if tensors:
        return f"onnx.reference does not read {tensors[0]}"
    return _NO_TRANSFORM(node) if node.op_type == "TreeEnsembleRegressor" else None


def _machine(node: NodeView) -> str | None:
    return "onnx.reference couples probabilities otherwise than libsvm" if node.attributes.get("prob_a") else None


def _string_normalizer(node: NodeView) -> str | None:
    return "onnx.reference would change the locale of the process" if node.attributes.get("locale") else None


def _image_decoder(node: NodeView) -> str | None:
    return None if find_spec("PIL") else "Pillow is not installed: pip install onnxplug-ep-reference[image]"


_NO_TRANSFORM = _only("post_transform", "NONE", "NONE")

_LIMITS: dict[tuple[str, str], Limit] = {
    ("", "AveragePool"): _average_pool,
    ("", "BatchNormalization"): _batch_normalization,
    ("", "ConvTranspose"): _conv_transpose,
    ("", "Dropout"): _dropout,
    ("", "GRU"): _recurrent("Sigmoid", "Tanh"),
    ("", "GlobalMaxPool"): _global_max_pool,
    ("", "GridSample"): _grid_sample,
    ("", "ImageDecoder"): _image_decoder,
    ("", "LRN"): _lrn,
    ("", "LSTM"): _recurrent("Sigmoid", "Tanh", "Tanh"),
    ("", "LayerNormalization"): _only("stash_type", 1, 1),
    ("", "LpNormalization"): _only("p", 2, 2),
    ("", "LpPool"): _pool,
    ("", "MaxPool"): _max_pool,
    ("", "Pad"): _pad,
    ("", "RNN"): _recurrent("Tanh"),
    ("", "Resize"): _resize,
    ("", "StringNormalizer"): _string_normalizer,
    ("", "Upsample"): _only("mode", "nearest", "nearest"),
    ("ai.onnx.ml", "LinearClassifier"): _linear,
    ("ai.onnx.ml", "LinearRegressor"): _linear,
    ("ai.onnx.ml", "Normalizer"): _only("norm", "MAX", "L1", "L2"),
    ("ai.onnx.ml", "SVMClassifier"): _machine,
    ("ai.onnx.ml", "SVMRegressor"): _NO_TRANSFORM,
    ("ai.onnx.ml", "TreeEnsemble"): _ensemble,
    ("ai.onnx.ml", "TreeEnsembleClassifier"): _trees,
    ("ai.onnx.ml", "TreeEnsembleRegressor"): _trees,
}
