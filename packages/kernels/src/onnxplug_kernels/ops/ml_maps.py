"""Labels and maps of ``ai.onnx.ml``: CategoryMapper, LabelEncoder, CastMap, DictVectorizer, ZipMap.

A map is a Python dict. These run on NumPy alone: their tables hold strings.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.dtypes import is_string
from onnxplug_kernels.ops.cast import require_plain

ML = "ai.onnx.ml"
Mapper = Callable[[Any], np.ndarray[Any, Any]]
_OBJECT, _INT64, _FLOAT = np.dtype(object), np.dtype(np.int64), np.dtype(np.float32)


def prepare_cast_map(xp: Any, *, cast_to: str = "TO_FLOAT", map_form: str = "DENSE", max_map: int = 1) -> Mapper:
    """CastMap-1."""
    types = {"TO_FLOAT": _FLOAT, "TO_STRING": _OBJECT, "TO_INT64": _INT64}
    if cast_to not in types or map_form not in ("DENSE", "SPARSE"):
        raise ValueError(f"CastMap takes no cast_to={cast_to!r} with map_form={map_form!r}")
    cast: Any = _text if cast_to == "TO_STRING" else _float if cast_to == "TO_FLOAT" else _integer
    dtype, nothing = types[cast_to], "" if cast_to == "TO_STRING" else 0

    def in_order(x: Mapping[int, Any]) -> np.ndarray[Any, Any]:
        return np.array([list(map(cast, map(x.__getitem__, sorted(x))))], dtype)

    def at_keys(x: Mapping[int, Any]) -> np.ndarray[Any, Any]:
        if x and not 0 <= min(x) <= max(x) < max_map:
            raise ValueError(f"a key of the map is outside 0..{max_map - 1}")
        row = [nothing] * max_map
        for key, value in x.items():
            row[key] = cast(value)
        return np.array([row], dtype)

    return in_order if map_form == "DENSE" else at_keys


@op("CastMap", 1, domain=ML, portable=False, prepare=prepare_cast_map)
def cast_map(xp: Any, x: Mapping[int, Any], **attributes: Any) -> Any:
    """(1, n) of the map's values in the order of their keys, or at their keys among ``max_map`` columns ("SPARSE")."""
    return prepare_cast_map(xp, **attributes)(x)


def prepare_category_mapper(
    xp: Any,
    *,
    cats_int64s: Sequence[int] = (),
    cats_strings: Sequence[str] = (),
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> Mapper:
    """CategoryMapper-1."""
    places = Mapped(dict(zip(cats_strings, cats_int64s, strict=True)), default_int64, np.dtype(np.int64))
    words = Mapped(dict(zip(cats_int64s, cats_strings, strict=True)), default_string, np.dtype(object))
    return ByType(places, words)


@op("CategoryMapper", 1, domain=ML, portable=False, prepare=prepare_category_mapper)
def category_mapper(xp: Any, x: Any, **attributes: Any) -> Any:
    """Strings become integers and integers strings, by a table of pairs."""
    return prepare_category_mapper(xp, **attributes)(x)


def prepare_dict_vectorizer(
    xp: Any, *, int64_vocabulary: Sequence[int] = (), string_vocabulary: Sequence[str] = ()
) -> Mapper:
    """DictVectorizer-1."""
    words = list(string_vocabulary or int64_vocabulary)
    types = {str: _OBJECT, int: _INT64}

    def vectorized(x: Mapping[Any, Any]) -> np.ndarray[Any, Any]:
        sample = next(iter(x.values()), 0.0)
        dtype = sample.dtype if isinstance(sample, np.generic) else types.get(sample.__class__, _FLOAT)
        return np.array([list(map(x.get, words, repeat("" if dtype == _OBJECT else 0)))], dtype)

    return vectorized


@op("DictVectorizer", 1, domain=ML, portable=False, prepare=prepare_dict_vectorizer)
def dict_vectorizer(xp: Any, x: Mapping[Any, Any], **attributes: Any) -> Any:
    """(1, vocabulary) of the map's values, zero or "" for words it lacks; keys outside the vocabulary are left out."""
    return prepare_dict_vectorizer(xp, **attributes)(x)


def prepare_label_encoder_1(
    xp: Any, *, classes_strings: Sequence[str] = (), default_int64: int = -1, default_string: str = "_Unused"
) -> Mapper:
    """LabelEncoder-1."""
    places = Mapped({text: n for n, text in enumerate(classes_strings)}, default_int64, np.dtype(np.int64))
    words = Mapped(dict(enumerate(classes_strings)), default_string, np.dtype(object))
    return ByType(places, words)


def prepare_label_encoder_2(xp: Any, **attributes: Any) -> Mapper:
    """LabelEncoder-4 without tensors, and without keys that are NaN, which nothing equals."""
    keys, values, default = _table(**attributes)
    real = keys == keys
    return _encoder(keys[real], values[real], default)


def prepare_label_encoder(xp: Any, **attributes: Any) -> Mapper:
    """LabelEncoder-4: NaN is a key like others. Of equal keys the first wins, as in onnxruntime; the specification says
    the last.
    """
    return _encoder(*_table(**attributes))


def _table(
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
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], Any]:
    """A LabelEncoder's keys (n,) and values (n,), and what other elements become."""
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
    return keys.ravel(), values.ravel(), default


def _encoder(keys: np.ndarray[Any, Any], values: np.ndarray[Any, Any], default: Any) -> Mapper:
    if is_string(keys) or (is_string(values) and keys.dtype.kind != "f"):
        return Mapped(_firsts(keys.tolist(), values.tolist()), default, values.dtype)
    return _text_finder(keys, values.tolist(), default) if is_string(values) else _finder(keys, values, default)


def _firsts(keys: Sequence[Any], values: Sequence[Any]) -> dict[Any, Any]:
    """From key to value, the first of equal keys winning."""
    return dict(zip(reversed(keys), reversed(values), strict=True))


@op("LabelEncoder", 1, domain=ML, portable=False, prepare=prepare_label_encoder_1)
def label_encoder_1(xp: Any, x: Any, **attributes: Any) -> Any:
    """Strings become their places in ``classes_strings``, places the strings there."""
    return prepare_label_encoder_1(xp, **attributes)(x)


@op("LabelEncoder", 2, domain=ML, portable=False, prepare=prepare_label_encoder_2)
def label_encoder_2(xp: Any, x: Any, **attributes: Any) -> Any:
    """Each element replaced through a table of keys and values."""
    return prepare_label_encoder_2(xp, **attributes)(x)


@op("LabelEncoder", 4, domain=ML, portable=False, prepare=prepare_label_encoder)
def label_encoder(xp: Any, x: Any, **attributes: Any) -> Any:
    """Each element replaced through a table of keys and values."""
    return prepare_label_encoder(xp, **attributes)(x)


def prepare_zip_map(
    xp: Any, *, classlabels_int64s: Sequence[int] = (), classlabels_strings: Sequence[str] = ()
) -> Callable[[Any], list[dict[Any, float]]]:
    """ZipMap-1."""
    names = list(classlabels_strings or classlabels_int64s)
    distinct = len(set(names)) == len(names)
    few, many = _displays(len(names)) if distinct and 0 < len(names) <= FEW_NAMES else (None, None)
    by_row, by_column = few and few(*names), many and many(*names)

    def zipped(x: Any) -> list[dict[Any, float]]:
        scores = np.asarray(x)
        if scores.shape[-1] != len(names):
            raise ValueError(f"ZipMap has {len(names)} labels for {scores.shape[-1]} columns")
        if scores.ndim != 2:
            scores = scores.reshape(-1, len(names))
        if by_row is None or by_column is None:
            return [dict(zip(names, row, strict=True)) for row in scores.tolist()]
        maps: list[dict[Any, float]] = (
            by_row(scores.tolist()) if len(scores) < MANY_ROWS else by_column(scores.T.tolist())
        )
        return maps

    return zipped


@op("ZipMap", 1, domain=ML, portable=False, prepare=prepare_zip_map)
def zip_map(xp: Any, x: Any, **attributes: Any) -> list[dict[Any, float]]:
    """One dict a row, from class label to score; a vector is one row."""
    return prepare_zip_map(xp, **attributes)(x)


FEW_NAMES = 32
"""Up to so many labels a row's dict is written out."""


MANY_ROWS = 8
"""From so many rows on their dicts are made of columns: a list for each row is one more object, over which the garbage collector
goes."""


@functools.cache
def _displays(count: int) -> tuple[Any, Any]:
    """names -> (rows -> dicts) and names -> (columns -> dicts), as dictionary displays: they are built several times as fast as
    ``dict(zip(names, row))``."""
    names, values = ([f"{letter}{i}" for i in range(count)] for letter in "nv")
    pairs = ", ".join(f"{name}: {value}" for name, value in zip(names, values, strict=True))
    given, row = ", ".join(names), ", ".join(values)
    return tuple(
        eval(f"lambda {given}: lambda scores: [{{{pairs}}} for {row}, in {rows}]")
        for rows in ("scores", "zip(*scores)")
    )


def _text(value: Any) -> str:
    """A number as C's "%f" prints it, which is how onnxruntime does; text as it is."""
    return value if isinstance(value, str) else f"{float(value):f}"


def _float(value: Any) -> float:
    if isinstance(value, str):
        require_plain([value])
    return float(value)


def _integer(value: Any) -> int:
    if isinstance(value, str):
        require_plain([value])
        return int(value)
    return int(float(value))


def _first(tensor: Any, *lists: tuple[Sequence[Any], Any]) -> np.ndarray[Any, Any]:
    """The tensor if given, otherwise the list that is not empty."""
    if tensor is not None:
        return np.asarray(tensor)
    return next((np.asarray(list(v), dtype=t) for v, t in lists if v), np.zeros(0, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class Mapped:
    """x -> its elements replaced through a table."""

    table: Mapping[Any, Any]
    default: Any
    dtype: np.dtype[Any]

    def __call__(self, x: Any) -> np.ndarray[Any, Any]:
        found = np.fromiter(map(self.table.get, x.ravel().tolist(), repeat(self.default)), self.dtype, x.size)
        return found if x.ndim == 1 else found.reshape(x.shape)


@dataclass(frozen=True, slots=True)
class ByType:
    """x -> its elements replaced through one of two tables."""

    strings: Mapped
    numbers: Mapped

    def of(self, text: bool) -> Mapped:
        """The table for strings, or that for numbers."""
        return self.strings if text else self.numbers

    def __call__(self, x: Any) -> np.ndarray[Any, Any]:
        return self.of(is_string(x))(x)


def _text_finder(keys: np.ndarray[Any, Any], values: Sequence[str], default: str) -> Mapper:
    """The same for floats that become strings: NaN, which equals nothing, is a key like others."""
    nan = next((value for key, value in zip(keys, values, strict=True) if key != key), default)
    mapper = Mapped(_firsts(keys.tolist(), values), default, np.dtype(object))
    if nan == default:
        return mapper

    def mapped(x: Any) -> np.ndarray[Any, Any]:
        found = mapper(x)
        found[x != x] = nan
        return found

    return mapped


def _finder(keys: np.ndarray[Any, Any], values: np.ndarray[Any, Any], default: Any) -> Mapper:
    """The same for numbers, the first of equal keys winning."""
    order = np.argsort(keys, kind="stable")
    ordered, results = keys[order], values[order]

    def looked_up(x: Any) -> np.ndarray[Any, Any]:
        flat = np.asarray(x).ravel()
        found = np.full(flat.shape, default, dtype=values.dtype)
        if ordered.size:
            place = np.minimum(np.searchsorted(ordered, flat), ordered.size - 1)
            candidate = ordered[place]
            hit = (candidate == flat) | ((candidate != candidate) & (flat != flat))
            found[hit] = results[place[hit]]
        return found.reshape(np.shape(x))

    return looked_up
