"""Caches of keys and values of sequences that differ in length (com.microsoft GroupQueryAttention)."""

from __future__ import annotations

from onnxplug_kernel_text.types import marked


def lengths(name: str, *, watched: bool = False) -> str:
    """Length of each sequence with its new rows, and the place of each new row in it.

    Tensors: last (i32, the place of the last row), lengths, places (i64), fault (i32, where ``watched``). Scalars, i64: points (new rows of
    all sequences), rows (of one), before (1: rows come behind others that the length counts; 0: they begin the sequence); where
    ``watched`` room, the rows of a cache, and mark, which goes into fault for a last row that it does not have. One work-item a new row."""
    tensors = [("i32", "last"), ("i64", "lengths"), ("i64", "places"), *([("i32", "fault")] if watched else [])]
    names = ("points", "rows", "before", *(("room", "mark") if watched else ()))
    declared = [*(f"TENSOR({t}, {n})" for t, n in tensors), *(f"const i64 {s}" for s in names)]
    return f"""KERNEL void {name}({", ".join(declared)}) {{
  const i64 at = GLOBAL_ID64(0);
  if (at >= points) return;
  {" ".join(f"OPEN({t}, {n})" for t, n in tensors)}
  const i64 b = at / rows, r = at % rows, n = (i64)last[b] + 1;
  {marked("n - 1", "room") if watched else ""}
  places[at] = before ? n - rows + r : r;
  if (r == 0) lengths[b] = n;
}}
"""


def appended(name: str, type_: str, *, past: bool, first: bool) -> str:
    """The cache of each sequence with its new rows behind those it has, and zeros behind all.

    Tensors: past (if any), fresh, lengths (i64, with the new rows; not where ``first``, which begin the sequences), out0. Scalars, all i64:
    points (elements of out0), heads, room (rows of out0), size, held (rows of past), rows (new ones), then the strides of batch, head and
    row of fresh. One work-item an element."""
    tensors = [*([(type_, "past")] if past else []), (type_, "fresh"), *([] if first else [("i64", "lengths")])]
    tensors.append((type_, "out0"))
    names = ("points", "heads", "room", "size", "held", "rows", "by_batch", "by_head", "by_row")
    declared = [*(f"TENSOR({t}, {n})" for t, n in tensors), *(f"const i64 {s}" for s in names)]
    old = "r < start && r < held ? past[((b * heads + h) * held + r) * size + c] : " if past else ""
    return f"""KERNEL void {name}({", ".join(declared)}) {{
  const i64 at = GLOBAL_ID64(0);
  if (at >= points) return;
  {" ".join(f"OPEN({t}, {n})" for t, n in tensors)}
  const i64 c = at % size, r = at / size % room, h = at / size / room % heads, b = at / size / room / heads;
  const i64 start = {"0" if first else "lengths[b] - rows"};
  out0[at] = {old}r >= start && r < start + rows ? fresh[b * by_batch + h * by_head + (r - start) * by_row + c] : 0;
}}
"""
