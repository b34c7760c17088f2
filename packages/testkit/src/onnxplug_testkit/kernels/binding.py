"""Which types the parameters of a schema have in a trial: those of the structure, or such as are wanted and claimed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx

from onnxplug_testkit.kernels.cells import Claimed, parameters
from onnxplug_testkit.kernels.structures import Structure

Binding = dict[str, str]
"""Type parameter -> type string."""


def native_types(structure: Structure, schema: Any, operands: Sequence[tuple[Any, str]]) -> Binding:
    """The types the structure itself gives the schema's parameters."""
    allowed = parameters(schema)
    pairs = [
        (f.type_str, text) for f, (_, text) in zip(formals_of(schema.inputs, len(operands)), operands, strict=True)
    ]
    results = formals_of(schema.outputs, len(structure.outputs))
    pairs += [(f.type_str, text) for f, text in zip(results, structure.output_types, strict=True)]
    binding: Binding = {}
    for name, text in pairs:
        if name in allowed and text:
            binding.setdefault(name, text)
    return binding


def bound(schema: Any, native: Binding, claimed: Claimed, wanted: Mapping[str, str]) -> Binding | None:
    """``native`` with the types wanted; what is not claimed is replaced by the plainest claimed type of the same kind."""
    binding = dict(native)
    for name, text in wanted.items():
        if name not in binding or _form(text) != _form(binding[name]):
            return None
        binding[name] = text
    for name, text in binding.items():
        if text not in claimed.types.get(name, frozenset()):
            alike = [t for t in sorted(claimed.types.get(name, ()), key=_plainness) if _form(t) == _form(text)]
            if name in wanted or not alike:
                return None
            binding[name] = alike[0]
    return binding


def _form(text: str) -> str:
    """``seq(tensor(`` for ``seq(tensor(float))``."""
    return text[: text.rindex("(") + 1]


def _plainness(text: str) -> tuple[int, str]:
    usual = ("tensor(float)", "tensor(int64)", "tensor(int32)", "tensor(double)", "tensor(float16)", "tensor(uint8)")
    return (usual.index(text) if text in usual else len(usual)), text


def mixed_types(schema: Any, operands: Sequence[tuple[Any, str]]) -> dict[str, set[str]]:
    """Type parameters of variadic operands whose items differ in type, so that each keeps its own; with the types there are."""
    variadic = onnx.defs.OpSchema.FormalParameterOption.Variadic
    found: dict[str, set[str]] = {}
    for formal, (_, text) in zip(formals_of(schema.inputs, len(operands)), operands, strict=True):
        if formal.option == variadic and not formal.is_homogeneous:
            found.setdefault(formal.type_str, set()).add(text)
    return {name: texts for name, texts in found.items() if len(texts) > 1}


def type_of(formal: Any, binding: Binding) -> str:
    """The type that a formal of a schema has under a binding."""
    return binding.get(formal.type_str, str(formal.type_str))


def formals_of(formals: Sequence[Any], count: int) -> list[Any]:
    """The formal of each of so many operands or results: the last is that of all that follow."""
    return [formals[min(i, len(formals) - 1)] for i in range(count)]
