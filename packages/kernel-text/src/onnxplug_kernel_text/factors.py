"""The factors of a product: matrices that lie in memory by strides, or that the windows of a convolution make of images.

A product is computed for each point of a batch, of which ``batch`` dimensions are left when all that can be joined are joined. A factor, an
operand of the epilogue and the result are ``Operand``s with strides over the batch, then rows, then columns. Strides 0 and 1 are text, the
others arguments, as ``scalars`` lists them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onnxplug_kernel_text.elementwise import Operand
from onnxplug_kernel_text.types import arithmetic

WINDOW = "howmgp"
"""What is known of each spatial dimension: extent of the input, of the output, of the window; step of the window; gap between its elements
(dilation); padding before."""


@dataclass(frozen=True)
class Windows:
    """The right factor of a convolution: rows are the elements of a window (channel, then position), columns the positions of the output. Strides
    of ``operand`` are those of the batch only. The arguments: channels of a group, then ``WINDOW`` for each of ``rank`` dimensions."""

    operand: Operand
    rank: int


@dataclass(frozen=True)
class Packed:
    """A factor in panels of as many rows (the left one) or columns (the right one) as a tile has: element k of line r of a panel at
    [panel][k][r], in the arithmetic type, zeros beyond the matrix. Strides of ``operand`` are those of the batch only."""

    operand: Operand


Factor = Operand | Windows | Packed


def operand_of(factor: Factor) -> Operand:
    return factor if isinstance(factor, Operand) else factor.operand


def pattern(strides: Sequence[int]) -> tuple[int | None, ...]:
    """Strides as an ``Operand`` of a product has them."""
    return tuple(s if s in (0, 1) else None for s in strides)


def free(strides: Sequence[int]) -> list[int]:
    """The strides that are arguments."""
    return [s for s in strides if s not in (0, 1)]


def parameters(name: str, strides: Sequence[int | None]) -> list[str]:
    """Declarations of the strides that are arguments."""
    return [f"const i64 {name}_{k}" for k, s in enumerate(strides) if s is None]


def stride(name: str, strides: Sequence[int | None], k: int) -> str:
    """A stride as text."""
    return f"{name}_{k}" if strides[k] is None else str(strides[k])


def times(text: str, name: str, strides: Sequence[int | None], k: int) -> str:
    """``text`` times a stride."""
    if strides[k] == 0:
        return "0"
    return text if strides[k] == 1 else f"{text} * {stride(name, strides, k)}"


def batch_offsets(batch: int, operands: Mapping[str, Sequence[int | None]]) -> str:
    """Statements that make, of the batch's number ``z``, each operand's offset ``NAME_z``."""
    lines = [f"    i64 left_ = z; i64 {', '.join(f'{name}_z = 0' for name in operands)};"]
    for k in range(batch - 1, -1, -1):
        at = f"left_ % z{k}" if k else "left_"
        terms = [
            f"{name}_z += {times(f'({at})', name, strides, k)};" for name, strides in operands.items() if strides[k] != 0
        ]
        lines.append(f"    {' '.join(terms)}" + (f" left_ /= z{k};" if k else ""))
    return "\n".join(lines)


def windows_parameters(rank: int) -> list[str]:
    """Declarations of a ``Windows``' arguments."""
    return ["const i64 own", *(f"const i64 {letter}{k}" for k in range(rank) for letter in WINDOW)]


def flat(letter: str, extent: str, rank: int, base: str) -> str:
    """The offset of coordinates ``letter`` 0 to rank - 1 in a row-major image of extents ``extent``, number ``base``."""
    text = base
    for k in range(rank):
        text = f"({text}) * {extent}{k} + {letter}{k}"
    return text


def gather(rank: int, type_: str, lanes: int) -> str:
    """Statements that write ``lanes`` columns of a ``Windows`` from column ``j0`` on to ``to`` as a panel. Runs of positions in one row of the output
    are read as runs."""
    last = rank - 1
    plane = " * ".join(f"h{k}" for k in range(rank))
    decode = "".join(
        f" const int y{k} = (int)(left_ % o{k}); left_ /= o{k};" if k else f" const int y{k} = (int)left_;"
        for k in range(last, -1, -1)
    )
    first = " ".join(f"const int b{k} = y{k} * (int)m{k} - (int)p{k};" for k in range(rank))
    loops = "".join(
        f" for (int k{k} = 0; k{k} < w{k}; k{k}++) {{ const int i{k} = b{k} + k{k} * (int)g{k};" for k in range(last)
    )
    inside = " && ".join([f"i{k} >= 0 && i{k} < h{k}" for k in range(last)] or ["1"])
    row = "0"
    for k in range(last):
        row = f"({row}) * (int)h{k} + i{k}"
    load = f"LOAD_{type_}(line, start + t * step)"
    return f"""
      for (int r = 0; r < {lanes};) {{
        i64 left_ = j0 + r;
        if (left_ >= columns) {{
          for (i64 k = 0; k < depth; k++) for (int t = r; t < {lanes}; t++) to[k * {lanes} + t] = 0;
          break;
        }}
        {decode}
        const int ahead = (int)o{last} - y{last}, n = ahead < {lanes} - r ? ahead : {lanes} - r, step = (int)m{last}, edge = (int)h{last};
        {first}
        GLOBAL {arithmetic(type_)} *put = to + r;
        for (int c = 0; c < own; c++) {{
          GLOBAL {type_} *image = x + (i64)c * ({plane});{loops}
          const int there = {inside};
          GLOBAL {type_} *line = image + (i64)({row}) * edge;
          for (int q = 0; q < w{last}; q++) {{
            const int start = b{last} + q * (int)g{last};
            if (!there) for (int t = 0; t < n; t++) put[t] = 0;
            else if (start >= 0 && start + (n - 1) * step < edge) {{
              if (step != 1) for (int t = 0; t < n; t++) put[t] = {load};
              else if (n == {lanes}) for (int t = 0; t < {lanes}; t++) put[t] = LOAD_{type_}(line, start + t);
              else for (int t = 0; t < n; t++) put[t] = LOAD_{type_}(line, start + t);
            }} else for (int t = 0; t < n; t++) {{
              const int i = start + t * step; put[t] = i >= 0 && i < edge ? {load} : 0;
            }}
            put += {lanes};
          }}{" }" * last}
        }}
        r += n;
      }}"""
