"""The levels of conformance, each including those before it."""

from __future__ import annotations

LEVELS = ("contract", "memory", "kernels", "graph", "robust")


def up_to(level: str) -> tuple[str, ...]:
    """The levels that ``level`` includes. ValueError for a name that is none."""
    if level not in LEVELS:
        raise ValueError(f"{level} is not a level; levels are {', '.join(LEVELS)}")
    return LEVELS[: LEVELS.index(level) + 1]
