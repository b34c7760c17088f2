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
    """The right factor of a convolution: rows are the elements of a window (channel, then position), columns the positions of the output.
    Strides of ``operand`` are those of the batch only. The arguments: channels of a group, then ``WINDOW`` for each of ``rank``
    dimensions."""

    operand: Operand
    rank: int


@dataclass(frozen=True)
class Packed:
    """A factor in panels of as many rows (the left one) or columns (the right one) as a tile has: element k of line r of a panel at
    [panel][k][r], of a left one at [part of the depth][panel][k][r], in the arithmetic type, zeros beyond the matrix. Strides of
    ``operand`` are those of the batch only."""

    operand: Operand


@dataclass(frozen=True)
class Shifted:
    """The right factor of a convolution whose images were laid out by ``planes.planes``: row k starts ``table[k]`` elements behind an
    image's start, columns are the positions of the output. Strides of ``operand`` are those of the batch only. Behind the last image there
    is room for a panel's columns. The arguments: columns of a row of the output, elements of a row of a plane."""

    operand: Operand


Factor = Operand | Windows | Packed | Shifted


def operand_of(factor: Factor) -> Operand:
    """How a factor lies in memory."""
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
            f"{name}_z += {times(f'({at})', name, strides, k)};"
            for name, strides in operands.items()
            if strides[k] != 0
        ]
        lines.append(f"    {' '.join(terms)}" + (f" left_ /= z{k};" if k else ""))
    return "\n".join(lines)


def windows_parameters(rank: int) -> list[str]:
    """Declarations of a ``Windows``' arguments."""
    return ["const i64 own", *(f"const i64 {letter}{k}" for k in range(rank) for letter in WINDOW)]


def window_element(rank: int) -> tuple[str, str, str]:
    """Of element (k, j) of a ``Windows``: statements that work out where it is, whether that is on the image, and its offset there."""
    spots = "".join(f" const i64 y{d} = s % o{d}; s /= o{d};" for d in range(rank - 1, -1, -1))
    window = "".join(f" const i64 q{d} = r % w{d}; r /= w{d};" for d in range(rank - 1, -1, -1))
    coordinates = "".join(f" const i64 i{d} = y{d} * m{d} - p{d} + q{d} * g{d};" for d in range(rank))
    inside = " && ".join(f"i{d} >= 0 && i{d} < h{d}" for d in range(rank))
    return f"i64 s = j, r = k;{spots}{window}{coordinates}", inside, flat("i", "h", rank, "r")


def flat(letter: str, extent: str, rank: int, base: str) -> str:
    """The offset of coordinates ``letter`` 0 to rank - 1 in a row-major image of extents ``extent``, number ``base``."""
    text = base
    for k in range(rank):
        text = f"({text}) * {extent}{k} + {letter}{k}"
    return text


def gather(rank: int, type_: str, lanes: int) -> str:
    """Statements that write ``lanes`` columns of a ``Windows`` from column ``j0`` on to ``to`` as a panel, of images at ``x``.

    Positions in one row of the output are one run. Of each run ``lanes`` elements are copied at once, whatever its length: what is too
    much is overwritten by the next run or the next row of the panel, so that behind a panel there must be room for ``lanes`` more
    elements."""
    last = rank - 1
    held, plane = arithmetic(type_), " * ".join(f"h{k}" for k in range(rank))
    decode = "".join(
        f" b{k}[runs] = (int)(left_ % o{k}) * (int)m{k} - (int)p{k}; left_ /= o{k};" for k in range(last - 1, -1, -1)
    )
    loops = "".join(f" for (int k{k} = 0; k{k} < w{k}; k{k}++)" for k in range(last))
    rows = "".join(f" const int i{k} = b{k}[s] + k{k} * (int)g{k};" for k in range(last))
    inside = " && ".join(["ends[s] <= width", *(f"i{k} >= 0 && i{k} < h{k}" for k in range(last))])
    row = "0"
    for k in range(last):
        row = f"({row}) * (int)h{k} + i{k}"
    copies = " ".join(
        f"{'else ' * (n > 1)}{f'if (step == {n}) ' if n < 3 else ''}for (int t = 0; t < {lanes}; t++) put[t] = "
        f"LOAD_{type_}(x, from + t * {n if n < 3 else 'step'});"
        for n in (1, 2, 3)
    )
    return f"""
      int {", ".join(f"b{k}[{lanes}]" for k in range(rank))}, begins[{lanes}], ends[{lanes}], runs = 0;
      const int width = columns - j0 < {lanes} ? (int)(columns - j0) : {lanes}, step = (int)m{last}, edge = (int)h{last};
      for (int r = 0; r < width; runs++) {{
        i64 left_ = j0 + r;
        const int y = (int)(left_ % o{last}), n = (int)o{last} - y; left_ /= o{last};
        b{last}[runs] = y * step - (int)p{last};{decode}
        begins[runs] = r; r += n; ends[runs] = r < width ? r : width;
      }}
      if (width < {lanes}) {{ begins[runs] = width; ends[runs] = {lanes}; {" ".join(f"b{k}[runs] = 0;" for k in range(rank))} runs++; }}
      GLOBAL {held} *line = to;
      for (int c = 0; c < own; c++) {{{loops} for (int q = 0; q < w{last}; q++) {{
        for (int s = 0; s < runs; s++) {{
          GLOBAL {held} *put = line + begins[s];{rows}
          const int n = ends[s] - begins[s], start = b{last}[s] + q * (int)g{last};
          if (!({inside})) {{ for (int t = 0; t < {lanes}; t++) put[t] = 0; continue; }}
          const i64 from = (i64)c * ({plane}) + (i64)({row}) * edge + start;
          const int low = start < 0 ? (step - 1 - start) / step : 0, rest = edge - start;
          const int high = rest > (n - 1) * step ? n : rest > 0 ? (rest + step - 1) / step : 0;
          if (from >= 0 && from + {lanes} * step <= own * ({plane})) {{
            {copies}
            for (int t = 0; t < low; t++) put[t] = 0;
            for (int t = high; t < n; t++) put[t] = 0;
          }} else for (int t = 0; t < n; t++) put[t] = t >= low && t < high ? LOAD_{type_}(x, from + t * step) : 0;
        }}
        line += {lanes};
      }} }}"""
