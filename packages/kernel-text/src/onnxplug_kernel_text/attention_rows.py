"""Softmax of attention scores that lie in memory, where products of matrices make them and take the weights."""

from __future__ import annotations

from onnxplug_kernel_text.attention import Form
from onnxplug_kernel_text.softmax import LANES


def weights(name: str, form: Form, step: int = 1, told: tuple[str, int] | None = None) -> str:
    """Each row of scores as weights: 0 for keys that the query does not see, and for all of them where it sees none.

    ``told``: the scores go elsewhere too, in this type: 0 as they are, 1 behind the cap, 2 with the mask, 3 as weights. Tensors: scores
    (f32), mask (if any), lengths (if any, i64), weights (f32, not in the scores' place), the place for what is told. Scalars, all i64:
    points (rows), queries, keys, heads, offset, left, right, then with a mask its strides of batch, head and row, and the keys that it
    reaches; one f32, cap. What these mean is said at ``attention.attention``; elements of the mask lie ``step`` apart. One work-item a row.
    """
    tensors = [("f32", "scores"), *([(form.mask, "mask")] if form.mask else [])]
    tensors += [*([("i64", "lengths")] if form.lengths else []), ("f32", "out0")]
    tensors += [(told[0], "told")] if told else []
    scalars = ["points", "queries", "keys", "heads", "offset", "left", "right"]
    scalars += ["m_batch", "m_head", "m_row", "m_keys"] if form.mask else []
    declared = [*(f"TENSOR({t}, {n})" for t, n in tensors), *(f"const i64 {s}" for s in scalars), "const f32 cap"]
    score = f"f32 x = from[{{k}}]; {_changed(form, step)}"
    larger = "{m} = {m} != {m} || {m} > x ? {m} : x;"
    kept = "to[{k}] = x;"
    return f"""KERNEL void {name}({", ".join(declared)}) {{
  const i64 at = GLOBAL_ID64(0);
  if (at >= points) return;
  {" ".join(f"OPEN({t}, {n})" for t, n in tensors)}
  const i64 q = at % queries, b = at / queries / heads{", h = at / queries % heads" if form.mask else ""};
  i64 lo = 0, hi = keys, place = q + offset;
{_bounds(form)}
  GLOBAL f32 *from = scores + at * keys, *to = out0 + at * keys;
  f32 m = -INFINITY, total = 0, part[{LANES}]; i64 k = lo;
  for (int t = 0; t < {LANES}; t++) part[t] = m;
  for (; k + {LANES} <= hi; k += {LANES}) for (int t = 0; t < {LANES}; t++) {{
    {score.format(k="k + t")} {kept.format(k="k + t")} {larger.format(m="part[t]")} }}
  for (; k < hi; k++) {{ {score.format(k="k")} {kept.format(k="k")} {larger.format(m="m")} }}
  for (int t = 0; t < {LANES}; t++) {{ const f32 x = part[t]; {larger.format(m="m")} part[t] = 0; }}
  const f32 peak = m == -INFINITY ? 0 : m;
  for (k = lo; k + {LANES} <= hi; k += {LANES}) for (int t = 0; t < {LANES}; t++) {{
    const f32 x = EXP(to[k + t] - peak); to[k + t] = x; part[t] += x; }}
  for (; k < hi; k++) {{ const f32 x = EXP(to[k] - peak); to[k] = x; total += x; }}
  for (int t = 0; t < {LANES}; t++) total += part[t];
  {"if (total == 0) total = 1;" if form.zeros else ""}
  for (k = lo; k < hi; k++) to[k] /= total;
  for (k = 0; k < lo; k++) to[k] = 0;
  for (k = hi; k < keys; k++) to[k] = 0;
  {f"for (k = 0; k < keys; k++) {{ {_said(form, told[1], step)} STORE_{told[0]}(told, at * keys + k, x); }}" if told else ""}
}}
"""


def _said(form: Form, kept: int, step: int) -> str:
    """Statements that make ``x``, what is told of key ``k``."""
    if kept == 3:
        return "const f32 x = to[k];"
    if kept == 2:
        return f"f32 x = from[k]; {_changed(form, step).format(k='k')} x = k < lo || k >= hi ? -INFINITY : x;"
    return f"f32 x = from[k]; {_capped(form) if kept else ''}"


def _capped(form: Form) -> str:
    return "x = cap * tanh(x / cap);" if form.cap else ""


def _bounds(form: Form) -> str:
    """Statements that narrow [lo, hi) to the keys that the query may see."""
    lines = []
    if form.lengths:
        lines.append("  hi = lengths[b] < hi ? lengths[b] : hi; place += lengths[b] - queries;")
    if form.window:
        lines.append("  if (left >= 0 && place - left > lo) lo = place - left < keys ? place - left : keys;")
        lines.append("  if (right >= 0 && place + right + 1 < hi) hi = place + right + 1;")
    if form.mask:
        lines.append("  hi = m_keys < hi ? m_keys : hi;")
        lines.append(f"  GLOBAL {form.mask} *line = mask + b * m_batch + h * m_head + q * m_row;")
    if form.window or form.lengths:
        lines.append("  if (hi < lo) hi = lo;")
    return "\n".join(lines)


def _changed(form: Form, step: int) -> str:
    """Statements that finish score ``x`` of a key, with ``{k}`` for its number."""
    said = _capped(form)
    if form.mask:
        value = f"LOAD_{form.mask}(line, ({{k}}) * {step})"
        said += f" x = {value} != 0 ? x : -INFINITY;" if form.mask == "b8" else f" x += {value};"
    return said
