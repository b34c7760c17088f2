"""Products with weights of 2, 4 or 8 bits (``nbits``) on processors: a work-item has some columns, whose weights are unpacked into
vectors, for several rows at once (OpenCL only)."""

from __future__ import annotations

from collections.abc import Iterator

from onnxplug_kernel_text.nbits import Form, zero_point
from onnxplug_kernel_text.packed_experts import summed_vector, unpacked

COLUMNS = 4
"""Columns of a work-item: an element of a row is read once for all of them."""
_ROWS = (4, 2, 1)
"""Rows that are taken at once, as long as there are so many."""


def packed_product(name: str, form: Form, lanes: int) -> str:
    """out = a weights' + bias, as ``nbits.tiles``; ``lanes``, 8 or 16, divide the blocks.

    Tensors: ``form.tensors``, but rows of a are f32 and as long as all blocks, zeros behind the depth. Scalars, all i64: rows, columns,
    blocks, block. ``COLUMNS`` columns a work-item."""
    declared = [f"TENSOR({t}, {n})" for t, n in (("f32", "a"), *form.tensors[1:])]
    opened = " ".join(f"OPEN({t}, {n})" for t, n in (("f32", "a"), *form.tensors[1:]))
    columns = " ".join(f"const i64 j{c} = first + {c} < columns ? first + {c} : columns - 1;" for c in range(COLUMNS))
    loops = "\n".join(line for count in _ROWS for line in _rows(name, form, lanes, count))
    return f"""{summed_vector(name, lanes)}
KERNEL void {name}({", ".join(declared)}, const i64 rows, const i64 columns, const i64 blocks, const i64 block) {{
  {opened}
  const i64 first = GLOBAL_ID64(0) * {COLUMNS}, depth = blocks * block; i64 i = 0;
  {columns}
{loops}
}}
"""


def _rows(name: str, form: Form, lanes: int, count: int) -> Iterator[str]:
    """Statements that take ``count`` rows at once as long as there are so many."""
    rows, columns, vector = range(count), range(COLUMNS), f"float{lanes}"
    yield f"  for (; i + {count} <= rows; i += {count}) {{"
    for r in rows:
        yield f"    GLOBAL const f32 *x{r} = a + (i + {r}) * depth; {vector} {', '.join(f's{r}_{c} = 0' for c in columns)};"
    yield "    for (i64 part = 0, k = 0; part < blocks; part++) {"
    for c in columns:
        scale = f"LOAD_{form.scale}(scales, j{c} * blocks + part)"
        yield f"      const f32 scale{c} = {scale}, zero{c} = {zero_point(form, f'j{c}')};"
    yield f"      for (i64 stop = k + block; k < stop; k += {lanes}) {{"
    for c in columns:
        taken = unpacked(name, form.bits, lanes, "b", f"(j{c} * depth + k)")
        yield f"        const {vector} w{c} = ({taken} - zero{c}) * scale{c};"
    for r in rows:
        sums = " ".join(f"s{r}_{c} += x * w{c};" for c in columns)
        yield f"        {{ const {vector} x = *(GLOBAL const {name}_near *)(x{r} + k); {sums} }}"
    yield "      }\n    }"
    for r in rows:
        for c in columns:
            bias = f" + LOAD_{form.type}(bias, j{c})" if form.bias else ""
            stored = f"STORE_{form.type}(out, (i + {r}) * columns + j{c}, {name}_sum(s{r}_{c}){bias});"
            yield f"    if (first + {c} < columns) {stored}"
    yield "  }"
