"""Attention as a recurrence over a matrix: LinearAttention of ONNX and of com.microsoft."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Form:
    """What changes the text: type of queries, keys, values and the result; type of the states that are given and asked for; which tensors
    there are; whether there is a decay for each element of a key; whether the state learns the difference from what it holds."""

    type: str
    state: str
    past: bool
    decay: bool
    by_key: bool
    beta: bool


SCALARS = (
    "points", "parts", "heads", "group", "shared", "length", "size", "value_size", "rates", "begun", "slots", "states",
)  # fmt: skip
"""Work-items; runs of ``span`` columns of a head's values; heads of keys; of queries for each of them; of keys for each of these; tokens;
elements of a key and of a value; entries of beta for a token; where the past begins; states that are asked for, and elements of one."""


def recurrence(name: str, form: Form, span: int, *, even: bool = False) -> str:
    """For each token: the state times exp(decay), plus the key times the value, or times beta * (value - what the state gives the key);
    out = scale * query times the state. A work-item has ``span`` columns of one head's state for all tokens; ``even``: never
    fewer.

    Tensors: query, key, value, past (if any), decay (if any), beta (if any), out, present (states after the last ``slots`` tokens, zeros
    where there are fewer), state (scratch, f32). Scalars, i64: ``SCALARS``; f32 scale.
    """
    f = form
    tensors = [(f.type, n) for n in ("query", "key", "value")] + ([(f.state, "past")] if f.past else [])
    tensors += [(f.type, n) for n, there in (("decay", f.decay), ("beta", f.beta)) if there]
    tensors += [(f.type, "out0"), (f.state, "present"), ("f32", "state")]
    declared = [*(f"TENSOR({t}, {n})" for t, n in tensors), *(f"const i64 {n}" for n in SCALARS)]
    each = f"for (int v = 0; v < {span if even else 'width'}; v++)"
    initial = f"LOAD_{f.state}(past, begun + first + i * value_size + v)" if f.past else "0"
    factor = f"EXP(LOAD_{f.type}(decay, {'at_key + i' if f.by_key else 'row * heads + head'}))"
    changed = f"s[i * value_size + v]{' * f' if f.decay else ''}"
    value = f"LOAD_{f.type}(value, (row * heads + head) * value_size + v0 + v)"
    fresh = f"LOAD_{f.type}(beta, row * rates + (rates > 1 ? head : 0)) * ({value} - fresh[v])" if f.beta else value
    recalled = (
        f"""    for (i64 i = 0; i < size; i++) {{
      {f"const f32 f = {factor};" if f.decay else ""} {f"const f32 k = LOAD_{f.type}(key, at_key + i);" if f.beta else ""}
      {each} {{ const f32 x = {changed}; s[i * value_size + v] = x; {"fresh[v] += k * x;" if f.beta else ""} }} }}
"""
        if f.decay or f.beta
        else ""
    )
    kept = f"STORE_{f.state}(present, slot * states + first + i * value_size + v, "
    return f"""KERNEL void {name}({", ".join(declared)}, const f32 scale) {{
  const i64 at = GLOBAL_ID64(0);
  if (at >= points) return;
  {" ".join(f"OPEN({t}, {n})" for t, n in tensors)}
  const i64 v0 = at % parts * {span}, head = at / parts % heads, b = at / parts / heads;
  const i64 first = (b * heads + head) * size * value_size + v0;
  const int width = (int)(value_size - v0 < {span} ? value_size - v0 : {span});
  GLOBAL f32 *s = state + first;
  f32 fresh[{span}], y[{span}];
  for (i64 i = 0; i < size; i++) {each} s[i * value_size + v] = {initial};
  for (i64 slot = 0; slot < slots - length; slot++) for (i64 i = 0; i < size; i++) {each} {kept}(f32)0);
  for (i64 t = 0; t < length; t++) {{
    const i64 row = b * length + t, at_key = (row * heads + head) * size, slot = t - length + slots;
    const i64 heads_ = heads * group / shared;
    {each} {{ fresh[v] = 0; y[v] = 0; }}
{recalled}    {each} fresh[v] = {fresh};
    {{ const i64 at_query = (row * heads_ + head * group / shared) * size;
      for (i64 i = 0; i < size; i++) {{ const f32 k = LOAD_{f.type}(key, at_key + i), q = scale * LOAD_{f.type}(query, at_query + i);
        {each} {{ const f32 x = s[i * value_size + v] + k * fresh[v]; s[i * value_size + v] = x; y[v] += q * x; }} }} }}
    {each} STORE_{f.type}(out0, (row * heads + head) * group * value_size + v0 + v, y[v]);
    for (i64 g = 1; g < group; g++) {{
      const i64 at_query = (row * heads_ + (head * group + g) / shared) * size;
      {each} y[v] = 0;
      for (i64 i = 0; i < size; i++) {{ const f32 q = scale * LOAD_{f.type}(query, at_query + i);
        {each} y[v] += q * s[i * value_size + v]; }}
      {each} STORE_{f.type}(out0, ((row * heads + head) * group + g) * value_size + v0 + v, y[v]);
    }}
    if (slot >= 0) for (i64 i = 0; i < size; i++) {each} {kept}s[i * value_size + v]);
  }}
  if (length == 0) {{ const i64 slot = slots - 1; for (i64 i = 0; i < size; i++) {each} {kept}s[i * value_size + v]); }}
}}
"""
