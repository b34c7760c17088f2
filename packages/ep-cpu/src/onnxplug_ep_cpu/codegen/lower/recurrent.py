"""RNN, GRU and LSTM: the input projection of the whole sequence as one product, then the recurrence."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from onnxplug.contract import NodeView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.recurrent import CHAINS, UNROLL, Arg, Lengths, Recurrence
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.loops import copy
from onnxplug_ep_cpu.codegen.lower.packing import packed_panels
from onnxplug_ep_cpu.codegen.lower.products import Matrix, product
from onnxplug_ep_cpu.codegen.lower.recurrent_forms import Forms
from onnxplug_ep_cpu.codegen.lower.support import attributes, typed
from onnxplug_ep_cpu.codegen.lower.tiles import panel_vectors, varying_tile
from onnxplug_ep_cpu.codegen.program import STATUS_WORD, Ref
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor

DEFAULTS = {
    "RNN": ("Tanh",),
    "GRU": ("Sigmoid", "Tanh"),
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
    "DynamicQuantizeLSTM": ("Sigmoid", "Tanh", "Tanh"),
}
SHARED_STEP = 8_000.0
"""Nanoseconds of one time step from which it is worth sharing out among threads, which meet after every step."""
MOST_CALLS = 4096
"""Time steps that become calls of their own."""

# name -> default alpha, default beta (None: no such parameter).
_PARAMETERS: dict[str, tuple[float | None, float | None]] = {
    "relu": (None, None),
    "tanh": (None, None),
    "sigmoid": (None, None),
    "affine": (1.0, 0.0),
    "leakyrelu": (0.01, None),
    "thresholdedrelu": (1.0, None),
    "scaledtanh": (1.0, 1.0),
    "hardsigmoid": (0.2, 0.5),
    "elu": (1.0, None),
    "softsign": (None, None),
    "softplus": (None, None),
}


def _supports(node: NodeView) -> str | None:
    for index, value in enumerate(node.inputs):
        reason = typed(value, ("int32",)) if index == 4 else typed(value)
        if reason is not None:
            return reason
    return activations_support(node)


def activations_support(node: NodeView) -> str | None:
    """Why a node's activations are not generated, or None."""
    chosen = activations(node)
    if chosen is None:
        return "an activation function is not known"
    return "activations differ between directions" if len({tuple(each) for each in chosen}) != 1 else None


Function = Callable[[ex.Build, str, int], int]


def activations(node: NodeView, function: Function = ex.Build.__call__) -> list[list[ex.Expr]] | None:
    """f, g, h of each direction, by the rules of ``onnxplug_kernels.activations.recurrent_activations``; ``function`` builds
    sigmoid and tanh."""
    default = DEFAULTS[node.op_type]
    given = attributes(node, activations=None, activation_alpha=(), activation_beta=(), clip=0.0, direction="forward")
    directions = 2 if given["direction"] == "bidirectional" else 1
    names = [name.lower() for name in given["activations"] or default * directions]
    names = names * directions if len(names) == len(default) else names
    if len(names) < len(default) * directions or not set(names) <= set(_PARAMETERS):
        return None
    alphas, betas = iter(given["activation_alpha"] or ()), iter(given["activation_beta"] or ())
    found = []
    for place, name in enumerate(names[: len(default) * directions]):
        bound = float(given["clip"] or 0.0) if place % len(default) < 2 else 0.0
        found.append(_activation(name, alphas, betas, bound, function))
    return [found[d * len(default) : (d + 1) * len(default)] for d in range(directions)]


def _activation(name: str, alphas: Iterator[float], betas: Iterator[float], clip: float, function: Function) -> ex.Expr:
    default_alpha, default_beta = _PARAMETERS[name]
    build = ex.Build()
    x, zero, one = build("leaf", 0), build("const", 0.0), build("const", 1.0)
    a = zero if default_alpha is None else build("const", float(next(alphas, default_alpha)))
    b = zero if default_beta is None else build("const", float(next(betas, default_beta)))
    if clip:
        x = build("max", build("min", x, build("const", clip)), build("const", -clip))
    match name:
        case "relu":
            y = build("max", x, zero)
        case "affine":
            y = build("fma", a, x, b)
        case "leakyrelu":
            y = build("where", build("less", x, zero), build("mul", a, x), x)
        case "thresholdedrelu":
            y = build("where", build("less", x, a), zero, x)
        case "scaledtanh":
            y = build("mul", a, build("tanh", build("mul", b, x)))
        case "hardsigmoid":
            y = build("min", build("max", build("fma", a, x, b), zero), one)
        case "elu":
            y = build("where", build("less", x, zero), build("mul", a, build("sub", build("exp", x), one)), x)
        case "softsign":
            y = build("div", x, build("add", build("abs", x), one))
        case "softplus":
            tail = build("log", build("add", build("exp", build("neg", build("abs", x))), one))
            y = build("add", build("max", x, zero), tail)
        case _:
            y = function(build, name, x)
    return build.finish(y)


@lowering("RNN", "GRU", "LSTM", supports=_supports)
def recurrent(b: Lowering, node: NodeView) -> None:
    """Y, Y_h and, of an LSTM, Y_c."""
    Layer(b, node).write()


class Layer:
    """One node being lowered."""

    def __init__(self, b: Lowering, node: NodeView) -> None:
        self.b, self.node = b, node
        x, w, r, bias, lengths, *states = [*node.inputs, *[None] * 8][:8]
        assert x is not None and w is not None and r is not None
        self.x, self.w, self.r, self.bias, self.lengths, self.states = x, w, r, bias, lengths, states
        given = attributes(node, direction="forward", layout=0, linear_before_reset=0, input_forget=0)
        self.by_batch = bool(given["layout"])
        self.backward = {"reverse": 0, "bidirectional": 1}.get(given["direction"], 1)
        shape = b.shape(x)
        self.steps, self.batch = (shape[1], shape[0]) if self.by_batch else shape[:2]
        self.directions, self.hidden, self.gates = self._sizes(b.shape(w), b.shape(r))
        lanes = b.target.lanes
        pad = max(lanes, UNROLL)
        self.depth = -(-self.hidden // pad) * pad
        self.blocks = self.depth // lanes
        self.cell = {"RNN": "rnn", "GRU": "gru" if given["linear_before_reset"] else "gru_reset"}.get(
            node.op_type, "lstm"
        )
        self.coupled = bool(given["input_forget"])
        self.forms = Forms(b, self.directions, self.gates, self.hidden, self.depth)

    def _sizes(self, w: Ints, r: Ints) -> Ints:
        """Directions, hidden size and gates."""
        return r[0], r[2], w[1] // max(1, r[2])

    def write(self) -> None:
        b = self.b
        if self.lengths is not None and self.batch != 0:
            lengths = b.dense(self.lengths).ref
            b.program.call(Lengths(), [lengths, Ref(STATUS_WORD), self.batch, self.steps + 1], 1, 1.0 * self.batch)
        y, *ends = [*self.node.outputs, None, None][:3]
        state, cell = self._initial()
        shape = (self.steps, self.directions, self.batch, self.hidden)
        shape = (self.batch, self.steps, self.directions, self.hidden) if self.by_batch else shape
        result = b.scratch(shape) if y is None else b.output(y)
        last = self._recur(result, state, cell)
        for value, tensor in zip(ends, (last, cell), strict=True):
            if value is not None:
                b.define(value, tensor.transposed((1, 0, 2)) if self.by_batch else tensor)

    def _initial(self) -> tuple[Tensor, Tensor]:
        """The state before the first step, and the cell: [direction, batch, padded hidden], the state twice."""
        b, size = self.b, self.directions * self.batch * self.depth
        whole = b.scratch((3 * size,))
        copy(b.program, b.target, Tensor(b.zeros(1).buffer, whole.shape, (0,)), whole)
        shape, strides = (self.directions, self.batch, self.hidden), (self.batch * self.depth, self.depth, 1)
        made = [Tensor(whole.buffer, shape, strides, 4 * at * size) for at in (0, 2)]
        for value, place in zip(self.states, made, strict=False):
            if value is not None:
                given = b.read(value)
                copy(b.program, b.target, given.transposed((1, 0, 2)) if self.by_batch else given, place)
        return made[0], made[1]

    # ---- the two products

    def _projected(self) -> Tensor:
        """x W' + bias of every step and both directions: rows as they lie in x, [direction][gate][unit] across."""
        b = self.b
        x = b.dense(self.x)
        rows, k, n = self.steps * self.batch, x.shape[2], self.directions * self.gates * self.hidden
        out = b.scratch((rows, n))
        if rows == 0 or n == 0:
            return out
        vectors = panel_vectors(b.target, n)
        width = vectors * b.target.lanes
        packed = packed_panels(b, self.w, ("recurrent", vectors), (1, n, k), (0, k, 1), width)
        expr, operands = ex.IDENTITY, []
        if self.bias is not None:
            summed = self.forms.summed(self.bias, 2 if self.cell == "gru" else self.gates)
            expr, operands = (("leaf", 0), ("leaf", 1), ("add", 0, 1)), [("column", Matrix(summed.ref, 0))]
        tile = varying_tile(b.target, rows, n, panel_vectors(b.target, n), b.prepared.varies)
        product(
            b, (rows, n, k), (1, 1), Matrix(x.ref, k), Matrix(packed.ref, 0), Matrix(out.ref, n), tile, expr, operands,
        )  # fmt: skip
        return out

    # ---- the recurrence

    def _recur(self, y: Tensor, state: Tensor, cell: Tensor) -> Tensor:
        """Every step; returns the last state."""
        b, hidden = self.b, self.hidden
        sums = self._projected()
        if 0 in (self.steps, self.batch, self.hidden):
            return state
        chosen = activations(self.node)
        assert chosen is not None
        first = {"gru_reset": 2}.get(self.cell, self.gates)
        none = b.zeros(3 * self.directions * self.depth).ref
        peepholes = self.states[2] if self.cell == "lstm" else None
        kernel = Recurrence(
            self.cell,
            self._rows(first),
            tuple(chosen[0]),
            peepholes is not None,
            self.lengths is not None,
            self.coupled,
        )
        size = 4 * self.directions * self.batch * self.depth
        across = 4 * self.gates * hidden
        x_strides = (self.batch, 1) if not self.by_batch else (1, self.steps)
        t, batch, d = (0, 2, 1) if not self.by_batch else (1, 0, 2)
        args: dict[Arg, int | Ref] = {
            Arg.SUMS: sums.ref,
            Arg.WEIGHTS: self.forms.weights(self.r, slice(0, first)).ref,
            Arg.STATE: state.ref,
            Arg.CELL: cell.ref,
            Arg.Y: y.ref,
            Arg.BIAS: self.forms.padded(self.bias, "hidden", 5, 1) if self.cell == "gru" and self.bias is not None else none,
            Arg.PEEPHOLES: self.forms.padded(peepholes, "peepholes", 0, 3) if peepholes is not None else none,
            Arg.LENGTHS: b.dense(self.lengths).ref if self.lengths is not None else none,
            Arg.RESET: b.scratch((2 * size // 4,)).ref if self.cell == "gru_reset" else none,
            Arg.SECOND: self.forms.weights(self.r, slice(2, 3)).ref if self.cell == "gru_reset" else none,
            Arg.FIRST: 0, Arg.END: self.steps, Arg.STEPS: self.steps, Arg.BATCH: self.batch, Arg.HIDDEN: hidden,
            Arg.DEPTH: self.depth, Arg.BLOCKS: self.blocks, Arg.GROUP: self.blocks, Arg.GROUPS: 1,
            Arg.PART: self.batch, Arg.PARTS: 1, Arg.BACKWARD: self.backward, Arg.PHASES: 3,
            Arg.SUMS_T: self.directions * across * x_strides[0], Arg.SUMS_B: self.directions * across * x_strides[1],
            Arg.SUMS_D: across, Arg.Y_T: 4 * y.strides[t], Arg.Y_D: 4 * y.strides[d], Arg.Y_B: 4 * y.strides[batch],
            Arg.PARITY: size, Arg.UPDATES: size,
        }  # fmt: skip
        self._call(kernel, args)
        return state.shift(self.directions * self.batch * self.depth * (self.steps % 2))

    def _rows(self, gates: int) -> int:
        """Batch rows whose sums stay in registers together, with an element of each or the weights of each gate: as many as leave
        the fewest turns, weighed by the sums in them, but for those too few to keep the multiply-adds busy."""
        fitting = [
            rows
            for rows in range(1, max(1, self.batch) + 1)
            if rows * gates + min(rows, gates) < self.b.target.registers
        ]
        return max(fitting or [1], key=lambda rows: (-self._turns(rows, gates), rows))

    def _turns(self, rows: int, gates: int) -> int:
        """Multiply-adds for one k, or the time of so many, of the batch in turns of ``rows`` and the rest in halves of them."""
        left, total = self.batch, 0
        while left:
            total += left // rows * max(rows * gates, CHAINS)
            left, rows = left % rows, -(-rows // 2)
        return total

    def _call(self, kernel: Recurrence, args: dict[Arg, int | Ref]) -> None:
        """One call where directions suffice for the threads, or a step is short; else one or two for each step."""
        b = self.b
        step = 2.0 * self.directions * self.batch * self.gates * self.depth * self.depth / (4 * b.target.lanes)
        if self.directions >= b.threads or step < SHARED_STEP or self.steps > MOST_CALLS:
            parts = min(self.batch, -(-b.threads // self.directions))
            part = -(-self.batch // parts)
            parts = -(-self.batch // part)
            args[Arg.PART], args[Arg.PARTS] = part, parts
            b.program.call(kernel, [args[slot] for slot in Arg], self.directions * parts, step * self.steps)
            return
        args[Arg.GROUP] = group = max(1, self.blocks * self.directions // (4 * b.threads))
        args[Arg.GROUPS] = groups = -(-self.blocks // group)
        for t in range(self.steps):
            args[Arg.FIRST], args[Arg.END] = t, t + 1
            for phase in (1, 2) if self.cell == "gru_reset" else (3,):
                args[Arg.PHASES] = phase
                b.program.call(kernel, [args[slot] for slot in Arg], self.directions * groups, step)
