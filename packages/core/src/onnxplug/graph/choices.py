"""Attributes of ONNX's operators that mean something for a few values only: others are refused when a model is loaded."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from onnxplug.contract.errors import Fail
from onnxplug.graph.ir import Node

ML, MS = "ai.onnx.ml", "com.microsoft"
_AUTO_PAD = {"auto_pad": ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", "")}
_MODES = ("linear", "nearest", "cubic", "bilinear", "bicubic")  # of GridSample, whose version 20 renamed two
_INTERPOLATIONS = ("nearest", "linear", "cubic")
_RECURRENT = {
    "direction": ("forward", "reverse", "bidirectional", "foward"),  # as version 1 of GRU spells its default
    "layout": (0, 1),
}
_REDUCTIONS = {"reduction": ("none", "add", "mul", "max", "min")}
_LOSSES = {"reduction": ("mean", "sum", "none")}
_CHOICES: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "BitShift": {"direction": ("LEFT", "RIGHT")},
    "DepthToSpace": {"mode": ("DCR", "CRD")},
    "Gelu": {"approximate": ("none", "tanh")},
    "GridSample": {"mode": _MODES, "padding_mode": ("zeros", "border", "reflection")},
    "MaxPool": {**_AUTO_PAD, "storage_order": (0, 1)},
    "NonMaxSuppression": {"center_point_box": (0, 1)},
    "Pad": {"mode": ("constant", "reflect", "edge", "wrap")},
    "Resize": {
        "mode": _INTERPOLATIONS,
        "coordinate_transformation_mode": (
            "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn",
            "tf_crop_and_resize",
        ),
        "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
    },
    "RoiAlign": {"mode": ("avg", "max"), "coordinate_transformation_mode": ("half_pixel", "output_half_pixel")},
    **dict.fromkeys(("AveragePool", "Conv", "ConvInteger", "ConvTranspose", "LpPool", "QLinearConv"), _AUTO_PAD),
    **dict.fromkeys(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"), _LOSSES),
    **dict.fromkeys(("RNN", "GRU", "LSTM"), _RECURRENT),
    **dict.fromkeys(("ScatterElements", "ScatterND"), _REDUCTIONS),
}  # fmt: skip
"""By operator and attribute, all that it may be."""

_FLAGS = ("keepdims", "noop_with_empty_axes", "allowzero", "is_causal", "exclusive", "reverse", "fmod")
"""Attributes that are 0 or 1, and of whose other values onnx's inference, runtimes and kernels think differently."""

_NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
_ACTIVATIONS = frozenset(
    {
        "affine", "elu", "hardsigmoid", "leakyrelu", "relu", "scaledtanh", "sigmoid", "softplus", "softsign", "tanh",
        "thresholdedrelu",
    }
)  # fmt: skip
"""Functions of recurrent operators, in lower case."""

Refusal = str | None


def check_choices(node: Node) -> None:
    """Fail, as onnxruntime, where an attribute of one of ONNX's operators has a value that means nothing."""
    if node.domain:
        if node.domain == ML:
            from onnxplug.graph.choices_ml import refusal  # of which few models have need

            if (reason := refusal(node)) is not None:
                raise _refused(node, reason)
        elif node.domain == MS and (reason := _contrib(node)) is not None:
            raise _refused(node, reason)
        return
    choices, given = _CHOICES.get(node.op_type), node.attributes
    if choices is not None:
        for name, known in choices.items():
            if name in given and given[name] not in known:
                raise _refused(node, f"{name} '{given[name]}' is none of {', '.join(str(k) for k in known if k != '')}")
    for name in _FLAGS:
        if (flag := given.get(name, 0)) not in (0, 1):
            raise _refused(node, f"{name} is {flag}, it must be 0 or 1")
    rule = _RULES.get(node.op_type)
    if rule is not None and (reason := rule(node)) is not None:
        raise _refused(node, reason)


def _refused(node: Node, reason: str) -> Exception:
    return Fail(f"Node ({node.name}) Op ({node.op_type}) {reason}")


def _split(node: Node) -> Refusal:
    if "num_outputs" in node.attributes and len(node.inputs) > 1 and node.inputs[1] is not None:
        return "has num_outputs and the sizes of its outputs, it must have one of them"
    count, made = node.attributes.get("num_outputs", len(node.outputs)), len(node.outputs)
    return f"num_outputs is {count}, the node has {made} outputs" if count < made else None  # onnx reads past its list


def _normalized(node: Node) -> Refusal:
    made = len(node.outputs)
    return (
        f"gives Y alone where is_test is set, it has {made} outputs"
        if made > 1 and node.attributes.get("is_test")
        else None
    )


def _normalized_locally(node: Node) -> Refusal:
    size = node.attributes["size"]
    return None if size > 0 else f"size is {size}, it must be positive"


def _recurrent(node: Node) -> Refusal:
    given = node.attributes
    size, clip = given.get("hidden_size", 1), given.get("clip", 1.0)
    if size < 1 or not clip > 0:
        return f"hidden_size {size} or clip {clip} is not positive"
    strange = [name for name in given.get("activations", ()) if name.lower() not in _ACTIVATIONS]
    return f"activations {strange} are none that recurrent operators have" if strange else None


def _resized(node: Node) -> Refusal:
    found = node.attributes.get("nearest_mode", _NEAREST[0])
    if node.attributes.get("mode", "nearest") != "nearest" or found in _NEAREST:
        return None
    return f"nearest_mode '{found}' is none of {', '.join(_NEAREST)}"


def _enlarged(node: Node) -> Refusal:
    modes = (*_INTERPOLATIONS, "bilinear") if node.since_version < 7 else _INTERPOLATIONS
    found = node.attributes.get("mode", modes[0])
    return None if found in modes else f"mode '{found}' is none of {', '.join(modes)}"


def _rotated(node: Node) -> Refusal:
    for name in ("num_heads", "rotary_embedding_dim"):
        if (count := node.attributes.get(name, 0)) < 0:
            return f"{name} is {count}, it must not be negative"
    return None


def _counted(node: Node) -> Refusal:
    least, most = (node.attributes[f"{name}_gram_length"] for name in ("min", "max"))
    return None if 0 < least <= most else f"min_gram_length {least} is not in 1..max_gram_length ({most})"


def _ordered(node: Node) -> Refusal:
    order = node.attributes.get("perm", ())
    return None if sorted(order) == list(range(len(order))) else f"perm {order} is no order of {len(order)} dimensions"


def _sampled(node: Node) -> Refusal:
    count = node.attributes.get("sampling_ratio", 0)
    return None if count >= 0 else f"sampling_ratio is {count}, it must not be negative"


def _summed(node: Node) -> Refusal:
    equation = node.attributes["equation"]
    # Of anything else onnx's inference would look for the end for ever.
    rest = re.sub(r"->|\.\.\.|[A-Za-z,]", "", equation.replace(" ", ""))
    if "." in rest:
        return f"equation '{equation}' has dots that are no ellipsis"
    return f"equation {equation!r} has {rest[0]!r}, which is no letter" if rest else None


def _contrib(node: Node) -> Refusal:
    given = node.attributes
    if node.op_type == "MatMulNBits":
        from onnxplug.graph.choices_nbits import refusal  # of which few models have need

        return refusal(node)
    for name in _POSITIVE.get(node.op_type, ()):
        if (number := given.get(name, 1)) < 1:
            return f"{name} is {number}, it must be positive"
    if node.op_type == "GroupQueryAttention":
        kinds = [given.get(f"{each}_quant_type", "NONE").upper() for each in "kv"]
        if strange := [kind for kind in kinds if kind not in _CACHES]:
            return f"has an invalid KV quantization type '{strange[0]}', valid are {', '.join(_CACHES)}"
        if (bits := given.get("kv_cache_bit_width", 0)) and kinds == ["NONE", "NONE"]:
            return f"kv_cache_bit_width must be 0 when quantization is disabled, got {bits}"
    if node.op_type == "QMoE" and (size := given.get("block_size", 0)) and (size < 16 or size & (size - 1)):
        return f"block_size is {size}, it must be a power of two from 16 on"
    return None


_POSITIVE = {
    "Attention": ("num_heads",),
    "GroupQueryAttention": ("num_heads", "kv_num_heads"),
    "MultiHeadAttention": ("num_heads",),
    "SparseAttention": ("num_heads", "kv_num_heads", "sparse_block_size"),
    "Tokenizer": ("mincharnum",),
}
"""Attributes of operators of onnxruntime's own that must be positive."""
_CACHES = ("NONE", "PER_TENSOR", "PER_CHANNEL")

_RULES: Mapping[str, Callable[[Node], Refusal]] = {
    "BatchNormalization": _normalized,
    "Einsum": _summed,
    "LRN": _normalized_locally,
    "Resize": _resized,
    "RoiAlign": _sampled,
    "RotaryEmbedding": _rotated,
    "Split": _split,
    "TfIdfVectorizer": _counted,
    "Transpose": _ordered,
    "Upsample": _enlarged,
    **dict.fromkeys(("RNN", "GRU", "LSTM"), _recurrent),
}
"""What more there is to an operator's attributes than choices."""
