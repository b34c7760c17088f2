"""Scaled dot-product attention with an online softmax (Dao et al., FlashAttention, 2022): scores never go to memory."""

from __future__ import annotations

from dataclasses import dataclass

from onnxplug_kernel_text.types import arithmetic

GROUP = 256
"""Work-items of a group: 16 along the queries of a tile by 16 along its keys or the elements of a value."""
LARGEST = 256
"""Elements of a key or a value up to which a tile fits local memory (48 KB)."""
_SIDE = 16


@dataclass(frozen=True)
class Form:
    """What changes the text: element types, elements of a key and of a value, what hides keys, and how queries are cut into tiles.

    ``mask``: its element type, or None; ``b8`` hides where it is zero, others are added to the scores. ``lengths``: each batch entry has
    a number of keys of its own. ``window``: keys far before or behind a query's place are hidden. ``cap``: scores go through
    cap * tanh(score / cap). ``few``: at most 16 queries. ``split``: keys are divided among groups, ``joined`` puts their parts together.
    """

    type: str
    size: int
    value_size: int
    mask: str | None = None
    lengths: bool = False
    window: bool = False
    cap: bool = False
    few: bool = False
    split: bool = False
    zeros: bool = True

    @property
    def queries(self) -> int:
        """Queries of a tile."""
        wide = max(self.size, self.value_size)
        return _SIDE if self.few or wide > 128 else 32 if wide > 64 else 64

    @property
    def keys(self) -> int:
        """Keys of a tile."""
        return _SIDE if max(self.size, self.value_size) > 128 else 32

    @property
    def scalars(self) -> tuple[str, ...]:
        """Names of the i64 arguments in order; two f32, scale and cap, follow."""
        strides = [f"{t}_{d}" for t in "qkv" for d in ("batch", "head", "row")] + ["k_col"]
        strides += [f"m_{d}" for d in ("batch", "head", "row", "col")] + ["m_keys"] if self.mask else []
        strides += ["splits"] if self.split else ["y_batch", "y_head", "y_row"]
        return ("tiles", "queries", "keys", "kv_heads", "shared", "offset", "left", "right", *strides)


def attention(name: str, form: Form) -> str:
    """softmax(scale Q K' + mask) V.

    Tensors: q, k, v, mask (if any), lengths (if any, i64), then out0, or with ``split`` part and stat (f32, for ``joined``). Scalars:
    ``form.scalars``. ``shared`` query heads read one of ``kv_heads``; ``tiles`` of ``form.queries`` rows make up a head's
    queries times ``shared``. A query at place p, which is its number plus ``offset`` (plus its batch entry's length less ``queries``, with
    ``lengths``), sees keys p - left .. p + right; -1 is no bound. Elements of a row are neighbours, those of a key lie ``k_col``
    apart; keys from ``m_keys`` on are hidden. Groups of 256: tiles, then heads, then batch
    entries, then splits.
    """
    f, held = form, arithmetic(form.type)
    assert held == "f32", "tiles are float32"
    size, wide = (-(-n // _SIDE) * _SIDE for n in (f.size, f.value_size))
    rq, rk, rv = f.queries // _SIDE, f.keys // _SIDE, wide // _SIDE
    qs, ks = f.queries + 1, f.keys + 1
    outputs = ["TENSOR(f32, part)", "TENSOR(f32, stat)"] if f.split else [f"TENSOR({f.type}, out0)"]
    tensors = [f"TENSOR({f.type}, {t})" for t in "qkv"] + ([f"TENSOR({f.mask}, mask)"] if f.mask else [])
    tensors += (["TENSOR(i64, lengths)"] if f.lengths else []) + outputs
    opened = [f"OPEN({f.type}, {t})" for t in "qkv"] + ([f"OPEN({f.mask}, mask)"] if f.mask else [])
    opened += (["OPEN(i64, lengths)"] if f.lengths else []) + [o.replace("TENSOR", "OPEN") for o in outputs]
    scalars = [f"const i64 {s}" for s in f.scalars] + ["const f32 scale", "const f32 cap"]
    return f"""KERNEL void {name}({", ".join([*tensors, *scalars])}) {{
  {" ".join(opened)}
  LOCAL f32 qs[{size * qs}]; LOCAL f32 kv[{max(size * ks, f.keys * wide)}]; LOCAL f32 ps[{f.queries * ks}];
  LOCAL f32 red[{f.queries * _SIDE}];
  const int l = LOCAL_ID(0), tx = l % {_SIDE}, ty = l / {_SIDE};
  const i64 rows = queries * shared, first = (GROUP_ID(0) % tiles) * {f.queries};
  const i64 h = GROUP_ID(0) / tiles % kv_heads;
  const i64 b = GROUP_ID(0) / tiles / kv_heads{" / splits, cut = GROUP_ID(0) / tiles / kv_heads % splits" if f.split else ""};
  for (int e = l; e < {f.queries * size}; e += {GROUP}) {{ const int r = e / {size}, c = e % {size}; const i64 row = first + r;
    qs[c * {qs} + r] = (row < rows && c < {f.size})
      ? LOAD_{f.type}(q, b * q_batch + (h * shared + row / queries) * q_head + row % queries * q_row + c) * scale : 0; }}
  i64 lo = 0, hi = keys, shift = offset;
{_bounds(f)}
  f32 m[{rq}], sum[{rq}], acc[{rq}][{rv}]; i64 place[{rq}];
  for (int i = 0; i < {rq}; i++) {{ m[i] = -INFINITY; sum[i] = 0; place[i] = (first + ty + {_SIDE} * i) % queries + shift;
    for (int c = 0; c < {rv}; c++) acc[i][c] = 0; }}
  for (i64 j = lo; j < hi; j += {f.keys}) {{
    BARRIER();
    for (int e = l; e < {f.keys * size}; e += {GROUP}) {{ const int r = e / {size}, c = e % {size};
      kv[c * {ks} + r] = (j + r < hi && c < {f.size}) ? LOAD_{f.type}(k, b * k_batch + h * k_head + (j + r) * k_row + c * k_col) : 0; }}
    BARRIER();
    f32 s[{rq}][{rk}];
    for (int i = 0; i < {rq}; i++) for (int n = 0; n < {rk}; n++) s[i][n] = 0;
    for (int c = 0; c < {size}; c++) {{
      f32 x[{rk}];
      for (int n = 0; n < {rk}; n++) x[n] = kv[c * {ks} + tx + {_SIDE} * n];
      for (int i = 0; i < {rq}; i++) {{ const f32 a = qs[c * {qs} + ty + {_SIDE} * i];
        for (int n = 0; n < {rk}; n++) s[i][n] += a * x[n]; }} }}
    for (int i = 0; i < {rq}; i++) {{ f32 peak = -INFINITY;
      for (int n = 0; n < {rk}; n++) {{ const i64 key = j + tx + {_SIDE} * n;
{_hidden(f)}
        peak = s[i][n] > peak ? s[i][n] : peak; }}
      red[(ty + {_SIDE} * i) * {_SIDE} + tx] = peak; }}
    BARRIER();
    for (int i = 0; i < {rq}; i++) {{ f32 peak = m[i];
      for (int n = 0; n < {_SIDE}; n++) {{ const f32 x = red[(ty + {_SIDE} * i) * {_SIDE} + n]; peak = x > peak ? x : peak; }}
      const f32 from = peak == -INFINITY ? 0 : peak, kept = exp(m[i] - from);
      m[i] = peak; sum[i] *= kept;
      for (int c = 0; c < {rv}; c++) acc[i][c] *= kept;
      for (int n = 0; n < {rk}; n++) {{ const f32 p = exp(s[i][n] - from);
        sum[i] += p; ps[(ty + {_SIDE} * i) * {ks} + tx + {_SIDE} * n] = p; }} }}
    for (int e = l; e < {f.keys * wide}; e += {GROUP}) {{ const int r = e / {wide}, c = e % {wide};
      kv[e] = (j + r < hi && c < {f.value_size}) ? LOAD_{f.type}(v, b * v_batch + h * v_head + (j + r) * v_row + c) : 0; }}
    BARRIER();
    for (int r = 0; r < {f.keys}; r++) {{
      f32 x[{rv}];
      for (int c = 0; c < {rv}; c++) x[c] = kv[r * {wide} + tx + {_SIDE} * c];
      for (int i = 0; i < {rq}; i++) {{ const f32 p = ps[(ty + {_SIDE} * i) * {ks} + r];
        for (int c = 0; c < {rv}; c++) acc[i][c] += p * x[c]; }} }}
  }}
  BARRIER();
  for (int i = 0; i < {rq}; i++) red[(ty + {_SIDE} * i) * {_SIDE} + tx] = sum[i];
  BARRIER();
  for (int i = 0; i < {rq}; i++) {{ const i64 row = first + ty + {_SIDE} * i; f32 total = 0;
    for (int n = 0; n < {_SIDE}; n++) total += red[(ty + {_SIDE} * i) * {_SIDE} + n];
    if (row < rows) {{
{_stored(f, rv)}
    }} }}
}}
"""


def _bounds(form: Form) -> str:
    """Statements that narrow [lo, hi) to the keys that a query of the tile may see."""
    lines = []
    if form.lengths:
        lines += ["  hi = lengths[b] < keys ? lengths[b] : keys; shift += lengths[b] - queries;"]
    if form.window:
        lines += [
            f"  {{ const i64 last = first + {form.queries} < rows ? first + {form.queries - 1} : rows - 1;",
            "    const int one = first / queries == last / queries;",
            "    const i64 lowest = (one ? first % queries : 0) + shift, highest = (one ? last % queries : queries - 1) + shift;",
            "    if (left >= 0 && lowest - left > 0) lo = lowest - left;",
            "    if (right >= 0 && highest + right + 1 < hi) hi = highest + right + 1; }",
        ]
    if form.split:
        lines += [
            "  { const i64 span = hi > lo ? (hi - lo + splits - 1) / splits : 0; lo += cut * span; hi = lo + span < hi ? lo + span : hi; }"
        ]
    return "\n".join(lines)


def _hidden(form: Form) -> str:
    """Statements that finish score s[i][n] of key ``key``."""
    lines = ["        int seen = key < hi;"]
    if form.cap:
        lines.append("        s[i][n] = cap * tanh(s[i][n] / cap);")
    if form.window:
        lines.append(
            "        seen = seen && (left < 0 || key >= place[i] - left) && (right < 0 || key <= place[i] + right);"
        )
    if form.mask:
        at = "b * m_batch + (h * shared + row / queries) * m_head + row % queries * m_row + key * m_col"
        lines.append(f"        const i64 row = first + ty + {_SIDE} * i; seen = seen && key < m_keys;")
        value = f"LOAD_{form.mask}(mask, {at})"
        lines.append(
            f"        if (seen && row < rows) seen = {value} != 0;"
            if form.mask == "b8"
            else f"        if (seen && row < rows) s[i][n] += (f32){value};"
        )
    lines.append("        s[i][n] = seen ? s[i][n] : -INFINITY;")
    return "\n".join(lines)


def _stored(form: Form, parts: int) -> str:
    if form.split:
        return f"""      const i64 at = ((b * kv_heads + h) * rows + row) * splits + cut;
      if (tx == 0) {{ stat[2 * at] = m[i]; stat[2 * at + 1] = total; }}
      for (int c = 0; c < {parts}; c++) if (tx + {_SIDE} * c < {form.value_size})
        part[at * {form.value_size} + tx + {_SIDE} * c] = acc[i][c];"""
    return f"""      const i64 at = b * y_batch + (h * shared + row / queries) * y_head + row % queries * y_row;
      for (int c = 0; c < {parts}; c++) if (tx + {_SIDE} * c < {form.value_size})
        STORE_{form.type}(out0, at + tx + {_SIDE} * c, {_quotient("acc[i][c]", form.zeros)});"""


def _quotient(sum_: str, zeros: bool) -> str:
    return f"total == 0 ? 0 : {sum_} / total" if zeros else f"{sum_} / total"


def joined(name: str, type_: str, value_size: int, *, zeros: bool = True) -> str:
    """The result from the parts of ``attention`` with ``split``. Tensors: part, stat, out0. Scalars, all i64: points (elements of the
    result), queries, heads, splits, y_batch, y_head, y_row. One work-item an element."""
    return f"""KERNEL void {name}(TENSOR(f32, part), TENSOR(f32, stat), TENSOR({type_}, out0), const i64 points, const i64 queries,
    const i64 heads, const i64 splits, const i64 y_batch, const i64 y_head, const i64 y_row) {{
  const i64 at = GLOBAL_ID64(0);
  if (at >= points) return;
  OPEN(f32, part) OPEN(f32, stat) OPEN({type_}, out0)
  const i64 row = at / {value_size}, c = at % {value_size};
  f32 peak = -INFINITY, total = 0, a = 0;
  for (i64 n = 0; n < splits; n++) {{ const f32 x = stat[2 * (row * splits + n)]; peak = x > peak ? x : peak; }}
  const f32 from = peak == -INFINITY ? 0 : peak;
  for (i64 n = 0; n < splits; n++) {{ const i64 p = row * splits + n; const f32 kept = exp(stat[2 * p] - from);
    total += kept * stat[2 * p + 1]; a += kept * part[p * {value_size} + c]; }}
  const i64 to = row / (queries * heads) * y_batch + row / queries % heads * y_head + row % queries * y_row + c;
  STORE_{type_}(out0, to, {_quotient("a", zeros)});
}}
"""
