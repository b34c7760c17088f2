"""Names that are unique in a model."""

from __future__ import annotations

from collections.abc import Iterable


class Names:
    """The names of a model's values and of its nodes; asking for one takes it."""

    __slots__ = ("_nodes", "_values")

    def __init__(self) -> None:
        self._values: set[str] = set()
        self._nodes: set[str] = set()

    def value(self, name: str) -> str:
        """``name``, numbered if a value has it already."""
        return _unique(name, self._values)

    def node(self, name: str) -> str:
        """``name``, numbered if a node has it already."""
        return _unique(name, self._nodes)

    def taken(self) -> tuple[set[str], set[str]]:
        """The names that values and nodes have or had."""
        return self._values, self._nodes

    def take(self, values: Iterable[str], nodes: Iterable[str]) -> None:
        """Let these names be those of other values and nodes."""
        self._values.update(values)
        self._nodes.update(nodes)


def _unique(name: str, taken: set[str]) -> str:
    unique, n = name, 0
    while unique in taken:
        n += 1
        unique = f"{name}_{n}"
    taken.add(unique)
    return unique
