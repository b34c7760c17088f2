"""Boxes of which no two overlap much (ONNX NonMaxSuppression)."""

from __future__ import annotations

from onnxplug_kernel_text.sorting import sort


def non_max_suppression(name: str, centred: bool, threshold: bool, group: int = 0) -> str:
    """For each image and class the boxes of the highest scores, equal ones in their order and NaN last, but for those that overlap one
    taken before: by more than ``overlap`` of their union. Boxes without area overlap none. ``centred``: boxes are centre and extents,
    otherwise two corners. ``threshold``: only boxes with more than ``least`` count.

    Tensors: boxes (images, n, 4) and scores (images, classes, n) in f32; scratch (i32, 2 n for each image and class); counts (i64, one for
    each). Scalars: lines (images times classes), classes, n, most (all i64), overlap, least (f32). A work-item a line, or a group of
    ``group``; it leaves the places of its boxes at the start of its scratch memory."""
    return f"""#pragma OPENCL FP_CONTRACT OFF
static DEVICE int {name}_before(const f32 x, const f32 w) {{ return x > w || (x == x && w != w); }}
static DEVICE f32 {name}_less(const f32 x, const f32 w) {{ return x < w ? x : w; }}
static DEVICE f32 {name}_more(const f32 x, const f32 w) {{ return x > w ? x : w; }}
static DEVICE f32 {name}_side(const f32 end, const f32 end_, const f32 begin, const f32 begin_) {{
  const f32 long_ = {name}_less(end, end_) - {name}_more(begin, begin_);
  return long_ > 0 ? long_ : 0;
}}
static DEVICE int {name}_overlap(const f32 common, const f32 a_area, const f32 b_area, const f32 overlap) {{
  const f32 both = a_area + b_area - common;
  return common > 0 && a_area > 0 && b_area > 0 && both > 0 && common / both > overlap;
}}
KERNEL void {name}(TENSOR(f32, boxes), TENSOR(f32, scores), TENSOR(i32, scratch), TENSOR(i64, counts), const i64 lines,
    const i64 classes, const i64 n, const i64 most, const f32 overlap, const f32 least) {{
  const i64 at = {"GROUP_ID(0)" if group else "GLOBAL_ID64(0)"};
{"" if group else "  if (at >= lines) return;"}
  OPEN(f32, boxes) OPEN(f32, scores) OPEN(i32, scratch) OPEN(i64, counts)
  GLOBAL f32 *own = boxes + at / classes * n * 4;
  GLOBAL f32 *score = scores + at * n;
  GLOBAL i32 *begin = scratch + at * 2 * n;
{_together(name, centred, threshold, group) if group else _alone(name, centred, threshold)}
}}
"""


def _alone(name: str, centred: bool, threshold: bool) -> str:
    """What a work-item does: a merge sort, and a look at the boxes in order."""
    return f"""  GLOBAL i32 *from_ = begin;
  GLOBAL i32 *to_ = from_ + n;
  i64 count = 0, kept = 0;
  for (i64 i = 0; i < n; i++) {{ {"if (score[i] > least)" if threshold else ""} from_[count++] = (i32)i; }}
{sort(name, "score[{at}]")}
  for (i64 i = 0; i < count && kept < most; i++) {{
    {_box(name, "a", "from_[i]", centred)}
    int free_ = 1;
    for (i64 j = 0; j < kept && free_; j++) {{
      {_box(name, "b", "from_[j]", centred)}
      if ({_overlaps(name)}) free_ = 0;
    }}
    if (free_) from_[kept++] = from_[i];
  }}
  for (i64 i = 0; i < kept; i++) begin[i] = from_[i];
  counts[at] = kept;"""


def _together(name: str, centred: bool, threshold: bool, group: int) -> str:
    """What a group does: each box is put where as many are before it, then each in order is compared with those that are kept, of which a
    work-item remembers every ``group``-th. Of three flags one is read, one may be written and one is got ready at a time."""
    counts = "score[j] > least && " if threshold else ""
    return f"""  GLOBAL i32 *to_ = begin + n;
  LOCAL i32 free_[3];
  i64 count = {"0" if threshold else "n"}, kept = 0;
  {"for (i64 j = 0; j < n; j++) count += score[j] > least;" if threshold else ""}
  for (i64 i = LOCAL_ID(0); i < n; i += {group}) {{
    {"if (!(score[i] > least)) continue;" if threshold else ""}
    i64 rank = 0;
    for (i64 j = 0; j < n; j++)
      rank += {counts}({name}_before(score[j], score[i]) || (j < i && !{name}_before(score[i], score[j])));
    begin[rank] = (i32)i;
  }}
  if (LOCAL_ID(0) < 3) free_[LOCAL_ID(0)] = 1;
  BARRIER_GLOBAL();
  for (i64 i = 0; i < count && kept < most; i++) {{
    {_box(name, "a", "begin[i]", centred)}
    const int now = (int)(i % 3);
    if (LOCAL_ID(0) == 0) free_[(now + 1) % 3] = 1;
    int met = 0;
    for (i64 j = LOCAL_ID(0); j < kept && !met; j += {group}) {{
      {_box(name, "b", "to_[j]", centred)}
      if ({_overlaps(name)}) met = 1;
    }}
    if (met) free_[now] = 0;
    BARRIER();
    if (free_[now]) {{
      if (LOCAL_ID(0) == kept % {group}) to_[kept] = begin[i];
      kept++;
    }}
  }}
  BARRIER_GLOBAL();
  for (i64 i = LOCAL_ID(0); i < kept; i += {group}) begin[i] = to_[i];
  if (LOCAL_ID(0) == 0) counts[at] = kept;"""


def _overlaps(name: str) -> str:
    """Whether boxes a and b have more than ``overlap`` of their union in common."""
    wide, high = (
        f"{name}_side(a_{end}, b_{end}, a_{begin}, b_{begin})" for begin, end in (("left", "right"), ("top", "end"))
    )
    return f"{name}_overlap({wide} * {high}, a_area, b_area, overlap)"


def _box(name: str, box: str, place: str, centred: bool) -> str:
    """Statements that declare the sides and the area of a box."""
    left, top = f"{name}_less({box}_[1], {box}_[3])", f"{name}_less({box}_[0], {box}_[2])"
    right, end = left.replace("_less", "_more"), top.replace("_less", "_more")
    if centred:
        left, right = (f"{box}_[0] {sign} {box}_[2] / 2" for sign in "-+")
        top, end = (f"{box}_[1] {sign} {box}_[3] / 2" for sign in "-+")
    return f"""GLOBAL f32 *{box}_ = own + 4 * (i64){place};
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
