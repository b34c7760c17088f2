"""Places of elements in order of size: a merge sort that keeps the order of equal elements, one line by one work-item."""

from __future__ import annotations

from onnxplug_kernel_text.types import FLOATS, arithmetic


def before(name: str, type_: str, largest: bool) -> str:
    """The text of ``{name}_before(x, w)``: whether ``x`` comes before ``w`` in falling order, in rising order otherwise. NaN is larger than
    all."""
    held = arithmetic(type_)
    sign = ">" if largest else "<"
    nan = ("x != x && w == w" if largest else "x == x && w != w") if type_ in FLOATS else "0"
    return f"static DEVICE int {name}_before(const {held} x, const {held} w) {{ return x {sign} w || ({nan}); }}\n"


def sort(name: str, value: str) -> str:
    """Statements that bring ``count`` places at ``from_`` in order, with as much room at ``to_``: they end at ``from_``. ``value`` is the
    text of the element at place ``{at}``; ``{name}_before`` compares two."""
    first, second = value.format(at="from_[i]"), value.format(at="from_[j]")
    return f"""  for (i64 width = 1; width < count; width *= 2) {{
    for (i64 low = 0; low < count; low += 2 * width) {{
      const i64 middle = low + width < count ? low + width : count, high = middle + width < count ? middle + width : count;
      for (i64 t = low, i = low, j = middle; t < high; t++) {{
        const int later = i == middle || (j < high && {name}_before({second}, {first}));
        to_[t] = later ? from_[j++] : from_[i++];
      }}
    }}
    GLOBAL i32 *other = from_; from_ = to_; to_ = other;
  }}"""
