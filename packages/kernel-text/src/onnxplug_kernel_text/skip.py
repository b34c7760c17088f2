"""Normalisation of a sum: x + skip + bias, to mean 0 and variance 1 or to root mean square 1 (SkipLayerNormalization and kin)."""

from __future__ import annotations

from onnxplug_kernel_text.reduce import tree


def skip_normalisation(
    name: str, type_: str, *, beta: bool, bias: bool, centred: bool, mean: bool, spread: bool, total: bool, group: int
) -> str:
    """(t - mean) / sqrt(variance + epsilon) * gamma + beta with t = in0 + skip + bias, over each line of n neighbouring elements;
    without the mean where not ``centred``.

    Tensors: in0, skip, gamma, beta (if any), bias (if any), out0; as asked for, mean and 1 / sqrt(variance + epsilon) of each line in f32,
    and the sums t. Scalars: i64 lines, n, period (lines of ``skip``, which is repeated); f32 epsilon. ``group`` work-items a line (a
    power of two, the local size).
    """
    tensors = ["in0", "skip", "gamma", *(["beta"] if beta else []), *(["bias"] if bias else []), "out0"]
    statistics = [*(["mean_"] if mean else []), *(["spread_"] if spread else [])]
    typed = [(type_, t) for t in tensors] + [("f32", s) for s in statistics] + ([(type_, "total")] if total else [])
    x = f"LOAD_{type_}(in0, base + k) + LOAD_{type_}(skip, from + k)" + (f" + LOAD_{type_}(bias, k)" if bias else "")
    each = f"for (i64 k = LOCAL_ID(0); k < n; k += {group})"
    parameters = [f"TENSOR({t}, {v})" for t, v in typed] + [f"const i64 {s}" for s in ("lines", "n", "period")]

    lines = [
        f"KERNEL void {name}({', '.join(parameters)}, const f32 epsilon) {{",
        "  const i64 at = GROUP_ID(0), base = at * n, from = at % period * n;",
        "  " + " ".join(f"OPEN({t}, {v})" for t, v in typed),
        f"  LOCAL f32 shared[{group}]; f32 mean = 0, spread = 0;",
        average("mean", "x", x, each, group) if centred else "",
        average("spread", "(x - mean) * (x - mean)", x, each, group),
        "  spread = 1 / sqrt(spread + epsilon);",
        "  if (LOCAL_ID(0) == 0) { " + " ".join(f"{s}[at] = {s[:-1]};" for s in statistics) + " }"
        if statistics
        else "",
        f"  {each} {{ const f32 x = {x};",
        f"    STORE_{type_}(total, base + k, x);" if total else "",
        f"    STORE_{type_}(out0, base + k, (x - mean) * spread * LOAD_{type_}(gamma, k){f' + LOAD_{type_}(beta, k)' if beta else ''}); }}",
    ]
    return "\n".join([*(line for line in lines if line), "}\n"])


def average(result: str, value: str, x: str, each: str, group: int, before: str = "") -> str:
    """Statements by which a group gives ``result`` the mean of ``value``, in terms of ``x``, over a line; ``each`` walks it; ``before``:
    statements that ``x`` needs."""
    return (
        f"  {{ f32 a = 0; {each} {{ {before} const f32 x = {x}; a += {value}; }}\n"
        f"    shared[LOCAL_ID(0)] = a; {tree('shared', '{a} + {b}', group)} {result} = shared[0] / n; BARRIER(); }}"
    )
