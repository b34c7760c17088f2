"""Columns added up in images (ONNX Col2Im)."""

from __future__ import annotations

from onnxplug_kernel_text.factors import WINDOW, flat
from onnxplug_kernel_text.types import arithmetic


def folded(name: str, type_: str, rank: int) -> str:
    """ONNX Col2Im: each element of an image is the sum of those of the columns that lie on it, in the order of the window.

    Tensors: columns, out. Scalars, all i64: elements of out, then ``factors.WINDOW`` of each dimension, whose input is the image. A
    work-item an element."""
    held = arithmetic(type_)
    scalars = ", ".join(f"const i64 {s}" for s in ("points", *(f"{c}{k}" for k in range(rank) for c in WINDOW)))
    split = "".join(f"  const i64 y{k} = rest % h{k}; rest /= h{k};\n" for k in range(rank - 1, -1, -1))
    loops = "".join(
        f"  for (i64 j{k} = 0; j{k} < w{k}; j{k}++) {{\n"
        f"    const i64 u{k} = y{k} + p{k} - j{k} * g{k}, i{k} = u{k} / m{k};\n"
        f"    if (u{k} < 0 || i{k} * m{k} != u{k} || i{k} >= o{k}) continue;\n"
        for k in range(rank)
    )
    elements, places = (" * ".join(f"{letter}{k}" for k in range(rank)) for letter in "wo")
    from_ = f"((rest * ({elements}) + {flat('j', 'w', rank, '0')}) * ({places}) + {flat('i', 'o', rank, '0')})"
    return f"""KERNEL void {name}(TENSOR({type_}, in0), TENSOR({type_}, out0), {scalars}) {{
  const i64 at = GLOBAL_ID64(0);
  if (at >= points) return;
  OPEN({type_}, in0) OPEN({type_}, out0)
  i64 rest = at;
{split}  {held} a = 0;
{loops}    a += LOAD_{type_}(in0, {from_});
  {"}" * rank}
  STORE_{type_}(out0, at, a);
}}
"""


def folded_rows(name: str, type_: str, rank: int, *, bias: bool) -> str:
    """The same for processors, a line of the image at a time, added to a ``bias`` of each channel where there is one: f32 or f64.

    Tensors: columns, bias, out. Scalars, all i64: lines of out, channels, then ``factors.WINDOW`` of each dimension. A work-item a
    line."""
    last = rank - 1
    scalars = ", ".join(
        f"const i64 {s}" for s in ("lines", "channels", *(f"{c}{k}" for k in range(rank) for c in WINDOW))
    )
    tensors = ("in0", *(["bias"] if bias else []), "out0")
    split = "".join(f"  const i64 y{k} = rest % h{k}; rest /= h{k};\n" for k in range(last - 1, -1, -1))
    loops = "".join(
        f"  for (i64 j{k} = 0; j{k} < w{k}; j{k}++) {{\n"
        f"    const i64 u{k} = y{k} + p{k} - j{k} * g{k}, i{k} = u{k} / m{k};\n"
        f"    if (u{k} < 0 || i{k} * m{k} != u{k} || i{k} >= o{k}) continue;\n"
        for k in range(last)
    )
    elements = " * ".join(f"w{k}" for k in range(rank))
    outer = " * ".join(["1", *(f"o{k}" for k in range(last))])
    from_ = f"((rest * ({elements}) + {flat('j', 'w', rank, '0')}) * ({outer}) + {flat('i', 'o', last, '0')}) * o{last}"
    each = "for (i64 i = low; i < high; i++) to[i * {step}] += from[i];"
    return f"""KERNEL void {name}({", ".join(f"TENSOR({type_}, {t})" for t in tensors)}, {scalars}) {{
  const i64 line = GLOBAL_ID64(0);
  if (line >= lines) return;
  {" ".join(f"OPEN({type_}, {t})" for t in tensors)}
  i64 rest = line;
{split}  GLOBAL {type_} *row = out0 + line * h{last};
  const {type_} begin = {"bias[rest % channels]" if bias else "0"};
  for (i64 t = 0; t < h{last}; t++) row[t] = begin;
{loops}  for (i64 j{last} = 0; j{last} < w{last}; j{last}++) {{
    GLOBAL const {type_} *from = in0 + {from_};
    const i64 at = j{last} * g{last} - p{last}, all = h{last} - at + m{last} - 1;
    const i64 low = at < 0 ? (m{last} - 1 - at) / m{last} : 0, high = all < o{last} * m{last} ? all / m{last} : o{last};
    GLOBAL {type_} *to = row + at;
    if (m{last} == 1) {each.format(step="1")}
    else {each.format(step=f"m{last}")}
  }}{" }" * last}
}}
"""
