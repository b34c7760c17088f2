"""Pooling over two spatial axes of tensors whose channels are neighbours (N, H, W, C)."""

from __future__ import annotations

from onnxplug_kernel_text.types import arithmetic, lowest

SCALARS = (
    "points", "channels", "height", "width", "rows", "columns", "kernel_h", "kernel_w", "stride_h", "stride_w",
    "dilation_h", "dilation_w", "begin_h", "begin_w", "end_h", "end_w",
)  # fmt: skip


def pooling(name: str, type_: str, *, mean: bool, include: bool = False) -> str:
    """The largest element of each window (NaN counts as largest), or its ``mean``: over the elements inside the tensor, with ``include``
    over those of the declared padding too.

    Arguments after in0 and out0, all i64: ``SCALARS``; rows and columns are the output's. One work-item an element of the output.
    """
    held = arithmetic(type_)
    take = "a += x" if mean else "a = (a != a || a > x) ? a : x"
    counted = "h >= -begin_h && h < height + end_h && w >= -begin_w && w < width + end_w" if include else "inside"
    end = f"a / ({held})(count > 0 ? count : 1)" if mean else "a"
    return f"""KERNEL void {name}(TENSOR({type_}, in0), TENSOR({type_}, out0), {", ".join(f"const i64 {s}" for s in SCALARS)}) {{
  const i64 at = GLOBAL_ID64(0);
  if (at >= points) return;
  OPEN({type_}, in0) OPEN({type_}, out0)
  const i64 c = at % channels, q = at / channels % columns, p = at / channels / columns % rows, image = at / channels / columns / rows;
  {held} a = {"0" if mean else lowest(type_)}; i64 count = 0;
  for (i64 i = 0; i < kernel_h; i++) for (i64 j = 0; j < kernel_w; j++) {{
    const i64 h = p * stride_h - begin_h + i * dilation_h, w = q * stride_w - begin_w + j * dilation_w;
    const int inside = h >= 0 && h < height && w >= 0 && w < width;
    if ({counted}) count++;
    if (inside) {{ const {held} x = LOAD_{type_}(in0, ((image * height + h) * width + w) * channels + c); {take}; }} }}
  STORE_{type_}(out0, at, {end});
}}
"""
