"""RNN, GRU and LSTM: input projections as one product, then a loop over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from onnxplug_kernels.activations import Activation, recurrent_activations
from onnxplug_kernels.catalogue import op
from onnxplug_kernels.precision import narrow, widen
from onnxplug_kernels.refusals import FAIL, INVALID_ARGUMENT, Refusal, watched

State = tuple[Any, ...]
Step = Callable[[Any, State], State]


@op("RNN", 1, 22)
def rnn(
    xp: Any,
    x: Any,
    w: Any,
    r: Any,
    b: Any = None,
    sequence_lens: Any = None,
    initial_h: Any = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    output_sequence: int = 0,
    n_outputs: int = 2,
) -> tuple[Any, ...]:
    """H = f(X W' + H R' + Wb + Rb) over time; (Y, Y_h)."""
    size = r.shape[-1] if hidden_size is None else hidden_size
    chosen = recurrent_activations(xp, activations, activation_alpha, activation_beta, ["Tanh"], w.shape[0], clip)

    def step_of(d: int, recurrent: Any, recurrent_bias: Any) -> Step:
        (f,) = chosen[d]

        def step(projected: Any, state: State) -> State:
            return (f(projected + xp.matmul(state[0], recurrent)),)

        return step

    return run_over_time(xp, x, w, r, b, sequence_lens, (initial_h,), step_of, (size, 1), direction, layout)[:n_outputs]


@op("GRU", 1, 22)
def gru(
    xp: Any,
    x: Any,
    w: Any,
    r: Any,
    b: Any = None,
    sequence_lens: Any = None,
    initial_h: Any = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
    output_sequence: int = 0,
    n_outputs: int = 2,
) -> tuple[Any, ...]:
    """Gated recurrent unit, gates in the order update, reset, hidden; (Y, Y_h)."""
    size = r.shape[-1] if hidden_size is None else hidden_size
    chosen = recurrent_activations(
        xp, activations, activation_alpha, activation_beta, ["Sigmoid", "Tanh"], w.shape[0], clip
    )

    def step_of(d: int, recurrent: Any, recurrent_bias: Any) -> Step:
        f, g = chosen[d]
        hidden_bias = None if recurrent_bias is None else recurrent_bias[2 * size :]

        def reset_first(projected: Any, state: State) -> State:
            (h,) = state
            gates = f(projected[:, : 2 * size] + xp.matmul(h, recurrent[:, : 2 * size]))
            update, reset = gates[:, :size], gates[:, size:]
            new = g(projected[:, 2 * size :] + xp.matmul(reset * h, recurrent[:, 2 * size :]))
            return ((1 - update) * new + update * h,)

        def linear_first(projected: Any, state: State) -> State:
            (h,) = state
            carried = xp.matmul(h, recurrent)
            gates = f(projected[:, : 2 * size] + carried[:, : 2 * size])
            update, reset = gates[:, :size], gates[:, size:]
            inner = carried[:, 2 * size :] if hidden_bias is None else carried[:, 2 * size :] + hidden_bias
            new = g(projected[:, 2 * size :] + reset * inner)
            return ((1 - update) * new + update * h,)

        return linear_first if linear_before_reset else reset_first

    # With linear_before_reset the recurrent bias of the hidden gate is multiplied by the reset gate.
    summed = 2 * size if linear_before_reset else 3 * size
    return run_over_time(xp, x, w, r, b, sequence_lens, (initial_h,), step_of, (size, 3), direction, layout, summed)[
        :n_outputs
    ]


@op("LSTM", 1, 22)
def lstm(
    xp: Any,
    x: Any,
    w: Any,
    r: Any,
    b: Any = None,
    sequence_lens: Any = None,
    initial_h: Any = None,
    initial_c: Any = None,
    p: Any = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
    output_sequence: int = 0,
    n_outputs: int = 3,
) -> tuple[Any, ...]:
    """Long short-term memory, gates in the order input, output, forget, cell; (Y, Y_h, Y_c)."""
    size = r.shape[-1] if hidden_size is None else hidden_size
    chosen = recurrent_activations(
        xp, activations, activation_alpha, activation_beta, ["Sigmoid", "Tanh", "Tanh"], w.shape[0], clip
    )
    _must_be("P", p, (2 if direction == "bidirectional" else 1, 3 * size))
    step_of = lstm_steps(xp, chosen, size, p, input_forget)
    return run_over_time(xp, x, w, r, b, sequence_lens, (initial_h, initial_c), step_of, (size, 4), direction, layout)[
        :n_outputs
    ]


def lstm_steps(
    xp: Any, chosen: Sequence[Sequence[Activation]], size: int, p: Any, input_forget: int
) -> Callable[[int, Any, Any], Step]:
    """What makes the step of each direction of an LSTM with ``chosen`` activations and peepholes ``p``."""
    peepholes = None if p is None else widen(xp, p)

    def step_of(d: int, recurrent: Any, recurrent_bias: Any) -> Step:
        f, g, h_of = chosen[d]
        if peepholes is not None:
            return _peephole_step(xp, recurrent, peepholes[d, :], size, (f, g, h_of), input_forget)

        def step(projected: Any, state: State) -> State:
            h, c = state
            sums = projected + xp.matmul(h, recurrent)
            gates = f(sums[:, : 3 * size])
            into = gates[:, :size]
            forget = 1 - into if input_forget else gates[:, 2 * size :]
            c = forget * c + into * g(sums[:, 3 * size :])
            return gates[:, size : 2 * size] * h_of(c), c

        return step

    return step_of


def _peephole_step(
    xp: Any,
    recurrent: Any,
    peephole: Any,
    size: int,
    activations: tuple[Activation, Activation, Activation],
    input_forget: int,
) -> Step:
    """An LSTM step whose gates also see the cell: input and forget the old one, output the new one."""
    f, g, h_of = activations
    to_input, to_output, to_forget = (peephole[i * size : (i + 1) * size] for i in range(3))

    def step(projected: Any, state: State) -> State:
        h, c = state
        sums = projected + xp.matmul(h, recurrent)
        into = f(sums[:, :size] + to_input * c)
        forget = 1 - into if input_forget else f(sums[:, 2 * size : 3 * size] + to_forget * c)
        c = forget * c + into * g(sums[:, 3 * size :])
        out = f(sums[:, size : 2 * size] + to_output * c)
        return out * h_of(c), c

    return step


def _must_be(name: str, operand: Any, shape: tuple[int, ...]) -> None:
    if operand is not None and tuple(operand.shape) != shape:
        wanted, given = (",".join(map(str, each)) for each in (shape, operand.shape))
        status = INVALID_ARGUMENT if name in ("W", "R", "B", "sequence_lens") else FAIL
        raise Refusal(f"Input {name} must have shape {{{wanted}}}. Actual:{{{given}}}", status)


def check_lengths(xp: Any, sequence_lens: Any, steps: int, batch: int) -> None:
    """ValueError, in onnxruntime's words, for lengths of sequences that are not in 0..steps, or not one for each."""
    if sequence_lens is None:
        return
    _must_be("sequence_lens", sequence_lens, (batch,))
    told = watched(xp, sequence_lens, 0, steps + 1)
    if not told and bool(xp.any((sequence_lens < 0) | (sequence_lens > steps))):
        text = "Invalid value/s in sequence_lens. All values must be >= 0 and <= seq_length. seq_length="
        raise Refusal(f"{text}{steps}", INVALID_ARGUMENT)


def run_over_time(
    xp: Any,
    x: Any,
    w: Any,
    r: Any,
    b: Any,
    sequence_lens: Any,
    initial: Sequence[Any],
    step_of: Callable[[int, Any, Any], Step],
    sizes: tuple[int, int],
    direction: str,
    layout: int,
    summed: int | None = None,
) -> tuple[Any, ...]:
    """(Y, last state, ...): every direction run over time.

    ``step_of(direction index, R', recurrent bias)`` makes the step, which takes one projected input and the state.
    ``sizes`` are the hidden size and the number of gates, each of which has so many rows in W and R.
    The first ``summed`` elements (default: all) of the recurrent bias are already in the projected input.
    """
    # Version 1 of GRU spells its default direction "foward".
    reverse = {"forward": (False,), "foward": (False,), "reverse": (True,), "bidirectional": (False, True)}.get(
        direction
    )
    if reverse is None or len(reverse) != w.shape[0]:
        raise ValueError(f"direction {direction!r} does not go with W {w.shape}")
    dtype, size = x.dtype, sizes[0]
    x, w, r = widen(xp, x), widen(xp, w), widen(xp, r)
    b = None if b is None else widen(xp, b)
    states = [None if s is None else widen(xp, s) for s in initial]
    if layout:
        x = xp.permute_dims(x, (1, 0, 2))
        states = [None if s is None else xp.permute_dims(s, (1, 0, 2)) for s in states]
    steps, batch, width = x.shape
    directions, gates = w.shape[0], sizes[0] * sizes[1]
    _must_be("W", w, (directions, gates, width))
    _must_be("R", r, (directions, gates, size))
    _must_be("B", b, (directions, 2 * gates))
    check_lengths(xp, sequence_lens, steps, batch)
    for name, state in zip(("initial_h", "initial_c"), states, strict=False):
        _must_be(name, state, (directions, batch, size))
    rows = xp.reshape(x, (steps * batch, width))
    y = xp.zeros((steps, len(reverse), batch, size), dtype=x.dtype)
    last: list[State] = []
    for d, backward in enumerate(reverse):
        projected = xp.matmul(rows, xp.matrix_transpose(w[d, ...]))
        recurrent_bias = None
        if b is not None:
            projected += b[d, :gates]
            recurrent_bias = b[d, gates:]
            projected[:, :summed] += recurrent_bias[:summed]
        projected = xp.reshape(projected, (steps, batch, w.shape[1]))
        step = step_of(d, xp.matrix_transpose(r[d, ...]), recurrent_bias)
        state = tuple(xp.zeros((batch, size), dtype=x.dtype) if s is None else s[d, ...] for s in states)
        for t in reversed(range(steps)) if backward else range(steps):
            new = step(projected[t, ...], state)
            if sequence_lens is not None:
                alive = xp.reshape(sequence_lens > t, (batch, 1))
                new = tuple(xp.where(alive, fresh, old) for fresh, old in zip(new, state, strict=True))
                y[t, d, ...] = xp.where(alive, new[0], xp.zeros_like(new[0]))
            else:
                y[t, d, ...] = new[0]
            state = new
        last.append(state)
    ends = [xp.stack(parts, axis=0) for parts in zip(*last, strict=True)]
    if layout:
        y = xp.permute_dims(y, (2, 0, 1, 3))
        ends = [xp.permute_dims(end, (1, 0, 2)) for end in ends]
    return tuple(narrow(xp, out, dtype) for out in (y, *ends))
