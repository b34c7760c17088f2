"""Largest elements of windows, for processors: of the rows that a row of windows touches one row is made first, then the windows are taken
from that. Each element is compared once for the window's height and once for its width, in vectors. OpenCL only, as ``product``."""

from __future__ import annotations

import math
from collections.abc import Sequence

from onnxplug_kernel_text.factors import WINDOW, flat
from onnxplug_kernel_text.types import SIZES, VECTORS, lowest
from onnxplug_kernel_text.windows import Taps, every_second

ROOM = 2048
"""Bytes of a work-item's row: what is longer is done part by part."""


def max_rows(name: str, type_: str, taps: Taps, vector: int) -> str:
    """ONNX MaxPool of a type that is its own arithmetic, without positions; ``vector``: bytes of the device's vectors.

    Tensors: in, out. Scalars, all i64: rows of the output, rows a work-item does, then ``factors.WINDOW`` of each dimension, of which those
    that are ``taps`` are not read."""
    rank, lanes = len(taps), vector // SIZES[type_]
    last, (wide, step, gap) = rank - 1, taps[-1]
    reach = (wide - 1) * gap
    strip = max(lanes, (ROOM // SIZES[type_] - reach) // step // lanes * lanes)
    scalars = [f"const i64 {s}" for s in ("lines", "each", *(f"{c}{k}" for k in range(rank) for c in WINDOW))]
    rows = math.prod(extent for extent, _, _ in taps[:-1])
    split = "".join(f" const int y{k} = (int)(rest_ % o{k}); rest_ /= o{k};" for k in range(last - 1, -1, -1))
    outer = "".join(
        f" for (int k{k} = 0; k{k} < {extent}; k{k}++) {{ const int i{k} = y{k} * {along} - (int)p{k} + k{k} * {apart};"
        f" if (i{k} < 0 || i{k} >= h{k}) continue;"
        for k, (extent, along, apart) in enumerate(taps[:-1])
    )
    take = "a = (x > a) | (x != x) ? x : a;"

    def down(of: str, read: str, put: str) -> str:
        more = f"for (int r = 1; r < count; r++) {{ const {of} x = {read.format('r')}; {take} }}"
        return f"{of} a = {read.format('0')}; {more} {put} = a;"

    def along(made: Sequence[str], of: str, put: str) -> str:
        more = " ".join(f"{{ {each} {take} }}" for each in made)
        return f"{of} a = {lowest(type_)}; {more} {put} = a;"

    vec, near = f"{VECTORS[type_]}{lanes}", "*(near_ *)"
    one = down(type_, "from[starts[{}] + t]", "row[t]")
    many = down(vec, "*(GLOBAL const near_ *)(from + starts[{}] + at)", f"{near}(row + at)")
    single = along([f"const {type_} x = row[t * {step} + {k * gap}];" for k in range(wide)], type_, "to[t]")
    firsts = [f"row + at * {step} + {k * gap}" for k in range(wide)]
    if step == 1:
        made = [f"const {vec} x = {near}({first});" for first in firsts]
    elif step == 2:
        made = [every_second("x", vec, lanes, f"{near}({f})", f"{near}({f} + {lanes})") for f in firsts]
    else:
        made = [f"const {vec} x = ({vec})({', '.join(f'({f})[{n * step}]' for n in range(lanes))});" for f in firsts]
    return f"""KERNEL void {name}({", ".join([f"TENSOR({type_}, in0)", f"TENSOR({type_}, out0)", *scalars])}) {{
  typedef {vec} near_ __attribute__((aligned({SIZES[type_]})));
  OPEN({type_}, in0) OPEN({type_}, out0)
  {type_} row[{strip * step + reach + step}];
  const i64 from_ = GLOBAL_ID64(0) * each, past_ = from_ + each < lines ? from_ + each : lines;
  for (i64 line = from_; line < past_; line++) {{
    i64 rest_ = line;{split}
    int starts[{rows}], count = 0;
    {{{outer} starts[count++] = ({flat("i", "h", last, "0")}) * (int)h{last}; {"}" * last} }}
    for (int first = 0; first < o{last}; first += {strip}) {{
      const int width = o{last} - first < {strip} ? (int)(o{last} - first) : {strip}, all = (width - 1) * {step} + {reach + 1};
      const int begin = first * {step} - (int)p{last}, rest = (int)h{last} - begin;
      const int low = begin < 0 ? (-begin < all ? -begin : all) : 0, ends = rest < all ? rest : all;
      const int high = count == 0 || ends < low ? low : ends;
      GLOBAL {type_} *from = in0 + rest_ * ({" * ".join(f"h{k}" for k in range(rank))}) + begin;
      GLOBAL {type_} *to = out0 + line * o{last} + first;
      for (int t = 0; t < low; t++) row[t] = {lowest(type_)};
      for (int t = high; t < all + {step - 1}; t++) row[t] = {lowest(type_)};
      if (high - low < {lanes}) for (int t = low; t < high; t++) {{ {one} }}
      else for (int t = low; t < high; t += {lanes}) {{ const int at = t + {lanes} < high ? t : high - {lanes}; {many} }}
      if (width < {lanes}) for (int t = 0; t < width; t++) {{ {single} }}
      else for (int t = 0; t < width; t += {lanes}) {{ const int at = t + {lanes} < width ? t : width - {lanes};
        {along(made, vec, "*(GLOBAL near_ *)(to + at)")} }}
    }}
  }}
}}
"""
