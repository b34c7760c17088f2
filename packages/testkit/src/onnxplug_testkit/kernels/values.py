"""Fresh values for a structure's operands: of the wanted type, in the range the structure's own values have."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug import SparseTensor
from onnxplug.contract import numpy_dtype
from onnxplug_testkit.kernels.sparse import refilled

PARAMETERS = frozenset(
    {
        "M", "K", "axes", "axis", "batch_indices", "cu_seqlens", "depth", "dft_length", "ends", "frame_length", "frame_step",
        "height", "image_shape", "block_shape", "indices", "input_size", "iou_threshold", "k", "length", "max_output_boxes_per_class",
        "mean", "nonpad_kv_seqlen", "num_mel_bins", "output_shape", "pads", "past_sequence_length", "position", "position_ids",
        "ratio", "repeats", "sample_rate", "scales", "score_threshold", "sequence_lens", "shape", "size", "sizes", "split",
        "starts", "steps", "target", "training_mode", "upper_edge_hertz", "lower_edge_hertz", "dimension", "write_indices",
        "grid", "rois", "roi", "start", "limit", "delta", "I", "Y", "offset",
        "encoded_stream", "input_ids", "segment_ids", "mask", "mask_index", "key_padding_mask", "seqlens_k", "total_sequence_length",
        "g_idx", "crop_size", "Pads", "Grid", "tiles", "token_offset",
        "Sequence", "block_row_indices", "block_col_indices", "key_total_sequence_lengths", "beam_width", "cache_indirection",
        "src_tokens", "cur_tokens", "prev_suffix_match_idx", "pred_tokens", "multipliers", "vocab_sizes",
        "cumulative_sequence_length", "capture_count", "state_update_active", "memory_seq_lens", "B_shape",
    }
)  # fmt: skip
"""Formal inputs whose values are part of the structure: shapes, axes, indices, counts."""

_NO_ZERO = frozenset({"Div", "Mod"})
_WHOLE = frozenset({"OneHotEncoder"})
"""Operators that look numbers up: between the whole ones lies nothing that is defined."""
_TIED = frozenset({"ArgMax", "ArgMin", "Hardmax", "TopK", "Unique"})
"""Operators whose text says which of equal elements counts: they get some, every other time."""
_BLOCKS = frozenset({("GatherPacked", "data"), ("MatMulPacked", "B"), ("MatMulFpQ4", "B")})
"""Bytes among which scales are, that would not be numbers if drawn: rows, if there are any, change places."""
_SOUGHT = frozenset({"Imputer"})
"""Operators that look among values for one that would hardly be drawn: the values change places."""
_MISSING = frozenset({"TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor"})
"""Operators to which NaN says that a value is missing: where some are, the values change places."""
_CHOSEN = 2.0**24
"""Integers beyond what single precision tells apart are there on purpose: the values change places."""
_SPELLED = frozenset({"Cast", "CastLike"})
"""Operators that read numbers in strings."""
_ODD = ("", "n" * 300, "größe→大きさ", " blanks ", "-7")
"""Strings as they may be: none, long, of several bytes a letter, with blanks at the ends."""
_DOMINANT = frozenset({"Det", "Inverse"})
"""Operators of matrices that may be as good as singular, when their result is all rounding: the diagonal is made to dominate."""
_SMALL = {"Pow": (0, 3), "BitShift": (0, 7)}


def element_of_type(text: str) -> str:
    """The innermost element name of a type string: ``float`` for ``seq(tensor(float))``."""
    return text[text.rindex("(") + 1 : text.index(")")] if "(" in text else text


def is_float(element: str) -> bool:
    """Floating types of any width."""
    return "float" in element or element == "double"


def fresh(rng: np.random.Generator, op_type: str, formal: str, like: Any, text: str) -> Any:
    """A value shaped as ``like`` and of type ``text``. Parameters keep their values and take the type."""
    if isinstance(like, list):
        return [fresh(rng, op_type, formal, item, text) for item in like]
    if isinstance(like, SparseTensor):
        return refilled(like, fresh(rng, op_type, formal, like.values(), text))
    if not isinstance(like, np.ndarray):
        return like
    element = element_of_type(text)
    if formal in PARAMETERS:
        return as_element(like, element)
    if (op_type, formal) in _BLOCKS:
        return rng.permutation(like) if like.ndim > 1 else like.copy()
    chosen = like.dtype.kind in "iu" and like.size > 0 and bool((np.abs(like.astype(np.float64)) > _CHOSEN).any())
    if chosen or op_type in _SOUGHT or (op_type in _MISSING and like.dtype.kind == "f" and np.isnan(like).any()):
        return as_element(rng.permutation(like.ravel()).reshape(like.shape), element)
    if formal.endswith("zero_point") and is_float(element):
        return np.zeros(like.shape, numpy_dtype(element))
    if like.dtype.kind in "OUST" or element == "string":
        return _strings(rng, op_type, like, element)
    return _numbers(rng, op_type, formal, like, element)


def as_element(array: np.ndarray, element: str) -> np.ndarray:
    """The same values in another element type, as near as it holds them."""
    dtype = numpy_dtype(element)
    if array.dtype == dtype:
        return array.copy()
    with np.errstate(all="ignore"):
        if dtype.hasobject:
            return array.astype(str).astype(object)
        if array.dtype.kind == "O":
            return np.array([hash(str(v)) % 100 for v in array.ravel()]).reshape(array.shape).astype(dtype)
        return array.astype(dtype)


def _strings(rng: np.random.Generator, op_type: str, like: np.ndarray, element: str) -> np.ndarray:
    if element != "string":
        return as_element(like, element)
    flat = np.array([str(v) if not isinstance(v, bytes) else v.decode() for v in like.ravel()], object)
    if like.dtype.kind not in "OUST":
        flat = np.array([f"{v}" for v in rng.integers(-99, 99, flat.size)], object)
        if op_type not in _SPELLED:
            flat = np.where(rng.random(flat.size) < 0.5, rng.choice(np.array(_ODD, object), flat.size), flat)
    return rng.permutation(flat).reshape(like.shape)


def _numbers(rng: np.random.Generator, op_type: str, formal: str, like: np.ndarray, element: str) -> np.ndarray:
    dtype, shape = numpy_dtype(element), like.shape
    if element == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    low, high = _range(like, element)
    if element.startswith("complex"):
        return (rng.uniform(low, high, shape) + 1j * rng.uniform(low, high, shape)).astype(dtype)
    if is_float(element):
        if element == "float8e8m0":
            return np.exp2(rng.integers(-3, 4, shape)).astype(dtype)
        numbers = np.asarray(rng.uniform(low, high, shape))
        if op_type in _DOMINANT:
            numbers = numbers + 2 * shape[-1] * max(abs(low), abs(high)) * np.eye(shape[-1])
        if element.startswith(("float8", "float6", "float4")):
            numbers = np.clip(numbers, *_ends(element))  # beyond there are infinities and NaN
        whole = op_type in _WHOLE or (op_type in _TIED and rng.random() < 0.5)
        return (np.round(numbers) if whole else numbers).astype(dtype)
    least, greatest = _limits(element)
    below, above = _SMALL.get(op_type, (low, high))
    below, above = max(least, round(below)), min(greatest, round(above))
    drawn = rng.integers(below, max(below, above) + 1, shape)
    if op_type in _NO_ZERO and formal in ("B", "b"):
        drawn = np.where(drawn == 0, 1, drawn)
    if formal.endswith("_scale"):
        drawn = np.maximum(np.abs(drawn), 1)
    return np.asarray(drawn).astype(dtype)


def _range(like: np.ndarray, element: str) -> tuple[float, float]:
    """Where the structure's own finite values lie; about a single value when there is one."""
    if like.dtype == bool:
        return 0, 4
    numbers = like.astype(np.complex128).real if like.dtype.kind == "c" else like.astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    if not finite.size:
        return -1, 1
    low, high = float(finite.min()), float(finite.max())
    if low == high:
        integral = like.dtype.kind in "iu" or not is_float(element)
        if integral:
            return low, high
        return (min(low * 0.5, low * 1.5), max(low * 0.5, low * 1.5)) if low else (-1, 1)
    if not is_float(element) and not element.startswith("complex") and like.dtype.kind not in "iu":
        return -8, 8
    return max(low, -1e3), min(high, 1e3)


def _ends(element: str) -> tuple[float, float]:
    import ml_dtypes

    info: Any = ml_dtypes.finfo(numpy_dtype(element))  # type: ignore[no-untyped-call]
    return float(info.min), float(info.max)


def _limits(element: str) -> tuple[int, int]:
    import ml_dtypes

    info: Any = ml_dtypes.iinfo(numpy_dtype(element))  # type: ignore[no-untyped-call]
    return int(info.min), int(info.max)
