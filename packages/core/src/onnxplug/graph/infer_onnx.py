"""Inference of one node by onnx (onnx.shape_inference.infer_node_outputs): what ends the process or never comes back is not asked, and
what onnx leaves open or takes for something else is put right."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from onnxplug.contract.errors import Fail
from onnxplug.contract.model import type_to_proto
from onnxplug.contract.types import TensorType
from onnxplug.graph.infer_bodies import Types
from onnxplug.graph.ir import Node
from onnxplug.graph.plain import plain
from onnxplug.graph.protos import array_to_proto, node_proto, type_from_proto
from onnxplug.graph.type_rules import length_of

INFERRED_AS = {
    ("GreaterOrEqual", 12): ("Greater", 9),
    ("LessOrEqual", 12): ("Less", 9),
    ("Compress", 9): ("Compress", 11),
    ("NonMaxSuppression", 10): ("NonMaxSuppression", 11),
}
"""Versions whose results onnx infers no shape of, and those that give the same shape."""

_REACHES = {name: (-(2**31), 2**31) for name in ("axis", "axes", "perm")} | {"batch_dims": (0, 2**31)}
"""Attributes that are places in a shape, and what onnx holds them in."""

_POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})
_MOST_DIMENSIONS = 64
"""Of NumPy's arrays: a target that is declared longer tells nothing, and as many dimensions would fill the memory."""


def inferred_by_onnx(node: Node, inputs: Types, constants: Mapping[str, np.ndarray | None]) -> Types:
    """Types of the outputs of a node with a schema; ``constants``: small constant inputs, by name. Fail for what does not go together."""
    found = _asked(node, inputs, constants)
    if node.domain:
        return found
    if node.op_type == "Reshape":
        return _reshaped(inputs, found)
    if node.op_type in ("Squeeze", "Unsqueeze") and "axes" in node.attributes:
        return _placed(node, inputs, found)
    if node.op_type in _POOLS and node.attributes.get("ceil_mode", 0):
        return _pooled(node, inputs, found)
    if node.op_type == "ConvTranspose" and "output_shape" in node.attributes:
        return _sized(node, inputs, found)
    if node.op_type == "ConvTranspose" and str(node.attributes.get("auto_pad", "")).startswith("SAME"):
        return _cut_to_size(node, inputs, found)
    if node.op_type == "STFT":
        return _framed(node, inputs, constants, found)
    if node.op_type == "CenterCropPad":
        return _cropped(inputs, found)
    if node.op_type in ("Resize", "Upsample"):
        return _resized(node, inputs, constants, found)
    return found


def _asked(node: Node, inputs: Types, constants: Mapping[str, np.ndarray | None]) -> Types:
    from onnx import AttributeProto, OperatorSetIdProto, TypeProto, defs, shape_inference

    types = {
        v.name: TypeProto() if t is None else type_to_proto(t)
        for v, t in zip(node.inputs, inputs, strict=True)
        if v is not None
    }
    widened = (node.domain, node.op_type) == ("", "Pad")  # whose axes may be int32; onnx reads int64
    data = {
        name: array_to_proto(name, np.asarray(a, np.int64 if widened and a.dtype == np.int32 else None))
        for name, a in constants.items()
        if a is not None and a.dtype != object
    }
    _check_reach(node, inputs)
    proto = node_proto(node)
    proto.name = ""
    for index, name in enumerate(proto.output):
        proto.output[index] = name or f"\0{index}"  # inference needs a name for omitted outputs too
    if (node.domain, node.op_type) == ("", "STFT") and "onesided" not in node.attributes:
        # onnx infers with 0, its schema's default is 1
        proto.attribute.append(AttributeProto(name="onesided", type=AttributeProto.INT, i=1))
    if node.domain == "" and node.attributes.get("auto_pad", "NOTSET") not in ("NOTSET", ""):
        # of both, of which a node may have one, onnx reads the pads; kernels go by the other, as onnxruntime's
        kept = [attribute for attribute in proto.attribute if attribute.name != "pads"]
        del proto.attribute[:]
        proto.attribute.extend(kept)
    schema, version = node.schema, node.since_version
    if node.domain == "" and (other := INFERRED_AS.get((node.op_type, version))) is not None:
        proto.op_type, version = other
        schema = defs.get_schema(*other)
    imports = [OperatorSetIdProto(domain=node.domain, version=version)]
    if node.domain:
        imports.append(OperatorSetIdProto(domain="", version=13))
    try:
        found = shape_inference.infer_node_outputs(schema, proto, types, data, opset_imports=imports)
    except Exception as error:  # onnx's, or of whoever brings the schema
        if any(v is not None and t is None for v, t in zip(node.inputs, inputs, strict=True)):
            return [None] * len(node.outputs)
        text = plain(error, inputs) or str(error).removeprefix("[ShapeInferenceError] ")
        kind = "" if text.startswith("[TypeInferenceError]") else "[ShapeInferenceError] "
        raise Fail(f"Node ({node.name}) Op ({node.op_type}) {kind}{text}") from None
    return [type_from_proto(found[name]) if name in found else None for name in proto.output]


def _check_reach(node: Node, inputs: Types) -> None:
    """Fail for the numbers that onnx's inference takes as places in a shape without looking, which would end the process, or of
    which it takes the last 32 bits."""
    for name, (least, end) in _REACHES.items():
        value = node.attributes.get(name, 0)
        for place in value if isinstance(value, list) else (value,):
            if isinstance(place, int) and not least <= place < end:
                raise Fail(
                    f"Node ({node.name}) Op ({node.op_type}) [ShapeInferenceError] {name} {place} is not in any tensor's range"
                )
    if node.op_type == "LayerNormalization" and isinstance(inputs[0], TensorType) and inputs[0].shape is not None:
        axis, rank = node.attributes.get("axis", -1), len(inputs[0].shape)
        if isinstance(axis, int) and not -rank <= axis < rank:
            raise Fail(
                f"Node ({node.name}) Op ({node.op_type}) [ShapeInferenceError] Unexpected axis value ({axis}) rank of first input is "
                f"{rank} in {node.name}."
            )


def _reshaped(inputs: Types, found: Types) -> Types:
    """A result has as many dimensions as its target shape has elements, before version 13 onnx leaves that open; and as many
    elements as its operand, of which onnx takes the target's word."""
    data, target, (made, *_) = inputs[0], inputs[-1], found
    if not isinstance(made, TensorType):
        return found
    if made.shape is None and len(inputs) == 2 and isinstance(target, TensorType):
        count = length_of(target)
        if not isinstance(count, int) or not 0 <= count <= _MOST_DIMENSIONS:
            return found
        return [TensorType(made.element, (None,) * count)]
    given, taken = (t.static_shape if isinstance(t, TensorType) else None for t in (data, made))
    if given is None or taken is None or math.prod(given) == math.prod(taken):
        return found
    return [TensorType(made.element)]  # the kernel refuses it


def _placed(node: Node, inputs: Types, found: Types) -> Types:
    """Nothing of the shape where an axis is none or one is there twice: onnx leaves these out, before version 13."""
    (x, *_), (made, *_), axes = inputs, found, node.attributes["axes"]
    if not isinstance(x, TensorType) or not isinstance(made, TensorType) or x.shape is None:
        return found
    added = len(axes) if node.op_type == "Unsqueeze" else 0
    rank = len(x.shape) + added
    places = {axis % rank for axis in axes if -rank <= axis < rank}
    if all(-rank <= axis < rank for axis in axes) and len(places) >= added:
        return found
    return [TensorType(made.element)]  # the kernel refuses it


def _pooled(node: Node, inputs: Types, found: Types) -> Types:
    """As many windows as the formula of ceil_mode says, none of which begins in the padding behind an image (onnx operator
    specification, MaxPool): onnx's inference counts one in images a whole stride smaller than the window, and before version 22 those
    that begin in the padding."""
    (x, *_), (made, *_) = inputs, found
    if not isinstance(x, TensorType) or not isinstance(made, TensorType) or x.shape is None or made.shape is None:
        return found
    given, count = node.attributes, len(made.shape) - 2
    whole = str(given.get("auto_pad", "")).startswith("SAME")  # then padding lets a window begin at every step
    steps, gaps = (list(given.get(name) or [1] * count) for name in ("strides", "dilations"))
    pads = list(given.get("pads") or [0] * 2 * count)
    sizes: list[Any] = []
    for d, (n, size) in enumerate(zip(made.shape[2:], x.shape[2:], strict=False)):
        if isinstance(n, int) and isinstance(size, int):
            n = min(n, -(-(size + pads[d]) // steps[d]))
            free = size + pads[d] + pads[d + count] - (given["kernel_shape"][d] - 1) * gaps[d] - 1
            n = n if whole else min(n, max(0, -(-free // steps[d]) + 1))
        sizes.append(n)
    shape = (*made.shape[:2], *sizes)
    return [TensorType(t.element, shape) if isinstance(t, TensorType) else t for t in found]


def _framed(node: Node, inputs: Types, constants: Mapping[str, np.ndarray | None], found: Types) -> Types:
    """Frames of a signal, whose number alone is not known where its length is not; onnx says nothing then, and nothing of a frame
    that is the whole signal."""
    (x, *_), (made, *_) = inputs, found
    if not isinstance(x, TensorType) or not isinstance(made, TensorType) or not x.shape or made.shape is not None:
        return found
    _, _, window, told, *_ = [*node.inputs, None, None]
    whole = window is None and told is None
    length = length_of(x, 1) if whole else length_of(inputs[2]) if told is None else None
    if told is not None and (known := constants.get(told.name)) is not None and known.size == 1:
        length = int(known.reshape(-1)[0])
    half = node.attributes.get("onesided", 1)
    bins = (length // 2 + 1 if half else length) if isinstance(length, int) else None
    return [TensorType(made.element, (x.shape[0], 1 if whole else None, bins, 2))]


def _cropped(inputs: Types, found: Types) -> Types:
    """What is cropped keeps its rank, of which onnx says nothing where the sizes are not known."""
    (x, *_), (made, *_) = inputs, found
    if not isinstance(x, TensorType) or not isinstance(made, TensorType) or x.shape is None or made.shape is not None:
        return found
    return [TensorType(made.element, (None,) * len(x.shape))]


def _sized(node: Node, inputs: Types, found: Types) -> Types:
    """A transposed convolution is as large as it was told to be: of sizes below its input's onnx leaves dimensions out."""
    (x, *_), (made,), told = inputs, found, node.attributes["output_shape"]
    if not isinstance(x, TensorType) or not isinstance(made, TensorType) or x.shape is None or made.shape is None:
        return found
    if len(made.shape) == len(x.shape) or len(told) < len(x.shape) - 2:
        return found
    return [TensorType(made.element, (*made.shape[:2], *told[2 - len(x.shape) :]))]


def _cut_to_size(node: Node, inputs: Types, found: Types) -> Types:
    """A transposed convolution padded to its input's size times the strides has that size, or what windows smaller than strides reach of
    it: onnx's inference leaves output_padding and dilations out of what is cut off."""
    x, w = (t.shape if isinstance(t, TensorType) else None for t in inputs[:2])
    if not isinstance(found[0], TensorType) or x is None or w is None or len(x) != len(w) or len(x) < 3:
        return found
    count, given = len(x) - 2, node.attributes
    steps, dilations, more = (
        given.get(name) or [n] * count for name, n in (("strides", 1), ("dilations", 1), ("output_padding", 0))
    )
    sizes = [
        min(n * s, (n - 1) * s + (k - 1) * d + 1 + a) if isinstance(n, int) and isinstance(k, int) else None
        for n, k, s, d, a in zip(x[2:], w[2:], steps, dilations, more, strict=False)
    ]
    channels = w[1] * given.get("group", 1) if isinstance(w[1], int) else None
    return [TensorType(found[0].element, (x[0], channels, *sizes))] if len(sizes) == count else found


def _resized(node: Node, inputs: Types, constants: Mapping[str, np.ndarray | None], found: Types) -> Types:
    """Sizes times scales are cut off in float32, as by kernels and in onnxruntime: 5 times the float 1.4 is 7. onnx has 6, from double."""
    (x, *_), (made, *_), given = inputs, found, node.attributes
    if not isinstance(x, TensorType) or not isinstance(made, TensorType) or not x.shape or made.shape is None:
        return found
    known = [None if v is None else constants.get(v.name) for v in node.inputs]
    place = 2 if node.op_type == "Resize" and node.since_version > 10 else 1
    told = given.get("scales", known[place] if len(known) > place else None)
    scales = [] if told is None else np.asarray(told, np.float32).reshape(-1).tolist()
    axes = [axis % len(x.shape) for axis in given.get("axes", range(len(x.shape)))]
    fits = (
        len(scales) == len(axes) and len(made.shape) == len(x.shape) and all(0 < scale < math.inf for scale in scales)
    )
    if not fits or given.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return found
    shape = list(made.shape)
    for axis, scale in zip(axes, scales, strict=True):
        size = x.shape[axis]
        if isinstance(size, int):
            shape[axis] = math.floor(np.float32(size) * np.float32(scale))
    return [TensorType(made.element, tuple(shape))]
