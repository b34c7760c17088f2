"""Quantization, also by a range that the elements themselves decide (ONNX DynamicQuantizeLinear): extremes of parts, then the numbers."""

from __future__ import annotations

from onnxplug_kernel_text.reduce import tree
from onnxplug_kernel_text.types import highest, lowest

GROUP = 256
"""Work-items of a group, and the most parts there may be."""
_LANES = 16
"""Neighbours that a work-item takes together, where it works alone: compilers for processors make vectors of them."""
_LESSER, _GREATER = "({b} < {a} ? {b} : {a})", "({b} > {a} ? {b} : {a})"
"""Of NaN, which is ``{b}`` if it is there, nothing comes."""


def saturated(name: str, quotient: str, zero: str | None, type_: str, *, relu: bool = False) -> str:
    """Statements that round a float32 number, halves to even, add a zero point and give ``name`` what of it the type holds, of NaN the
    least: what a cast makes of it is each device's own. ``relu``: nothing is below zero before the zero point is added."""
    low, high, added = lowest(type_), highest(type_), "" if zero is None else f" v += (f32){zero};"
    cut = " v = v < 0 ? 0 : v;" if relu else ""  # as before the division: rounding keeps the order
    return (
        f"f32 v = rint({quotient});{cut}{added} v = v >= {low} ? v > {high} ? {high} : v : {low}; {name} = ({type_})v;"
    )


def extremes(name: str, alone: bool) -> str:
    """The least and the greatest of 0 and a part of the elements but for NaN, for each group. Tensors: in0, part (2 * groups), f32.
    Scalars, i64: elements, groups. ``alone``: a work-item for each part, of neighbours."""
    if alone:
        inner = f"x = in0[k + t]; low[t] = {_LESSER.format(a='low[t]', b='x')}; high[t] = {_GREATER.format(a='high[t]', b='x')};"
        found = f"""f32 low[{_LANES}], high[{_LANES}];
  {_PART}
  for (int t = 0; t < {_LANES}; t++) low[t] = high[t] = 0;
  for (; k + {_LANES} <= end; k += {_LANES}) for (int t = 0; t < {_LANES}; t++) {{ const f32 {inner} }}
  for (int t = 0; k + t < end; t++) {{ const f32 {inner} }}
  for (int t = 1; t < {_LANES}; t++) {{
    low[0] = {_LESSER.format(a="low[0]", b="low[t]")}; high[0] = {_GREATER.format(a="high[0]", b="high[t]")}; }}
  part[2 * g] = low[0]; part[2 * g + 1] = high[0];"""
    else:
        found = f"""LOCAL f32 shared[{GROUP}]; f32 low = 0, high = 0;
  for (i64 k = GLOBAL_ID64(0); k < n; k += groups * {GROUP}) {{ const f32 x = in0[k];
    low = {_LESSER.format(a="low", b="x")}; high = {_GREATER.format(a="high", b="x")}; }}
  shared[LOCAL_ID(0)] = low; {tree("shared", _LESSER, GROUP)} low = shared[0]; BARRIER();
  shared[LOCAL_ID(0)] = high; {tree("shared", _GREATER, GROUP)} high = shared[0];
  if (LOCAL_ID(0) == 0) {{ part[2 * GROUP_ID(0)] = low; part[2 * GROUP_ID(0) + 1] = high; }}"""
    return f"""KERNEL void {name}(TENSOR(f32, in0), TENSOR(f32, part), const i64 n, const i64 groups) {{
  OPEN(f32, in0) OPEN(f32, part)
  {found}
}}
"""


_PART = "const i64 g = GLOBAL_ID64(0), each = (n + groups - 1) / groups, end = (g + 1) * each < n ? (g + 1) * each : n; i64 k = g * each;"
"""Statements that say which elements a part has."""


def by_extremes(name: str, alone: bool) -> str:
    """uint8 numbers of the elements, 0 for NaN, by the extremes of ``groups`` parts, their scale and zero point. Tensors: in0, part, f32;
    out0, u8; scale, f32; zero, u8. Scalars, i64: elements, groups. All groups work out the same scale; ``alone`` as of ``extremes``."""
    number = "const f32 y = rint(in0[k] / s) + z; out0[k] = (u8)(y >= 0 ? y > 255 ? 255 : y : 0);"
    if alone:
        found = f"""f32 low = 0, high = 0;
  for (i64 p = 0; p < groups; p++) {{
    const f32 a = part[2 * p], b = part[2 * p + 1];
    low = {_LESSER.format(a="low", b="a")}; high = {_GREATER.format(a="high", b="b")}; }}"""
        each = f"{_PART} for (; k < end; k++) {{ {number} }}"
    else:
        found = f"""LOCAL f32 shared[{GROUP}]; const int l = LOCAL_ID(0);
  shared[l] = l < groups ? part[2 * l] : 0; {tree("shared", _LESSER, GROUP)} const f32 low = shared[0]; BARRIER();
  shared[l] = l < groups ? part[2 * l + 1] : 0; {tree("shared", _GREATER, GROUP)} const f32 high = shared[0];"""
        each = f"for (i64 k = GLOBAL_ID64(0); k < n; k += groups * {GROUP}) {{ {number} }}"
    return f"""KERNEL void {name}(TENSOR(f32, in0), TENSOR(f32, part), TENSOR(u8, out0), TENSOR(f32, scale), TENSOR(u8, zero), const i64 n,
    const i64 groups) {{
  OPEN(f32, in0) OPEN(f32, part) OPEN(u8, out0) OPEN(f32, scale) OPEN(u8, zero)
  {found}
  const f32 s = high == low ? 1 : (high - low) / 255;
  f32 z = rint(-low / s); z = z < 0 ? 0 : z > 255 ? 255 : z;
  if (GLOBAL_ID64(0) == 0) {{ scale[0] = s; zero[0] = (u8)z; }}
  {each}
}}
"""


def channel_means(name: str, type_: str, zero: bool, out_zero: bool) -> str:
    """The mean of each channel of quantized images, by the zero point of its elements and of the result where there are such. Tensors:
    in0; scale, f32; zero; out_scale, f32; out_zero; out0. Scalars, i64: results, channels, pixels; strides of images, channels, pixels.
    One work-item a result."""
    tensors = [
        (type_, "in0"),
        ("f32", "scale"),
        *[(type_, "zero")] * zero,
        ("f32", "out_scale"),
        *[(type_, "out_zero")] * out_zero,
    ]
    declared = [*tensors, (type_, "out0")]
    scalars = ("points", "channels", "pixels", "image", "channel", "pixel")
    shift = " - pixels * zero[0]" if zero else ""
    stored = saturated(
        "out0[at]", "(f32)total * (scale[0] / (f32)pixels) / out_scale[0]", "out_zero[0]" if out_zero else None, type_
    )
    return f"""KERNEL void {name}({", ".join([*(f"TENSOR({t}, {n})" for t, n in declared), *(f"const i64 {s}" for s in scalars)])}) {{
  const i64 at = GLOBAL_ID64(0);
  if (at >= points) return;
  {" ".join(f"OPEN({t}, {n})" for t, n in declared)}
  const i64 first = at / channels * image + at % channels * channel;
  i64 total = 0;
  for (i64 k = 0; k < pixels; k++) total += in0[first + k * pixel];
  total = total{shift}; {stored}
}}
"""
