"""How much of the operator table a run covers, by ``ONNXPLUG_OPERATORS``: core (the default), all or deep.

core: one example for every type of the newest version of each operator (of its first type parameter; one type of the others), and for one
type of each older version. all: every cell, a few examples. deep: every cell, many examples, and what fails is shrunk. ``ONNXPLUG_OPERATORS_SEED`` chooses other examples.
"""

from __future__ import annotations

import functools
import os
import zlib
from collections.abc import Iterator
from typing import Any

from operators.cells import Cell, all_cells

EXTENT = os.environ.get("ONNXPLUG_OPERATORS", "core")
EXAMPLES = {"core": 1, "all": 3, "deep": 40}[EXTENT]
DEEP, CORE = EXTENT == "deep", EXTENT == "core"


def seed_of(cell: Cell) -> int:
    """What the examples of a cell are drawn from."""
    return zlib.crc32(f"{cell}{os.environ.get('ONNXPLUG_OPERATORS_SEED', '')}".encode())


def cells() -> tuple[Cell, ...]:
    """The cells this run covers."""
    if not CORE:
        return all_cells()
    newest = {cell[:2]: cell.version for cell in all_cells()}
    first: dict[tuple[Any, ...], Cell] = {}
    for cell in all_cells():
        first.setdefault(cell[:3], cell)
        first.setdefault(cell[:4], cell)
    return tuple(
        c
        for c in all_cells()
        if c in one_of_each_version()
        or (c.version == newest[c[:2]] and (c.parameter == first[c[:3]].parameter or c == first[c[:4]]))
    )


@functools.cache
def one_of_each_version() -> dict[Cell, None]:
    """One cell of every version of every operator, float where there is one; a dictionary for its order and its look-up."""
    return dict.fromkeys(_one_of_each_version())


def one_of_each_operator() -> tuple[Cell, ...]:
    """One cell of the newest version of every operator."""
    return tuple({cell[:2]: cell for cell in one_of_each_version()}.values())


def _one_of_each_version() -> Iterator[Cell]:
    by_version: dict[tuple[str, str, int], list[Cell]] = {}
    for cell in all_cells():
        by_version.setdefault(cell[:3], []).append(cell)
    for group in by_version.values():
        yield next((c for c in group if c.type == "tensor(float)"), group[0])
