"""A layer of all experts whose weights are packed, on processors: a column's weights are unpacked into a vector, for several rows at once
(OpenCL only). No built-in function is called in the inner loop but conversions, which PoCL puts inline."""

from __future__ import annotations

from onnxplug_kernel_text.experts import Layer, column_head, zero_point
from onnxplug_kernel_text.types import VECTORS

_ROWS = (8, 4, 2, 1)
"""Pairs that a work-item takes at once, as long as there are so many."""


def packed_layer(name: str, form: Layer, lanes: int) -> str:
    """``experts.layer`` of packed weights and rows of f32; ``lanes``, 8 or 16, divide the depth and the blocks."""
    vector = f"{VECTORS['f32']}{lanes}"
    bias = f" + LOAD_{form.bias}(bias, at)" if form.bias else ""

    def summed(count: int) -> str:
        rows = range(count)
        begun = " ".join(
            f"GLOBAL const f32 *x{r} = in0 + (i64){f'(order[p + {r}] / k)' if form.gathered else f'(p + {r})'} * depth; {vector} s{r} = 0;"
            for r in rows
        )
        each = " ".join(f"s{r} += *(GLOBAL const {name}_near *)(x{r} + k0) * w;" for r in rows)
        kept = " ".join(f"out0[(p + {r}) * columns + j] = {name}_sum(s{r}){bias};" for r in rows)
        return f"""  for (; p + {count} <= last; p += {count}) {{ {begun}
    for (i64 part = 0, k0 = 0; k0 < depth; part++) {{
      const f32 scale = LOAD_{form.scale}(scales, at * blocks + part), zero = {zero_point(form, "part")};
      const i64 stop = k0 + block < depth ? k0 + block : depth;
      for (; k0 < stop; k0 += {lanes}) {{
        const {vector} w = ({unpacked(name, form.bits, lanes, "weights", "(at * depth + k0)")} - zero) * scale;
        {each}
      }}
    }}
    {kept}
  }}"""

    loops = "\n".join(summed(count) for count in _ROWS)
    return f"""{summed_vector(name, lanes)}
{column_head(name, form)}
  const i64 j = at % columns, e = at / columns, last = begins[e + 1];
  i64 p = begins[e];
{loops}
}}
"""


def summed_vector(name: str, lanes: int) -> str:
    """Types of vectors, and a function that adds up one: ``{name}_sum``."""
    type_ = VECTORS["f32"]
    vector, halves, last = f"{type_}{lanes}", "", "v"
    for n in (
        n for n in (8, 4, 2) if n < lanes
    ):  # element by element: of other parts of vectors Oclgrind loses what is initialised
        low, high = (", ".join(f"{last}.s{k:x}" for k in range(first, first + n)) for first in (0, n))
        halves += f"const {type_}{n} v{n} = ({type_}{n})({low}) + ({type_}{n})({high}); "
        last = f"v{n}"
    return f"""typedef {vector} {name}_near __attribute__((aligned(4)));
typedef uchar{lanes} {name}_bytes __attribute__((aligned(1)));
static f32 {name}_sum({vector} v) {{ {halves}return v2.s0 + v2.s1; }}"""


def unpacked(name: str, bits: int, lanes: int, weights: str, at: str) -> str:
    """The ``weights`` from number ``at`` on, as a vector of floats."""
    if bits == 8:
        return f"convert_float{lanes}(*(GLOBAL const {name}_bytes *)({weights} + {at}))"
    words = lanes * bits // 32
    place = f"(GLOBAL const {'u32' if words else 'u16'} *)({weights} + {at} * {bits} / 8)"
    read = ", ".join(f"({place})[{n}]" for n in range(max(words, 1)))
    shifts = ", ".join(str(n * bits % 32) for n in range(lanes))
    spread = "".join(str(n * bits // 32) for n in range(lanes))
    whole = f"((uint{words})({read})).s{spread}" if words > 1 else f"(uint{lanes})({read})"
    return f"convert_float{lanes}({whole} >> (uint{lanes})({shifts}) & {(1 << bits) - 1})"
