"""Feature preparation of ``ai.onnx.ml``: tensors in, tensors out (maps and labels: ``ml_maps``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.dtypes import is_string
from onnxplug_kernels.ops.ml_scores import rows
from onnxplug_kernels.refusals import FAIL, Refusal, require_range

ML = "ai.onnx.ml"


@op("ArrayFeatureExtractor", 1, domain=ML, portable=False)
def array_feature_extractor(xp: Any, x: Any, y: Any) -> Any:
    """The elements ``y`` (any shape, taken flat) of the last axis; a vector gives one row."""
    index = y.reshape(-1).tolist()
    size = x.shape[-1]
    require_range(
        xp, y, size, f"Invalid Y argument: index is out of range: Y[{{at}}] ({{value}}) must be in [0, {size})"
    )
    # a column at a time is how text columns are read
    taken = x[..., index[0] : index[0] + 1] if len(index) == 1 else x.take(index, axis=-1)
    return taken.reshape(1, -1) if x.ndim == 1 else taken


@op("Binarizer", 1, domain=ML)
def binarizer(xp: Any, x: Any, *, threshold: float = 0.0) -> Any:
    """1 where x > threshold, otherwise 0, in x's type."""
    return xp.astype(x > threshold, x.dtype)


@op("FeatureVectorizer", 1, domain=ML)
def feature_vectorizer(xp: Any, *inputs: Any, inputdimensions: Sequence[int] = ()) -> Any:
    """(N, sum of inputdimensions) float32: the inputs side by side, each cut or filled with zeros to its dimension.

    A vector of C elements is one row.
    """
    if any(width < 0 for width in inputdimensions):
        raise ValueError(f"inputdimensions are {list(inputdimensions)}; a width is not negative")
    parts: list[Any] = []
    for i, x in enumerate(inputs):
        if x.ndim not in (1, 2):
            raise ValueError(f"input {i} has shape {x.shape}; FeatureVectorizer takes (C,) and (N, C)")
        part = xp.astype(xp.reshape(x, (-1, x.shape[-1])), xp.float32)
        if parts and part.shape[0] != parts[0].shape[0]:
            raise Refusal(
                "All inputs to FeatureVectorizer must have the same batch size. "
                f"Input 0 batch size: {parts[0].shape[0]}, input {i} batch size: {part.shape[0]}.",
                FAIL,
            )
        width = inputdimensions[i] if inputdimensions else part.shape[1]
        missing = width - part.shape[1]
        if missing > 0:
            part = xp.concat([part, xp.zeros((part.shape[0], missing), dtype=xp.float32)], axis=1)
        parts.append(part[:, :width])
    return xp.concat(parts, axis=1)


@op("Imputer", 1, domain=ML)
def imputer(
    xp: Any,
    x: Any,
    *,
    imputed_value_floats: Sequence[float] = (),
    imputed_value_int64s: Sequence[int] = (),
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Any:
    """x with elements equal to the replaced value (NaN equals NaN) changed to the imputed one, which may differ by
    feature.
    """
    floating = xp.isdtype(x.dtype, "real floating")
    values, replaced = (
        (imputed_value_floats, replaced_value_float) if floating else (imputed_value_int64s, replaced_value_int64)
    )
    if len(values) not in (1, x.shape[-1]):
        kind = "imputed_value_floats" if floating else "imputed_value_int64s"
        raise ValueError(f"{kind} has {len(values)} values for {x.shape[-1]} features of type {x.dtype}")
    missing = xp.isnan(x) if replaced != replaced else x == replaced
    return xp.where(missing, xp.asarray(list(values), dtype=x.dtype), x)


@op("Normalizer", 1, domain=ML)
def normalizer(xp: Any, x: Any, *, norm: str = "MAX") -> Any:
    """Each row divided by its maximum (not of magnitudes), its L1 or its L2 norm; rows whose divisor is zero stay.
    float32.
    """
    values = x if xp.isdtype(x.dtype, "real floating") else xp.astype(x, xp.float64)
    if 0 in x.shape:
        return xp.astype(values, xp.float32)
    if norm == "MAX":
        divisor = xp.max(values, axis=-1, keepdims=True)
    elif norm == "L1":
        divisor = xp.sum(xp.abs(values), axis=-1, keepdims=True)
    elif norm == "L2":
        divisor = xp.sqrt(xp.sum(values * values, axis=-1, keepdims=True))
    else:
        raise ValueError(f"norm is {norm!r}; it must be MAX, L1 or L2")
    return xp.astype(values / xp.where(divisor == 0, xp.ones_like(divisor), divisor), xp.float32)


def prepare_one_hot_encoder(
    xp: Any, *, cats_int64s: Sequence[int] = (), cats_strings: Sequence[str] = (), zeros: int = 1
) -> Callable[[Any], Any]:
    """OneHotEncoder-1."""
    words, numbers = _hot(cats_strings), _hot(cats_int64s)

    def encoded(x: Any) -> Any:
        (rows, places), flat = (words, x) if is_string(x) else (numbers, xp.astype(x, xp.int64))
        nowhere = len(rows) - 1
        at = np.fromiter(map(places.get, flat.ravel().tolist(), repeat(nowhere)), np.intp, x.size)
        if not zeros and nowhere in at:
            raise Refusal("Unknown Category and zeros = 0.")
        made = rows.take(at, axis=0)
        return made if x.ndim == 1 else made.reshape(*x.shape, nowhere)

    return encoded


def _hot(categories: Sequence[Any]) -> tuple[np.ndarray[Any, Any], dict[Any, int]]:
    """Rows for elements in each category, and one for those in none; which row is an element's."""
    count = len(categories)
    rows, places = np.zeros((count + 1, count), np.float32), dict[Any, int]()
    for at, category in enumerate(categories):
        rows[places.setdefault(category, at), at] = 1
    return rows, places


@op("OneHotEncoder", 1, domain=ML, portable=False, prepare=prepare_one_hot_encoder)
def one_hot_encoder(xp: Any, x: Any, **attributes: Any) -> Any:
    """A new last axis with 1.0 at the place of each element's category; other numbers than integers are truncated
    first.
    """
    return prepare_one_hot_encoder(xp, **attributes)(x)


@op("Scaler", 1, domain=ML)
def scaler(xp: Any, x: Any, *, offset: Sequence[float] = (), scale: Sequence[float] = ()) -> Any:
    """(x - offset) * scale in float32; both have one value, or one for each feature."""
    values = rows(xp, x)
    for name, given in (("offset", offset), ("scale", scale)):
        if len(given) not in (1, x.shape[-1]):
            raise ValueError(f"{name} has {len(given)} values for {x.shape[-1]} features")
    offsets, scales = (xp.asarray(list(v), dtype=values.dtype) for v in (offset, scale))
    return xp.reshape(xp.astype((values - offsets) * scales, xp.float32), x.shape)
