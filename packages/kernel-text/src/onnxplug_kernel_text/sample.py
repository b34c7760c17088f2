"""ONNX GridSample: images interpolated at places that a tensor gives."""

from __future__ import annotations

from onnxplug_kernel_text.factors import flat
from onnxplug_kernel_text.types import APART, arithmetic

MODES = {
    "bilinear": "linear", "bicubic": "cubic", "linear": "linear", "cubic": "cubic", "nearest": "nearest",
}  # fmt: skip
"""What versions call them -> what is written."""
PADDINGS = ("zeros", "border", "reflection")
_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}


def grid_sample(name: str, type_: str, grid: str, rank: int, mode: str, padding: str, aligned: bool) -> str:
    """The kernel: ``mode`` one of the values of ``MODES``, ``padding`` of ``PADDINGS``. Tensors: images, grid, out. Scalars, all i64:
    places of all images, places of one, channels, extents of an image. A work-item a place, for all channels."""
    held, real, taps = arithmetic(type_), arithmetic(grid), _TAPS[mode]
    extents = [f"h{k}" for k in range(rank)]
    scalars = ", ".join(f"const i64 {s}" for s in ("points", "places", "channels", *extents))
    axes = "".join(_axis(name, k, rank, real, grid, mode, padding, aligned) for k in range(rank))
    loops = " ".join(f"for (int t{k} = 0; t{k} < {taps}; t{k}++) if (p{k}[t{k}] >= 0)" for k in range(rank))
    weight = " * ".join(f"w{k}[t{k}]" for k in range(rank))
    image = flat("i", "h", rank, "0")
    for k in range(rank):
        image = image.replace(f"i{k}", f"p{k}[t{k}]")
    return f"""{APART if mode == "nearest" else ""}static DEVICE {real} {name}_folded({real} at, {real} low, {real} high) {{
  const {real} span = high - low, distance = at > low ? at - low : low - at;
  if (span == 0) return low;
  const {real} turns = floor(distance / span), rest = distance - turns * span;
  return turns - 2 * floor(turns / 2) == 0 ? low + rest : high - rest;
}}
static DEVICE i64 {name}_place(i64 at, i64 size, {real} low, {real} high) {{
  {_settled(name, padding, real)}
}}
KERNEL void {name}(TENSOR({type_}, in0), TENSOR({grid}, in1), TENSOR({type_}, out0), {scalars}) {{
  const i64 at = GLOBAL_ID64(0);
  if (at >= points) return;
  OPEN({type_}, in0) OPEN({grid}, in1) OPEN({type_}, out0)
{axes}  for (i64 c = 0; c < channels; c++) {{
    const i64 plane = at / places * channels + c;
    GLOBAL {type_} *image = in0 + plane * ({" * ".join(extents)});
    {held} a = 0;
    {loops} a += ({held})({weight}) * LOAD_{type_}(image, {image});
    STORE_{type_}(out0, plane * places + at % places, a);
  }}
}}
"""


def _axis(name: str, k: int, rank: int, real: str, grid: str, mode: str, padding: str, aligned: bool) -> str:
    """Statements that make ``p``, the elements of one axis that a sample is made of (-1 for none), and their weights ``w``."""
    size = f"({real})h{k}"
    at = f"(v{k} + 1) / 2 * ({size} - 1)" if aligned else f"((v{k} + 1) * {size} - 1) / 2"
    low, high = ("0", f"({size} - 1)") if aligned else (f"-({real})0.5", f"({size} - ({real})0.5)")
    at = f"rint({at})" if mode == "nearest" else at
    lines = [
        f"const {real} v{k} = LOAD_{grid}(in1, at * {rank} + {rank - 1 - k}), low{k} = {low}, high{k} = {high};",
        f"{real} c{k} = {at};",
    ]
    if padding == "border" and mode != "cubic":
        lines.append(f"c{k} = c{k} < 0 ? 0 : c{k} > {size} - 1 ? {size} - 1 : c{k};")
    elif padding == "reflection":
        lines.append(f"if (c{k} < low{k} || c{k} > high{k}) c{k} = {name}_folded(c{k}, low{k}, high{k});")
    if mode == "nearest":
        lines += [f"i64 p{k}[1] = {{(i64)c{k}}}; const {real} w{k}[1] = {{1}};"]
    else:
        lines.append(f"const {real} first{k} = floor(c{k}), u{k} = c{k} - first{k};")
        weights = [f"1 - u{k}", f"u{k}"]
        if mode == "cubic":
            weights = [_far(f"(u{k} + 1)"), _near(f"u{k}"), _near(f"(1 - u{k})"), _far(f"(2 - u{k})")]
        start = [f"(i64)first{k} + {n - (mode == 'cubic')}" for n in range(len(weights))]
        lines.append(f"i64 p{k}[{len(start)}] = {{{', '.join(start)}}};")
        lines.append(f"const {real} w{k}[{len(start)}] = {{{', '.join(weights)}}};")
    lines.append(f"for (int t = 0; t < {_TAPS[mode]}; t++) p{k}[t] = {name}_place(p{k}[t], h{k}, low{k}, high{k});")
    return "".join(f"  {line}\n" for line in lines)


def _settled(name: str, padding: str, real: str) -> str:
    if padding == "zeros":
        return "return at < 0 || at >= size ? -1 : at;"
    folded = f"if (({real})at < low || ({real})at > high) at = (i64){name}_folded(({real})at, low, high);"
    return f"{folded if padding == 'reflection' else ''} return at < 0 ? 0 : at >= size ? size - 1 : at;"


def _far(x: str) -> str:
    """Keys' cubic with a = -3/4, of the outer elements; quarters are exact in any type."""
    return f"((-3 * {x} + 15) * {x} - 24) * {x} / 4 + 3"


def _near(x: str) -> str:
    """The same of the inner ones."""
    return f"(5 * {x} - 9) * {x} * {x} / 4 + 1"
