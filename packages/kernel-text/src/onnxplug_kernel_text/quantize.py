"""Quantization by a range that the elements themselves decide (ONNX DynamicQuantizeLinear): extremes of parts, then the numbers."""

from __future__ import annotations

from onnxplug_kernel_text.reduce import tree

GROUP = 256
"""Work-items of a group, and the most parts there may be."""
_LESSER, _GREATER = "({a} != {a} || {a} < {b} ? {a} : {b})", "({a} != {a} || {a} > {b} ? {a} : {b})"


def extremes(name: str) -> str:
    """The least and the greatest of 0 and a part of the elements, for each group. Tensors: in0, part (2 * groups), f32. Scalars, i64:
    elements, groups."""
    return f"""KERNEL void {name}(TENSOR(f32, in0), TENSOR(f32, part), const i64 n, const i64 groups) {{
  OPEN(f32, in0) OPEN(f32, part)
  LOCAL f32 shared[{GROUP}]; f32 low = 0, high = 0;
  for (i64 k = GLOBAL_ID64(0); k < n; k += groups * {GROUP}) {{ const f32 x = in0[k];
    low = {_LESSER.format(a="low", b="x")}; high = {_GREATER.format(a="high", b="x")}; }}
  shared[LOCAL_ID(0)] = low; {tree("shared", _LESSER, GROUP)} low = shared[0]; BARRIER();
  shared[LOCAL_ID(0)] = high; {tree("shared", _GREATER, GROUP)} high = shared[0];
  if (LOCAL_ID(0) == 0) {{ part[2 * GROUP_ID(0)] = low; part[2 * GROUP_ID(0) + 1] = high; }}
}}
"""


def by_extremes(name: str) -> str:
    """uint8 numbers of the elements by the extremes of ``groups`` parts, their scale and zero point. Tensors: in0, part, f32; out0, u8;
    scale, f32; zero, u8. Scalars, i64: elements, groups. All groups work out the same scale."""
    return f"""KERNEL void {name}(TENSOR(f32, in0), TENSOR(f32, part), TENSOR(u8, out0), TENSOR(f32, scale), TENSOR(u8, zero), const i64 n,
    const i64 groups) {{
  OPEN(f32, in0) OPEN(f32, part) OPEN(u8, out0) OPEN(f32, scale) OPEN(u8, zero)
  LOCAL f32 shared[{GROUP}]; const int l = LOCAL_ID(0);
  shared[l] = l < groups ? part[2 * l] : 0; {tree("shared", _LESSER, GROUP)} const f32 low = shared[0]; BARRIER();
  shared[l] = l < groups ? part[2 * l + 1] : 0; {tree("shared", _GREATER, GROUP)} const f32 high = shared[0];
  const f32 s = high == low ? 1 : (high - low) / 255;
  f32 z = rint(-low / s); z = z < 0 ? 0 : z > 255 ? 255 : z;
  if (GLOBAL_ID64(0) == 0) {{ scale[0] = s; zero[0] = (u8)z; }}
  for (i64 k = GLOBAL_ID64(0); k < n; k += groups * {GROUP}) {{ const f32 y = rint(in0[k] / s) + z;
    out0[k] = (u8)(y < 0 ? 0 : y > 255 ? 255 : y); }}
}}
"""
