"""What there is to test, from onnx's own schemas: a cell for each operator, schema version, type parameter and type."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from onnx import defs

SKIPPED_DOMAINS = frozenset({"com.microsoft"})


UNDEFINED = {
    ("", "Col2Im", 18, "T", "tensor(string)"): "overlapping blocks are added up, which means nothing for strings",
}
"""Types that a schema lists although its text gives them no meaning."""


class Cell(NamedTuple):
    """One type (``tensor(float)``) for one type parameter (``T``) of one version of an operator.

    An operator without type parameters has one cell, with empty parameter and type.
    """

    domain: str
    op_type: str
    version: int
    parameter: str
    type: str

    def __str__(self) -> str:
        where = f"{self.domain}." if self.domain else ""
        return f"{where}{self.op_type}-{self.version}-{self.parameter}-{self.type}".rstrip("-")


@functools.cache
def schemas() -> dict[tuple[str, str, int], Any]:
    """Every schema onnx knows, by domain, operator and version; deprecated ones stand for their last meaning.

    A deprecation repeats no types, so these come from the version before it.
    """
    found = {
        (s.domain, s.name, s.since_version): s
        for s in defs.get_all_schemas_with_history()
        if s.domain not in SKIPPED_DOMAINS
    }
    for domain, op_type, version in [key for key, schema in found.items() if schema.deprecated]:
        if defs.has(op_type, version - 1, domain):
            found[domain, op_type, version] = defs.get_schema(op_type, version - 1, domain)
    return dict(sorted(found.items()))


@functools.cache
def all_cells() -> tuple[Cell, ...]:
    """Every cell that has a meaning, in the order of domains, operators and versions."""
    cells: list[Cell] = []
    for key, schema in schemas().items():
        bound = [
            Cell(*key, constraint.type_param_str, text)
            for constraint in schema.type_constraints
            for text in sorted(constraint.allowed_type_strs)
        ]
        cells += bound or [Cell(*key, "", "")]
    return tuple(cell for cell in cells if cell not in UNDEFINED)
