"""The end of a product for processors: what is computed of a tile in registers, and where it goes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from onnxplug_kernel_text.elementwise import Operand
from onnxplug_kernel_text.factors import times
from onnxplug_kernel_text.tile import Tile
from onnxplug_kernel_text.types import SIZES, accumulated, arithmetic

_CALLED = re.compile(r"\b\w+\s*\(")
_TYPE = re.compile(rf"\b(?:{'|'.join(SIZES)})\b")


def store(name: str, others: Sequence[Operand], out: Operand, body: str, tile: Tile, batch: int) -> list[str]:
    """Statements that compute ``body`` for each element of the tile in ``c{row}_{vector}`` and store it: ``width`` columns from ``j0`` on,
    of the rows from ``i0`` on that the matrix has. As vectors of the type ``{name}_near`` where the tile is whole and the text means the
    same of vectors."""
    vectors = _suits_vectors(others, out, body, batch)
    by_elements = _by_elements(name, others, out, body, tile, batch, only_parts=vectors)
    if not vectors:
        return by_elements
    whole = [line for row in range(tile.rows) for line in _row(name, others, out, body, tile, batch, row)]
    return [f"      if (width == {tile.columns}) {{", *whole, "      } else {", *by_elements, "      }"]


def _suits_vectors(others: Sequence[Operand], out: Operand, body: str, batch: int) -> bool:
    """Whether all is of one type, lies along the columns, and the body calls nothing: compilers for processors do not inline functions of
    vectors."""
    type_ = out.type
    one = type_ in ("f32", "f64") and {o.type for o in others} <= {type_} and set(_TYPE.findall(body)) <= {type_}
    lies = out.strides[batch + 1] == 1 and all(o.strides[batch + 1] in (0, 1) for o in others)
    return one and lies and not _CALLED.search(body)


def _row(name: str, others: Sequence[Operand], out: Operand, body: str, tile: Tile, batch: int, row: int) -> list[str]:
    """Statements for one row of a whole tile, vector by vector."""
    near = f"{name}_near"
    line, vectors = [f"const i64 i = i0 + {row};", _line("out", out, batch)], []
    for n, other in enumerate(others):
        line.append(_line(f"other{n}", other, batch))
        if other.strides[batch + 1] == 0:
            line.append(f"const {near} e{n} = ({near})(other{n}_row[0]);")
    for v in range(tile.vectors):
        at = v * tile.width
        reads = [
            f"const {near} e{n} = *(GLOBAL const {near} *)(other{n}_row + {at});"
            for n, other in enumerate(others)
            if other.strides[batch + 1] == 1
        ]
        value = f"const {near} x = c{row}_{v}; {near} y; {_TYPE.sub(near, body)}"
        vectors.append(f"          {{ {' '.join(reads)} {value} *(GLOBAL {near} *)(out_row + {at}) = y; }}")
    return [f"        if (i0 + {row} < rows) {{ {' '.join(line)}", *vectors, "        }"]


def _line(name: str, operand: Operand, batch: int) -> str:
    """A statement that declares where row ``i`` of an operand has column ``j0``."""
    row, column = (times(at, name, operand.strides, batch + k) for k, at in enumerate(("i", "j0")))
    return f"GLOBAL {operand.type} *{name}_row = {name} + {name}_z + {row} + {column};"


def _by_elements(
    name: str, others: Sequence[Operand], out: Operand, body: str, tile: Tile, batch: int, only_parts: bool
) -> list[str]:
    """Statements that take the tile through memory, element by element. ``only_parts``: it has not all its columns."""
    held = accumulated(out.type)
    lines = [f"      {held} t[{tile.rows * tile.columns}];"]
    lines += [
        f"      *({name}_near *)(t + {i * tile.columns + v * tile.width}) = c{i}_{v};"
        for i in range(tile.rows)
        for v in range(tile.vectors)
    ]
    line = [_line(f"other{n}", o, batch) for n, o in enumerate(others)] + [_line("out", out, batch)]
    reads = " ".join(
        f"const {arithmetic(o.type)} e{n} = LOAD_{o.type}(other{n}_row, {times('j', f'other{n}', o.strides, batch + 1)});"
        for n, o in enumerate(others)
    )
    place, sums = times("j", "out", out.strides, batch + 1), f"t[(i - i0) * {tile.columns} + j]"

    def inner(stop: str) -> str:
        # two loops: where the result might be an operand, compilers do not make one of vectors
        count = f"for (int j = 0; j < {stop}; j++)"
        value = f"{{ const {held} x = {sums}; {reads} {held} y; {body} {sums} = y; }}"
        return f"{{ {count} {value} {count} STORE_{out.type}(out_row, {place}, {sums}); }}"

    return [
        *lines,
        f"      for (i64 i = i0; i < rows && i < i0 + {tile.rows}; i++) {{",
        f"        {' '.join(line)}",
        f"        {inner('width')}"
        if only_parts
        else f"        if (width == {tile.columns}) {inner(str(tile.columns))} else {inner('width')}",
        "      }",
    ]
