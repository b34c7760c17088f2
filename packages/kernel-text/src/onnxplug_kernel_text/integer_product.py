"""Products of 8-bit matrices, exact in int32: four products an instruction where the device has one for it (``DOT4``).

Bytes are taken as signed: an unsigned factor is read less 128, as is its zero point. With a' = a - za, b' = b - zb, the sum of a' b' is the
sum of a b, less zb times the sum of a, less za times the sum of b, plus depth times za zb; the sums of rows and columns are taken from
the tiles in local memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from onnxplug_kernel_text.factors import window_element, windows_parameters
from onnxplug_kernel_text.quantize import saturated
from onnxplug_kernel_text.types import APART, literal

SIDE = 16
"""Work-items of a group in each of two dimensions."""
COLUMNS = 64
"""Columns of the result that a group computes."""
_WORDS = 16
"""Words of four bytes along the depth of a tile."""
_EACH = COLUMNS // SIDE
_BIAS = "r * bias_row + j * bias_col"


@dataclass(frozen=True)
class Form:
    """What changes the text. ``left`` and ``right``: "i8" or "u8", with a zero point or none. ``rank``: the right factor are the windows of
    images of that many dimensions, in the order of ``factors.Windows``; 0: a matrix. ``result``: "int", int32; "float", times both
    scales; "quantized", times both scales over that of the result, rounded, plus its zero point. ``scale``: type of the scales.
    ``bias``: type of what is added: "i32" to the sums of products, a float's to what they are scaled to; empty: nothing. ``few``: at
    most 16 rows. ``relu``: where "quantized", nothing is below zero before it is rounded. ``alpha`` multiplies the scales."""

    left: str
    right: str
    out: str
    result: str = "int"
    left_zero: bool = False
    right_zero: bool = False
    rank: int = 0
    scale: str = "f32"
    bias: str = ""
    few: bool = False
    relu: bool = False
    alpha: float = 1.0

    @property
    def rows(self) -> int:
        """Rows of the result that a group computes."""
        return SIDE if self.few else COLUMNS

    @property
    def tensors(self) -> tuple[tuple[str, str], ...]:
        """(type, name) in order."""
        found = [(self.left, "left"), (self.right, "right")]
        found += [(self.left, "left_zero")] * self.left_zero + [(self.right, "right_zero")] * self.right_zero
        if self.result != "int":
            found += [(self.scale, "left_scale"), (self.scale, "right_scale")]
        if self.result == "quantized":
            found += [(self.scale, "out_scale"), (self.out, "out_zero")]
        found += [(self.bias, "bias")] * bool(self.bias)
        return (*found, (self.out, "out"))


def integer_product(name: str, form: Form) -> str:
    """(left - its zero point)(right - its zero point), for each of a batch.

    Tensors: ``form.tensors``. Scalars, all i64: rows, columns, depth, period, left_batch, left_row, left_col, right_batch, then right_row
    and right_col or a ``Windows``' arguments, out_batch, out_row, step; then how far apart lie the entries of left_zero and left_scale
    for rows, right_zero and right_scale for columns, out_scale and out_zero for rows, bias for rows and for columns (0: one entry).
    Entry z of the batch reads the left factor number z % period, whose rows' parameters begin ``step`` times that further on. Groups of
    256: tiles of 64 columns, then tiles of ``form.rows`` rows, then the batch.
    """
    f, each = form, form.rows // SIDE
    declared = [f"TENSOR({t}, {n})" for t, n in f.tensors]
    strides = windows_parameters(f.rank) if f.rank else ["const i64 right_row", "const i64 right_col"]
    names = ("rows", "columns", "depth", "period", "left_batch", "left_row", "left_col", "right_batch")
    steps = (
        "left_zero_by", "left_scale_by", "right_zero_by", "right_scale_by", "out_scale_by", "out_zero_by", "bias_row", "bias_col",
    )  # fmt: skip
    scalars = [*(f"const i64 {s}" for s in names), *strides]
    scalars += [f"const i64 {s}" for s in ("out_batch", "out_row", "step", *steps)]
    size = f.rows * _WORDS
    return f"""{APART}KERNEL void {name}({", ".join([*declared, *scalars])}) {{
  {" ".join(f"OPEN({t}, {n})" for t, n in f.tensors)}
  LOCAL i32 a[{_WORDS}][{f.rows + 1}]; LOCAL i32 b[{_WORDS}][{COLUMNS + 1}]; LOCAL i32 sums[{f.rows + COLUMNS}];
  const int l = LOCAL_ID(0), tx = l % {SIDE}, ty = l / {SIDE};
  const i64 across = (columns + {COLUMNS - 1}) / {COLUMNS}, down = (rows + {f.rows - 1}) / {f.rows};
  const i64 j0 = GROUP_ID(0) % across * {COLUMNS}, i0 = GROUP_ID(0) / across % down * {f.rows}, z = GROUP_ID(0) / across / down;
  const i64 left_z = z % period * left_batch, right_z = z * right_batch, own_row = z % period * step;
  {_outside(f)}
  i32 c[{each}][{_EACH}], total = 0;
  for (int i = 0; i < {each}; i++) for (int j = 0; j < {_EACH}; j++) c[i][j] = 0;
  for (i64 k0 = 0; k0 < depth; k0 += {4 * _WORDS}) {{
    for (int e = l; e < {size}; e += {SIDE * SIDE}) {{
      const i64 i = i0 + e / {_WORDS}; u32 word = 0;
      for (int n = 0; n < 4; n++) {{ const i64 k = k0 + e % {_WORDS} * 4 + n;
        if (i < rows && k < depth) word |= (u32)(u8)({_signed("left", f.left, "left_z + i * left_row + k * left_col")}) << (8 * n); }}
      a[e % {_WORDS}][e / {_WORDS}] = (i32)word;
    }}
    for (int e = l; e < {COLUMNS * _WORDS}; e += {SIDE * SIDE}) {{
      const i64 j = j0 + e % {COLUMNS}; u32 word = 0;
      for (int n = 0; n < 4; n++) {{ const i64 k = k0 + e / {COLUMNS} * 4 + n;
        if (j < columns && k < depth) {{ {_fetch(f)} word |= (u32)(u8)v << (8 * n); }} }}
      b[e / {COLUMNS}][e % {COLUMNS}] = (i32)word;
    }}
    BARRIER();
{_sums(f)}
    for (int k = 0; k < {_WORDS}; k++) {{
      i32 u[{each}], v[{_EACH}];
      for (int i = 0; i < {each}; i++) u[i] = a[k][ty + i * {SIDE}];
      for (int j = 0; j < {_EACH}; j++) v[j] = b[k][tx + j * {SIDE}];
      for (int i = 0; i < {each}; i++) for (int j = 0; j < {_EACH}; j++) c[i][j] = DOT4(u[i], v[j], c[i][j]);
    }}
    BARRIER();
  }}
  if (l < {f.rows + COLUMNS}) sums[l] = total;
  BARRIER();
  for (int m = 0; m < {each}; m++) for (int n = 0; n < {_EACH}; n++) {{
    const i64 i = i0 + ty + m * {SIDE}, j = j0 + tx + n * {SIDE};
    if (i < rows && j < columns) {{
      const i64 r = own_row + i;
      const i32 za = {_zero(f.left, "left_zero", "r", f.left_zero)}, zb = {_zero(f.right, "right_zero", "j", f.right_zero)};
      /* unsigned, whose overflow is defined: what is beyond int32 wraps */
      const u32 wide = (u32)c[m][n] - (u32)zb * (u32)sums[ty + m * {SIDE}] - (u32)za * (u32)sums[{f.rows} + tx + n * {SIDE}]
        + (u32)depth * (u32)za * (u32)zb{f" + (u32)bias[{_BIAS}]" if f.bias == "i32" else ""};
      const i32 x = (i32)wide;
{_stored(f)}
    }}
  }}
}}
"""


def _signed(tensor: str, type_: str, at: str) -> str:
    """A byte as a signed one."""
    return f"(i32){tensor}[{at}]{' - 128' if type_ == 'u8' else ''}"


def _zero(type_: str, tensor: str, at: str, given: bool) -> str:
    """The zero point of bytes taken as signed."""
    if given:
        return _signed(tensor, type_, f"{at} * {tensor}_by")
    return "-128" if type_ == "u8" else "0"


def _centred(form: Form) -> tuple[bool, bool]:
    """Whether the zero points are zero, so that no sums are needed: of the left factor's rows, of the right one's columns."""
    return not form.right_zero and form.right == "i8", not form.left_zero and form.left == "i8"


def _sums(form: Form) -> str:
    rows, columns = _centred(form)
    one = "16843009"  # a one in each byte
    lines = []
    if not rows:
        lines.append(
            f"    if (l < {form.rows}) for (int k = 0; k < {_WORDS}; k++) total = DOT4(a[k][l], {one}, total);"
        )
    if not columns:
        lines.append(
            f"    if (l >= {form.rows} && l < {form.rows + COLUMNS})"
            f" for (int k = 0; k < {_WORDS}; k++) total = DOT4(b[k][l - {form.rows}], {one}, total);"
        )
    return "\n".join(lines)


def _outside(form: Form) -> str:
    """What stands for elements beyond the images."""
    if not form.rank:
        return ""
    return f"const i32 outside = {_zero(form.right, 'right_zero', '0', form.right_zero)};"


def _fetch(form: Form) -> str:
    """Statements that read element (k, j) of the right factor into ``v``."""
    rank = form.rank
    if not rank:
        return f"const i32 v = {_signed('right', form.right, 'right_z + k * right_row + j * right_col')};"
    where, inside, place = window_element(rank)
    return f"{where} i32 v = outside; if ({inside}) v = {_signed('right', form.right, f'right_z + {place}')};"


def _stored(form: Form) -> str:
    at = "z * out_batch + i * out_row + j"
    if form.result == "int":
        return f"      out[{at}] = x;"
    scales = [
        f"LOAD_{form.scale}(left_scale, r * left_scale_by)",
        f"LOAD_{form.scale}(right_scale, j * right_scale_by)",
    ]
    product = " * ".join([*([] if form.alpha == 1 else [literal(form.alpha, "f32")]), *scales])
    if form.result == "float":
        bias = f" + LOAD_{form.bias}(bias, {_BIAS})" if form.bias not in ("", "i32") else ""
        return f"      STORE_{form.out}(out, {at}, (f32)x * ({product}){bias});"
    quotient = f"(f32)x * ({product} / LOAD_{form.scale}(out_scale, r * out_scale_by))"
    return f"      {saturated(f'out[{at}]', quotient, 'out_zero[r * out_zero_by]', form.out, relu=form.relu)}"
