"""Elements that the data selects (ONNX NonZero, Compress): work-items have runs of elements, count theirs, and write behind what those
before them counted."""

from __future__ import annotations


def counted(name: str, type_: str) -> str:
    """How many elements of each run are not zero. Tensors: elements; counts (i64, one for each run). Scalars, all i64: elements, elements
    of a run, runs. A work-item a run."""
    return f"""KERNEL void {name}(TENSOR({type_}, in0), TENSOR(i64, counts), const i64 points, const i64 each, const i64 runs) {{
  const i64 at = GLOBAL_ID64(0);
  if (at >= runs) return;
  OPEN({type_}, in0) OPEN(i64, counts)
  {_run()}
  i64 count = 0;
  for (i64 i = from; i < past; i++) count += LOAD_{type_}(in0, i) != 0;
  counts[at] = count;
}}
"""


def listed(name: str, type_: str) -> str:
    """The places of these elements, ascending. Tensors: elements; counts; places (i64); total (i64, one), how many they are. Scalars and
    work-items as ``counted`` has them."""
    tensors = f"TENSOR({type_}, in0), TENSOR(i64, counts), TENSOR(i64, places), TENSOR(i64, total)"
    return f"""KERNEL void {name}({tensors}, const i64 points, const i64 each, const i64 runs) {{
  const i64 at = GLOBAL_ID64(0);
  if (at >= runs) return;
  OPEN({type_}, in0) OPEN(i64, counts) OPEN(i64, places) OPEN(i64, total)
  {_run()}
  i64 to = 0;
  for (i64 r = 0; r < at; r++) to += counts[r];
  if (at == runs - 1) total[0] = to + counts[at];
  for (i64 i = from; i < past; i++) if (LOAD_{type_}(in0, i) != 0) places[to++] = i;
}}
"""


def _run() -> str:
    """Statements that declare where a work-item's run begins and ends."""
    return "const i64 from = at * each, past = from + each < points ? from + each : points;"


def coordinates(name: str, rank: int) -> str:
    """The coordinates of places, a row for each dimension. Tensors: places; total; out (i64). Scalars, all i64: as many places as there may
    be, the extents but the first. A work-item a place."""
    extents = "".join(f", const i64 h{k}" for k in range(1, rank))
    rows = " ".join(f"out0[{k} * count + at] = rest % h{k}; rest /= h{k};" for k in range(rank - 1, 0, -1))
    return f"""KERNEL void {name}(TENSOR(i64, places), TENSOR(i64, total), TENSOR(i64, out0), const i64 most{extents}) {{
  const i64 at = GLOBAL_ID64(0);
  if (at >= most) return;
  OPEN(i64, places) OPEN(i64, total) OPEN(i64, out0)
  const i64 count = total[0];
  if (at >= count) return;
  i64 rest = places[at];
  {rows} out0[at] = rest;
}}
"""


def taken(name: str, type_: str) -> str:
    """The slices of a tensor at places along an axis, of raw elements. Tensors: elements; places; total; out. Scalars, all i64: elements
    of the result if all places were taken, the axis's extent, elements behind it, slices before it. A work-item an element of the
    result."""
    tensors = f"TENSOR({type_}, in0), TENSOR(i64, places), TENSOR(i64, total), TENSOR({type_}, out0)"
    return f"""KERNEL void {name}({tensors}, const i64 most, const i64 extent, const i64 inner, const i64 outer) {{
  const i64 at = GLOBAL_ID64(0);
  if (at >= most) return;
  OPEN({type_}, in0) OPEN(i64, places) OPEN(i64, total) OPEN({type_}, out0)
  const i64 line = total[0] * inner;
  if (at >= outer * line) return;
  const i64 o = at / line, k = at % line / inner;
  out0[at] = in0[(o * extent + places[k]) * inner + at % inner];
}}
"""
