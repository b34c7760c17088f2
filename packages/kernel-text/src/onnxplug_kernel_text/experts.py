"""Mixtures of experts (com.microsoft MoE and QMoE): rows are told their experts, pairs of a row and an expert are sorted by expert, and a
work-item has a column of an expert's layer for all its pairs. And MoEGroupRouter, which chooses experts by groups."""

from __future__ import annotations

from dataclasses import dataclass

from onnxplug_kernel_text.expression import statements
from onnxplug_kernel_text.types import literal

FEW = 4
"""Pairs that a work-item takes at once."""
WORD = 8
"""Packed weights that it takes at once, which lie in one block."""
_LANES = 16
"""Weights that are floats that it takes at once."""
_WORDS = {2: "u16", 4: "u32", 8: "u8"}
_JITTER = 0.02
"""How far below the best score, as a share of it, the sparse mixer still counts another."""
_LEAST = 1e-20
"""What a router's weights count as at least, when their logarithm is taken."""
_ACTIVATIONS = {
    "relu": "x < 0 ? (f32)0 : x",
    "silu": "x / ((f32)1 + EXP(-x))",
    "gelu": "(f32)0.5 * x * ((f32)1 + tanh(x * ((f32)0.035677408136300125 * x * x + (f32)0.7978845608028654)))",
    "identity": "x",
}
ACTIVATIONS = (*_ACTIVATIONS, "swiglu")


def chosen(name: str, type_: str, *, sparse: bool, weighted: bool, normalized: bool) -> str:
    """The experts of the ``k`` highest scores of each row, the last of equal ones, and what each counts: its softmax among all, divided by
    the sum of those chosen where ``normalized`` (0 where that is); ``weighted``: its entry of ``weights`` instead of the softmax.
    ``sparse``: the first of equal ones, its softmax among those near it that are left.

    Tensors: scores, weights (if any), experts (i32), shares (f32), both (rows, k). Scalars, i64: rows, experts, k. One work-item a row.
    """
    tensors = [(type_, "in0"), *([(type_, "weights")] if weighted else []), ("i32", "picked"), ("f32", "shares")]
    load = f"LOAD_{type_}(in0, at * experts + e)"
    taken = "int taken = 0; for (i64 m = 0; m < n; m++) taken |= picked[at * k + m] == (i32)e; if (taken) continue;"
    better = "s > best" if sparse else "!(s < best)"
    if weighted:
        share = f"part = LOAD_{type_}(weights, at * experts + pick);"
    elif sparse:
        near = f"(best - s) / (fabs(s) > best ? fabs(s) : best) <= {literal(_JITTER, 'f32')}"
        share = f"f32 sum = 0; {_EACH} {{ {taken} const f32 s = {load}; if ({near}) sum += EXP(s - best); }} part = (f32)1 / sum;"
    else:
        share = "part = EXP(best - largest) / all;"
    whole = (
        ""
        if sparse or weighted
        else f"""  {_EACH} {{ const f32 s = {load}; largest = s > largest ? s : largest; }}
  {_EACH} {{ const f32 s = {load}; all += EXP(s - largest); }}
"""
    )
    divided = "  for (i64 n = 0; n < k; n++) shares[at * k + n] = total == 0 ? (f32)0 : shares[at * k + n] / total;\n"
    divided = divided if normalized and not sparse else ""
    return f"""{_head(name, tensors, ("rows", "experts", "k"), "rows")}
  f32 largest = -INFINITY, all = 0, total = 0;
{whole}  for (i64 n = 0; n < k; n++) {{
    f32 best = -INFINITY, part; i64 pick = -1;
    {_EACH} {{ {taken} const f32 s = {load}; if (pick < 0 || {better}) {{ best = s; pick = e; }} }}
    {share}
    picked[at * k + n] = (i32)pick; shares[at * k + n] = part; total += part;
  }}
{divided}}}
"""


def sorted_pairs(name: str) -> str:
    """Pairs by expert. Tensors, i32: picked (an expert for each pair), order (which pair stands at each place), places (at which each pair
    stands), begins (experts + 1: the place of each expert's first). Scalars, i64: experts, pairs. One work-item an expert."""
    tensors = [("i32", n) for n in ("picked", "order", "places", "begins")]
    return f"""{_head(name, tensors, ("experts", "pairs"), "experts")}
  i64 place = 0;
  for (i64 p = 0; p < pairs; p++) place += picked[p] < (i32)at;
  begins[at] = (i32)place;
  if (at == experts - 1) begins[experts] = (i32)pairs;
  for (i64 p = 0; p < pairs; p++) if (picked[p] == (i32)at) {{ order[place] = (i32)p; places[p] = (i32)place; place++; }}
}}
"""


@dataclass(frozen=True)
class Layer:
    """What changes the text of a layer: types of the rows, of the weights and of the bias (None: there is none); whether pairs read the
    rows they are of, and not those at their places; whether weights lie (experts, in, out). ``bits`` of packed weights, with the type of
    their scales; ``zeros``: their zero points are given, packed along the blocks, or without blocks along the outputs."""

    rows: str
    weights: str
    bias: str | None = None
    gathered: bool = False
    turned: bool = False
    bits: int = 0
    scale: str = "f32"
    zeros: bool = False
    blocked: bool = False


def column_head(name: str, form: Layer) -> str:
    """The beginning of a layer's kernel, as ``layer`` says."""
    f = form
    tensors = [(f.rows, "in0"), (f.weights, "weights")]
    tensors += [(f.scale, "scales")] if f.bits else []
    tensors += [("u8", "zeros")] if f.zeros else []
    tensors += [(f.bias, "bias")] if f.bias else []
    tensors += [("i32", "order"), ("i32", "begins"), ("f32", "out0")]
    return _head(name, tensors, ("points", "columns", "depth", "k", "blocks", "block"), "points")


def layer(name: str, form: Layer) -> str:
    """out (pairs, columns; f32) = the row of each pair times the weights of its expert, + bias.

    Tensors: rows, weights, scales (if packed), zeros (if any), bias (if any), order, begins (i32), out. Scalars, i64: points, columns,
    depth, k, blocks, block. One work-item for each column of each expert.
    """
    f = form
    place = "(p + r_)"
    row = f"order[{place}] / k" if f.gathered else place
    bias = f" + LOAD_{f.bias}(bias, at)" if f.bias else ""
    taken = WORD if f.bits else _LANES

    def summed(count: int) -> str:
        """Sums that are variables, which compilers for processors put into vectors."""
        rows, lanes = range(count), range(taken)
        each = " ".join(f"s{r}_{n} += LOAD_{f.rows}(in0, from{r} + k0 + {n}) * w{n};" for r in rows for n in lanes)
        rest = " ".join(f"s{r}_0 += LOAD_{f.rows}(in0, from{r} + k0) * last_;" for r in rows)
        begun = " ".join(
            f"const i64 from{r} = {row.replace('r_', str(r))} * depth; f32 {', '.join(f's{r}_{n} = 0' for n in lanes)};"
            for r in rows
        )
        kept = " ".join(
            f"out0[(p + {r}) * columns + j] = {' + '.join(f's{r}_{n}' for n in lanes)}{bias};" for r in rows
        )
        return f"""{begun}
      for (i64 k0 = 0; k0 + {taken} <= depth; k0 += {taken}) {{ {_word(f)} {each} }}
      for (i64 k0 = depth / {taken} * {taken}; k0 < depth; k0++) {{ const f32 last_ = {_weight(f, "k0")}; {rest} }}
      {kept}"""

    return f"""{column_head(name, form)}
  const i64 j = at % columns, e = at / columns, last = begins[e + 1];
  i64 p = begins[e];
  for (; p + {FEW} <= last; p += {FEW}) {{ {summed(FEW)}
  }}
  for (; p < last; p++) {{ {summed(1)}
  }}
}}
"""


def activated(
    name: str, type_: str, *, gated: bool, fused: int = 0, alpha: float = 1, beta: float = 0, limit: float | None = None,
    limit_after: bool = False,
) -> str:  # fmt: skip
    """out (pairs, n; f32) = the activation of in0, times that of ``gate`` where there is one; ``swiglu`` without: in0 has both in each row,
    in turns where ``fused`` is 1. Tensors, f32: in0, gate (if any), out. Scalars, i64: points, n. One work-item an element."""
    tensors = [("f32", "in0"), *([("f32", "gate")] if gated else []), ("f32", "out0")]
    if type_ == "swiglu":
        row = "at / n * n * 2"
        pair = ("2 * (at % n)", "2 * (at % n) + 1") if fused == 1 else ("at % n", "n + at % n")
        values = ("in0[at]", "gate[at]") if gated else tuple(f"in0[{row} + {place}]" for place in pair)
        lines = [f"f32 x = {values[0]}, g = {values[1]};"]
        if limit is not None:
            most = literal(limit, "f32")
            lines.append(f"g = g > {most} ? {most} : g < -{most} ? -{most} : g;")
        cut = "" if limit is None else f"x = x > {most} ? {most} : x;"
        lines += [
            "" if limit_after else cut,
            f"x = x / ((f32)1 + EXP(-({literal(alpha, 'f32')} * x)));",
            cut if limit_after else "",
            f"out0[at] = x * (g + {literal(beta, 'f32')});",
        ]
    else:
        lines = ["const f32 x = in0[at];", f"out0[at] = ({_ACTIVATIONS[type_]}){' * gate[at]' if gated else ''};"]
    return f"{_head(name, tensors, ('points', 'n'), 'points')}\n  {' '.join(line for line in lines if line)}\n}}\n"


def mixed(name: str, type_: str) -> str:
    """out = the sum of what a row's experts give, times what each counts. Tensors: in0 (pairs, n; f32), places (i32), shares (f32), out.
    Scalars, i64: points, n, k. One work-item an element."""
    tensors = [("f32", "in0"), ("i32", "places"), ("f32", "shares"), (type_, "out0")]
    return f"""{_head(name, tensors, ("points", "n", "k"), "points")}
  const i64 row = at / n * k, c = at % n;
  f32 y = 0;
  for (i64 m = 0; m < k; m++) y += in0[places[row + m] * n + c] * shares[row + m];
  STORE_{type_}(out0, at, y);
}}
"""


def sums_of_best(name: str) -> str:
    """The sum of the ``best`` highest scores of each group; no number where one of them is none. Tensors, f32: scores (groups, size), sums
    (groups). Scalars, i64: groups, size, best. One work-item a group."""
    return f"""{_head(name, [("f32", "scores"), ("f32", "sums")], ("groups", "size", "best"), "groups")}
  f32 sum = 0, last = 0; i64 taken = -1; int bad = 0;
  for (i64 n = 0; n < best; n++) {{
    f32 top = 0; i64 pick = -1;
    for (i64 e = 0; e < size; e++) {{
      const f32 s = LOAD_f32(scores, at * size + e);
      const int left = n == 0 || s < last || (s == last && e > taken);
      bad |= s != s;
      if (left && (pick < 0 || s > top)) {{ top = s; pick = e; }}
    }}
    sum += top; last = top; taken = pick;
  }}
  STORE_f32(sums, at, bad ? (f32)NAN : sum);
}}
"""


def routed(name: str, type_: str, *, grouped: bool, sentinel: float) -> str:
    """The logarithm of the weights (sigmoids of the logits) of each row's ``k`` experts of the highest scores, the first of equal ones,
    ``sentinel`` elsewhere; ``grouped``: among the experts of the ``few`` groups of the highest sums.

    Tensors: logits, scores (f32), sums (f32, if any), out. Scalars, i64: points (rows * experts), experts, k, size of a group, few. One
    work-item an expert of a row.
    """
    tensors = [(type_, "in0"), ("f32", "scores"), *([("f32", "sums")] if grouped else []), (type_, "out0")]
    weight = " ".join(statements("w", "Sigmoid", ["x"], ["f32"], "f32", {}))
    closed = f"""const f32 sum = LOAD_f32(sums, row * groups + g); i64 ahead = 0;
    for (i64 h = 0; h < groups; h++) {{ const f32 s = LOAD_f32(sums, row * groups + h); ahead += {_ahead("s", "h", "sum", "g")}; }}
    const int open = ahead < few; allowed = allowed && (open || g != own / size);"""
    return f"""{_head(name, tensors, ("points", "experts", "k", "size", "few"), "points")}
  const i64 row = at / experts, own = at % experts, groups = experts / size;
  const f32 x = LOAD_{type_}(in0, at), mine = LOAD_f32(scores, at);
  i64 before = 0; int allowed = 1;
  for (i64 g = 0; g < groups; g++) {{
    {closed if grouped else "const int open = 1;"}
    for (i64 e = g * size; e < (g + 1) * size; e++) {{
      const f32 s = open ? LOAD_f32(scores, row * experts + e) : -INFINITY;
      before += {_ahead("s", "e", "mine", "own")};
    }}
  }}
  {weight}
  const f32 kept = log(w < {literal(_LEAST, "f32")} ? {literal(_LEAST, "f32")} : w);
  STORE_{type_}(out0, at, allowed && before < k ? kept : {literal(sentinel, "f32")});
}}
"""


def _ahead(a: str, at_a: str, b: str, at_b: str) -> str:
    """Whether ``a`` comes before ``b`` where the highest come first, the first of equal ones, and last what is no number."""
    return f"({a} > {b} || ({a} == {b} && {at_a} < {at_b}) || ({b} != {b} && ({a} == {a} || {at_a} < {at_b})))"


_EACH = "for (i64 e = 0; e < experts; e++)"


def _head(name: str, tensors: list[tuple[str, str]], scalars: tuple[str, ...], points: str) -> str:
    declared = [*(f"TENSOR({t}, {n})" for t, n in tensors), *(f"const i64 {n}" for n in scalars)]
    return f"""KERNEL void {name}({", ".join(declared)}) {{
  const i64 at = GLOBAL_ID64(0);
  if (at >= {points}) return;
  {" ".join(f"OPEN({t}, {n})" for t, n in tensors)}"""


def _weight(form: Layer, k: str) -> str:
    """The weight of column ``j`` of expert ``e`` in row ``k``; of packed ones only those of whole words are asked for."""
    if form.bits:
        return "0"
    place = f"(e * depth + {k}) * columns + j" if form.turned else f"at * depth + {k}"
    return f"LOAD_{form.weights}(weights, {place})"


def _word(form: Layer) -> str:
    """Statements that read the next weights."""
    f = form
    if not f.bits:
        return " ".join(f"const f32 w{n} = {_weight(f, f'(k0 + {n})')};" for n in range(_LANES))
    type_, mask, zero = _WORDS[f.bits], (1 << f.bits) - 1, zero_point(f, "part")
    if f.bits == 8:
        word, numbers = "", [f"weights[at * depth + k0 + {n}]" for n in range(WORD)]
    else:
        word = f"const {type_} word = *(GLOBAL const {type_} *)(weights + (at * depth + k0) * {f.bits} / 8);"
        numbers = [f"(int)((word >> {f.bits * n}) & {mask})" for n in range(WORD)]
    return (
        f"const i64 part = k0 / block; {word} const f32 scale = LOAD_{f.scale}(scales, at * blocks + part), zero = {zero}; "
        + " ".join(f"const f32 w{n} = ((f32){number} - zero) * scale;" for n, number in enumerate(numbers))
    )


def zero_point(form: Layer, part: str) -> str:
    """What is subtracted from the weights of column ``j`` of expert ``e`` in block ``part``."""
    if not form.zeros:
        return f"(f32){1 << (form.bits - 1)}"
    per = 8 // form.bits
    row, place = (f"at * ((blocks + {per - 1}) / {per})", part) if form.blocked else (
        f"e * ((columns + {per - 1}) / {per})", "j"
    )  # fmt: skip
    return f"(f32)(zeros[{row} + {place} / {per}] >> (int)({place} % {per} * {form.bits}) & {(1 << form.bits) - 1})"
