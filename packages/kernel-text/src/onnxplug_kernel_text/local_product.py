"""Products of matrices for devices with fast local memory: a group of work-items shares a tile of both factors."""

from __future__ import annotations

from collections.abc import Sequence

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

EDGE = 64
"""Rows and columns of the result that a group computes."""
SIDE = 16
"""Work-items of a group in each of two dimensions."""
_DEPTH, _EACH = 16, EDGE // SIDE


def local_product(
    name: str, left: Operand, right: Operand | Windows, others: Sequence[Operand], out: Operand, body: str
) -> str:
    """A kernel that computes ``body`` for each element of a product, as ``product.product`` does.

    Tensors: left, right, others, out. Scalars, all i64: rows, columns, depth; the batch's extents but the first; what ``Windows`` wants;
    then strides of left, right, others, out. Groups of ``SIDE`` x ``SIDE`` work-items, one for ``EDGE`` x ``EDGE`` elements; dimension 0
    runs over columns, 1 over rows, 2 over the batch."""
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
  LOCAL {held} a[{_DEPTH}][{EDGE + 1}]; LOCAL {held} b[{_DEPTH}][{EDGE + 1}];
  {" ".join(f"OPEN({o.type}, {n})" for n, o in operands.items())}
  const int tx = LOCAL_ID(0), ty = LOCAL_ID(1), own_ = ty * {SIDE} + tx;
  const i64 z = GROUP_ID(2), i0 = (i64)GROUP_ID(1) * {EDGE}, j0 = (i64)GROUP_ID(0) * {EDGE};
{batch_offsets(batch, {n: o.strides for n, o in operands.items()})}
  {held} c[{_EACH}][{_EACH}];
  for (int i = 0; i < {_EACH}; i++) for (int j = 0; j < {_EACH}; j++) c[i][j] = 0;
  for (i64 k0 = 0; k0 < depth; k0 += {_DEPTH}) {{
    for (int e = own_; e < {EDGE * _DEPTH}; e += {SIDE * SIDE}) {{
      const i64 i = i0 + e / {_DEPTH}, k = k0 + e % {_DEPTH};
      {held} v = 0;
      if (i < rows && k < depth) v = LOAD_{left.type}(left, left_z + {_element("left", left, batch, "i", "k")});
      a[e % {_DEPTH}][e / {_DEPTH}] = v;
    }}
    for (int e = own_; e < {EDGE * _DEPTH}; e += {SIDE * SIDE}) {{
      const i64 k = k0 + e / {EDGE}, j = j0 + e % {EDGE};
      {held} v = 0;
      if (k < depth && j < columns) {{ {_fetch(right, batch)} }}
      b[e / {EDGE}][e % {EDGE}] = v;
    }}
    BARRIER();
    for (int k = 0; k < {_DEPTH}; k++) {{
      {held} u[{_EACH}], v[{_EACH}];
      for (int i = 0; i < {_EACH}; i++) u[i] = a[k][ty + i * {SIDE}];
      for (int j = 0; j < {_EACH}; j++) v[j] = b[k][tx + j * {SIDE}];
      for (int i = 0; i < {_EACH}; i++) for (int j = 0; j < {_EACH}; j++) c[i][j] += u[i] * v[j];
    }}
    BARRIER();
  }}
  for (int m = 0; m < {_EACH}; m++) for (int n = 0; n < {_EACH}; n++) {{
    const i64 i = i0 + ty + m * {SIDE}, j = j0 + tx + n * {SIDE};
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
