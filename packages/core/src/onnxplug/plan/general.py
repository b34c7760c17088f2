"""The general inference, for nodes that no rule is for: it needs onnx, to import which takes longer than most models' first run. So
what it found is kept on disk, for each graph that providers are told an identity of (decision 0020)."""

from __future__ import annotations

import functools
import marshal
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxplug.contract.cache import DiskCache, user_cache
from onnxplug.contract.digest import blake2b
from onnxplug.contract.errors import STATUS_ERRORS
from onnxplug.contract.kernels import TensorSpec
from onnxplug.contract.types import TensorType, ValueType, element_of, numpy_dtype
from onnxplug.graph.ir import Node

LIMIT = 8 << 20
"""Bytes of the folder."""
MOST = 256
"""Answers that are kept of a graph: shapes that grow from run to run would add to them without end."""

Found = Sequence[TensorSpec | None]
Types = list[ValueType | None]


class General:
    """Asks the general inference about nodes of one graph; ``identity`` is the graph's, empty where nothing is to be kept. For one thread
    at a time."""

    def __init__(self, identity: str) -> None:
        self._name = blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest() if identity else ""
        self._has_news = False

    @functools.cached_property
    def _cache(self) -> DiskCache | None:
        return user_cache("inferences", ".inferences", LIMIT) if self._name else None

    @functools.cached_property
    def _answers(self) -> dict[str, list[Any]]:
        """By digest of the question."""
        blob = None if self._cache is None else self._cache.get(self._name)
        return {} if blob is None else marshal.loads(blob)

    def outputs(self, kind: Any, node: Node, types: Types, constants: Mapping[str, np.ndarray]) -> Found:
        """Specs of the node's outputs (None: not known, or no dense tensor) for types of its inputs and the contents of some, by name;
        ``kind``: what makes it like other nodes, False where that cannot be told."""
        if not kind or self._cache is None:
            return _asked(node, types, constants)
        question = _digest(kind, node, types, constants)
        known = self._answers.get(question)
        if known is not None:
            return [None if each is None else TensorSpec(numpy_dtype(each[0]), each[1]) for each in known]
        found = _asked(node, types, constants)
        if len(self._answers) < MOST:
            self._answers[question] = [None if s is None else (element_of(s.dtype), s.shape) for s in found]
            self._has_news = True
        return found

    def keep(self) -> None:
        """Write down what has been found since the last time."""
        if self._has_news and self._cache is not None:
            self._has_news = False
            self._cache.put(self._name, marshal.dumps(self._answers))


def _digest(kind: Any, node: Node, types: Types, constants: Mapping[str, np.ndarray]) -> str:
    known = [None if v is None or (a := constants.get(v.name)) is None else _content(a) for v in node.inputs]
    return blake2b(repr((kind, types, known)).encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()


def _content(array: np.ndarray) -> tuple[str, tuple[int, ...], bytes | list[Any]]:
    return array.dtype.str, array.shape, array.tolist() if array.dtype == object else array.tobytes()


def _asked(node: Node, types: Types, constants: Mapping[str, np.ndarray]) -> Found:
    from onnxplug.graph.infer import output_types

    try:
        return [static_spec(t) for t in output_types(node, types, constants)]
    except STATUS_ERRORS:
        return [None] * len(node.outputs)


def static_spec(type_: ValueType | None) -> TensorSpec | None:
    """The spec that a type fixes; None for one that does not, or of strings."""
    if not isinstance(type_, TensorType) or type_.element == "string":
        return None
    shape = type_.static_shape
    if shape is None or min(shape, default=0) < 0:  # as onnx infers it of sizes that are
        return None
    return TensorSpec(type_.dtype, shape)
