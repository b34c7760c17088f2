"""Rotation of pairs of elements by the angle of their place (ONNX RotaryEmbedding)."""

from __future__ import annotations

from onnxplug_kernel_text.types import arithmetic, marked, wrapped


def rotary(
    name: str,
    type_: str,
    angles: str,
    *,
    interleaved: bool,
    places: str | None,
    watched: bool = False,
    turns: bool = False,
) -> str:
    """Each pair of the first 2 ``half`` elements of a row, neighbours where ``interleaved`` and else ``half`` apart, turned; the rest
    copied.

    Tensors: in0, cos, sin (of type ``angles``), places (i64, where not None), out0 of ``type_``, fault (i32, where ``watched``).
    ``places``: "each", the number of the row of angles of each (batch, row); "first", that of row 0; "three", a place in time, in height
    and in width of each (batch, row), where each angle is of one of them (com.microsoft MRotaryEmbedding), in runs or in ``turns``; modulo
    ``lines``, the rows there are. Without them there is a row of angles for each (batch, row). Scalars, all i64: points (elements), heads,
    rows, size, half, lines, then the strides of batch, head and row of in0 (those of out0 are the same); where ``watched`` mark, which goes
    into fault for a row of angles that there is not; for "three" the angles that are of time, height and width, and places that each of
    them has.
    """
    tensors = [(type_, "in0"), (angles, "cos_"), (angles, "sin_")] + ([("i64", "places")] if places else [])
    tensors += [(type_, "out0"), *([("i32", "fault")] if watched else [])]
    declared = [f"TENSOR({t}, {n})" for t, n in tensors]
    names = [
        "points",
        "heads",
        "rows",
        "size",
        "half_",
        "lines",
        "by_batch",
        "by_head",
        "by_row",
        *(["mark"] if watched else []),
        *(["time", "height", "width", "all_"] if places == "three" else []),
    ]
    declared += [f"const i64 {s}" for s in names]
    row = {
        None: "b * rows + r", "each": "places[b * rows + r]", "first": "places[0] + r",
        "three": "places[stream * all_ + b * rows + r]",
    }[places]  # fmt: skip
    stream = "pair < time ? 0 : pair < time + height ? 1 : 2"
    if turns:
        stream = "pair % 3 == 1 && pair < 3 * height ? 1 : pair % 3 == 2 && pair < 3 * width ? 2 : 0"
    line = wrapped(row, "lines") if places else row
    held = arithmetic(type_)
    pair, other = ("c / 2", "c % 2 ? from - 1 : from + 1") if interleaved else (
        "c % half_", "c < half_ ? from + half_ : from - half_"
    )  # fmt: skip
    second = "c % 2" if interleaved else "c >= half_"
    return f"""KERNEL void {name}({", ".join(declared)}) {{
  const i64 at = GLOBAL_ID64(0);
  if (at >= points) return;
  {" ".join(f"OPEN({t}, {n})" for t, n in tensors)}
  const i64 c = at % size, r = at / size % rows, h = at / size / rows % heads, b = at / size / rows / heads;
  const i64 from = b * by_batch + h * by_head + r * by_row + c;
  const {held} x = LOAD_{type_}(in0, from);
  if (c >= 2 * half_) {{ STORE_{type_}(out0, from, x); return; }}
  {f"const i64 pair = {pair}; const int stream = {stream};" if places == "three" else ""}
  {marked(row, "lines") if watched else ""}
  const i64 angle = ({line}) * half_ + {pair};
  const {held} y = LOAD_{type_}(in0, {other}), cosine = LOAD_{angles}(cos_, angle), sine = LOAD_{angles}(sin_, angle);
  STORE_{type_}(out0, from, {second} ? cosine * x + sine * y : cosine * x - sine * y);
}}
"""
