"""The same few elements of many rows, by vectors that are gathered from several rows at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxplug_ep_cpu.codegen.kernels.pick import Pick
from onnxplug_ep_cpu.codegen.program import Buffer, Program, Ref
from onnxplug_ep_cpu.codegen.target import Target
from onnxplug_ep_cpu.codegen.tensor import Tensor

BLOCK = 4096
"""Elements of one item."""
ROWS, COLUMNS = 64, 64
"""Worth it from so many rows on, up to so many columns."""
UNITS = (4, 8)
"""Bytes of an element that vectors are gathered of."""


def suits(rows: int, columns: int, unit: int) -> bool:
    """Whether so many elements of so many rows are had sooner so than row by row."""
    return rows >= ROWS and 1 <= columns <= COLUMNS and unit in UNITS


def pick(program: Program, target: Target, out: Tensor, data: Tensor, step: int, places: Sequence[int]) -> None:
    """out[row, i] = the element ``places[i]`` elements behind where a row of ``data`` begins, every ``step`` elements; ``out`` is
    dense."""
    unit, lanes, columns = data.itemsize, target.lanes, len(places)
    offsets = unit * (np.arange(lanes)[:, None] * step + np.array(places)).reshape(-1)
    table = Tensor(
        Buffer("constant", 4 * offsets.size, array=offsets.astype(np.int32)), (offsets.size,), (1,), element="int32"
    )
    rows = out.size // columns
    groups, block = -(-rows // lanes), max(1, BLOCK // (lanes * columns))
    args: list[int | Ref] = [out.ref, data.ref, table.ref, columns, rows, unit * step, block]
    program.call(Pick(unit), args, -(-groups // block), out.size)
