"""Products of matrices for devices with fast local memory: a group of work-items shares a tile of both factors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnxplug_kernel_text.elementwise import Operand
from onnxplug_kernel_text.factors import (
    Windows,
    batch_offsets,
    flat,
    operand_of,
    parameters,
    times,
    windows_parameters,
)
from onnxplug_kernel_text.types import arithmetic


@dataclass(frozen=True)
class LocalTile:
    """A group of ``side`` x ``side`` work-items computes ``edge`` x ``edge`` elements of the result, ``depth`` elements of both factors at
    a time."""

    edge: int = 64
    side: int = 16
    depth: int = 16

    def local_bytes(self, size: int) -> int:
        """Local memory that a group takes, for elements of ``size`` bytes."""
        return 2 * self.depth * (self.edge + 1) * size


def local_product(
    name: str,
    left: Operand,
    right: Operand | Windows,
    others: Sequence[Operand],
    out: Operand,
    body: str,
    tile: LocalTile | None = None,
) -> str:
    """A kernel that computes ``body`` for each element of a product, as ``product.product`` does.

    Tensors: left, right, others, out. Scalars, all i64: rows, columns, depth; the batch's extents but the first; what ``Windows`` wants;
    then strides of left, right, others, out. Groups as ``tile`` says; dimension 0 runs over columns, 1 over rows, 2 over the batch."""
    tile = tile or LocalTile()
    edge, side, deep, each = tile.edge, tile.side, tile.depth, tile.edge // tile.side
    batch, held = len(out.strides) - 2, arithmetic(out.type)
    operands = {"left": left, "right": operand_of(right), **{f"other{n}": e for n, e in enumerate(others)}, "out": out}
    scalars = [f"const i64 {s}" for s in ("rows", "columns", "depth", *(f"z{k}" for k in range(1, batch)))]
    scalars += windows_parameters(right.rank) if isinstance(right, Windows) else []
    for n, o in operands.items():
        scalars += parameters(n, o.strides)
    reads = "".join(
        f" const {arithmetic(o.type)} e{n} = LOAD_{o.type}(other{n}, {_place(f'other{n}', o, batch)});"
        for n, o in enumerate(others)
    )
    return f"""KERNEL void {name}({", ".join([*(f"TENSOR({o.type}, {n})" for n, o in operands.items()), *scalars])}) {{
  LOCAL {held} a[{deep}][{edge + 1}]; LOCAL {held} b[{deep}][{edge + 1}];
  {" ".join(f"OPEN({o.type}, {n})" for n, o in operands.items())}
  const int tx = LOCAL_ID(0), ty = LOCAL_ID(1), own_ = ty * {side} + tx;
  const i64 z = GROUP_ID(2), i0 = (i64)GROUP_ID(1) * {edge}, j0 = (i64)GROUP_ID(0) * {edge};
{batch_offsets(batch, {n: o.strides for n, o in operands.items()})}
  {held} c[{each}][{each}];
  for (int i = 0; i < {each}; i++) for (int j = 0; j < {each}; j++) c[i][j] = 0;
  for (i64 k0 = 0; k0 < depth; k0 += {deep}) {{
    for (int e = own_; e < {edge * deep}; e += {side * side}) {{
      const i64 i = i0 + e / {deep}, k = k0 + e % {deep};
      {held} v = 0;
      if (i < rows && k < depth) v = LOAD_{left.type}(left, left_z + {_element("left", left, batch, "i", "k")});
      a[e % {deep}][e / {deep}] = v;
    }}
    for (int e = own_; e < {edge * deep}; e += {side * side}) {{
      const i64 k = k0 + e / {edge}, j = j0 + e % {edge};
      {held} v = 0;
      if (k < depth && j < columns) {{ {_fetch(right, batch)} }}
      b[e / {edge}][e % {edge}] = v;
    }}
    BARRIER();
    for (int k = 0; k < {deep}; k++) {{
      {held} u[{each}], v[{each}];
      for (int i = 0; i < {each}; i++) u[i] = a[k][ty + i * {side}];
      for (int j = 0; j < {each}; j++) v[j] = b[k][tx + j * {side}];
      for (int i = 0; i < {each}; i++) for (int j = 0; j < {each}; j++) c[i][j] += u[i] * v[j];
    }}
    BARRIER();
  }}
  for (int m = 0; m < {each}; m++) for (int n = 0; n < {each}; n++) {{
    const i64 i = i0 + ty + m * {side}, j = j0 + tx + n * {side};
    if (i < rows && j < columns) {{
      const {held} x = c[m][n];{reads} {held} y; {body}
      STORE_{out.type}(out, {_place("out", out, batch)}, y);
    }}
  }}
}}
"""


def _element(name: str, operand: Operand, batch: int, row: str, column: str) -> str:
    return f"{times(row, name, operand.strides, batch)} + {times(column, name, operand.strides, batch + 1)}"


def _place(name: str, operand: Operand, batch: int) -> str:
    return f"{name}_z + {_element(name, operand, batch, 'i', 'j')}"


def _fetch(right: Operand | Windows, batch: int) -> str:
    """Statements that read element (k, j) of the right factor into ``v``."""
    if not isinstance(right, Windows):
        return f"v = LOAD_{right.type}(right, right_z + {_element('right', right, batch, 'k', 'j')});"
    rank, type_ = right.rank, right.operand.type
    spots = "".join(f" const i64 y{d} = s % o{d}; s /= o{d};" for d in range(rank - 1, -1, -1))
    window = "".join(f" const i64 q{d} = r % w{d}; r /= w{d};" for d in range(rank - 1, -1, -1))
    coordinates = "".join(f" const i64 i{d} = y{d} * m{d} - p{d} + q{d} * g{d};" for d in range(rank))
    inside = " && ".join(f"i{d} >= 0 && i{d} < h{d}" for d in range(rank))
    place = flat("i", "h", rank, "r")
    return f"i64 s = j, r = k;{spots}{window}{coordinates} if ({inside}) v = LOAD_{type_}(right, right_z + {place});"
