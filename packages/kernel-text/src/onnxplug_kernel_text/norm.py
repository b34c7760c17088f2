"""Normalisation of lines of a tensor to mean 0 and variance 1, or to root mean square 1, with scale and bias; and across channels."""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug_kernel_text.reduce import tree
from onnxplug_kernel_text.types import arithmetic


def normalisation(
    name: str,
    type_: str,
    scale: str,
    *,
    bias: bool,
    centred: bool,
    statistics: Sequence[str] = (),
    group: int = 0,
    made: str = "",
) -> str:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over each line of n neighbouring elements; without the mean
    where not ``centred``.

    The scale of element k of line l is number (l % period) * step + k / each. Tensors: in0 of ``type_``, scale, bias (if any), out0 of
    ``made`` (``type_`` where that is not given); of
    ``statistics`` "mean" and "spread" = 1 / sqrt(variance + epsilon) those named, of each line, in f32. Scalars: i64 lines, n, period,
    step, each; f32 epsilon. ``group`` as of ``reduction``.
    """
    held, made = arithmetic(type_), made or type_
    parameters = [f"TENSOR({type_}, in0)", f"TENSOR({scale}, scale)"] + ([f"TENSOR({scale}, bias)"] if bias else [])
    parameters.append(f"TENSOR({made}, out0)")
    named = [f"{s}_" for s in statistics]
    parameters += [f"TENSOR(f32, {s})" for s in named]
    parameters += [f"const i64 {s}" for s in ("lines", "n", "period", "step", "each")] + ["const f32 epsilon"]
    first, step = ("LOCAL_ID(0)", group) if group else ("0", 1)
    lines = [
        f"KERNEL void {name}({', '.join(parameters)}) {{",
        "  const i64 at = GROUP_ID(0);" if group else "  const i64 at = GLOBAL_ID64(0);\n  if (at >= lines) return;",
        f"  OPEN({type_}, in0) OPEN({scale}, scale) OPEN({made}, out0)",
        f"  OPEN({scale}, bias)" if bias else "",
        " ".join(f"  OPEN(f32, {s})" for s in named),
        "  const i64 base = at * n;",
        f"  LOCAL {held} shared[{group}];" if group else "",
        f"  {held} mean = 0, spread = 0;",
    ]
    if centred:
        lines += _mean("mean", "x", type_, group)
    lines += _mean("spread", "(x - mean) * (x - mean)", type_, group)
    lines.append(f"  spread = ({held})1 / sqrt(spread + ({held})epsilon);")
    if statistics:
        store = " ".join(f"{s}[at] = {s[:-1]};" for s in named)
        lines.append(f"  if (LOCAL_ID(0) == 0) {{ {store} }}" if group else f"  {store}")
    added = f" + LOAD_{scale}(bias, c)" if bias else ""
    lines += [
        "  const i64 own = at % period * step;",
        *(
            f"  {test} for (i64 k = {first}; k < n; k += {step}) {{ const i64 c = own + {place};"
            f" STORE_{made}(out0, base + k, (LOAD_{type_}(in0, base + k) - mean) * spread * LOAD_{scale}(scale, c){added}); }}"
            for test, place in (("if (each == 1)", "k"), ("else if (each >= n)", "0"), ("else", "k / each"))
        ),
    ]
    return "\n".join([*lines, "}\n"])


def _mean(result: str, value: str, type_: str, group: int) -> list[str]:
    held = arithmetic(type_)
    if group:
        return [
            f"  {{ {held} a = 0; for (i64 k = LOCAL_ID(0); k < n; k += {group})",
            f"    {{ const {held} x = LOAD_{type_}(in0, base + k); a += {value}; }}",
            f"    shared[LOCAL_ID(0)] = a; {tree('shared', '{a} + {b}', group)} a = shared[0]; BARRIER(); {result} = a / n; }}",
        ]
    lanes = "".join(
        f"{{ const {held} x = LOAD_{type_}(in0, base + k + {lane}); p{lane} += {value}; }} " for lane in range(8)
    )
    return [
        f"  {{ {held} p0 = 0, p1 = 0, p2 = 0, p3 = 0, p4 = 0, p5 = 0, p6 = 0, p7 = 0; i64 k = 0;",
        f"    for (; k + 8 <= n; k += 8) {{ {lanes}}}",
        f"    for (; k < n; k++) {{ const {held} x = LOAD_{type_}(in0, base + k); p0 += {value}; }}",
        f"    {result} = (((p0 + p4) + (p2 + p6)) + ((p1 + p5) + (p3 + p7))) / n; }}",
    ]


def across_channels(name: str, type_: str) -> str:
    """Local response normalisation (ONNX LRN): x / (bias + alpha / size * sum of squares over neighbouring channels) ** beta.

    Arguments after in0 and out0: i64 elements, channels, spatial, size; in the type of the arithmetic alpha / size, beta, bias.
    One work-item an element.
    """
    held = arithmetic(type_)
    return f"""KERNEL void {name}(TENSOR({type_}, in0), TENSOR({type_}, out0), const i64 points, const i64 channels, const i64 spatial,
    const i64 size, const {held} alpha, const {held} beta, const {held} bias) {{
  const i64 at = GLOBAL_ID64(0);
  if (at >= points) return;
  OPEN({type_}, in0) OPEN({type_}, out0)
  const i64 c = at / spatial % channels;
  const i64 first = c - (size - 1) / 2 < 0 ? 0 : c - (size - 1) / 2, last = c + size / 2 < channels ? c + size / 2 : channels - 1;
  {held} a = 0;
  for (i64 k = first; k <= last; k++) {{ const {held} x = LOAD_{type_}(in0, at + (k - c) * spatial); a += x * x; }}
  STORE_{type_}(out0, at, LOAD_{type_}(in0, at) / pow(bias + alpha * a, beta));
}}
"""
