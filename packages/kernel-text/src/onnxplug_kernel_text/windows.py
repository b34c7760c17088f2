"""Kernels over windows of images with any number of spatial dimensions: pooling, convolutions of few channels, transposed convolutions.

A work-item computes ``lanes`` neighbours of the output's last dimension: 1 where work-items run side by side, more on processors, whose
vectors want loops of fixed length. Dimension 0 of the launch runs over the last spatial dimension, ``lanes`` at a time, dimension 1 over
everything before it. For every spatial dimension ``factors.WINDOW`` are arguments, dimension by dimension; all scalars are i64."""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug_kernel_text.factors import WINDOW, flat
from onnxplug_kernel_text.types import SIZES, VECTORS, arithmetic, lowest

Taps = Sequence[tuple[int, int, int]]
"""Extent of the window, its step and the gap between its elements, of each dimension, where they are part of the text (OpenCL only)."""


def max_pool(
    name: str,
    type_: str,
    rank: int,
    lanes: int,
    indices: bool = False,
    column_major: bool = False,
) -> str:
    """ONNX MaxPool: tensors in, out and, with ``indices``, the position of each maximum (i64), counted in the order of storage or
    with the spatial dimensions reversed. Scalars: rows of the output, then the window's."""
    plane = _product("h", rank)
    tensors = {"in0": type_, "out0": type_} | ({"out1": "i64"} if indices else {})
    place = "found[t]"
    if column_major:
        terms = [f"found[t] / ({_product('h', rank, k + 1)}) % h{k} * ({_product('h', k)})" for k in range(rank)]
        place = " + ".join(terms)
    take = "a[t] = (x > a[t]) | (x != x) ? x : a[t];"
    store = ""
    if indices:
        take = "if (found[t] < 0 || x > a[t] || x != x) { a[t] = x; found[t] = row_ + i; }"
        store = f"out1[at + t] = plane * ({plane}) + {place};"
    return f"""{_head(name, tensors, rank, lanes)}  {arithmetic(type_)} a[{lanes}]; {f"i64 found[{lanes}];" if indices else ""}
  for (int t = 0; t < {lanes}; t++) {{ a[t] = {lowest(type_)}; {"found[t] = -1;" if indices else ""} }}
{_walk(type_, rank, lanes, f"in0 + plane * ({plane})", take)}
  for (int t = own_ - first_; t < n; t++) {{ STORE_{type_}(out0, at + t, a[t]); {store} }}
}}
"""


def mean_pool(
    name: str, type_: str, rank: int, lanes: int, power: float | None = None, taps: Taps | None = None
) -> str:
    """ONNX AveragePool, or with ``power`` LpPool: tensors in, out; scalars: rows of the output; for each dimension from where to how far
    beyond the input's end elements of a window count; the window's."""
    held, last = arithmetic(type_), rank - 1
    takes: dict[float | None, str] = {None: "x", 1: "fabs(x)", 2: "x * x"}
    take = takes.get(power, f"pow(fabs(x), ({held}){power})")
    last_ = f"b{last} + t * (int)m{last}, (int)g{last}, (int)w{last}, (int)from{last}, (int)(h{last} + beyond{last})"
    ends: dict[float | None, str] = {
        None: f"a[t] / ({held})(c * {name}_part({last_}))",
        1: "a[t]",
        2: "sqrt(a[t])",
    }
    end = ends.get(power, f"pow(a[t], ({held})1 / ({held}){power})")
    counts = "".join(
        f" c *= {name}_part(y{k} * (int)m{k} - (int)p{k}, (int)g{k}, (int)w{k}, (int)from{k}, (int)(h{k} + beyond{k}));"
        for k in range(last)
    )
    scalars = " ".join(f"from{k} beyond{k}" for k in range(rank))
    return f"""static DEVICE i64 {name}_part(int b, int g, int w, int from, int to) {{
  const int before = from > b ? from - b : 0, until = to > b ? to - b : 0;
  const int low = g == 1 ? before : (before + g - 1) / g, all = g == 1 ? until : (until + g - 1) / g, high = all < w ? all : w;
  return high > low ? high - low : 0;
}}
{_head(name, {"in0": type_, "out0": type_}, rank, lanes, scalars)}  {held} a[{lanes}]; i64 c = 1;{counts}
  for (int t = 0; t < {lanes}; t++) a[t] = 0;
{_walk(type_, rank, lanes, f"in0 + plane * ({_product('h', rank)})", f"a[t] += {take};", taps=taps)}
  for (int t = own_ - first_; t < n; t++) STORE_{type_}(out0, at + t, {end});
}}
"""


def convolution(name: str, type_: str, rank: int, lanes: int, bias: bool) -> str:
    """ONNX Conv with any groups: tensors in, weights, bias (if any), out; scalars: rows of the output, output channels, output channels
    of a group, input channels of a group, input channels, then the window's."""
    tensors = {"in0": type_, "in1": type_} | ({"in2": type_} if bias else {}) | {"out0": type_}
    image = f"in0 + (first + c) * ({_product('h', rank)})"
    filter_ = f"in1 + (o * own + c) * ({_product('w', rank)})"
    weight = f"const {arithmetic(type_)} f = LOAD_{type_}(filter, {flat('k', 'w', rank, '0')});"
    return f"""{_head(name, tensors, rank, lanes, "made each own channels")}
  const i64 o = plane % made, first = plane / made * channels + o / each * own;
  {arithmetic(type_)} a[{lanes}];
  for (int t = 0; t < {lanes}; t++) a[t] = {f"LOAD_{type_}(in2, o)" if bias else "0"};
  for (int c = 0; c < own; c++) {{
    GLOBAL {type_} *filter = {filter_};
{_walk(type_, rank, lanes, image, "a[t] += f * x;", weight)}
  }}
  for (int t = own_ - first_; t < n; t++) STORE_{type_}(out0, at + t, a[t]);
}}
"""


def transposed_convolution(name: str, type_: str, rank: int, bias: bool) -> str:
    """ONNX ConvTranspose with any groups, ``lanes`` being 1: tensors in, weights, bias (if any), out; scalars: rows of the output, output
    channels, output channels of a group, input channels of a group, input channels, then the window's."""
    held, last = arithmetic(type_), rank - 1
    tensors = {"in0": type_, "in1": type_} | ({"in2": type_} if bias else {}) | {"out0": type_}
    loops = "".join(
        f"  for (int k{k} = 0; k{k} < w{k}; k{k}++) {{\n"
        f"    const int u{k} = y{k} + (int)p{k} - k{k} * (int)g{k}, i{k} = u{k} / (int)m{k};\n"
        f"    if (u{k} < 0 || i{k} * (int)m{k} != u{k} || i{k} >= h{k}) continue;\n"
        for k in range(rank)
    )
    return f"""{_head(name, tensors, rank, 1, "made each own channels")}
  const int y{last} = first_;
  const i64 o = plane % made, group = o / each, first = plane / made * channels + group * own;
  const i64 size = {_product("h", rank)}, volume = {_product("w", rank)};
  {held} a = {f"LOAD_{type_}(in2, o)" if bias else "0"};
{loops}
    GLOBAL {type_} *image = in0 + first * size + {flat("i", "h", rank, "0")};
    GLOBAL {type_} *filter = in1 + (group * own * each + o % each) * volume + {flat("k", "w", rank, "0")};
    for (i64 c = 0; c < own; c++) a += LOAD_{type_}(image, c * size) * LOAD_{type_}(filter, c * each * volume);
  {"}" * rank}
  STORE_{type_}(out0, at, a);
}}
"""


def _product(letter: str, stop: int, start: int = 0) -> str:
    return " * ".join(f"{letter}{k}" for k in range(start, stop)) or "1"


def _head(name: str, tensors: dict[str, str], rank: int, lanes: int, scalars: str = "") -> str:
    """A kernel up to its work: ``n`` elements from ``at`` on, of which the first has coordinates y (``first_`` in the last dimension) in
    image ``plane``. The last strip of a row begins early, so that it is whole; what it has of others, up to ``own_``, is theirs."""
    last = rank - 1
    declared = [f"TENSOR({type_}, {tensor})" for tensor, type_ in tensors.items()]
    declared += [
        f"const i64 {s}" for s in ("lines", *scalars.split(), *(f"{c}{k}" for k in range(rank) for c in WINDOW))
    ]
    opened = " ".join(f"OPEN({type_}, {tensor})" for tensor, type_ in tensors.items())
    split = "".join(f"  const int y{k} = (int)(rest % o{k}); rest /= o{k};\n" for k in range(last - 1, -1, -1))
    return f"""KERNEL void {name}({", ".join(declared)}) {{
  const int own_ = GLOBAL_ID(0) * {lanes}, first_ = own_ + {lanes} > o{last} && o{last} > {lanes} ? (int)o{last} - {lanes} : own_;
  i64 rest = GLOBAL_ID64(1);
  if (own_ >= o{last} || rest >= lines) return;
  const i64 at = rest * o{last} + first_;
  const int n = o{last} - first_ < {lanes} ? (int)(o{last} - first_) : {lanes}, b{last} = first_ * (int)m{last} - (int)p{last};
  {opened}
{split}  const i64 plane = rest;
"""


def _walk(type_: str, rank: int, lanes: int, image: str, take: str, before: str = "", taps: Taps | None = None) -> str:
    """Statements that do ``take`` for each element of the windows that lies on the image: ``x``, for output ``t``, at ``row_ + i``;
    ``before`` is done once for each position k of the window. With ``taps`` strips whose windows lie on the image's columns are vectors of
    OpenCL's, for which ``take`` has to serve too."""
    names = [(f"w{k}", f"(int)m{k}", f"(int)g{k}") for k in range(rank)]
    last, held = rank - 1, arithmetic(type_)

    def each(start: str, stop: str | int, step: str | int) -> str:
        body = f"const int i = start + t * {step}; const {held} x = LOAD_{type_}(line, i); {take}"
        return f"for (int t = {start}; t < {stop}; t++) {{ {body} }}"

    whole = f"if (step == 1) {each('0', lanes, 1)} else if (step == 2) {each('0', lanes, 2)} else {each('0', lanes, 'step')}"
    inner = f"""const int rest_ = edge - start;
      {before}
      if (n == {lanes} && start >= 0 && ({lanes} - 1) * step < rest_) {{ {whole} }}
      else {{
        const int low = start < 0 ? (step - 1 - start) / step : 0, all = rest_ > 0 ? (rest_ + step - 1) / step : 0;
        const int high = all < n ? all : n;
        {each("low", "high", "step")}
      }}"""
    general = f"    const int step = (int)m{last}, edge = (int)h{last};\n{_positions(type_, rank, image, names, inner)}"
    if taps is None:
        return general
    wide, step, gap = taps[-1]
    near = _near(type_, rank, lanes, image, take, taps)
    return f"""  if (n == {lanes} && b{last} >= 0 && b{last} + {lanes * step - 1 + (wide - 1) * gap} < h{last}) {{
{near}
  }} else {{
{general}
  }}"""


def _positions(type_: str, rank: int, image: str, taps: Sequence[tuple[str, str, str]], inner: str) -> str:
    """Loops over the window, whose rows may lie beyond the image's, around ``inner``."""
    last = rank - 1
    outer = "".join(
        f"    for (int k{k} = 0; k{k} < {wide}; k{k}++) {{ const int i{k} = y{k} * {step} - (int)p{k} + k{k} * {gap};"
        f" if (i{k} < 0 || i{k} >= h{k}) continue;\n"
        for k, (wide, step, gap) in enumerate(taps[:last])
    )
    wide, _, gap = taps[last]
    return f"""{outer}    const i64 row_ = ({flat("i", "h", last, "0")}) * h{last};
    GLOBAL {type_} *line = {image} + row_;
    for (int k{last} = 0; k{last} < {wide}; k{last}++) {{
      const int start = b{last} + k{last} * {gap};
      {inner}
    }}{" }" * last}"""


def every_second(name: str, vector: str, width: int, first: str, second: str) -> str:
    """Statements that declare a vector of every second element of two. Elements are named: Oclgrind 21.10 does not survive ``.even``."""
    taken = (f"{half}_{name}.s{n:x}" for half in ("first", "second") for n in range(0, width, 2))
    return f"const {vector} first_{name} = {first}, second_{name} = {second}, {name} = ({vector})({', '.join(taken)});"


def _near(type_: str, rank: int, lanes: int, image: str, take: str, taps: Taps) -> str:
    """``take`` for strips as vectors. Of every second element those between are read, too."""
    size = SIZES[type_]
    width, step = min(lanes, 32 // size), taps[-1][1]
    vector = f"{VECTORS[type_]}{width}"
    count = lanes // width

    def read(at: str) -> str:
        return f"*(GLOBAL const near_ *)(line + {at})"

    lines = []
    for v in range(count):
        at = f"start + {v * width * step}"
        if step == 1:
            made = f"const {vector} x = {read(at)};"
        elif step == 2:
            made = every_second("x", vector, width, read(at), read(f"{at} + {width}"))
        else:
            made = f"const {vector} x = ({vector})({', '.join(f'line[{at} + {n * step}]' for n in range(width))});"
        lines.append(f"{{ {made} {take.replace('a[t]', f'a{v}')} }}")
    inner = "\n      ".join(lines)
    taken = ", ".join(f"a{v} = ({vector})(a[0])" for v in range(count))
    given = " ".join(f"*(keep_ *)(a + {v * width}) = a{v};" for v in range(count))
    texts = [(str(wide), str(along), str(gap)) for wide, along, gap in taps]
    return f"""    typedef {vector} near_ __attribute__((aligned({size}))), keep_ __attribute__((aligned({size})));
    {vector} {taken};
{_positions(type_, rank, image, texts, inner)}
    {given}"""
