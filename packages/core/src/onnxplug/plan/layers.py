"""Output shapes of layers, as ``rules`` has those of arithmetic: convolutions, pooling, recurrent networks, attention, quantization,
selection, ``ai.onnx.ml``. With them the first run of most models has no need of onnx."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug.contract.shapes import Shape, broadcast, channels_second, declares_last
from onnxplug.contract.sizes import computed
from onnxplug.graph.infer_ml import ML, is_known, output_shapes_ml
from onnxplug.plan.rules import Constants, Shapes, gemm, rule
from onnxplug.plan.rules import output_shapes as output_shapes

MICROSOFT = "com.microsoft"


@rule("Conv", "ConvInteger")
@rule("FusedConv", domain=MICROSOFT)
def _conv(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    x, w = shapes[:2]
    if x is None or w is None or len(x) != len(w) or len(x) < 3:
        return None
    sizes = _windows(node, x[2:], list(node.attributes.get("kernel_shape", w[2:])))
    return None if sizes is None else [(x[0], w[0], *sizes)]


def _as_declared(node: Any, found: list[Shape] | None) -> list[Shape] | None:
    return found if found is None or not declares_last(node) else [(y[0], *y[2:], y[1]) for y in found]


@rule("QLinearConv")
@rule("QLinearConv", domain=MICROSOFT)
def _quantized_conv(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    return _as_declared(node, _conv(node, [channels_second(node, shapes[0]), shapes[3]], ()))


@rule("ConvTranspose")
def _conv_transpose(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    x, w = shapes[:2]
    given = node.attributes
    if x is None or w is None or len(x) != len(w) or len(x) < 3:
        return None
    if "output_shape" in given or given.get("auto_pad", "NOTSET") != "NOTSET":
        return None
    count = len(x) - 2
    steps, dilations, kernel, more = (
        list(given.get(name, default))
        for name, default in (
            ("strides", [1] * count), ("dilations", [1] * count), ("kernel_shape", w[2:]), ("output_padding", [0] * count)
        )
    )  # fmt: skip
    pads = list(given.get("pads", [0] * (2 * count)))
    if any(len(each) != count for each in (steps, dilations, kernel, more)) or len(pads) != 2 * count:
        return None
    sizes = [
        steps[d] * (x[2 + d] - 1) + more[d] + (kernel[d] - 1) * dilations[d] + 1 - pads[d] - pads[d + count]
        for d in range(count)
    ]
    return [(x[0], w[1] * given.get("group", 1), *sizes)] if min(sizes) > 0 else None


@rule("AveragePool", "LpPool", "MaxPool")
def _pool(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    (x,) = shapes
    kernel = node.attributes.get("kernel_shape")
    if x is None or len(x) < 3 or kernel is None or node.attributes.get("ceil_mode", 0):
        return None
    sizes = _windows(node, x[2:], list(kernel))
    return None if sizes is None else [(*x[:2], *sizes)] * len(node.outputs)


@rule("NhwcMaxPool", "QLinearAveragePool", domain=MICROSOFT)
def _declared_pool(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    return _as_declared(node, _pool(node, [channels_second(node, shapes[0])], ()))


def _windows(node: Any, sizes: Sequence[int], kernel: list[int]) -> list[int] | None:
    """How many windows there are along each axis; None where attributes do not fit, or no window does."""
    given, count = node.attributes, len(sizes)
    steps, dilations = (list(given.get(name, [1] * count)) for name in ("strides", "dilations"))
    pads, auto = list(given.get("pads", [0] * (2 * count))), given.get("auto_pad", "NOTSET")
    if any(len(each) != count for each in (steps, dilations, kernel)) or len(pads) != 2 * count or min(steps) < 1:
        return None
    found = []
    for d, size in enumerate(sizes):
        extent = (kernel[d] - 1) * dilations[d] + 1
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            if extent < steps[d]:
                return None
            found.append(-(-size // steps[d]))
        else:
            free = size - extent + (0 if auto == "VALID" else pads[d] + pads[d + count])
            if free < 0:
                return None
            found.append(free // steps[d] + 1)
    return found if min(found) > 0 else None


@rule("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool")
def _global_pool(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    (x,) = shapes
    return None if x is None or len(x) < 3 else [(*x[:2], *[1] * (len(x) - 2))]


@rule("QLinearGlobalAveragePool", domain=MICROSOFT)
def _quantized_global_pool(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    return _as_declared(node, _global_pool(node, [channels_second(node, shapes[0])], ()))


@rule("GRU", "LSTM", "RNN")
def _recurrent(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    x, w = shapes[:2]
    hidden = node.attributes.get("hidden_size")
    if x is None or w is None or len(x) != 3 or len(w) != 3 or hidden is None or node.attributes.get("layout", 0):
        return None
    state = (w[0], x[1], int(hidden))
    return [(x[0], *state), state, state][: len(node.outputs)]


@rule("DequantizeLinear", "QuantizeLinear")
def _quantized(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    return None if shapes[0] is None else [shapes[0]]


@rule("QLinearAdd", "QLinearMul", domain=MICROSOFT)
def _quantized_pair(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    a, b = shapes[0], shapes[3]
    found = None if a is None or b is None else broadcast([a, b])
    return None if found is None else [found]


@rule("QLinearConcat", domain=MICROSOFT)
def _quantized_parts(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    parts = [shape for shape in shapes[2::3] if shape]
    if len(parts) != len(shapes[2::3]) or len({len(part) for part in parts}) != 1:
        return None
    axis = node.attributes["axis"] % len(parts[0])
    rest = {(*part[:axis], *part[axis + 1 :]) for part in parts}
    return [(*parts[0][:axis], sum(part[axis] for part in parts), *parts[0][axis + 1 :])] if len(rest) == 1 else None


@rule("MatMulBnb4", "MatMulNBits", domain=MICROSOFT)
def _packed_product(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    x = shapes[0]
    return None if not x else [(*x[:-1], int(node.attributes["N" if node.attributes.get("transB", 1) else "K"]))]


@rule("QGemm", domain=MICROSOFT)
def _quantized_gemm(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    return gemm(node, [shapes[0], shapes[3]], ())


@rule("Attention", domain=MICROSOFT)
def _attention(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    x, w, *rest = shapes
    if x is None or w is None or len(x) != 3 or len(w) != 2:
        return None
    sizes, heads = node.attributes.get("qkv_hidden_sizes"), node.attributes["num_heads"]
    width, total = sizes[2] if sizes else w[1] // 3, x[1]
    past = rest[2] if len(rest) > 2 else None
    if past is not None:
        total = past[3] + (0 if node.attributes.get("past_present_share_buffer", 0) else total)
    return [(*x[:2], width), (2, x[0], heads, total, width // heads)][: len(node.outputs)]


@rule("MultiHeadAttention", domain=MICROSOFT)
def _multi_head_attention(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    given: list[Shape | None] = [*shapes, *[None] * 8]
    (q, k, v), pasts, heads = given[:3], given[6:8], node.attributes["num_heads"]
    if q is None or k is None or v is None or len(q) != 3 or len(k) != len(v) or heads < 1 or len(node.outputs) > 3:
        return None
    if any(
        value is not None and (past is None or len(past) != 4)
        for value, past in zip(node.inputs[6:8], pasts, strict=False)
    ):
        return None
    if len(k) == 4:
        rows, sizes = k[2], (k[3], v[3])
    elif len(k) == 3 and k[2] % heads == v[2] % heads == 0:
        rows, sizes = k[1], (k[2] // heads, v[2] // heads)
    else:
        return None
    if pasts[0] is None:
        room = rows
    else:  # with its length given it is a buffer, in which rows are written
        room = pasts[0][2] + (0 if len(node.inputs) > 8 and node.inputs[8] is not None else rows)
    presents = [(q[0], heads, room, size) for size in sizes]
    return [(*q[:2], heads * sizes[1]), *presents][: len(node.outputs)]


@rule("BiasGelu", "FastGelu", "MoE", "QMoE", "QuickGelu", "RotaryEmbedding", domain=MICROSOFT)
def _like_first(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    return None if shapes[0] is None else [shapes[0]]


@rule("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def _skip_normalized(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    x = shapes[0]
    return None if x is None else [x, (*x[:-1], 1), (*x[:-1], 1), x][: len(node.outputs)]


@rule("SimplifiedLayerNormalization")
@rule("SimplifiedLayerNormalization", domain=MICROSOFT)
def _simply_normalized(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    return None if shapes[0] is None or len(node.outputs) != 1 else [shapes[0]]


@rule("GroupQueryAttention", domain=MICROSOFT)
def _grouped_attention(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    if len(shapes) < 7:  # which the load refuses
        return None
    q, past, total = shapes[0], shapes[3], constants[6]
    if q is None or len(q) != 3 or total is None or total.size != 1:
        return None
    if node.inputs[3] is not None and (past is None or len(past) != 4):
        return None
    given, room = node.attributes, int(total.reshape(-1)[0])
    heads, shared = given["num_heads"], given["kv_num_heads"]
    parts = heads + 2 * shared if node.inputs[1] is None else heads
    if min(heads, shared) < 1 or room < max(q[1], 1) or q[2] % parts:
        return None
    size = q[2] // parts
    stored = size // 2 if given.get("kv_cache_bit_width", 0) == 4 else size
    present = (q[0], shared, room if past is None else max(room, past[2]), stored)
    return [(*q[:2], heads * size), present, present, (q[0], heads, q[1], room)][: len(node.outputs)]


@rule("Resize")
def _resize(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    x, given = shapes[0], node.attributes
    if x is None or "axes" in given or given.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return None
    scales, sizes = (constants[1], None) if node.since_version == 10 else (*constants[2:], None, None)[:2]
    if sizes is not None and sizes.size == len(x):
        return [tuple(int(n) for n in sizes)] if scales is None or not scales.size else None
    if scales is None or scales.size != len(x):
        return None
    return [tuple(computed(_scaled, n, scale) for n, scale in zip(x, scales, strict=True))]


def _scaled(size: int, scale: np.float32) -> int:
    return int(np.floor(np.float32(size) * scale))


@rule("TopK")
def _top(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    x, count = shapes[0], constants[1] if len(constants) > 1 else None
    axis = node.attributes.get("axis", -1)
    if not x or count is None or count.size != 1 or not -len(x) <= axis < len(x):
        return None
    axis, taken = axis % len(x), int(count.reshape(-1)[0])
    return [(*x[:axis], taken, *x[axis + 1 :])] * 2 if 0 <= taken <= x[axis] else None


@rule("ArgMax", "ArgMin")
def _places(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    (x,) = shapes
    axis = node.attributes.get("axis", 0)
    if not x or not -len(x) <= axis < len(x):
        return None
    axis %= len(x)
    kept = (1,) if node.attributes.get("keepdims", 1) else ()
    return [(*x[:axis], *kept, *x[axis + 1 :])]


@rule("TfIdfVectorizer")
def _grams(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    (x,) = shapes
    if x is None or len(x) not in (1, 2):
        return None
    return [(*x[:-1], max(node.attributes["ngram_indexes"], default=-1) + 1)]


@rule(
    "ArrayFeatureExtractor", "Binarizer", "Imputer", "LabelEncoder", "LinearClassifier", "LinearRegressor", "Normalizer", "OneHotEncoder",
    "SVMClassifier", "SVMRegressor", "Scaler", "TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor", domain=ML,
)  # fmt: skip
def _learned(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    found: list[Shape] = []
    for shape in output_shapes_ml(node, shapes):
        known = () if shape is None else tuple(n for n in shape if is_known(n))
        if shape is None or len(known) < len(shape):
            return None
        found.append(known)
    return found
