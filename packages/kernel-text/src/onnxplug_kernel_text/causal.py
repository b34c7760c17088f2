"""Depthwise convolutions along one axis that see only the past, and the inputs that the next call begins with (CausalConvWithState)."""

from __future__ import annotations

_LAYOUT = ("channels", "length", "reach", "taps", "dilation", "x_n", "x_c", "x_l", "s_n", "s_c", "s_l")
"""Scalars behind ``points``: channels, positions, those of a state, of a filter, between these; strides of the input, which are those of
the result, and of states, over images, channels and positions."""


def convolution(name: str, type_: str, *, bias: bool, past: bool, gated: bool) -> str:
    """y = the filter over the past and the input, + bias, times its sigmoid where ``gated``. Tensors: input, weight, bias and past (if
    any), out. Scalars, i64: points, which are elements of the result with channels last, and ``_LAYOUT``. One work-item an element."""
    made = "y / ((f32)1 + EXP(-y))" if gated else "y"
    tensors = ["in0", "weight", *(["bias"] if bias else []), *(["past"] if past else []), "out0"]
    return f"""{_head(name, type_, tensors)}
  const i64 c = at % channels, l = at / channels % length, n = at / channels / length;
  f32 y = {f"LOAD_{type_}(bias, c)" if bias else "0"};
  for (i64 k = 0; k < taps; k++) {{ const i64 p = l - reach + k * dilation;
    {_position(type_, past)} y += x * LOAD_{type_}(weight, c * taps + k); }}
  STORE_{type_}(out0, n * x_n + c * x_c + l * x_l, {made});
}}
"""


def state(name: str, type_: str, *, past: bool) -> str:
    """The last positions of the past and the input. Tensors: input, past (if any), out. Scalars as of ``convolution``; points are elements
    of a state with channels last. One work-item an element."""
    return f"""{_head(name, type_, ["in0", *(["past"] if past else []), "out0"])}
  const i64 c = at % channels, l = at / channels % reach, n = at / channels / reach, p = length - reach + l;
  {_position(type_, past)} STORE_{type_}(out0, n * s_n + c * s_c + l * s_l, x);
}}
"""


def _head(name: str, type_: str, tensors: list[str]) -> str:
    declared = [*(f"TENSOR({type_}, {n})" for n in tensors), *(f"const i64 {n}" for n in ("points", *_LAYOUT))]
    return f"""KERNEL void {name}({", ".join(declared)}) {{
  const i64 at = GLOBAL_ID64(0);
  if (at >= points) return;
  {" ".join(f"OPEN({type_}, {n})" for n in tensors)}"""


def _position(type_: str, past: bool) -> str:
    """A statement that reads position ``p``, which is in the past below zero."""
    before = f"LOAD_{type_}(past, n * s_n + c * s_c + (reach + p) * s_l)" if past else "0"
    return f"const f32 x = p < 0 ? {before} : LOAD_{type_}(in0, n * x_n + c * x_c + p * x_l);"
