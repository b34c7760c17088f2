"""Boxes of which no two overlap much (ONNX NonMaxSuppression)."""

from __future__ import annotations

from onnxplug_kernel_text.sorting import before, sort


def non_max_suppression(name: str, centred: bool, threshold: bool) -> str:
    """For each image and class the boxes of the highest scores, equal ones in their order, but for those that overlap one taken before: by
    more than ``overlap`` of their union. Boxes without area overlap none. ``centred``: boxes are centre and extents, otherwise two corners.
    ``threshold``: only boxes with more than ``least`` count.

    Tensors: boxes (images, n, 4) and scores (images, classes, n) in f32; scratch (i32, 2 n for each image and class); counts (i64, one for
    each). Scalars: lines (images times classes), classes, n, most (all i64), overlap, least (f32). A work-item a line, which leaves the
    places of its boxes at the start of its scratch memory."""
    return f"""{before(name, "f32", True)}static DEVICE f32 {name}_less(const f32 x, const f32 w) {{ return x < w ? x : w; }}
static DEVICE f32 {name}_more(const f32 x, const f32 w) {{ return x > w ? x : w; }}
KERNEL void {name}(TENSOR(f32, boxes), TENSOR(f32, scores), TENSOR(i32, scratch), TENSOR(i64, counts), const i64 lines,
    const i64 classes, const i64 n, const i64 most, const f32 overlap, const f32 least) {{
#pragma OPENCL FP_CONTRACT OFF
  const i64 at = GLOBAL_ID64(0);
  if (at >= lines) return;
  OPEN(f32, boxes) OPEN(f32, scores) OPEN(i32, scratch) OPEN(i64, counts)
  GLOBAL f32 *own = boxes + at / classes * n * 4;
  GLOBAL f32 *score = scores + at * n;
  GLOBAL i32 *begin = scratch + at * 2 * n;
  GLOBAL i32 *from_ = begin;
  GLOBAL i32 *to_ = from_ + n;
  i64 count = 0, kept = 0;
  for (i64 i = 0; i < n; i++) {{ {"if (score[i] > least)" if threshold else ""} from_[count++] = (i32)i; }}
{sort(name, "score[{at}]")}
  for (i64 i = 0; i < count && kept < most; i++) {{
    {_box(name, "a", "i", centred)}
    int free_ = 1;
    for (i64 j = 0; j < kept && free_; j++) {{
      {_box(name, "b", "j", centred)}
      const f32 wide = {name}_less(a_right, b_right) - {name}_more(a_left, b_left);
      const f32 high = {name}_less(a_end, b_end) - {name}_more(a_top, b_top);
      const f32 common = (wide > 0 ? wide : 0) * (high > 0 ? high : 0), both = a_area + b_area - common;
      if (common > 0 && a_area > 0 && b_area > 0 && both > 0 && common / both > overlap) free_ = 0;
    }}
    if (free_) from_[kept++] = from_[i];
  }}
  for (i64 i = 0; i < kept; i++) begin[i] = from_[i];
  counts[at] = kept;
}}
"""


def _box(name: str, box: str, number: str, centred: bool) -> str:
    """Statements that declare the sides and the area of a box."""
    left, top = f"{name}_less({box}_[1], {box}_[3])", f"{name}_less({box}_[0], {box}_[2])"
    right, end = left.replace("_less", "_more"), top.replace("_less", "_more")
    if centred:
        left, right = (f"{box}_[0] {sign} {box}_[2] / 2" for sign in "-+")
        top, end = (f"{box}_[1] {sign} {box}_[3] / 2" for sign in "-+")
    return f"""GLOBAL f32 *{box}_ = own + 4 * (i64)from_[{number}];
    const f32 {box}_left = {left}, {box}_top = {top}, {box}_right = {right}, {box}_end = {end};
    const f32 {box}_area = ({box}_right - {box}_left) * ({box}_end - {box}_top);"""


def chosen(name: str) -> str:
    """The rows (image, class, box) of all lines. Tensors: scratch and counts, as above; rows (i64); total (i64, one), how many they are.
    Scalars, all i64: lines, classes, n. A work-item a line."""
    return f"""KERNEL void {name}(TENSOR(i32, scratch), TENSOR(i64, counts), TENSOR(i64, rows), TENSOR(i64, total), const i64 lines,
    const i64 classes, const i64 n) {{
  const i64 at = GLOBAL_ID64(0);
  if (at >= lines) return;
  OPEN(i32, scratch) OPEN(i64, counts) OPEN(i64, rows) OPEN(i64, total)
  i64 first = 0;
  for (i64 i = 0; i < at; i++) first += counts[i];
  for (i64 i = 0; i < counts[at]; i++) {{
    GLOBAL i64 *row = rows + 3 * (first + i);
    row[0] = at / classes; row[1] = at % classes; row[2] = scratch[at * 2 * n + i];
  }}
  if (at == lines - 1) total[0] = first + counts[at];
}}
"""
