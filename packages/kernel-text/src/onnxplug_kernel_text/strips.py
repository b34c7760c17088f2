"""Convolutions in which every channel of the result comes from one channel of the image (depthwise), for processors.

A work-item brings some rows of a channel, with their padding, into scratch memory of its own, columns sorted by what they leave when
divided by the step of the window: what a row of results reads for one element of the window is then one run, whatever the step. OpenCL
only, as ``product``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnxplug_kernel_text.elementwise import Operand
from onnxplug_kernel_text.factors import batch_offsets, parameters, stride, times
from onnxplug_kernel_text.planes import fetched
from onnxplug_kernel_text.types import SIZES, accumulated, arithmetic

VECTOR = 32
"""Bytes of a vector."""
_LONG = 4
"""Vectors of a row that are computed together."""
_NAMES = {"f32": "float", "f64": "double", "i32": "int"}
SCALARS = (
    "channels", "jobs", "workers", "bands", "band", "room", "pitch", "h0", "h1", "o0", "o1", "p0", "p1", "m0",
)  # fmt: skip
"""Channels of the result; jobs, which are batch times channels times bands, and work-items; bands of a channel and their rows; elements of
a work-item's scratch memory and of a run of columns; extents of image and result; padding; the window's step from row to row."""


@dataclass(frozen=True)
class Strips:
    """What of a convolution is in the text: the window's extents, the gaps between its elements (dilation), its step along a row, and how
    many channels of the result come from one of the image."""

    window: tuple[int, int]
    gaps: tuple[int, int]
    step: int
    each: int

    def run(self, columns: int, type_: str) -> int:
        """Elements of a run of columns for that many of the result."""
        lanes = VECTOR // SIZES[accumulated(type_)]
        return -(-columns // lanes) * lanes + (self.window[1] - 1) * self.gaps[1] // self.step

    def rows(self, band: int, step: int) -> int:
        """Rows of the image that ``band`` rows of the result read."""
        return (band - 1) * step + (self.window[0] - 1) * self.gaps[0] + 1


def depthwise(
    name: str, left: Operand, right: Operand, others: Sequence[Operand], out: Operand, body: str, tile: Strips
) -> str:
    """A kernel that computes ``body`` for each element, as ``product.product`` does: rows are the channels, columns the positions of the
    result.

    Tensors: weights (strides over the batch, channels, window), images (over the batch only), scratch in the arithmetic type, others, out.
    Scalars, all i64: ``SCALARS``; the batch's extents but the first; then strides of left, right, others, out. ``workers`` work-items."""
    batch, held = len(out.strides) - 2, accumulated(out.type)
    operands = {"left": left, "right": right, **{f"other{n}": o for n, o in enumerate(others)}, "out": out}
    tensors = [f"TENSOR({o.type}, {n})" for n, o in operands.items()]
    tensors.insert(2, f"TENSOR({held}, scratch)")
    scalars = [f"const i64 {s}" for s in (*SCALARS, *(f"z{k}" for k in range(1, batch)))]
    for n, o in operands.items():
        scalars += parameters(n, o.strides)
    lanes = VECTOR // SIZES[held]
    taps = [(i, k) for i in range(tile.window[0]) for k in range(tile.window[1])]
    along = stride("left", left.strides, batch + 1)
    weights = ", ".join(f"tap{n} = LOAD_{left.type}(filter, {n} * {along})" for n in range(len(taps)))
    lines = [
        f"typedef {_NAMES[held]}{lanes} {name}_near __attribute__((aligned({SIZES[held]})));",
        f"KERNEL void {name}({', '.join([*tensors, *scalars])}) {{",
        *[f"  OPEN({o.type}, {n})" for n, o in operands.items()],
        f"  OPEN({held}, scratch)",
        f"  const int row_ = (int)pitch * {tile.step}, wide = (int)o1;",
        f"  GLOBAL {held} *own = scratch + GLOBAL_ID64(0) * room;",
        "  for (i64 job = GLOBAL_ID64(0); job < jobs; job += workers) {",
        "    const i64 z = job / bands / channels, c = job / bands % channels;",
        "    const int first = (int)(job % bands * band), last = first + band < o0 ? first + (int)band : (int)o0;",
        batch_offsets(batch, {n: o.strides for n, o in operands.items()}),
        f"    GLOBAL {right.type} *image = right + right_z + c / {tile.each} * h0 * h1;",
        f"    GLOBAL {left.type} *filter = left + left_z + {times('c', 'left', left.strides, batch)};",
        f"    const {held} {weights};",
        _fetched(right.type, held, tile),
        "    for (int y = first; y < last; y++) {",
        f"      GLOBAL const {held} *line = own + (y - first) * (int)m0 * row_;",
        *[
            f"      GLOBAL {o.type} *{n}_row = {n} + {n}_z + {times('c', n, o.strides, batch)} + "
            f"{times('(i64)y * o1', n, o.strides, batch + 1)};"
            for n, o in operands.items()
            if n not in ("left", "right")
        ],
        "      int t = 0;",
    ]
    for vectors in (_LONG, 1):
        count = vectors * lanes
        loop = f"t + {count} <= wide" if vectors > 1 else "t < wide"
        lines.append(f"      for (; {loop}; t += {count}) {{")
        lines.append(f"        {name}_near {', '.join(f'a{v} = 0' for v in range(vectors))};")
        for tap, (i, k) in enumerate(taps):
            rest, skipped = k * tile.gaps[1] % tile.step, k * tile.gaps[1] // tile.step
            at = f"{i * tile.gaps[0]} * row_ + {rest} * (int)pitch + {skipped} + t"
            lines.append(
                f"        {{ const {name}_near w = ({name}_near)(tap{tap}); "
                + " ".join(
                    f"a{v} += w * *(GLOBAL const {name}_near *)(line + {at} + {v * lanes});" for v in range(vectors)
                )
                + " }"
            )
        lines.append(f"        {held} sums[{count}];")
        lines += [f"        *({name}_near *)(sums + {v * lanes}) = a{v};" for v in range(vectors)]
        stop = str(count) if vectors > 1 else f"(wide - t < {lanes} ? wide - t : {lanes})"
        lines += [_stored(others, out, body, held, batch, stop), "      }"]
    return "\n".join([*lines, "    }\n  }\n}\n"])


def _fetched(type_: str, held: str, tile: Strips) -> str:
    """Statements that bring the rows of a band into scratch memory."""
    return f"""    const int rows = (last - 1 - first) * (int)m0 + {(tile.window[0] - 1) * tile.gaps[0] + 1};
    for (int r = 0; r < rows; r++) {{
      const int i = first * (int)m0 - (int)p0 + r;
      for (int f = 0; f < {tile.step}; f++) {{ GLOBAL {held} *to = own + r * row_ + f * (int)pitch;
{fetched(type_, "i < 0 || i >= h0", "f", tile.step)} }}
    }}"""


def _stored(others: Sequence[Operand], out: Operand, body: str, held: str, batch: int, stop: str) -> str:
    reads = " ".join(
        f"const {arithmetic(o.type)} e{n} = LOAD_{o.type}(other{n}_row, "
        f"{times('(t + j)', f'other{n}', o.strides, batch + 1)});"
        for n, o in enumerate(others)
    )
    place = times("(t + j)", "out", out.strides, batch + 1)
    count = f"for (int j = 0; j < {stop}; j++)"  # twice, as in ``product``
    value = f"{{ const {held} x = sums[j]; {reads} {held} y; {body} sums[j] = y; }}"
    return f"        {count} {value} {count} STORE_{out.type}(out_row, {place}, sums[j]);"
