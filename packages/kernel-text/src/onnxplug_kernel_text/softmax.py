"""Softmax and its relatives along one dimension."""

from __future__ import annotations

from onnxplug_kernel_text.reduce import tree
from onnxplug_kernel_text.types import arithmetic, lowest

LANES = 16
"""Neighbours that a work-item takes together: two vectors of AVX2."""


def softmax(name: str, operator: str, type_: str, group: int = 0) -> str:
    """Softmax, LogSoftmax or Hardmax along a dimension of a dense tensor.

    Arguments after in0 and out0, all i64: the number of lines (elements of the tensor without the dimension), elements along the
    dimension, its stride. ``group`` 0: one work-item a line; else ``group`` work-items a line (a power of two, the local size).
    """
    held = arithmetic(type_)
    step = group or 1
    first = "LOCAL_ID(0)" if group else "0"
    each = f"for (i64 k = {first}; k < n; k += {step})"
    load = f"LOAD_{type_}(in0, base + k * stride)"
    larger = "(({a} != {a} || {a} > {b}) ? {a} : {b})"
    lines = [
        f"KERNEL void {name}(TENSOR({type_}, in0), TENSOR({type_}, out0), const i64 points, const i64 n, const i64 stride) {{",
        "  const i64 at = GROUP_ID(0);" if group else "  const i64 at = GLOBAL_ID64(0);\n  if (at >= points) return;",
        f"  OPEN({type_}, in0) OPEN({type_}, out0)",
        "  const i64 base = at / stride * n * stride + at % stride;",
        f"  LOCAL {held} shared[{group}];" if group else "",
        f"  {held} m = {lowest(type_)};",
    ]
    if operator == "Hardmax":
        lines.append(
            f"  i64 found = n;\n  {each} {{ const {held} x = {load}; if (found == n || x > m) {{ m = x; found = k; }} }}"
        )
        if group:
            lines += [
                f"  LOCAL i64 place[{group}]; shared[LOCAL_ID(0)] = m; place[LOCAL_ID(0)] = found; BARRIER();",
                f"  for (int o = 0; o < {group}; o++)",
                "    if (shared[o] > m || (shared[o] == m && place[o] < found)) { m = shared[o]; found = place[o]; }",
            ]
        lines.append(f"  {each} STORE_{type_}(out0, base + k * stride, ({held})(k == found));")
        return "\n".join([*lines, "}\n"])
    if not group:
        return "\n".join([*lines, *_alone(operator, type_), "}\n"])
    lines.append(f"  {each} {{ const {held} x = {load}; m = {larger.format(a='m', b='x')}; }}")
    lines.append(f"  shared[LOCAL_ID(0)] = m; {tree('shared', larger, group)} m = shared[0]; BARRIER();")
    lines.append(f"  {held} a = 0;\n  {each} a += EXP({load} - m);")
    lines.append(f"  shared[LOCAL_ID(0)] = a; {tree('shared', '{a} + {b}', group)} a = shared[0];")
    if operator == "LogSoftmax":
        lines.append(f"  a = log(a);\n  {each} STORE_{type_}(out0, base + k * stride, {load} - m - a);")
    else:
        lines.append(f"  {each} STORE_{type_}(out0, base + k * stride, EXP({load} - m) / a);")
    return "\n".join([*lines, "}\n"])


def _alone(operator: str, type_: str) -> list[str]:
    """Statements of one work-item a line. Where elements are neighbours, ``LANES`` of them are taken together: loops of fixed length, which
    compilers for processors turn into vectors."""
    held = arithmetic(type_)
    x = f"const {held} x = LOAD_{type_}(in0, base + k * step_);"
    largest = "m = m != m || m > x ? m : x;"
    each = f"for (i64 k = 0; k < n; k++) {{ {x}"
    block = f"for (; k + {LANES} <= n; k += {LANES}) for (int t = 0; t < {LANES}; t++) {{ {x.replace('base + k * step_', 'base + k + t')}"
    tail = f"for (; k < n; k++) {{ {x.replace('* step_', '')}"
    joined = f"for (int t = 0; t < {LANES}; t++) {{ const {held} x = part[t];"
    lines = [
        f"  {held} a = 0;",
        "  if (stride == 1) {",
        f"    {held} part[{LANES}]; i64 k = 0;",
        f"    for (int t = 0; t < {LANES}; t++) part[t] = m;",
        f"    {block} part[t] = part[t] != part[t] || part[t] > x ? part[t] : x; }}",
        f"    {tail} {largest} }}",
        f"    {joined} {largest} part[t] = 0; }}",
        f"    k = 0; {block} part[t] += EXP(x - m); }}",
        f"    {tail} a += EXP(x - m); }}",
        f"    {joined} a += x; }}",
        "  } else {",
        f"    {each} {largest} }}".replace("step_", "stride"),
        f"    {each} a += EXP(x - m); }}".replace("step_", "stride"),
        "  }",
    ]
    value = "EXP(x - m) / a"
    if operator == "LogSoftmax":
        lines.append("  a = log(a);")
        value = "x - m - a"
    for test, step in (("if (stride == 1)", "1"), ("else", "stride")):
        store = f"STORE_{type_}(out0, base + k * {step}, {value}); }}"
        lines.append(f"  {test} {each} {store}".replace("step_", step))
    return lines
