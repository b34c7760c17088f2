"""The kernels of onnxruntime's CPU provider as a registry: what it is offered, and the claim that the conformance kit judges."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from onnxplug.contract import Kernel, KernelDef, KernelRegistry, NodeView
from onnxplug_ep_onnxruntime import library
from onnxplug_ep_onnxruntime.deviations import Operator, not_taken

_INTERNAL = frozenset({"com.microsoft.nchwc", "com.ms.internal.nhwc"})
"""Domains of what onnxruntime's optimizer writes."""
_OTHERS = frozenset(
    {
        "MemcpyFromHost",
        "MemcpyToHost",
        "If",
        "Loop",
        "Scan",
        "BeamSearch",
        "GreedySearch",
        "Sampling",
        "WhisperBeamSearch",
    }
)
"""Copies that onnxruntime inserts; and operators on graphs, which are taken if their bodies are."""
_FOREIGN = ("optional(", "sparse_tensor(", "map(", "tensor(complex", "seq(tensor(complex")
"""Beginnings of types whose values cannot be handed to onnxruntime, or had from it."""
_HALF_SINCE = 7
"""Casts that onnxruntime inserts are of this opset or later."""
_NO_HALF = frozenset({"MeanVarianceNormalization", "MelWeightMatrix", "RandomNormal", "RandomUniform", "TreeEnsemble"})
"""Operators without an operand to cast, or made of others that are not cast together."""
_WIDTHS = frozenset({"tensor(double)", "tensor(float16)", "tensor(bfloat16)"})
_UNTRIED: Mapping[Operator, Mapping[str, frozenset[str]]] = {
    ("", "SimplifiedLayerNormalization"): {"T": _WIDTHS, "V": _WIDTHS},
    ("com.microsoft", "MultiHeadAttention"): {"QK": frozenset({"tensor(bfloat16)"})},
    ("com.microsoft", "QMoE"): {"T4": frozenset({"tensor(float)"})},
}
"""Types, by constraint, for which the conformance kit has no trial: they are not claimed."""
_FLOAT, _HALF = "tensor(float)", "tensor(float16)"
_FLOATS = _WIDTHS | {_FLOAT}
"""What a constraint that kernels leave open is taken to be: of those looked at here all are of floating-point numbers."""
_OPEN = 2**31 - 1

Types = dict[str, frozenset[str]]
Range = tuple[str, str, int, int]


@functools.cache
def registry(exact: bool) -> KernelRegistry:
    """The kernels by schema versions. Where there are some for float32 and none for float16, onnxruntime casts, so that it takes both."""
    by_range: dict[Range, list[Types]] = {}
    for kernel in library.kernels():
        if kernel.domain in _INTERNAL or kernel.op_name in _OTHERS or (versions := _versions(kernel)) is None:
            continue
        types = _handed({name: frozenset(kinds) for name, kinds in kernel.type_constraints.items()})
        if all(types.values()):
            _add(by_range.setdefault((kernel.domain, kernel.op_name, *versions), []), types)
    found = KernelRegistry()
    for (domain, op_type, since, until), kinds in by_range.items():
        casts = since >= _HALF_SINCE or domain != ""
        if casts and op_type not in _NO_HALF and not any(_HALF in some for each in kinds for some in each.values()):
            kinds = [_with_half(types) for types in kinds]
        for types in kinds:
            if _without((domain, op_type), types, exact):
                found.add(KernelDef(domain, op_type, since, never, until=until, types=types))
    return found


def never(node: NodeView) -> Kernel:
    """Nodes are claimed as regions, also alone."""
    raise NotImplementedError(f"{node.name}: whatever is claimed of onnxruntime's is a region")


def _versions(kernel: Any) -> tuple[int, int] | None:
    """The first and last version of the operator's schema that a kernel is for. One that is open to the end is for the schema of its first
    version alone, as onnxruntime looks it up."""
    first, last = kernel.version_range
    known = library.operators().get((kernel.domain, kernel.op_name), frozenset())
    versions = [v for v in known if v == first or (last < _OPEN and first <= v <= last)]
    return (min(versions), max(versions)) if versions else None


def _handed(types: Types) -> Types:
    """The types of values that onnxruntime can be given and asked for; lists of dictionaries, which it writes in a way of its own, are what
    the schema has."""
    types = {name: kinds for name, kinds in types.items() if not any(kind.startswith("seq(map(") for kind in kinds)}
    types = {name: frozenset(k for k in kinds if not k.startswith(_FOREIGN)) for name, kinds in types.items()}
    if any(kind.startswith("seq(") for kind in types.get("S", ())):
        elements = frozenset(kind[len("seq(") : -1] for kind in types["S"])
        types["T"] = types.get("T", elements) & elements
        types["S"] &= {f"seq({kind})" for kind in types["T"]}
    return types


def _with_half(types: Types) -> Types:
    return {name: kinds | {_HALF} if _FLOAT in kinds else kinds for name, kinds in types.items()}


def _without(operator: Operator, types: Types, exact: bool) -> bool:
    """Take out the types that are not taken; whether anything is left."""
    for constraint, kinds, _ in not_taken(operator, exact):
        if constraint is None:
            return False
        types[constraint] = types.get(constraint, _FLOATS) - kinds
    for constraint, kinds in _UNTRIED.get(operator, {}).items():
        types[constraint] = types.get(constraint, _FLOATS) - kinds
    return all(types.values())


def _add(known: list[Types], types: Types) -> None:
    """Add what a kernel takes, as one with those that differ from it in one constraint: onnxruntime has a kernel for each type."""
    for other in known:
        differing = [name for name in types if types[name] != other.get(name)]
        if types.keys() == other.keys() and len(differing) <= 1:
            for name in differing:
                types[name] |= other[name]
            known.remove(other)
            return _add(known, types)
    known.append(types)
