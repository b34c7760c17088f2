"""Normalisation by the root mean square, times a gate (com.microsoft GatedRMSNorm)."""

from __future__ import annotations

from onnxplug_kernel_text.skip import average


def normalisation(name: str, type_: str, *, group: int, whole: bool) -> str:
    """x / sqrt(the mean of x * x + epsilon) * scale, times the sigmoid of the gate, and the gate where ``whole``, over each line of n
    neighbouring elements. Tensors: in0, scale, gate, out. Scalars: i64 n; f32 epsilon. ``group`` work-items a line (a power of two)."""
    tensors = ("in0", "scale", "gate", "out0")
    each = f"for (i64 k = LOCAL_ID(0); k < n; k += {group})"
    x = f"LOAD_{type_}(in0, base + k)"
    return f"""KERNEL void {name}({", ".join(f"TENSOR({type_}, {t})" for t in tensors)}, const i64 n, const f32 epsilon) {{
  const i64 base = GROUP_ID(0) * n;
  {" ".join(f"OPEN({type_}, {t})" for t in tensors)}
  LOCAL f32 shared[{group}]; f32 square = 0;
{average("square", "x * x", x, each, group)}
  const f32 root = sqrt(square + epsilon);
  {each} {{ const f32 g = LOAD_{type_}(gate, base + k);
    STORE_{type_}(out0, base + k, {x} / root * LOAD_{type_}(scale, k) * ({"g" if whole else "(f32)1"} / ((f32)1 + EXP(-g)))); }}
}}
"""
