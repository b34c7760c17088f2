"""The first elements of lines in order of size (ONNX TopK)."""

from __future__ import annotations

from onnxplug_kernel_text.types import FLOATS, arithmetic


def top_k(name: str, type_: str, largest: bool) -> str:
    """The ``k`` largest or smallest elements of each line, best first, equal ones in their order; NaN is larger than all.

    Tensors: in0, out0 of ``type_``, places (i64). Scalars, all i64: points (lines), n, k, stride (of elements of a line). A work-item a
    line: it inserts element by element into the result, most of which are compared with the worst kept only."""
    held = arithmetic(type_)
    sign = ">" if largest else "<"
    nan = ("x != x && w == w" if largest else "x == x && w != w") if type_ in FLOATS else "0"
    return f"""static DEVICE int {name}_before(const {held} x, const {held} w) {{ return x {sign} w || ({nan}); }}
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
