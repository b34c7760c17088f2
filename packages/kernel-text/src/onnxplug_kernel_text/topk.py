"""The first elements of lines in order of size (ONNX TopK): best first, equal ones in their order; NaN is larger than all.

A work-item has a line. Scalars, all i64: points (lines), n, k, stride (of elements of a line)."""

from __future__ import annotations

from onnxplug_kernel_text.sorting import before, sort
from onnxplug_kernel_text.types import arithmetic


def top_k(name: str, type_: str, largest: bool) -> str:
    """Few of them. Tensors: in0, out0 of ``type_``, places (i64). Element by element is inserted into the result, most are compared with
    the worst kept only."""
    held = arithmetic(type_)
    return f"""{before(name, type_, largest)}
KERNEL void {name}(TENSOR({type_}, in0), TENSOR({type_}, out0), TENSOR(i64, places), const i64 points, const i64 n, const i64 k,
    const i64 stride) {{
  const i64 at = GLOBAL_ID64(0);
  if (at >= points) return;
  OPEN({type_}, in0) OPEN({type_}, out0) OPEN(i64, places)
  const i64 first = at / stride * stride * n + at % stride, to = at / stride * stride * k + at % stride;
  for (i64 i = 0, count = 0; i < n; i++) {{
    const {held} x = LOAD_{type_}(in0, first + i * stride);
    i64 j = count;
    if (count == k) {{
      j = k - 1;
      if (!{name}_before(x, LOAD_{type_}(out0, to + j * stride))) continue;
    }} else count++;
    for (; j > 0; j--) {{
      const {held} w = LOAD_{type_}(out0, to + (j - 1) * stride);
      if (!{name}_before(x, w)) break;
      STORE_{type_}(out0, to + j * stride, w);
      places[to + j * stride] = places[to + (j - 1) * stride];
    }}
    STORE_{type_}(out0, to + j * stride, x);
    places[to + j * stride] = i;
  }}
}}
"""


def top_of_sorted(name: str, type_: str, largest: bool, values: bool, places: bool) -> str:
    """Any number of them: the line is sorted. Tensors: in0, scratch (i32, twice n for each line); out0 of ``type_`` where ``values`` are
    wanted, the ``places`` (i64) where these are."""
    tensors = [f"TENSOR({type_}, in0)", "TENSOR(i32, scratch)"]
    tensors += [f"TENSOR({type_}, out0)"] if values else []
    tensors += ["TENSOR(i64, places)"] if places else []
    ends = [f"STORE_{type_}(out0, to + j * stride, LOAD_{type_}(in0, first + from_[j] * stride));"] if values else []
    ends += ["places[to + j * stride] = from_[j];"] if places else []
    return f"""{before(name, type_, largest)}
KERNEL void {name}({", ".join(tensors)}, const i64 points, const i64 n, const i64 k, const i64 stride) {{
  const i64 at = GLOBAL_ID64(0);
  if (at >= points) return;
  OPEN({type_}, in0) OPEN(i32, scratch) {f"OPEN({type_}, out0)" if values else ""} {"OPEN(i64, places)" if places else ""}
  const i64 first = at / stride * stride * n + at % stride, to = at / stride * stride * k + at % stride, count = n;
  GLOBAL i32 *from_ = scratch + at * 2 * n;
  GLOBAL i32 *to_ = from_ + n;
  for (i64 i = 0; i < n; i++) from_[i] = (i32)i;
{sort(name, f"LOAD_{type_}(in0, first + {{at}} * stride)")}
  for (i64 j = 0; j < k; j++) {{ {" ".join(ends)} }}
}}
"""
