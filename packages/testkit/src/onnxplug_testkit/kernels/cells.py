"""What a registry claims, as cells: domain, operator, schema version, type parameter, type."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from onnx import defs

from onnxplug.contract import KernelDef

Key = tuple[str, str, int]
"""Domain, operator, schema version."""


class Cell(NamedTuple):
    """One type (``tensor(float)``) of one type parameter (``T``) of one version of an operator.

    An operator without type parameters has one cell, with empty parameter and type.
    """

    domain: str
    op_type: str
    version: int
    parameter: str
    type: str

    @property
    def key(self) -> Key:
        """The schema the cell belongs to."""
        return self.domain, self.op_type, self.version

    def __str__(self) -> str:
        return f"{label(self.key)}-{self.parameter}-{self.type}".rstrip("-")


@dataclass(frozen=True)
class Claimed:
    """What is claimed of one schema version: the types of each parameter."""

    key: Key
    types: Mapping[str, frozenset[str]]

    @property
    def cells(self) -> list[Cell]:
        """The cells, in order of parameters and types."""
        bound = [Cell(*self.key, name, text) for name, texts in self.types.items() for text in sorted(texts)]
        return bound or [Cell(*self.key, "", "")]


def label(key: Key) -> str:
    """``Add-14``, ``ai.onnx.ml.Scaler-1``."""
    domain, op_type, version = key
    return f"{domain}.{op_type}-{version}" if domain else f"{op_type}-{version}"


@functools.cache
def schemas() -> Mapping[Key, Any]:
    """onnx's schemas by domain, operator and version; without deprecations, which have no meaning of their own.

    An operator that was deprecated as a whole (GroupNormalization-18) keeps the one it has.
    """
    found = {(s.domain, s.name, s.since_version): s for s in defs.get_all_schemas_with_history()}
    oldest = {key[:2]: key for key in sorted(found, reverse=True)}
    return {key: schema for key, schema in found.items() if not schema.deprecated or oldest[key[:2]] == key}


def claims(definitions: Iterable[KernelDef], own: Sequence[Any] = ()) -> list[Claimed]:
    """What kernel definitions claim of every schema version they span; ``own`` are the provider's schemas.

    An operator that has no schema anywhere is claimed by its definition's types alone.
    """
    known = {**schemas(), **{(s.domain, s.name, s.since_version): s for s in own}}
    versions: dict[tuple[str, str], list[Key]] = {}
    for key in known:
        versions.setdefault(key[:2], []).append(key)
    found: dict[Key, dict[str, frozenset[str]]] = {}
    for definition in definitions:
        there = versions.get((definition.domain, definition.op_type), ())
        spanned = [key for key in there if definition.since <= key[2] <= definition.last]
        for key in spanned or [(definition.domain, definition.op_type, definition.since)]:
            allowed = parameters(known[key]) if key in known else definition.types
            types = found.setdefault(key, {})
            for name, texts in allowed.items():
                claimed = texts & definition.types.get(name, texts)
                types[name] = types.get(name, frozenset()) | claimed
    return [Claimed(key, types) for key, types in sorted(found.items())]


def parameters(schema: Any) -> dict[str, frozenset[str]]:
    """Type parameters in use by a schema's inputs and outputs, with the types allowed."""
    used = {formal.type_str for formal in (*schema.inputs, *schema.outputs)}
    return {
        c.type_param_str: frozenset(c.allowed_type_strs) for c in schema.type_constraints if c.type_param_str in used
    }
