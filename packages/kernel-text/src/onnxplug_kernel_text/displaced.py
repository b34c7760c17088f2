"""Samples of images at displaced places (ONNX DeformConv). All scalars are i64."""

from __future__ import annotations

from onnxplug_kernel_text.factors import WINDOW, flat
from onnxplug_kernel_text.types import arithmetic


def displaced(name: str, type_: str, rank: int, masked: bool) -> str:
    """What DeformConv multiplies: for each element of the window at each place of the result, the image interpolated where its offset
    leads to; neighbours beyond the image are zero, and all is zero where an offset is no number.

    Tensors: images, offsets, mask (where ``masked``), out of the arithmetic type, (images, channels, elements of the window, places).
    Scalars: points, channels that share an offset, elements, places, then ``factors.WINDOW`` of each dimension. A work-item a place of an
    element, for all channels that share it."""
    held = arithmetic(type_)
    tensors = [(type_, "in0"), (type_, "moved"), *([(type_, "mask")] if masked else []), (held, "out0")]
    scalars = ["points", "own", "elements", "places", *(f"{c}{k}" for k in range(rank) for c in WINDOW)]
    declared = [*(f"TENSOR({t}, {n})" for t, n in tensors), *(f"const i64 {s}" for s in scalars)]
    split = "".join(
        f"  const i64 y{k} = spot % o{k}, j{k} = turn % w{k}; spot /= o{k}; turn /= w{k};\n"
        for k in range(rank - 1, -1, -1)
    )
    axes = "".join(_axis(k, rank, type_, held) for k in range(rank))
    loops = " ".join(f"for (int t{k} = 0; t{k} < 2; t{k}++) if (q{k}[t{k}] >= 0)" for k in range(rank))
    place = flat("i", "h", rank, "0")
    for k in range(rank):
        place = place.replace(f"i{k}", f"q{k}[t{k}]")
    weight = " * ".join(f"v{k}[t{k}]" for k in range(rank))
    volume = " * ".join(f"h{k}" for k in range(rank))
    shared = f" * LOAD_{type_}(mask, (group * elements + element) * places + place)" if masked else ""
    return f"""KERNEL void {name}({", ".join(declared)}) {{
#pragma OPENCL FP_CONTRACT OFF
  const i64 at = GLOBAL_ID64(0);
  if (at >= points) return;
  {" ".join(f"OPEN({t}, {n})" for t, n in tensors)}
  const i64 place = at % places, element = at / places % elements, group = at / places / elements;
  i64 spot = place, turn = element;
{split}{axes}  for (i64 c = group * own; c < (group + 1) * own; c++) {{
    GLOBAL {type_} *image = in0 + c * ({volume});
    {held} a = 0;
    {loops} a += {weight} * LOAD_{type_}(image, {place});
    out0[(c * elements + element) * places + place] = a{shared};
  }}
}}
"""


def _axis(k: int, rank: int, type_: str, held: str) -> str:
    """Statements that make ``q``, the two neighbours of a place along an axis (-1 for none), and their weights ``v``."""
    return f"""  const {held} a{k} = LOAD_{type_}(moved, ((group * elements + element) * {rank} + {k}) * places + place)
    + ({held})(y{k} * m{k} - p{k}) + ({held})(j{k} * g{k});
  const int seen{k} = a{k} > -1 && a{k} < ({held})h{k};
  const {held} low{k} = seen{k} ? floor(a{k}) : 0, v{k}[2] = {{1 - (a{k} - low{k}), a{k} - low{k}}};
  const i64 q{k}[2] = {{seen{k} ? (i64)low{k} : -1, seen{k} && (i64)low{k} + 1 < h{k} ? (i64)low{k} + 1 : -1}};
"""
