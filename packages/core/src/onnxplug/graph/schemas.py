"""Operator schemas: which one is in force for a node, and its formal parameters."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxplug._onnx import defer

if TYPE_CHECKING:
    from onnxplug.graph.ir import Node
    from onnxplug.graph.value import Value

CONTROL_FLOW = frozenset({"If", "Loop", "Scan"})
GENERATION = frozenset({"BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"})
"""Of com.microsoft: loops around subgraphs that make the next token of a text (see ``onnxplug.graph.generation``)."""
EP_CONTEXT = ("com.microsoft", "EPContext")
"""Domain and name of nodes that stand for what a provider compiled in an earlier session (onnxruntime's EP context design). They
have no schema here: the model declares the types of their outputs."""
NCHWC = "com.microsoft.nchwc"
"""Domain of onnxruntime's operators on blocked channels (see ``onnxplug.graph.blocked``)."""
RANDOM = frozenset(
    {
        "Bernoulli",
        "BiasDropout",
        "Dropout",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)
"""Operators that may answer differently each time."""

Evaluate = Callable[["Node", Sequence["np.ndarray | None"]], "Sequence[np.ndarray] | None"]
"""Runs one node on host arrays; None when it cannot be run here. Injected by the session, which knows the providers."""


def is_control(node: Node) -> bool:
    """Whether the core runs the node, and providers its bodies."""
    if node.domain == "":
        return node.op_type in CONTROL_FLOW
    return node.op_type in GENERATION and node.domain == "com.microsoft" and "decoder" in node.subgraphs


class Schemas:
    """onnx's schemas, and behind them those that a session's providers bring: ``extra`` is called once, when the first
    operator comes that onnx does not define."""

    def __init__(self, extra: Callable[[], Iterable[Any]] = tuple) -> None:
        self._bring = extra

    @functools.cached_property
    def _extra(self) -> dict[tuple[str, str], list[Any]]:
        found: dict[tuple[str, str], list[Any]] = {}
        for schema in self._bring():
            found.setdefault((schema.domain, schema.name), []).append(schema)
        return found

    def find(self, domain: str, op_type: str, opset: int) -> Any:
        """The schema of ``op_type`` in force under ``opset``, or None."""
        schema = _onnx_schema(domain, op_type, opset)
        if schema is None:
            own = [s for s in self._extra.get((domain, op_type), ()) if s.since_version <= opset]
            schema = max(own, key=lambda s: s.since_version, default=None)
        return schema

    def newest(self, domain: str) -> int | None:
        """The opset of a domain that the providers bring, or None: such a domain need not be imported."""
        if domain in _onnx_domains():
            return None
        return max((s.since_version for (d, _), own in self._extra.items() if d == domain for s in own), default=None)

    def knows_domain(self, domain: str) -> bool:
        """Whether any schema of that domain is known."""
        return domain in _onnx_domains() or self.offers_domain(domain)

    def offers_domain(self, domain: str) -> bool:
        """Whether a provider has schemas of that domain, and onnx has none."""
        return domain not in _onnx_domains() and any(d == domain for d, _ in self._extra)


_INT32_MAX = 2**31 - 1  # onnx keeps versions in a C int


@functools.lru_cache(maxsize=4096)
def _onnx_schema(domain: str, op_type: str, opset: int) -> Any:
    defer()
    from onnx import defs

    try:
        schema = defs.get_schema(op_type, max(0, min(opset, _INT32_MAX)), domain)
        # A deprecated operator still runs by the last schema that said what it does: the one before, if there is one
        # (GroupNormalization-18 was withdrawn where it stands).
        before = schema.since_version - 1
        if schema.deprecated and defs.has(op_type, before, domain):
            return defs.get_schema(op_type, before, domain)
        return schema
    except defs.SchemaError:
        return None


@functools.cache
def _onnx_domains() -> frozenset[str]:
    defer()
    from onnx import defs

    return frozenset(s.domain for s in defs.get_all_schemas_with_history())


@functools.lru_cache(maxsize=4096)
def type_parameters(schema: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the type parameters ("T"), or types, of a schema's inputs and outputs."""
    return tuple(f.type_str for f in schema.inputs), tuple(f.type_str for f in schema.outputs)


def formals(schema: Any, values: list[Value | None]) -> Iterable[tuple[Any, Value | None]]:
    """(formal parameter, value) pairs of the inputs, the last formal repeated over a variadic tail."""
    parameters = schema.inputs
    for index, value in enumerate(values):
        if parameters:
            yield parameters[min(index, len(parameters) - 1)], value


def constraint_types(node: Node) -> dict[str, str]:
    """Constraint name -> type string of the first value bound to it. Without a schema (operators nobody brings one of):
    "T" of the first input."""
    found: dict[str, str] = {}
    formals = node.formals
    if formals is None:
        for value in (*node.inputs, *node.outputs):
            if value is not None and value.type is not None:
                found.setdefault("T", str(value.type))
        return found
    for names, values in zip(formals, (node.inputs, node.outputs), strict=True):
        last = len(names) - 1
        for index, value in enumerate(values if names else ()):
            if value is not None and value.type is not None:
                found.setdefault(names[min(index, last)], str(value.type))
    return found
