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
