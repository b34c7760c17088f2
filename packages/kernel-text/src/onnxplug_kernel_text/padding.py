"""What a mask of onnxruntime's attentions adds to the scores: a number for keys that are padding, the lowest one for the future."""

from __future__ import annotations

LOWEST = "-3.402823466e+38f"


def padding(name: str, mask: str, *, bias: str | None, future: bool) -> str:
    """The sum of a mask and a bias, as a dense f32 (batch, heads, queries, keys), of which each may be 1.

    ``mask``: "ends", how many keys of each batch entry count; "spans", the ends of all entries, then the starts; "keys", positive where a
    key counts. ``bias``: its type, or None. ``future``: keys behind a query are hidden. Tensors: mask (i32), bias (if any), out. Scalars,
    all i64: points, batch, heads, queries, keys, offset (keys before the first query), first, m_batch, m_row ("keys": the mask begins at
    ``first``), then the bias's strides of batch, head, row and key; f32 filter.
    """
    tensors = [("i32", "mask"), *([(bias, "bias")] if bias else []), ("f32", "out")]
    declared = [f"TENSOR({t}, {n})" for t, n in tensors]
    names = ["points", "batch", "heads", "queries", "keys", "offset", "first", "m_batch", "m_row"]
    names += [f"b_{d}" for d in ("batch", "head", "row", "key")] if bias else []
    declared += [*(f"const i64 {s}" for s in names), "const f32 filter"]
    seen = {
        "ends": "k < mask[b]",
        "spans": "k < mask[b] && k >= mask[batch + b]",
        "keys": "mask[first + b * m_batch + q * m_row + k] > 0",
    }[mask]
    hidden = f"  if (k > q + offset) {{ x += {LOWEST}; x = x < {LOWEST} ? {LOWEST} : x; }}\n" if future else ""
    added = f"  x += LOAD_{bias}(bias, b * b_batch + h * b_head + q * b_row + k * b_key);\n" if bias else ""
    return f"""KERNEL void {name}({", ".join(declared)}) {{
  const i64 at = GLOBAL_ID64(0);
  if (at >= points) return;
  {" ".join(f"OPEN({t}, {n})" for t, n in tensors)}
  const i64 k = at % keys, q = at / keys % queries, h = at / keys / queries % heads, b = at / keys / queries / heads;
  f32 x = {seen} ? 0 : filter;
{hidden}{added}  out[at] = x;
}}
"""
