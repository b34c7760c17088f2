"""Images laid out for convolutions on processors: padded, with rows and columns sorted by what they leave when divided by the window's
steps. What all windows of a row read at one place is one run of such a plane, whatever the step; the distance between the places of one
window is the same everywhere (``factors.Shifted``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from onnxplug_kernel_text.types import arithmetic

_FEW = 3
"""Remainders that have text of their own."""
SCALARS = ("count", "h0", "h1", "p0", "p1", "rows", "pitch", "room")
"""Images; their extents; padding before them; extents of a plane; elements behind the last plane."""


@dataclass(frozen=True)
class Phases:
    """The window's step in one dimension, and the remainders of those rows or columns that windows touch, from 0 on: one plane for each
    pair."""

    step: int
    remainders: tuple[int, ...]

    @classmethod
    def of(cls, window: int, step: int, gap: int) -> Phases:
        """For a window of that extent, step and dilation. Many that do not follow at one distance are joined by those between them."""
        touched = sorted({k * gap % step for k in range(window)})
        between = range(0, touched[-1] + 1, touched[1] if len(touched) > 1 else 1)
        if len(touched) > _FEW and touched != list(between):
            return cls(step, tuple(range(0, step, math.gcd(gap, step))))
        return cls(step, tuple(touched))

    def place(self, k: int, gap: int) -> tuple[int, int]:
        """In which plane, and how far along it, element ``k`` of the first window lies."""
        return self.remainders.index(k * gap % self.step), k * gap // self.step


def planes(name: str, type_: str, rows: Phases, columns: Phases) -> str:
    """Planes of images, in the arithmetic type. Tensors: images, out. Scalars, all i64: ``SCALARS``. A work-item an image: each has planes
    for the remainders of rows, then columns, each plane dense. The last one fills the room behind with zeros: vectors reach into it."""
    held, step = arithmetic(type_), columns.step
    lines = [
        f"KERNEL void {name}({', '.join([f'TENSOR({type_}, in0)', f'TENSOR({held}, out0)', *(f'const i64 {s}' for s in SCALARS)])}) {{",
        "  const i64 at = GLOBAL_ID64(0);",
        "  if (at >= count) return;",
        f"  OPEN({type_}, in0) OPEN({held}, out0)",
        f"  GLOBAL {type_} *image = in0 + at * h0 * h1;",
        f"  GLOBAL {held} *to = out0 + at * {len(rows.remainders) * len(columns.remainders)} * rows * pitch;",
    ]
    for outer, f in _each("f", rows.remainders):
        for inner, g in _each("g", columns.remainders):
            lines.append(
                f"  {outer} {inner} for (int r = 0; r < rows; r++, to += pitch) {{ const i64 i = (i64)r * {rows.step} + {f} - p0;"
            )
            lines += [fetched(type_, "i < 0 || i >= h0", g, step), "  }"]
    lines.append("  if (at == count - 1) for (i64 t = 0; t < room; t++) to[t] = 0;")
    return "\n".join([*lines, "}\n"])


def _each(name: str, remainders: Sequence[int]) -> list[tuple[str, str]]:
    """The head of a loop over remainders, and the one that its body has: text of their own for a few, one loop for the many of an image's
    patches, over whose text a compiler would take minutes."""
    if len(remainders) <= _FEW:
        return [("", str(n)) for n in remainders]
    return [(f"for (int {name} = 0; {name} <= {remainders[-1]}; {name} += {remainders[1]})", name)]


def fetched(type_: str, outside: str, remainder: str, step: int) -> str:
    """Statements that write to ``to`` a run of ``pitch`` columns with one remainder, of row ``i`` of ``image``: zeros where they or the row
    are ``outside``."""
    return f"""      {{ GLOBAL {type_} *from = image + i * h1;
        const int gap = (int)p1 - {remainder}, rest = (int)h1 + gap;
        const int low = gap > 0 ? (gap + {step - 1}) / {step} : 0, all = rest > 0 ? (rest + {step - 1}) / {step} : 0;
        const int begin = {outside} || low > pitch ? (int)pitch : low;
        const int end = all < begin ? begin : all < pitch ? all : (int)pitch;
        for (int t = 0; t < begin; t++) to[t] = 0;
        for (int t = begin; t < end; t++) to[t] = LOAD_{type_}(from, t * {step} - gap);
        for (int t = end; t < pitch; t++) to[t] = 0; }}"""
