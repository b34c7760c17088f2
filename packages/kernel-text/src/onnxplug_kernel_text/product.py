"""Products of matrices for processors: one work-item a group, a tile of the result in registers.

A work-item takes panels of columns one after another. Each is brought into a panel of its own scratch memory, where it stays in the cache
while rows of the left factor pass by; a right factor that comes packed is read as it lies. Deep factors are multiplied in parts, so that a
part of a panel fits into the first cache and the left factor's part into the second; sums wait in scratch memory. OpenCL only: tiles are
OpenCL's vectors. No built-in function is called in the inner loop, PoCL does not inline those."""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug_kernel_text.elementwise import Operand
from onnxplug_kernel_text.epilogue import store
from onnxplug_kernel_text.factors import (
    Factor,
    Packed,
    Shifted,
    Windows,
    batch_offsets,
    gather,
    operand_of,
    parameters,
    stride,
    times,
    windows_parameters,
)
from onnxplug_kernel_text.tile import Tile
from onnxplug_kernel_text.types import SIZES, VECTORS, accumulated


def product(
    name: str,
    left: Operand | Packed,
    right: Factor,
    others: Sequence[Operand],
    out: Operand,
    body: str,
    tile: Tile,
    parts: bool = False,
    narrow: bool = False,
) -> str:
    """A kernel that computes ``body`` for each element of a product: it reads ``x``, the element, and ``e0``, ``e1``, ..., elements of
    ``others``, and assigns ``y``.

    Tensors: left, right, the table (i32) of a right factor that is ``Shifted``, scratch where right is not packed or with ``parts`` (in the
    arithmetic type), others, out. Scalars, all i64: rows, columns, depth, jobs (panels of columns times batch), workers, panels of rows a
    work-item takes; with ``parts`` the depth of one (not of ``Windows``) and the elements of scratch memory a work-item has; the batch's
    extents but the first; what ``Windows`` or ``Shifted`` wants; then strides of left, right, others, out. Work-items: dimension 0 workers,
    1 blocks of panels of rows. Scratch memory of a work-item: ``(depth + 1) * tile.columns`` elements, that of one part, where right is not
    packed; with ``parts`` behind it its tiles' sums. ``narrow``: of a last panel with half its columns or fewer only the first half of the
    vectors is computed."""
    batch = len(out.strides) - 2
    held, lanes = accumulated(out.type), tile.columns
    operands = {
        "left": operand_of(left),
        "right": operand_of(right),
        **{f"other{n}": e for n, e in enumerate(others)},
        "out": out,
    }
    types = {n: held if n in ("left", "right") and isinstance(f, Packed | Shifted) else o.type
             for (n, o), f in zip(operands.items(), [left, right, *others, out], strict=True)}  # fmt: skip
    tensors = [f"TENSOR({types[n]}, {n})" for n in operands]
    scratch = parts or not isinstance(right, Packed)
    if scratch:
        tensors.insert(2, f"TENSOR({held}, scratch)")
    if isinstance(right, Shifted):
        tensors.insert(2, "TENSOR(i32, table)")
    scalars = [f"const i64 {s}" for s in ("rows", "columns", "depth", "jobs", "workers", "block")]
    scalars += ["const i64 part", "const i64 room"] if parts else []
    scalars += [f"const i64 z{k}" for k in range(1, batch)]
    scalars += windows_parameters(right.rank) if isinstance(right, Windows) else []
    scalars += ["const i64 wide", "const i64 pitch"] if isinstance(right, Shifted) else []
    for n, o in operands.items():
        scalars += parameters(n, o.strides)
    vector = VECTORS[held] + str(tile.width)
    lines = [
        f"typedef {vector} {name}_near __attribute__((aligned({SIZES[held]})));",
        f"KERNEL void {name}({', '.join([*tensors, *scalars])}) {{",
        *[f"  OPEN({types[n]}, {n})" for n in operands],
        f"  OPEN({held}, scratch)" if scratch else "",
        "  OPEN(i32, table)" if isinstance(right, Shifted) else "",
        f"  const i64 panels = (columns + {lanes - 1}) / {lanes}, bands = (rows + {tile.rows - 1}) / {tile.rows};",
        "  const i64 first = GLOBAL_ID64(1) * block, last = first + block < bands ? first + block : bands;",
        *_part(right, tile, held, parts),
        "  for (i64 job = GLOBAL_ID64(0); job < jobs; job += workers) {",
        f"    const i64 z = job / panels, j0 = job % panels * {lanes};",
        batch_offsets(batch, {n: o.strides for n, o in operands.items()}),
        *_right(name, right, batch, tile, held, parts),
        f"    const int width = columns - j0 < {lanes} ? (int)(columns - j0) : {lanes};",
        "    for (i64 band = first; band < last; band++) {",
        f"      const i64 i0 = band * {tile.rows};",
        *_accumulate(name, left, vector, tile, batch, held, parts, narrow),
        *_ended(name, store(name, others, out, body, tile, batch), tile, parts),
        "    }\n  }\n  }\n}\n",
    ]
    return "\n".join(lines)


def _part(right: Factor, tile: Tile, held: str, parts: bool) -> list[str]:
    """Statements that begin the part of the depth from ``k0`` on, ``deep`` of it."""
    if not parts:
        return ["  { const i64 k0 = 0, deep = depth;"]
    begin = "0" if isinstance(right, Packed) else f"(part + 1) * {tile.columns}"
    return [
        f"  GLOBAL {held} *own = scratch + (GLOBAL_ID64(1) * workers + GLOBAL_ID64(0)) * room;",
        "  for (i64 k0 = 0; k0 < depth; k0 += part) {",
        f"  const i64 deep = k0 + part < depth ? part : depth - k0; GLOBAL {held} *sums = own + {begin};",
    ]


def _ended(name: str, stored: list[str], tile: Tile, parts: bool) -> list[str]:
    """Statements that store a tile, or before the last part its sums."""
    if not parts:
        return stored
    kept = [f"*(GLOBAL {name}_near *)(sums + {at}) = {c};" for c, at in _places(tile)]
    return [
        "      if (k0 + deep < depth) {",
        *(f"        {line}" for line in kept),
        "      } else {",
        *stored,
        f"      }} sums += {tile.rows * tile.columns};",
    ]


def _places(tile: Tile) -> list[tuple[str, int]]:
    """The vectors of a tile, and where each is among its elements."""
    return [(f"c{i}_{v}", i * tile.columns + v * tile.width) for i in range(tile.rows) for v in range(tile.vectors)]


def _right(name: str, right: Factor, batch: int, tile: Tile, held: str, parts: bool) -> list[str]:
    """Statements that make ``panel``, the part of the panel of columns from ``j0`` on."""
    lanes = tile.columns
    if isinstance(right, Packed):
        return [f"    GLOBAL const {held} *RESTRICT panel = right + right_z + j0 * depth + k0 * {lanes};"]
    own = f"scratch + (GLOBAL_ID64(1) * workers + GLOBAL_ID64(0)) * (depth + 1) * {lanes}"
    lines = [f"    GLOBAL {held} *to = {'own' if parts else own};"]
    if isinstance(right, Shifted):
        lines.append(_runs(name, tile, held))
    elif isinstance(right, Windows):
        type_ = right.operand.type
        lines.append(f"    {{ GLOBAL {type_} *x = right + right_z;{gather(right.rank, type_, lanes)}\n    }}")
    else:
        lines.append(_lines(name, right, batch, tile, held))
    return [*lines, f"    GLOBAL const {held} *RESTRICT panel = to;"]


def _lines(name: str, right: Operand, batch: int, tile: Tile, held: str) -> str:
    """Statements that copy a panel from a matrix. Where columns are neighbours, rows are copied whole also at the matrix's edge, as far as
    other rows lie behind them: what is too much is computed with and not stored."""
    lanes, (row, column) = tile.columns, (stride("right", right.strides, batch + k) for k in (0, 1))
    whole = f"for (int r = 0; r < {lanes}; r++) to[k * {lanes} + r] = LOAD_{right.type}(from, k * {row} + r);"
    if right.type == held:
        whole = _copied(name, tile, f"to + k * {lanes}", f"from + k * {row}")
    part = f"for (int r = 0; r < {lanes}; r++) to[k * {lanes} + r] = r < width ? LOAD_{right.type}(from, k * {row} + r) : 0;"
    return f"""    {{ GLOBAL {right.type} *from = right + right_z + j0 * {column} + k0 * {row};
      const int width = columns - j0 < {lanes} ? (int)(columns - j0) : {lanes};
      if ({column} == 1) {{
        const i64 over = {lanes} - width, step = {row}, last = depth - k0 - (step > 0 ? (over + step - 1) / step : depth);
        const i64 safe = over == 0 || last > deep ? deep : last;
        i64 k = 0;
        for (; k < safe; k++) {{ {whole} }}
        for (; k < deep; k++) {part}
      }} else for (int r = 0; r < {lanes}; r++) {{
        if (r < width) for (i64 k = 0; k < deep; k++) to[k * {lanes} + r] = LOAD_{right.type}(from, k * {row} + r * {column});
        else for (i64 k = 0; k < deep; k++) to[k * {lanes} + r] = 0; }}
    }}"""


def _copied(name: str, tile: Tile, to: str, start: str) -> str:
    """Statements that copy a line of a panel as vectors."""
    near = f"GLOBAL {name}_near *"
    at = [v * tile.width for v in range(tile.vectors)]
    return " ".join(f"*({near})({to} + {n}) = *({near})({start} + {n});" for n in at)


def _runs(name: str, tile: Tile, held: str) -> str:
    """Statements that copy a panel from planes, run by run: a run is what lies in one row of the output. A vector's end that is too much is
    overwritten by what follows."""
    copies = _copied(name, tile, "put", "from")
    return f"""    {{ int starts[{tile.columns}], begins[{tile.columns}], runs = 0;
      for (i64 r = 0; r < {tile.columns} && j0 + r < columns; runs++) {{
        const i64 y = (j0 + r) / wide, at = (j0 + r) % wide;
        starts[runs] = (int)(y * pitch + at); begins[runs] = (int)r; r += wide - at;
      }}
      GLOBAL {held} *line = to;
      GLOBAL {held} *image = right + right_z;
      for (i64 k = 0; k < deep; k++, line += {tile.columns}) for (int s = 0; s < runs; s++) {{
        GLOBAL const {held} *from = image + table[k0 + k] + starts[s]; GLOBAL {held} *put = line + begins[s];
        {copies}
      }}
    }}"""


def _accumulate(
    name: str, left: Operand | Packed, vector: str, tile: Tile, batch: int, held: str, parts: bool, narrow: bool
) -> list[str]:
    """Statements that add up a tile into ``c{row}_{vector}``. Rows beyond the matrix are computed from its last one."""
    lines = [f"      GLOBAL const {held} *RESTRICT b = panel;"]
    if isinstance(left, Packed):
        lines.append(f"      GLOBAL const {held} *RESTRICT a = left + left_z + k0 * bands * {tile.rows} + i0 * deep;")
        values = [f"a[{i}]" for i in range(tile.rows)]
        step = f"a += {tile.rows};"
    else:
        row, along = times("{}", "left", left.strides, batch), stride("left", left.strides, batch + 1)
        for i in range(tile.rows):
            index = f"(i0 + {i} < rows ? i0 + {i} : rows - 1)" if i else "i0"
            lines.append(
                f"      GLOBAL const {left.type} *RESTRICT a{i} = left + left_z + {row.format(index)} + k0 * {along};"
            )
        values = [f"LOAD_{left.type}(a{i}, 0)" for i in range(tile.rows)]
        step = " ".join(f"a{i} += {along};" for i in range(tile.rows))
    lines.append(f"      {vector} {', '.join(f'{c} = 0' for c, _ in _places(tile))};")
    if parts:
        taken = [f"{c} = *(GLOBAL const {name}_near *)(sums + {at});" for c, at in _places(tile)]
        lines.append(f"      if (k0 > 0) {{ {' '.join(taken)} }}")

    def loop(vectors: int) -> list[str]:
        factors = [
            f"        const {vector} b{v} = *(GLOBAL const {name}_near *)(b + {v * tile.width});"
            for v in range(vectors)
        ]
        added = "c{0} = PAIRS(s, b{1}, c{0});" if tile.paired else "c{0} += s * b{1};"
        terms = [
            f"        {{ const {vector} s = ({vector})({value}); {' '.join(added.format(f'{i}_{v}', v) for v in range(vectors))} }}"
            for i, value in enumerate(values)
        ]
        return [
            "      for (i64 k = 0; k < deep; k++) {",
            *factors,
            *terms,
            f"        {step} b += {tile.columns};",
            "      }",
        ]

    if not narrow:
        return [*lines, *loop(tile.vectors)]
    half = tile.vectors // 2
    return [*lines, f"      if (width > {half * tile.width})", *loop(tile.vectors), "      else", *loop(half)]
