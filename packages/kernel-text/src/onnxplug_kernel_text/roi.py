"""Regions of images: sampled on a grid (ONNX RoiAlign), or the largest elements of their parts (MaxRoiPool)."""

from __future__ import annotations

from onnxplug_kernel_text.types import arithmetic, lowest

_MOST = "2147483648.0f"
"""Elements of a bin along an axis that are too many samples."""
_FAR = "1099511627776.0f"
"""A corner farther away than that is this far: beyond any image."""


def roi_align(name: str, type_: str, index: str, largest: bool) -> str:
    """ONNX RoiAlign: each bin of a region is the mean of samples of the image, interpolated between four elements, or the ``largest`` of
    these elements times their weights. Samples farther than one element beside the image are zero.

    Tensors: images; regions (left, top, right, bottom); the image of each (``index``); out; fault (i32). Scalars, all i64: marks of an
    image that is not there, of a region that is not finite, of one with too many samples; bins of all regions, rows and columns of bins,
    images, channels, extents of an image, samples of a bin along each axis (0: as many as there are elements); then in the regions'
    arithmetic type: scale, shift, least extent of a region. A work-item a bin, for all channels."""
    real = arithmetic(type_)
    scalars = ["mark", "odd", "vast", "points", "rows", "columns", "images", "channels", "h0", "h1", "samples"]
    join = "a = x > a || first ? x : a; first = 0;" if largest else "a += x;"
    made = "a" if largest else f"more > 0 && many > 0 ? a / ({real})(more * many) : a"
    # Of an infinity, too, what weighs nothing is not the largest.
    share = "w == 0 ? 0 : w * e" if largest else "w * e"
    corners = "\n".join(
        f"        {{ const {real} w = wv_{p} * wu_{q}, e = LOAD_{type_}(image, v_{p} * h1 + u_{q}), x = {share}; {join} }}"
        for p in (0, 1)
        for q in (0, 1)
    )
    tensors = ", ".join(
        f"TENSOR({t}, {n})"
        for t, n in ((type_, "in0"), (type_, "in1"), (index, "in2"), (type_, "out0"), ("i32", "fault"))
    )
    numbers = ", ".join(
        [*(f"const i64 {s}" for s in scalars), *(f"const {real} {s}" for s in ("scale", "shift", "least"))]
    )
    return f"""KERNEL void {name}({tensors}, {numbers}) {{
#pragma OPENCL FP_CONTRACT OFF
  const i64 at = GLOBAL_ID64(0);
  if (at >= points) return;
  OPEN({type_}, in0) OPEN({type_}, in1) OPEN({index}, in2) OPEN({type_}, out0) OPEN(i32, fault)
  const i64 j = at % columns, i = at / columns % rows, region = at / columns / rows;
  const i64 n = in2[region];
  const int known = n >= 0 && n < images;
  i64 met = known ? 0 : mark;
  {real} given[4];
  for (int k = 0; k < 4; k++) {{
    given[k] = LOAD_{type_}(in1, region * 4 + k);
    if (!isfinite(given[k])) met = odd;
  }}
  const {real} left = given[0] * scale - shift, top = given[1] * scale - shift;
  {real} wide = given[2] * scale - shift - left, high = given[3] * scale - shift - top;
  if (least > 0) {{ wide = wide > least ? wide : least; high = high > least ? high : least; }}
  const {real} across = wide / ({real})columns, down = high / ({real})rows;
  if (!met && samples <= 0 && !(across < {_MOST} && down < {_MOST})) met = vast;
  if (met) fault[0] = (i32)met;
  const i64 more = samples > 0 ? samples : down < {_MOST} ? (i64)ceil(down) : 0;
  const i64 many = samples > 0 ? samples : across < {_MOST} ? (i64)ceil(across) : 0;
  for (i64 c = 0; c < channels; c++) {{
    GLOBAL {type_} *image = in0 + ((known ? n : 0) * channels + c) * h0 * h1;
    {real} a = 0;
    {"int first = 1;" if largest else ""}
    for (i64 s = 0; s < (known && many > 0 ? more : 0); s++) {{
      {_sample(real, "v", "s", "more", "i", "top", "down", "h0")}
      for (i64 t = 0; t < many; t++) {{
        {_sample(real, "u", "t", "many", "j", "left", "across", "h1")}
{corners}
      }}
    }}
    STORE_{type_}(out0, ((region * channels + c) * rows + i) * columns + j, {made});
  }}
}}
"""


def _sample(real: str, name: str, number: str, count: str, bin_: str, start: str, step: str, extent: str) -> str:
    """Statements that declare, along one axis, the two elements ``name_0``, ``name_1`` around a sample and their weights."""
    return f"""const {real} {name}_at = {start} + (({real}){bin_} + (({real}){number} + ({real})0.5) / ({real}){count}) * {step};
      const int {name}_seen = {name}_at >= -1 && {name}_at <= ({real}){extent};
      const {real} {name}_in = {name}_at > 0 ? ({name}_at < ({real})({extent} - 1) ? {name}_at : ({real})({extent} - 1)) : 0;
      const i64 {name}_0 = (i64){name}_in, {name}_1 = {name}_0 + 1 < {extent} ? {name}_0 + 1 : {extent} - 1;
      const {real} {name}_up = {name}_in - ({real}){name}_0;
      const {real} w{name}_0 = {name}_seen ? 1 - {name}_up : 0, w{name}_1 = {name}_seen ? {name}_up : 0;"""


def max_roi(name: str, type_: str) -> str:
    """ONNX MaxRoiPool: each bin of a region, rounded outward to whole elements, is the largest of them; an empty one is 0.

    Tensors: images; regions (number of the image, left, top, right, bottom); out; fault (i32). Scalars, all i64: the mark of an image that
    is not there, elements of out, rows and columns of bins, images, channels, extents of an image; f32 scale. A work-item a bin."""
    real = arithmetic(type_)
    tensors = ((type_, "in0"), (type_, "in1"), (type_, "out0"), ("i32", "fault"))
    scalars = ("mark", "points", "rows", "columns", "images", "channels", "h0", "h1")
    declared = [*(f"TENSOR({t}, {n})" for t, n in tensors), *(f"const i64 {s}" for s in scalars), "const f32 scale"]
    corners = " ".join(
        f"const i64 {corner} = {name}_whole((f32)LOAD_{type_}(in1, region * 5 + {n}) * scale);"
        for n, corner in ((1, "left"), (2, "top"), (3, "right"), (4, "bottom"))
    )
    return f"""static DEVICE i64 {name}_whole(f32 v) {{
  return (i64)round(v > -{_FAR} ? (v < {_FAR} ? v : {_FAR}) : -{_FAR});
}}
static DEVICE i64 {name}_held(i64 at, i64 extent) {{ return at < 0 ? 0 : at < extent ? at : extent; }}
KERNEL void {name}({", ".join(declared)}) {{
  const i64 at = GLOBAL_ID64(0);
  if (at >= points) return;
  {" ".join(f"OPEN({t}, {n})" for t, n in tensors)}
  const i64 j = at % columns, i = at / columns % rows, c = at / columns / rows % channels, region = at / columns / rows / channels;
  const {real} number = LOAD_{type_}(in1, region * 5);
  if (!(number > -1 && number < ({real})images)) {{ fault[0] = (i32)mark; STORE_{type_}(out0, at, ({real})0); return; }}
  {corners}
  const f32 down = (f32)(bottom - top + 1 > 1 ? bottom - top + 1 : 1) / (f32)rows;
  const f32 across = (f32)(right - left + 1 > 1 ? right - left + 1 : 1) / (f32)columns;
  const i64 v0 = {name}_held((i64)floor((f32)i * down) + top, h0), v1 = {name}_held((i64)ceil((f32)(i + 1) * down) + top, h0);
  const i64 u0 = {name}_held((i64)floor((f32)j * across) + left, h1), u1 = {name}_held((i64)ceil((f32)(j + 1) * across) + left, h1);
  GLOBAL {type_} *image = in0 + ((i64)number * channels + c) * h0 * h1;
  {real} a = v1 > v0 && u1 > u0 ? {lowest(type_)} : 0;
  for (i64 v = v0; v < v1; v++)
    for (i64 u = u0; u < u1; u++) {{ const {real} x = LOAD_{type_}(image, v * h1 + u); a = x > a || x != x ? x : a; }}
  STORE_{type_}(out0, at, a);
}}
"""
