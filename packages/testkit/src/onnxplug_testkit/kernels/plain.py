"""Operators whose result takes a line of Python, on values that no other oracle is fed: optionals and maps of any type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper

from onnxplug.contract import numpy_dtype
from onnxplug.contract.types import ELEMENT_NAMES

Attributes = Mapping[str, Any]


def _optional(value: Any, attributes: Attributes, dtype: np.dtype | None) -> Any:
    """An optional that holds a value is fed and fetched as that value."""
    return value


def _dict_vectorizer(value: Any, attributes: Attributes, dtype: np.dtype | None) -> Any:
    """The values of the vocabulary's words, as one row (onnxruntime's reading of "an array of the length of the vocabulary")."""
    words = attributes.get("string_vocabulary") or attributes["int64_vocabulary"]
    nothing = "" if dtype is not None and dtype.hasobject else 0
    keys = [word.decode() if isinstance(word, bytes) else word for word in words]
    return np.array([[value.get(word, nothing) for word in keys]], dtype)


def _cast_map(value: Any, attributes: Attributes, dtype: np.dtype | None) -> Any:
    """The values in the order of their keys, texts read as numbers; None where numbers become texts, whose spelling is not defined."""
    kinds = {type(item) is str for item in value.values()}
    if attributes.get("map_form", b"DENSE") != b"DENSE" or dtype is None or (dtype.hasobject and kinds != {True}):
        raise ValueError("not known here")
    return np.array([[value[key] if dtype.hasobject else float(value[key]) for key in sorted(value)]]).astype(dtype)


_PLAIN: Mapping[str, Callable[[Any, Attributes, np.dtype | None], Any]] = {
    "Optional": _optional,
    "DictVectorizer": _dict_vectorizer,
    "CastMap": _cast_map,
}


class Plain:
    """A session of one such node, in the form oracles are called."""

    def __init__(self, made: onnx.ModelProto) -> None:
        node, result = made.graph.node[0], made.graph.output[0].type
        self._compute = _PLAIN[node.op_type]
        self._attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        code = result.tensor_type.elem_type
        self._dtype = numpy_dtype(ELEMENT_NAMES[code]) if code else None

    @staticmethod
    def takes(made: onnx.ModelProto) -> bool:
        """Whether the node is one of these."""
        return made.graph.node[0].op_type in _PLAIN and len(made.graph.input) == 1

    def run(self, names: None, feeds: Mapping[str, Any]) -> list[Any]:
        """The results, as a session gives them."""
        (value,) = feeds.values()
        return [self._compute(value, self._attributes, self._dtype)]
