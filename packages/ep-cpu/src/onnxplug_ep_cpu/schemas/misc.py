"""Gathers, forerunners of operators that ONNX has now, and text."""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug.contract.types import Shape
from onnxplug_ep_cpu.schemas.declare import Call, Required, contrib
from onnxplug_ep_cpu.schemas.norm import SINGLE
from onnxplug_ep_cpu.schemas.shapes import broadcast, dims, known, plus, same, times
from onnxplug_kernels.catalogue import NUMBERS

_REALS = ("float16", "float", "double")
_ALL = (*(t for t in NUMBERS if t != "bfloat16"), "bool", "string", "complex64", "complex128")
_INDICES = ("int32", "int64")

contrib("Inverse", "X: T -> Y: T", T=_REALS)(same)
contrib("Trilu", "X: T, k: int64? -> Y: T", {"upper": 1}, T=(*NUMBERS, "bool"))(same)


@contrib(
    "NGramRepeatBlock",
    "input_ids: Tid, scores: T -> scores_out: T",
    {"ngram_size": Required(int)},
    Tid=("int64",),
    T=("float",),
)
def ngram_repeat_block(call: Call) -> Sequence[Shape | None]:
    """Shaped like the scores."""
    return [call.shape(1)]


@contrib(
    "GatherBlockQuantized",
    "data: T1, indices: Tind, scales: T2, zero_points: T1? -> output: T2",
    {"bits": 4, "block_size": 128, "gather_axis": 0, "quantize_axis": 1},
    T1=("int4", "uint4", "uint8", "float4e2m1", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz"),
    T2=SINGLE,
    Tind=_INDICES,
)
def gather_block_quantized(call: Call) -> Sequence[Shape | None]:
    """The indices in the place of the axis, packed numbers unpacked."""
    data, indices = call.shape(0), call.shape(1)
    if data is None or indices is None:
        return [None]
    axis = call.attribute("gather_axis") % len(data)
    packed = 8 // call.attribute("bits") if call.element(0) == "uint8" else 1
    data = (*data[:-1], times(data[-1], packed))
    return [(*data[:axis], *indices, *data[axis + 1 :])]


@contrib("GatherND", "data: T, indices: Tind -> output: T", T=_ALL, Tind=_INDICES)
def gather_nd(call: Call) -> Sequence[Shape | None]:
    """The indices but for their last axis, then what they leave of the data."""
    data, indices = call.shape(0), call.shape(1)
    depth = known(indices[-1]) if indices else None
    if data is None or indices is None or depth is None:
        return [None]
    return [(*indices[:-1], *data[depth:])]


@contrib(
    "UnfoldTensor",
    "input: T -> output: T",
    {"dim": -1, "size": Required(int), "step": 1},
    T=(*_ALL, "bfloat16"),
)
def unfold(call: Call) -> Sequence[Shape | None]:
    """The windows along the axis, their elements behind."""
    x = call.shape(0)
    if x is None:
        return [None]
    axis, size, length = call.attribute("dim") % len(x), call.attribute("size"), None
    if isinstance(found := x[axis], int):
        length = (found - size) // call.attribute("step") + 1
    return [(*x[:axis], length, *x[axis + 1 :], size)]


@contrib("ExpandDims", "X: T, axis: int32 -> Y: T", T=_ALL)
def expand_dims(call: Call) -> Sequence[Shape | None]:
    """An axis of 1 more."""
    x, place = call.shape(0), call.ints(1)
    if x is None:
        return [None]
    if place is None:
        return [(None,) * (len(x) + 1)]
    axis = place[0] % (len(x) + 1)
    return [(*x[:axis], 1, *x[axis:])]


@contrib("Pad", "data: T, pads: int64, value: T? -> output: T", {"mode": "constant"}, T=_REALS)
def pad(call: Call) -> Sequence[Shape | None]:
    """Known where the pads are constant."""
    x, pads = call.shape(0), call.ints(1)
    if x is None or pads is None:
        return [x and (None,) * len(x)]
    sums = [begin + end for begin, end in zip(pads[: len(x)], pads[len(x) :], strict=True)]
    return [tuple(n + s if isinstance(n, int) else n if s == 0 else None for n, s in zip(x, sums, strict=True))]


@contrib(
    "GridSample",
    "X: T1, Grid: T1 -> Y: T2",
    {"align_corners": 0, "mode": "bilinear", "padding_mode": "zeros"},
    T1=_ALL,
    T2=_REALS,
    unbound={"T2": lambda call: call.element(0)},
)
def grid_sample(call: Call) -> Sequence[Shape | None]:
    """(batch, channels, the grid's places)."""
    x, grid = call.shape(0), call.shape(1)
    return [None if x is None or grid is None else (*x[:2], *grid[1:-1])]


@contrib("Range", "start: T, limit: T, delta: T? -> Y: T", T=("float", "double", "int16", "int32", "int64"))
def range_(call: Call) -> Sequence[Shape | None]:
    """One axis."""
    return [(None,)]


@contrib(
    "CropAndResize",
    "X: T1, rois: T1, batch_indices: T2, crop_size: T2 -> Y: T1",
    {"extrapolation_value": 0.0, "mode": "bilinear"},
    T1=_REALS,
    T2=("int32",),
)
def crop_and_resize(call: Call) -> Sequence[Shape | None]:
    """(regions, channels, height, width)."""
    size = call.ints(3) or (None, None)
    return [(dims(call.shape(1), 2)[0], dims(call.shape(0), 4)[1], *size)]


@contrib("Unique", "x: T -> y: T, idx: int64, counts: int64", T=_ALL)
def unique(call: Call) -> Sequence[Shape | None]:
    """The distinct values, a place for each element, and counts."""
    return (None,), call.shape(0), (None,)


@contrib(
    "Tokenizer",
    "X: T -> Y: T",
    {
        "mark": Required(int),
        "mincharnum": Required(int),
        "pad_value": Required(str),
        "separators": list[str],
        "tokenexp": str,
    },
    T=("string",),
)
def tokenizer(call: Call) -> Sequence[Shape | None]:
    """A new last axis of words."""
    x = call.shape(0)
    return [None if x is None else (*x, None)]


contrib(
    "MurmurHash3",
    "X: T1 -> Y: T2",
    {"positive": 1, "seed": 0},
    T1=("int32", "uint32", "int64", "uint64", "float", "double", "string"),
    T2=("int32", "uint32"),
    unbound={"T2": lambda call: "uint32" if call.attribute("positive") else "int32"},
)(same)


@contrib(
    "RelativePositionBias",
    "bias_table: T, query_length: U, key_length: U -> output: T",
    {"is_bidirectional": 0, "max_distance": Required(int)},
    T=("float16", "float"),
    U=("int64",),
)
def relative_position_bias(call: Call) -> Sequence[Shape | None]:
    """(1, heads, query, key)."""
    queries, keys = (found[0] if found else None for found in (call.ints(1), call.ints(2)))
    return [(1, dims(call.shape(0), 2)[1], queries, keys)]


@contrib(
    "GatedRelativePositionBias",
    "query_layer: T, query_bias: T, rel_pos: T, weight: T, bias: T, eco_a: T, token_offset: M? -> output: T",
    {"num_heads": Required(int)},
    T=("float16", "float"),
    M=("int32",),
)
def gated_relative_position_bias(call: Call) -> Sequence[Shape | None]:
    """(batch, heads, query, key)."""
    _, heads, queries, keys = dims(call.shape(2), 4)
    offsets = call.shape(6)
    return [((offsets or call.shape(0) or (None,))[0], heads, queries, keys)]


@contrib(
    "RemovePadding",
    "input: T, sequence_token_count: M -> output: T, token_offset: M, cumulated_seq_len: M, max_seq_len: M",
    T=("float16", "float"),
    M=("int32",),
)
def remove_padding(call: Call) -> Sequence[Shape | None]:
    """As many rows as there are words."""
    batch, length, hidden = dims(call.shape(0), 3)
    return (None, hidden), (batch, length), (plus(batch, 1),), (1,)


@contrib("RestorePadding", "input: T, token_offset: M -> output: T", T=("float16", "float"), M=("int32",))
def restore_padding(call: Call) -> Sequence[Shape | None]:
    """(batch, length, hidden)."""
    return [(*dims(call.shape(1), 2), dims(call.shape(0), 2)[1])]


_LINEAR = {"alpha": float, "beta": float}
contrib("Affine", "X: T -> Y: T", {"alpha": 1.0, "beta": 0.0}, domain="", T=_REALS)(same)
contrib("ParametricSoftplus", "X: T -> Y: T", _LINEAR, domain="", T=_REALS)(same)
contrib("ScaledTanh", "input: T -> output: T", _LINEAR, domain="", T=_REALS)(same)
contrib("ThresholdedRelu", "X: T -> Y: T", {"alpha": 1.0}, domain="", T=_REALS)(same)
contrib(
    "MeanVarianceNormalization",
    "input: T -> output: T",
    {"across_channels": 0, "normalize_variance": 1},
    domain="",
    T=_REALS,
)(same)
contrib("Scale", "input: T -> output: T", {"scale": 1.0}, domain="", T=_REALS)(same)
contrib("ImageScaler", "input: T -> output: T", {"bias": list[float], "scale": 1.0}, domain="", T=_REALS)(same)


@contrib("Crop", "input: T -> output: T", {"border": list[int], "scale": list[int]}, domain="", T=_REALS)
def crop(call: Call) -> Sequence[Shape | None]:
    """As many rows and columns as are left."""
    shape, border, scale = dims(call.shape(0), 4), call.attribute("border") or [], call.attribute("scale")
    if scale:
        return [(*shape[:2], *scale)] if len(scale) == 2 else [None]
    if len(border) != 4:
        return [None]
    around = border[1] + border[3], border[0] + border[2]
    return [(*shape[:2], *(known(n) and n - less for n, less in zip(shape[2:], around, strict=True)))]


@contrib(
    "DynamicSlice", "data: T, starts: Tind, ends: Tind, axes: Tind? -> output: T", domain="", T=_ALL, Tind=_INDICES
)
def dynamic_slice(call: Call) -> Sequence[Shape | None]:
    """Sizes that the limits leave, where these are constants."""
    x, starts, ends = call.shape(0), call.ints(1), call.ints(2)
    if x is None:
        return [None]
    axes = (call.ints(3) if call.inputs > 3 else None if starts is None else range(len(starts))) or ()
    if starts is None or ends is None or len(axes) != len(starts):
        return [(None,) * len(x)]
    sizes = list(x)
    for axis, start, end in zip(axes, starts, ends, strict=True):
        size = known(x[axis])
        sizes[axis] = None if size is None else len(range(size)[start:end])
    return [tuple(sizes)]


@contrib("DynamicTimeWarping", "input: F -> output: I", F=("float",), I=("int32",), unbound={"I": lambda call: "int32"})
def warping(call: Call) -> Sequence[Shape | None]:
    """Rows and columns of as many places as the path has."""
    return [(2, None)]


@contrib(
    "BifurcationDetector",
    "src_tokens: T, cur_tokens: T, prev_suffix_match_idx: T, pred_tokens: T? -> tokens: T, suffix_match_idx: T",
    {"max_ngram_size": 3, "min_ngram_size": 1},
    T=("int64",),
)
def bifurcation(call: Call) -> Sequence[Shape | None]:
    """Tokens as far as they were predicted right, and a place."""
    return (None,), (1,)


@contrib(
    "WordConvEmbedding",
    "Sequence: T, W: T1, B: T1, C: T1 -> Y: T1",
    {"char_embedding_size": int, "conv_window_size": int, "embedding_size": int},
    T=("int32",),
    T1=("float",),
)
def word_embedding(call: Call) -> Sequence[Shape | None]:
    """A vector for each word."""
    return [(dims(call.shape(0), 2)[0], dims(call.shape(1), 4)[0])]


@contrib("ComplexMul", "A: T, B: T -> C: T", T=_REALS)
@contrib("ComplexMulConj", "A: T, B: T -> C: T", T=_REALS)
def complex_product(call: Call) -> Sequence[Shape | None]:
    """The shape both have together."""
    return [broadcast(call.shape(0), call.shape(1))]


contrib("SampleOp", "X: T -> Y: T", T=("uint32", "uint64", "int32", "int64", "float16", "float", "double"))(same)
