"""Reductions: one number from all elements along some dimensions.

Two forms. With ``group`` 0 each work-item makes one output. Else each group of that many work-items (a power of two) makes one, with
partial results in local memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnxplug_kernel_text.types import FLOATS, arithmetic, highest, lowest

LANES, BLOCK = 8, 512
"""Partial results side by side, and elements after which they are joined: sums of many numbers stay exact."""


@dataclass(frozen=True)
class Kind:
    """How a reduction starts, takes an element ``x`` into ``{a}``, joins ``{a}`` and ``{b}``, and ends (``n`` elements)."""

    start: str
    take: str
    join: str = "{a} + {b}"
    end: str = "{a}"


def _kind(operator: str, type_: str) -> Kind:
    magnitude = "fabs(x)" if type_ in FLOATS else "(x < 0 ? -x : x)" if type_.startswith("i") else "x"
    held = arithmetic(type_)
    larger = "(({a} != {a} || {a} > {b}) ? {a} : {b})"
    smaller = "(({a} != {a} || {a} < {b}) ? {a} : {b})"
    return {
        "ReduceSum": Kind("0", "{a} + x"),
        "ReduceMean": Kind("0", "{a} + x", end=f"{{a}} / ({held})n"),
        "ReduceProd": Kind("1", "{a} * x", "{a} * {b}"),
        "ReduceMax": Kind(lowest(type_), larger.replace("{b}", "x"), larger),
        "ReduceMin": Kind(highest(type_), smaller.replace("{b}", "x"), smaller),
        "ReduceL1": Kind("0", "{a} + " + magnitude),
        "ReduceL2": Kind("0", "{a} + x * x", end="sqrt({a})"),
        "ReduceSumSquare": Kind("0", "{a} + x * x"),
        "ReduceLogSum": Kind("0", "{a} + x", end="log({a})"),
        "Exponentials": Kind("0", "{a} + EXP(x - shift)", end="log({a}) + shift"),
    }[operator]


def reduction(name: str, operator: str, type_: str, kept: int, reduced: int, group: int = 0) -> str:
    """A kernel for one of onnx's Reduce operators over ``reduced`` dimensions of a tensor, ``kept`` others left; both at least 1.

    Arguments after in0 and out0, all i64: the number of outputs; extents of the kept dimensions but the first; strides of the kept
    dimensions; extents of the reduced dimensions; their strides. The output is dense. ``group`` 0: one work-item an output; else
    ``group`` work-items an output, which must be the local size.
    """
    held = arithmetic(type_)
    lines = [_head(name, type_, type_, kept, reduced), *_base(kept, reduced, bool(group))]
    lines.append(f"  OPEN({type_}, in0) OPEN({type_}, out0)")
    if group:
        lines.append(f"  LOCAL {held} shared[{group}];")
    if operator == "ReduceLogSumExp":
        lines += _pass("largest", _kind("ReduceMax", type_), type_, reduced, group)
        lines.append(f"  const {held} shift = (largest - largest == 0) ? largest : 0;")
        operator = "Exponentials"
    kind = _kind(operator, type_)
    lines += _pass("a", kind, type_, reduced, group)
    store = f"STORE_{type_}(out0, at, {kind.end.format(a='a')});"
    lines.append(f"  if (LOCAL_ID(0) == 0) {{ {store} }}" if group else f"  {store}")
    return "\n".join([*lines, "}\n"])


def arg_reduction(name: str, largest: bool, last: bool, type_: str, group: int) -> str:
    """Position of the largest or smallest element along one dimension, of the first or last of equals; NaN counts as largest and smallest.

    Arguments after in0 and out0 (i64): i64 number of outputs, i64 elements along the dimension, i64 its stride. Outputs lie
    ``outer`` x ``stride``; forms as of ``reduction``.
    """
    held = arithmetic(type_)
    beats = f"({'x > best' if largest else 'x < best'}{' || x == best' if last else ''}{' || x != x' if type_ in FLOATS else ''})"
    keeps = "(best == best) && " if type_ in FLOATS else ""
    item = f"for (i64 k = {'LOCAL_ID(0)' if group else '0'}; k < n; k += {group or 1})"
    lines = [
        f"KERNEL void {name}(TENSOR({type_}, in0), TENSOR(i64, out0), const i64 points, const i64 n, const i64 stride) {{",
        "  const i64 at = GROUP_ID(0);" if group else "  const i64 at = GLOBAL_ID64(0);\n  if (at >= points) return;",
        f"  OPEN({type_}, in0) OPEN(i64, out0)",
        "  const i64 base = at / stride * n * stride + at % stride;",
        f"  {held} best = {lowest(type_) if largest else highest(type_)}; i64 found = -1;",
        f"  {item} {{ const {held} x = LOAD_{type_}(in0, base + k * stride);",
        f"    if (found < 0 || ({keeps}{beats})) {{ best = x; found = k; }} }}",
    ]
    if group:
        first = f"({'place[o] > found' if last else 'place[o] < found'})"
        better = f"({'value[o] > best' if largest else 'value[o] < best'}{' || value[o] != value[o]' if type_ in FLOATS else ''})"
        same = "(value[o] == best" + (" || (value[o] != value[o] && best != best))" if type_ in FLOATS else ")")
        lines += [
            f"  LOCAL {held} value[{group}]; LOCAL i64 place[{group}]; const int l = LOCAL_ID(0);",
            "  value[l] = best; place[l] = found; BARRIER();",
            f"  for (int half_ = {group // 2}; half_ > 0; half_ /= 2) {{",
            "    if (l < half_) { const int o = l + half_; best = value[l]; found = place[l];",
            f"      if (place[o] >= 0 && (found < 0 || ({same} ? {first} : ({keeps}{better})))) {{",
            "        value[l] = value[o]; place[l] = place[o]; } }",
            "    BARRIER(); }",
            "  if (l == 0) out0[at] = place[0];",
        ]
    else:
        lines.append("  out0[at] = found;")
    return "\n".join([*lines, "}\n"])


def tree(values: str, join: str, group: int) -> str:
    """Statements that join ``values[0..group)`` in local memory into ``values[0]`` and wait for it."""
    joined = join.format(a=f"{values}[l]", b=f"{values}[l + half_]")
    return (
        f"BARRIER(); {{ const int l = LOCAL_ID(0); for (int half_ = {group // 2}; half_ > 0; half_ /= 2) "
        f"{{ if (l < half_) {values}[l] = {joined}; BARRIER(); }} }}"
    )


def _head(name: str, in_type: str, out_type: str, kept: int, reduced: int) -> str:
    scalars = ["points", *(f"k{n}" for n in range(1, kept)), *(f"s{n}" for n in range(kept))]
    scalars += [*(f"e{n}" for n in range(reduced)), *(f"t{n}" for n in range(reduced))]
    return f"KERNEL void {name}(TENSOR({in_type}, in0), TENSOR({out_type}, out0), {', '.join('const i64 ' + s for s in scalars)}) {{"


def _base(kept: int, reduced: int, grouped: bool) -> list[str]:
    lines = [
        "  const i64 at = GROUP_ID(0);" if grouped else "  const i64 at = GLOBAL_ID64(0);\n  if (at >= points) return;"
    ]
    lines.append("  i64 rest = at, base = 0;")
    for n in range(kept - 1, 0, -1):
        lines.append(f"  base += rest % k{n} * s{n}; rest /= k{n};")
    lines.append("  base += rest * s0;")
    lines.append(f"  const i64 n = {' * '.join(f'e{n}' for n in range(reduced))};")
    return lines


def _pass(result: str, kind: Kind, type_: str, reduced: int, group: int) -> list[str]:
    """Declare ``result`` and reduce into it."""
    held = arithmetic(type_)
    lines = [f"  {held} {result} = {kind.start};"]
    lines += _grouped(result, kind, type_, reduced, group) if group else _single(result, kind, type_, reduced)
    return lines


def _single(result: str, kind: Kind, type_: str, reduced: int) -> list[str]:
    held, last = arithmetic(type_), reduced - 1
    lines = ["  {"]
    for n in range(last):
        lines.append(f"  for (i64 r{n} = 0; r{n} < e{n}; r{n}++)")
    outer = "".join(f" + r{n} * t{n}" for n in range(last))
    lanes = [f"p{k}" for k in range(LANES)]
    lines.append(f"  for (i64 b = 0; b < e{last}; b += {BLOCK}) {{ i64 r = b; const i64 from = base{outer};")
    lines.append(f"    const i64 stop = b + {BLOCK} < e{last} ? b + {BLOCK} : e{last};")
    lines.append(f"    {held} {', '.join(f'{p} = {kind.start}' for p in lanes)};")
    lines.append(f"    for (; r + {LANES} <= stop; r += {LANES}) {{")
    for k, lane in enumerate(lanes):
        lines.append(
            f"      {{ const {held} x = LOAD_{type_}(in0, from + (r + {k}) * t{last}); {lane} = {kind.take.format(a=lane)}; }}"
        )
    lines.append("    }")
    lines.append(
        f"    for (; r < stop; r++) {{ const {held} x = LOAD_{type_}(in0, from + r * t{last}); p0 = {kind.take.format(a='p0')}; }}"
    )
    lines += _joined(lanes, kind)
    lines.append(f"    {result} = {kind.join.format(a=result, b='p0')}; }}")
    lines.append("  }")
    return lines


def _joined(lanes: Sequence[str], kind: Kind) -> list[str]:
    lines = []
    step = len(lanes) // 2
    while step:
        lines.append("    " + " ".join(f"p{k} = {kind.join.format(a=f'p{k}', b=f'p{k + step}')};" for k in range(step)))
        step //= 2
    return lines


def _grouped(result: str, kind: Kind, type_: str, reduced: int, group: int) -> list[str]:
    held = arithmetic(type_)
    steps = [f"from += q % e{n} * t{n}; q /= e{n};" for n in range(reduced - 1, 0, -1)]
    return [
        f"  for (i64 r = LOCAL_ID(0); r < n; r += {group}) {{ i64 q = r, from = base; {' '.join(steps)} from += q * t0;",
        f"    const {held} x = LOAD_{type_}(in0, from); {result} = {kind.take.format(a=result)}; }}",
        f"  shared[LOCAL_ID(0)] = {result}; {tree('shared', kind.join, group)}",
        f"  {result} = shared[0]; BARRIER();",
    ]
