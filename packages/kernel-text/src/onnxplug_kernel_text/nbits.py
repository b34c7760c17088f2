"""Products with weights of 2, 4 or 8 bits in blocks with a scale each, and rows of such weights, read as they are packed (com.microsoft
MatMulNBits, GatherBlockQuantized).

A column of weights is ``blocks`` times ``block`` numbers, lowest bits first; a word of eight of them lies in one block, whose scale and
zero point it shares. The zero point is packed likewise, each column from a new byte, or a float, or 2 ** (bits - 1).
"""

from __future__ import annotations

from dataclasses import dataclass

from onnxplug_kernel_text.reduce import tree

GROUP = 128
"""Work-items that share a column in ``rows_by_column``."""
FEW = 4
"""Rows that ``rows_by_column`` takes at once."""
EDGE = 64
"""Rows and columns of the result that a group of ``tiles`` computes."""
SIDE = 16
_DEPTH, _EACH = 32, EDGE // SIDE
_WORD = {2: "u16", 4: "u32", 8: "u64"}


@dataclass(frozen=True)
class Form:
    """What changes the text: type of the rows, the bias and the result, of the scales, of the zero points (None, "u8" packed, or a
    float), bits of a weight."""

    type: str
    scale: str
    zeros: str | None
    bits: int
    bias: bool

    @property
    def tensors(self) -> tuple[tuple[str, str], ...]:
        """(type, name) in order."""
        found = [(self.type, "a"), ("u8", "b"), (self.scale, "scales")]
        found += [(self.zeros, "zeros")] if self.zeros else []
        return (*found, *([(self.type, "bias")] if self.bias else []), (self.type, "out"))


def rows_by_column(name: str, form: Form) -> str:
    """out = a weights' + bias for few rows: a group of ``GROUP`` a column and ``FEW`` rows, columns first.

    Tensors: ``form.tensors``. Scalars, all i64: rows, columns, depth, blocks, block.
    """
    f = form
    sums = "".join(
        f"""  shared[l] = sum[{r}]; {tree("shared", "{a} + {b}", GROUP)}
  if (l == 0 && i0 + {r} < rows) STORE_{f.type}(out, (i0 + {r}) * columns + j, shared[0]{_bias(f)});
  BARRIER();
"""
        for r in range(FEW)
    )
    return f"""{_head(name, f)}
  LOCAL f32 shared[{GROUP}]; f32 sum[{FEW}];
  const int l = LOCAL_ID(0); const i64 j = GROUP_ID(0) % columns, i0 = GROUP_ID(0) / columns * {FEW};
  for (int r = 0; r < {FEW}; r++) sum[r] = 0;
  for (i64 k = l * 8; k < depth; k += {8 * GROUP}) {{
    {_word(f)}
    for (int n = 0; n < 8; n++) {{ if (k + n >= depth) break;
      const f32 w = {_weight(f)};
      for (int r = 0; r < {FEW}; r++) if (i0 + r < rows) sum[r] += LOAD_{f.type}(a, (i0 + r) * depth + k + n) * w; }}
  }}
{sums}}}
"""


def tiles(name: str, form: Form) -> str:
    """out = a weights' + bias for many rows: a group of 256 a tile of ``EDGE`` by ``EDGE``, columns first. Tensors and scalars as of
    ``rows_by_column``."""
    f = form
    return f"""{_head(name, f)}
  LOCAL f32 at[{_DEPTH}][{EDGE + 1}]; LOCAL f32 wt[{_DEPTH}][{EDGE + 1}];
  const int l = LOCAL_ID(0), tx = l % {SIDE}, ty = l / {SIDE};
  const i64 across = (columns + {EDGE - 1}) / {EDGE}, j0 = GROUP_ID(0) % across * {EDGE}, i0 = GROUP_ID(0) / across * {EDGE};
  f32 c[{_EACH}][{_EACH}];
  for (int i = 0; i < {_EACH}; i++) for (int n = 0; n < {_EACH}; n++) c[i][n] = 0;
  for (i64 k0 = 0; k0 < depth; k0 += {_DEPTH}) {{
    for (int e = l; e < {EDGE * _DEPTH}; e += {SIDE * SIDE}) {{ const i64 i = i0 + e / {_DEPTH}, k = k0 + e % {_DEPTH};
      at[e % {_DEPTH}][e / {_DEPTH}] = i < rows && k < depth ? LOAD_{f.type}(a, i * depth + k) : 0; }}
    {{ const i64 j = j0 + l / 4, k = k0 + l % 4 * 8;
      if (j < columns && k < depth) {{
        {_word(f)}
        for (int n = 0; n < 8; n++) wt[l % 4 * 8 + n][l / 4] = {_weight(f)};
      }} else for (int n = 0; n < 8; n++) wt[l % 4 * 8 + n][l / 4] = 0; }}
    BARRIER();
    for (int k = 0; k < {_DEPTH}; k++) {{
      f32 u[{_EACH}], v[{_EACH}];
      for (int i = 0; i < {_EACH}; i++) u[i] = at[k][ty + i * {SIDE}];
      for (int n = 0; n < {_EACH}; n++) v[n] = wt[k][tx + n * {SIDE}];
      for (int i = 0; i < {_EACH}; i++) for (int n = 0; n < {_EACH}; n++) c[i][n] += u[i] * v[n];
    }}
    BARRIER();
  }}
  for (int m = 0; m < {_EACH}; m++) for (int n = 0; n < {_EACH}; n++) {{
    const i64 i = i0 + ty + m * {SIDE}, j = j0 + tx + n * {SIDE};
    if (i < rows && j < columns) STORE_{f.type}(out, i * columns + j, c[m][n]{_bias(f)});
  }}
}}
"""


def rows(name: str, index: str, scale: str, bits: int, zeros: bool) -> str:
    """Rows of a table whose numbers, ``bits`` each, lie in a byte, lowest first, times the scales of their blocks; zero for an index
    outside of it. Tensors: table (u8), indices, scales, zero points (u8, packed likewise; else 2 ** (bits - 1)), out, of the scales' type.
    Scalars, all i64: elements of out, numbers of a row, rows, blocks of a row, block. One work-item an element."""
    mask = (1 << bits) - 1
    packed = f"in3[k * ((blocks * {bits} + 7) / 8) + part * {bits} / 8]"
    zero = f"(int)({packed} >> (int)(part * {bits} % 8) & {mask})" if zeros else str(1 << (bits - 1))
    typed = [("u8", "in0"), (index, "in1"), (scale, "in2"), *([("u8", "in3")] if zeros else []), (scale, "out0")]
    scalars = ", ".join(f"const i64 {s}" for s in ("points", "depth", "extent", "blocks", "block"))
    return f"""KERNEL void {name}({", ".join(f"TENSOR({t}, {n})" for t, n in typed)}, {scalars}) {{
  const i64 at = GLOBAL_ID64(0);
  if (at >= points) return;
  {" ".join(f"OPEN({t}, {n})" for t, n in typed)}
  const i64 c = at % depth, part = c / block; i64 k = in1[at / depth];
  k += k < 0 ? extent : 0;
  f32 y = 0;
  if (k >= 0 && k < extent) {{ const i64 place = k * depth + c;
    y = (f32)((int)(in0[place * {bits} / 8] >> (int)(place * {bits} % 8) & {mask}) - {zero}) * LOAD_{scale}(in2, k * blocks + part); }}
  STORE_{scale}(out0, at, y);
}}
"""


def _head(name: str, form: Form) -> str:
    declared = [f"TENSOR({t}, {n})" for t, n in form.tensors]
    scalars = [f"const i64 {s}" for s in ("rows", "columns", "depth", "blocks", "block")]
    opened = " ".join(f"OPEN({t}, {n})" for t, n in form.tensors)
    return f"KERNEL void {name}({', '.join([*declared, *scalars])}) {{\n  {opened}"


def zero_point(form: Form, column: str) -> str:
    """The zero point of the weights of a column in block ``part``."""
    if form.zeros is None:
        return f"(f32){1 << (form.bits - 1)}"
    if form.zeros != "u8":
        return f"LOAD_{form.zeros}(zeros, {column} * blocks + part)"
    place = f"{column} * ((blocks * {form.bits} + 7) / 8) + part * {form.bits} / 8"
    return f"(f32)((zeros[{place}] >> (int)(part * {form.bits} % 8)) & {(1 << form.bits) - 1})"


def _word(form: Form) -> str:
    """Statements that read the word of column ``j`` from row ``k`` on, and its scale and zero point."""
    bits, type_ = form.bits, _WORD[form.bits]
    return (
        f"const i64 part = k / block; const {type_} word = *(GLOBAL const {type_} *)(b + (j * blocks * block + k) * {bits} / 8);"
        f" const f32 scale = LOAD_{form.scale}(scales, j * blocks + part), zero = {zero_point(form, 'j')};"
    )


def _weight(form: Form) -> str:
    return f"((f32)(int)((word >> ({form.bits} * n)) & {(1 << form.bits) - 1}) - zero) * scale"


def _bias(form: Form) -> str:
    return f" + LOAD_{form.type}(bias, j)" if form.bias else ""
