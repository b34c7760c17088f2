"""RNN, GRU and LSTM over time, behind the products of the inputs: one launch for all steps. A sequence, in one direction, is one
work-item with vectors (``group`` 0, OpenCL only, as ``product``), or a group whose work-items have some units each and share the hidden
state in local memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnxplug_kernel_text.expression import expression
from onnxplug_kernel_text.types import SIZES, VECTORS, arithmetic, literal

Function = tuple[str, float | None, float | None]
"""Name in small letters, alpha, beta."""

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_VECTORS = {"RNN": 4, "GRU": 2, "LSTM": 2}
"""Vectors of each gate that are added up together: enough sums at a time to keep a processor's units for products busy."""
SCALARS = ("first", "reversed", "steps", "batch", "x_t", "x_b", "y_t", "y_d", "y_b", "s_d", "s_b")
"""The first direction; from which direction on time goes backwards; steps; sequences; strides of the projected
input, of Y, and of the initial and last states, where units are neighbours."""

_OPERATORS = {
    "relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid", "leakyrelu": "LeakyRelu", "hardsigmoid": "HardSigmoid", "elu": "Elu",
    "softsign": "Softsign", "softplus": "Softplus",
}  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """What of an operator is in the text: its element type, units, f, g, h, the bound of what f and g are applied to, and which of the
    optional tensors there are. ``other``: an LSTM's input and forget gate are coupled, or a GRU resets behind the linear part."""

    operator: str
    type: str
    size: int
    functions: Sequence[Function]
    clip: float = 0.0
    other: bool = False
    inputs: frozenset[str] = frozenset()
    """Of ``bias``, ``lengths``, ``initial_h``, ``initial_c``, ``peepholes``."""
    outputs: frozenset[str] = frozenset()
    """Of ``y``, ``last_h``, ``last_c``."""

    @property
    def held(self) -> str:
        return arithmetic(self.type)

    @property
    def hidden(self) -> int:
        """Elements that a sequence's hidden state takes: of two steps, for a GRU that resets first also what it is reset to, and gates."""
        return (4 if self.operator == "GRU" and not self.other else 2) * self.size

    def lanes(self, vector: int) -> int:
        """Units computed together, with vectors of so many bytes."""
        return vector // SIZES[self.held] * _VECTORS[self.operator]

    def padded(self, vector: int) -> int:
        """Units of a gate in the recurrent weights: [direction][unit read][gate][unit], zeros beyond those there are."""
        lanes = self.lanes(vector)
        return -(-self.size // lanes) * lanes


def recurrent(name: str, cell: Cell, vector: int, group: int) -> str:
    """The kernel. Tensors: projected input (arithmetic type: X W' of all gates, direction after direction), recurrent weights (as
    ``padded`` says), those of ``Cell.inputs`` in their order, behind ``lengths`` the i32 that a bad one leaves its ``mark`` in, the
    state's scratch memory (for each job ``size`` elements of the cell and, where ``group`` is 0, ``hidden`` more), those of
    ``Cell.outputs``. Scalars, all i64: without ``group`` the jobs, which are sequences times directions; ``SCALARS``; with ``lengths`` the
    mark. Work-items: one for each job, or as many groups."""
    held, size, gates = cell.held, cell.size, GATES[cell.operator]
    tensors = {"projected": held, "recurrent": held}
    order = ("bias", "lengths", "initial_h", "initial_c", "peepholes")
    for each in order:
        if each in cell.inputs:
            tensors |= {each: "i32", "fault": "i32"} if each == "lengths" else {each: cell.type}
    tensors["state"] = held
    tensors |= {each: cell.type for each in ("y", "last_h", "last_c") if each in cell.outputs}
    scalars = [*([] if group else ["jobs"]), *SCALARS, *(["mark"] if "lengths" in cell.inputs else [])]
    units = f"int j = LOCAL_ID(0); j < {size}; j += {group}" if group else f"int j = 0; j < {size}; j++"
    job = "GROUP_ID(0)" if group else "GLOBAL_ID64(0)"
    room = size if group else size + cell.hidden
    lines = [
        f"KERNEL void {name}({', '.join([*(f'TENSOR({t}, {n})' for n, t in tensors.items()), *(f'const i64 {s}' for s in scalars)])}) {{",
        f"  LOCAL {held} own[{cell.hidden}];" if group else "",
        f"  const i64 job = {job};",
        "" if group else "  if (job >= jobs) return;",  # PoCL 3.0 loses stores behind barriers that not all may reach
        *[f"  OPEN({t}, {n})" for n, t in tensors.items()],
        "  const i64 d = first + job / batch, b = job % batch, ends = d * s_d + b * s_b;",
        f"  GLOBAL {held} *cell = state + job * {room};",
        "" if group else f"  GLOBAL {held} *own = cell + {size};",
        f"  GLOBAL {held} *weights = recurrent + d * {size * gates * cell.padded(vector)};",
        f"  GLOBAL {held} *x = projected + b * x_b + d * {gates * size};",
        f"  GLOBAL {cell.type} *wb = bias + d * {2 * gates * size}, *rb = wb + {gates * size};"
        if "bias" in cell.inputs
        else "",
        f"  GLOBAL {cell.type} *peep = peepholes + d * {3 * size};" if "peepholes" in cell.inputs else "",
        _length(cell),
        f"  for ({units}) {{ own[j] = {_initial(cell, 'initial_h')}; cell[j] = {_initial(cell, 'initial_c')}; }}",
        "  BARRIER();" if group else "",
        "  for (int s = 0; s < length; s++) {",
        "    const i64 t = d >= reversed ? length - 1 - s : s;",
        f"    GLOBAL {held} *row = x + t * x_t;",
        f"    const int now = (s & 1) * {size}, next = {size} - now;",
        *[_phase(cell, phase, vector, group) for phase in _phases(cell)],
        "  }",
    ]
    if "y" in cell.outputs:
        beyond = f"STORE_{cell.type}(y, t * y_t + d * y_d + b * y_b + j, ({held})0);"
        lines.append(f"  for (i64 t = length; t < steps; t++) for ({units}) {beyond}")
    for each, value in (("last_h", f"own[(length & 1) * {size} + j]"), ("last_c", "cell[j]")):
        if each in cell.outputs:
            lines.append(f"  for ({units}) STORE_{cell.type}({each}, ends + j, {value});")
    return "\n".join([*(line for line in lines if line), "}\n"])


@dataclass(frozen=True)
class _Phase:
    """Sums of some gates over elements of ``own`` from ``source`` on, and what is done with them for unit ``j``: ``{0}`` is the first."""

    gates: Sequence[int]
    source: str
    unit: str


def _phases(cell: Cell) -> list[_Phase]:
    size = cell.size
    done = f"own[next + j] = h_; {_stored(cell)}"
    if cell.operator == "RNN":
        return [_Phase([0], "now", f"{_applied(cell, 0, 'h_', _sum(cell, 0))} {done}")]
    if cell.operator == "LSTM":
        into = _applied(cell, 0, "i_", _sum(cell, 0, 0, "c_"))
        one = literal(1, cell.type)
        forget = (
            f"const {cell.held} f_ = {one} - i_;" if cell.other else _applied(cell, 0, "f_", _sum(cell, 2, 2, "c_"))
        )
        new = f"const {cell.held} n_ = f_ * c_ + i_ * g_; cell[j] = n_;"
        out = _applied(cell, 0, "o_", _sum(cell, 1, 1, "n_"))
        unit = (
            f"const {cell.held} c_ = cell[j]; {into} {forget} {_applied(cell, 1, 'g_', _sum(cell, 3))} {new} {out} "
            f"{_applied(cell, 2, 'm_', 'n_', False)} const {cell.held} h_ = o_ * m_; {done}"
        )
        return [_Phase([0, 1, 2, 3], "now", unit)]
    gates = f"{_applied(cell, 0, 'z_', _sum(cell, 0))} {_applied(cell, 0, 'r_', _sum(cell, 1))}"
    mixed = f"const {cell.held} h_ = ({literal(1, cell.type)} - z_) * g_ + z_ * own[now + j]; {done}"
    if cell.other:
        parts = [f"row[{2 * size} + j]"]
        inner = "{2}"
        if "bias" in cell.inputs:
            parts.append(f"LOAD_{cell.type}(wb, {2 * size} + j)")
            inner = f"({{2}} + LOAD_{cell.type}(rb, {2 * size} + j))"
        hidden = _applied(cell, 1, "g_", f"{' + '.join(parts)} + r_ * {inner}")
        return [_Phase([0, 1, 2], "now", f"{gates} {hidden} {mixed}")]
    kept = f"own[{2 * size} + j] = r_ * own[now + j]; own[{3 * size} + j] = z_;"
    hidden = _applied(cell, 1, "g_", _sum(cell, 2).replace("{2}", "{0}"))
    return [
        _Phase([0, 1], "now", f"{gates} {kept}"),
        _Phase([2], f"{2 * size}", f"const {cell.held} z_ = own[{3 * size} + j]; {hidden} {mixed}"),
    ]


def _phase(cell: Cell, phase: _Phase, vector: int, group: int) -> str:
    held, padded, all_ = cell.held, cell.padded(vector), GATES[cell.operator]
    step, begin, count = all_ * padded, phase.gates[0] * padded, len(phase.gates)
    sums = [f"a{g}" for g in range(count)]
    if group:
        terms = " ".join(f"a{g} += h * w[{g * padded}];" for g in range(count))
        return f"""    for (int j = LOCAL_ID(0); j < {cell.size}; j += {group}) {{
      {held} {", ".join(f"{a} = 0" for a in sums)};
      GLOBAL const {held} *w = weights + {begin} + j;
      for (int k = 0; k < {cell.size}; k++, w += {step}) {{ const {held} h = own[{phase.source} + k]; {terms} }}
      {phase.unit.format(*sums)}
    }}
    BARRIER();"""
    lanes = vector // SIZES[held]
    vec, wide = f"{VECTORS[held]}{lanes}", cell.lanes(vector)
    grid = [(g, v) for g in range(count) for v in range(wide // lanes)]
    terms = " ".join(f"a{g}_{v} += h * *(GLOBAL const near_ *)(w + {g * padded + v * lanes});" for g, v in grid)
    unit = phase.unit.format(*(f"s{g}[l]" for g in range(count)))
    kept = " ".join(f"*(keep_ *)(s{g} + {v * lanes}) = a{g}_{v};" for g, v in grid)
    return f"""    for (int j0 = 0; j0 < {cell.size}; j0 += {wide}) {{
      typedef {vec} near_ __attribute__((aligned({SIZES[held]}))), keep_ __attribute__((aligned({SIZES[held]})));
      {vec} {", ".join(f"a{g}_{v} = 0" for g, v in grid)};
      GLOBAL const {held} *w = weights + {begin} + j0;
      for (int k = 0; k < {cell.size}; k++, w += {step}) {{ const {vec} h = ({vec})(own[{phase.source} + k]); {terms} }}
      {held} {", ".join(f"s{g}[{wide}]" for g in range(count))}; {kept}
      for (int l = 0; l < {wide} && j0 + l < {cell.size}; l++) {{ const int j = j0 + l; {unit} }}
    }}"""


def _sum(cell: Cell, gate: int, peephole: int | None = None, seen: str = "") -> str:
    """What a gate's function is applied to."""
    at = f"{gate * cell.size} + j"
    parts = [f"{{{gate}}}", f"row[{at}]"]
    if "bias" in cell.inputs:
        parts += [f"LOAD_{cell.type}(wb, {at})", f"LOAD_{cell.type}(rb, {at})"]
    if peephole is not None and "peepholes" in cell.inputs:
        parts.append(f"LOAD_{cell.type}(peep, {peephole * cell.size} + j) * {seen}")
    return " + ".join(parts)


def _applied(cell: Cell, which: int, name: str, value: str, clipped: bool = True) -> str:
    """Statements that declare ``name``, f, g or h of a value."""
    held, of, x = cell.held, f"of_{name}", f"x_{name}"
    bound = literal(cell.clip, cell.type)
    limits = f"const {held} {of} = {x} > {bound} ? {bound} : {x} < -{bound} ? -{bound} : {x};"
    if not clipped or not cell.clip:
        limits = f"const {held} {of} = {x};"
    return f"const {held} {x} = {value}; {limits} const {held} {name} = {_function(cell, cell.functions[which], of)};"


def _function(cell: Cell, function: Function, x: str) -> str:
    name, alpha, beta = function
    a, b = (literal(0.0 if p is None else p, cell.type) for p in (alpha, beta))
    if name == "affine":
        return f"{a} * {x} + {b}"
    if name == "scaledtanh":
        return f"{a} * tanh({b} * {x})"
    if name == "thresholdedrelu":  # the operator of this name leaves the threshold itself out
        return f"({x} >= {a} ? {x} : 0)"
    attributes = {n: v for n, v in (("alpha", alpha), ("beta", beta)) if v is not None}
    return expression(_OPERATORS[name], [x], [cell.held], cell.held, attributes)


def _stored(cell: Cell) -> str:
    return f"STORE_{cell.type}(y, t * y_t + d * y_d + b * y_b + j, h_);" if "y" in cell.outputs else ""


def _initial(cell: Cell, tensor: str) -> str:
    return f"LOAD_{cell.type}({tensor}, ends + j)" if tensor in cell.inputs else "0"


def _length(cell: Cell) -> str:
    if "lengths" not in cell.inputs:
        return "  const int length = (int)steps;"
    return (
        "  const int said = lengths[b], length = said < 0 ? 0 : said > steps ? (int)steps : said;\n"
        "  if (said != length) fault[0] = (i32)mark;"
    )
