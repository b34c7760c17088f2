"""Labels and maps of ``ai.onnx.ml``: CategoryMapper, LabelEncoder, CastMap, DictVectorizer, ZipMap.

A map is a Python dict. These run on NumPy alone: their tables hold strings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.dtypes import is_string

ML = "ai.onnx.ml"


@op("CastMap", 1, domain=ML, portable=False)
def cast_map(
    xp: Any, x: Mapping[int, Any], *, cast_to: str = "TO_FLOAT", map_form: str = "DENSE", max_map: int = 1
) -> Any:
    """(1, n) of the map's values in the order of their keys, or at their keys among ``max_map`` columns ("SPARSE")."""
    types = {"TO_FLOAT": np.float32, "TO_STRING": object, "TO_INT64": np.int64}
    if cast_to not in types or map_form not in ("DENSE", "SPARSE"):
        raise ValueError(f"CastMap takes no cast_to={cast_to!r} with map_form={map_form!r}")
    cast: Any = _text if cast_to == "TO_STRING" else float if cast_to == "TO_FLOAT" else _integer
    items = [(key, cast(x[key])) for key in sorted(x)]
    if map_form == "DENSE":
        items = list(enumerate(value for _, value in items))
        max_map = len(items)
    elif items and not 0 <= items[0][0] <= items[-1][0] < max_map:
        raise ValueError(f"a key of the map is outside 0..{max_map - 1}")
    dense = np.full((1, max_map), "" if cast_to == "TO_STRING" else 0, dtype=types[cast_to])
    for key, value in items:
        dense[0, key] = value
    return dense


@op("CategoryMapper", 1, domain=ML, portable=False)
def category_mapper(
    xp: Any,
    x: Any,
    *,
    cats_int64s: Sequence[int] = (),
    cats_strings: Sequence[str] = (),
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> Any:
    """Strings become integers and integers strings, by a table of pairs."""
    if is_string(x):
        return _mapped(x, dict(zip(cats_strings, cats_int64s, strict=True)), default_int64, np.dtype(np.int64))
    return _mapped(x, dict(zip(cats_int64s, cats_strings, strict=True)), default_string, np.dtype(object))


@op("DictVectorizer", 1, domain=ML, portable=False)
def dict_vectorizer(
    xp: Any,
    x: Mapping[Any, Any],
    *,
    int64_vocabulary: Sequence[int] = (),
    string_vocabulary: Sequence[str] = (),
) -> Any:
    """(1, vocabulary) of the map's values, zero or "" for words it lacks; keys outside the vocabulary are left out."""
    words = list(string_vocabulary or int64_vocabulary)
    sample = next(iter(x.values()), 0.0)
    if isinstance(sample, str):
        return np.asarray([[x.get(word, "") for word in words]], dtype=object)
    dtype = sample.dtype if isinstance(sample, np.generic) else np.int64 if isinstance(sample, int) else np.float32
    return np.asarray([[x.get(word, 0) for word in words]], dtype=dtype)


@op("LabelEncoder", 1, domain=ML, portable=False)
def label_encoder_1(
    xp: Any,
    x: Any,
    *,
    classes_strings: Sequence[str] = (),
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> Any:
    """Strings become their places in ``classes_strings``, places the strings there."""
    if is_string(x):
        table = {text: place for place, text in enumerate(classes_strings)}
        return _mapped(x, table, default_int64, np.dtype(np.int64))
    return _mapped(x, dict(enumerate(classes_strings)), default_string, np.dtype(object))


@op("LabelEncoder", 2, domain=ML, portable=False)
def label_encoder_2(xp: Any, x: Any, **attributes: Any) -> Any:
    """LabelEncoder-4 without tensors, and with the first of equal keys winning (as onnxruntime; the specification is
    silent).
    """
    lists = {name: value[::-1] for name, value in attributes.items() if name.startswith(("keys_", "values_"))}
    return label_encoder(xp, x, **{**attributes, **lists})


@op("LabelEncoder", 4, domain=ML, portable=False)
def label_encoder(
    xp: Any,
    x: Any,
    *,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: str = "_Unused",
    default_tensor: Any = None,
    keys_floats: Sequence[float] = (),
    keys_int64s: Sequence[int] = (),
    keys_strings: Sequence[str] = (),
    keys_tensor: Any = None,
    values_floats: Sequence[float] = (),
    values_int64s: Sequence[int] = (),
    values_strings: Sequence[str] = (),
    values_tensor: Any = None,
) -> Any:
    """Each element replaced through a table of keys and values, the last of equal keys winning; NaN is a key like
    others.
    """
    keys = _first(keys_tensor, (keys_floats, np.float32), (keys_int64s, np.int64), (keys_strings, object))
    values = _first(values_tensor, (values_floats, np.float32), (values_int64s, np.int64), (values_strings, object))
    if keys.shape != values.shape:
        raise ValueError(f"LabelEncoder has {keys.size} keys and {values.size} values")
    if default_tensor is not None:
        default = default_tensor.reshape(-1)[0]
    elif is_string(values):
        default = default_string
    elif values.dtype.kind == "f":
        default = default_float
    else:
        default = default_int64
    if is_string(keys):
        table = dict(zip(keys.ravel().tolist(), values.ravel().tolist(), strict=True))
        return _mapped(x, table, default, values.dtype)
    return _looked_up(np.asarray(x), keys.ravel(), values.ravel(), default)


@op("ZipMap", 1, domain=ML, portable=False)
def zip_map(
    xp: Any, x: Any, *, classlabels_int64s: Sequence[int] = (), classlabels_strings: Sequence[str] = ()
) -> list[dict[Any, float]]:
    """One dict a row, from class label to score; a vector is one row."""
    names = list(classlabels_strings or classlabels_int64s)
    scores = np.asarray(x).reshape(-1, np.shape(x)[-1])
    if scores.shape[1] != len(names):
        raise ValueError(f"ZipMap has {len(names)} labels for {scores.shape[1]} columns")
    return [dict(zip(names, row, strict=True)) for row in scores.tolist()]


def _text(value: Any) -> str:
    """A number as C's "%f" prints it, which is how onnxruntime does; text as it is."""
    return value if isinstance(value, str) else f"{float(value):f}"


def _integer(value: Any) -> int:
    return int(value) if isinstance(value, str) else int(float(value))


def _first(tensor: Any, *lists: tuple[Sequence[Any], Any]) -> np.ndarray[Any, Any]:
    """The tensor if given, otherwise the list that is not empty."""
    if tensor is not None:
        return np.asarray(tensor)
    return next((np.asarray(list(v), dtype=t) for v, t in lists if v), np.zeros(0, dtype=np.int64))


def _mapped(x: Any, table: Mapping[Any, Any], default: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    x = np.asarray(x)
    found = np.empty(x.size, dtype=dtype)
    for place, item in enumerate(x.ravel().tolist()):
        found[place] = table.get(item, default)
    return found.reshape(x.shape)


def _looked_up(x: np.ndarray[Any, Any], keys: Any, values: Any, default: Any) -> np.ndarray[Any, Any]:
    if not keys.size:
        return np.full(x.shape, default, dtype=values.dtype)
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    place = np.maximum(np.searchsorted(ordered, x.ravel(), side="right") - 1, 0)
    flat, candidate = x.ravel(), ordered[place]
    hit = (candidate == flat) | ((candidate != candidate) & (flat != flat))
    found = np.full(flat.shape, default, dtype=values.dtype)
    found[hit] = values[order[place[hit]]]
    return found.reshape(x.shape)
