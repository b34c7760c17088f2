"""Normalisation of groups of channels, behind a sum and before a Swish (com.microsoft GroupNorm and SkipGroupNorm)."""

from __future__ import annotations

from dataclasses import dataclass

from onnxplug_kernel_text.skip import average


@dataclass(frozen=True)
class Form:
    """What changes the text: type of the input, of gamma and beta; whether channels are last; whether there is a skip, a bias; whether the
    sum is asked for; whether the result goes through x * sigmoid(x)."""

    type: str
    scale: str
    last: bool
    skip: bool = False
    bias: bool = False
    total: bool = False
    activated: bool = False


def normalisation(name: str, form: Form, group: int) -> str:
    """(t - mean) / sqrt(variance + epsilon) * gamma + beta with t = in0 + skip + bias, over each group of channels of each image.

    Tensors: in0, gamma, beta, skip (if any), bias (if any), out0, the sums t (if asked for). Scalars: i64 groups, channels of a group,
    positions of an image, s_n, s_c, s_p (strides of the skip over images, channels, positions); f32 epsilon. ``group`` work-items a group
    of channels (a power of two, the local size).
    """
    f = form
    typed = [(f.type, "in0"), (f.scale, "gamma"), (f.scale, "beta")]
    typed += [(f.type, n) for n, there in (("skip", f.skip), ("bias", f.bias)) if there]
    typed += [(f.type, "out0"), *([(f.type, "total")] if f.total else [])]
    scalars = ("groups", "own", "positions", "s_n", "s_c", "s_p")
    declared = [*(f"TENSOR({t}, {v})" for t, v in typed), *(f"const i64 {s}" for s in scalars)]
    split = ("k / own", "k % own") if f.last else ("k % positions", "k / positions")
    place = f"const i64 p = {split[0]}, c = first + {split[1]}, at = " + (
        "(image * positions + p) * channels + c;" if f.last else "(image * channels + c) * positions + p;"
    )
    x = f"LOAD_{f.type}(in0, at)" + (f" + LOAD_{f.type}(skip, image * s_n + c * s_c + p * s_p)" if f.skip else "")
    x += f" + LOAD_{f.type}(bias, c)" if f.bias else ""
    each = f"for (i64 k = LOCAL_ID(0); k < n; k += {group})"
    lines = [
        f"KERNEL void {name}({', '.join(declared)}, const f32 epsilon) {{",
        "  const i64 image = GROUP_ID(0) / groups, first = GROUP_ID(0) % groups * own, n = own * positions, channels = groups * own;",
        "  " + " ".join(f"OPEN({t}, {v})" for t, v in typed),
        f"  LOCAL f32 shared[{group}]; f32 mean = 0, spread = 0;",
        average("mean", "x", x, each, group, place),
        average("spread", "(x - mean) * (x - mean)", x, each, group, place),
        "  spread = 1 / sqrt(spread + epsilon);",
        f"  {each} {{ {place} const f32 x = {x};",
        f"    STORE_{f.type}(total, at, x);" if f.total else "",
        f"    const f32 y = (x - mean) * spread * LOAD_{f.scale}(gamma, c) + LOAD_{f.scale}(beta, c);",
        f"    STORE_{f.type}(out0, at, {'y / ((f32)1 + EXP(-y))' if f.activated else 'y'}); }}",
    ]
    return "\n".join([*(line for line in lines if line), "}\n"])
