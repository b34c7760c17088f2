"""DynamicQuantizeLSTM and AttnLSTM of domain ``com.microsoft``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from onnxplug_kernels.activations import Activation, recurrent_activations
from onnxplug_kernels.catalogue import op
from onnxplug_kernels.ops.quantize import dynamic_quantize_linear
from onnxplug_kernels.ops.recurrent import State, Step, check_lengths, lstm_steps, run_over_time
from onnxplug_kernels.rational import sigmoid_and_tanh

MS = "com.microsoft"


@op("DynamicQuantizeLSTM", 1, domain=MS)
def dynamic_quantize_lstm(
    xp: Any,
    x: Any,
    w: Any,
    r: Any,
    b: Any,
    sequence_lens: Any,
    initial_h: Any,
    initial_c: Any,
    p: Any,
    w_scale: Any,
    w_zero_point: Any,
    r_scale: Any,
    r_zero_point: Any,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    n_outputs: int = 3,
) -> tuple[Any, ...]:
    """LSTM-7 on 8-bit weights, laid out (directions, inputs, 4 * hidden); outputs Y, Y_h, Y_c.

    X as a whole, and the hidden state of each step, are quantized to uint8 before they meet the weights. A state that lies
    between two levels is rounded to one or the other by its last bit, and later steps make much of that: so products are
    summed as integers and scaled once, what is added comes in onnxruntime's order (X, state, peephole, bias), and sigmoid
    and tanh are its quotients of polynomials.
    """
    backward = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}.get(direction)
    if backward is None or len(backward) != w.shape[0]:
        raise ValueError(f"direction {direction!r} does not go with W {w.shape}")
    steps, batch, inputs = x.shape
    check_lengths(xp, sequence_lens, steps, batch)
    size = r.shape[1]
    own = dict(zip(("sigmoid", "tanh"), sigmoid_and_tanh(xp), strict=True)) if x.dtype == xp.float32 else None
    chosen = recurrent_activations(
        xp,
        activations,
        activation_alpha,
        activation_beta,
        ["Sigmoid", "Tanh", "Tanh"],
        len(backward),
        clip,
        own,
    )
    rows = xp.reshape(x, (steps * batch, inputs))
    zeros = xp.zeros((batch, size), dtype=x.dtype)
    outputs, last_h, last_c = [], [], []
    for d, reverse in enumerate(backward):
        projected = _quantized_product(xp, w, w_scale, w_zero_point, d)(rows)
        recurrent = _quantized_product(xp, r, r_scale, r_zero_point, d)
        bias = None if b is None else b[d, : 4 * size] + b[d, 4 * size :]
        projected = xp.reshape(projected, (steps, batch, 4 * size))
        if reverse:
            projected = _reversed(xp, projected, sequence_lens)
        peephole = None if p is None else xp.reshape(p[d, :], (3, size))
        h = zeros if initial_h is None else initial_h[d, ...]
        c = zeros if initial_c is None else initial_c[d, ...]
        shown, seen = [], h
        for t in range(steps):
            sums = projected[t, ...] + recurrent(seen)
            new_h, new_c = _step(sums, bias, c, peephole, chosen[d], input_forget)
            seen = new_h
            if sequence_lens is not None:
                alive = xp.reshape(sequence_lens > t, (batch, 1))
                # A sequence that has ended counts as zeros in the range that the state is quantized by.
                seen = xp.where(alive, new_h, zeros)
                new_h, new_c = xp.where(alive, new_h, h), xp.where(alive, new_c, c)
            h, c = new_h, new_c
            shown.append(seen)
        y = xp.stack(shown) if steps else xp.zeros((0, batch, size), dtype=x.dtype)
        outputs.append(_reversed(xp, y, sequence_lens) if reverse else y)
        last_h.append(h)
        last_c.append(c)
    return (xp.stack(outputs, axis=1), xp.stack(last_h), xp.stack(last_c))[:n_outputs]


def _reversed(xp: Any, x: Any, sequence_lens: Any) -> Any:
    """(steps, batch, n) with the time of each sequence running backward, from its own end; what lies behind that stays."""
    steps = xp.reshape(xp.arange(x.shape[0], dtype=xp.int64), (-1, 1))
    if sequence_lens is None:
        return xp.flip(x, axis=0)
    lengths = xp.astype(sequence_lens, xp.int64)[None, :]
    source = xp.where(steps < lengths, lengths - 1 - steps, steps)
    return xp.take_along_axis(x, xp.broadcast_to(source[:, :, None], x.shape), axis=0)


def _step(
    sums: Any, bias: Any, c: Any, peephole: Any, functions: Sequence[Activation], input_forget: int
) -> tuple[Any, Any]:
    """The next (h, c); gates stand in the order input, output, forget, cell."""
    f, g, h_of = functions
    size = c.shape[1]
    if peephole is None:
        total = sums if bias is None else sums + bias
        gates = f(total[:, : 3 * size])
        into, out = gates[:, :size], gates[:, size : 2 * size]
        kept = 1 - into if input_forget else gates[:, 2 * size :]
        c = kept * c + into * g(total[:, 3 * size :])
        return out * h_of(c), c

    def gate(place: int, state: Any) -> Any:
        part = slice(place * size, (place + 1) * size)
        total = sums[:, part] if place == 3 else sums[:, part] + peephole[place, :] * state
        return total if bias is None else total + bias[part]

    into = f(gate(0, c))
    kept = 1 - into if input_forget else f(gate(2, c))
    c = kept * c + into * g(gate(3, c))
    return f(gate(1, c)) * h_of(c), c


def _quantized_product(xp: Any, w: Any, scale: Any, zero_point: Any, direction: int) -> Callable[[Any], Any]:
    """What multiplies rows, quantized to uint8, with one direction's weights; scale and zero point are one, or one for each
    column."""
    scale, zero = scale[direction, ...], zero_point[direction, ...]
    weights = xp.astype(w[direction, ...], xp.float32) - xp.astype(zero, xp.float32)
    # Whole numbers: float32 is exact where no sum, with 255 for each entry of a row, can reach 2**24.
    largest = float(xp.max(xp.sum(xp.abs(weights), axis=0))) if weights.size else 0.0
    if 255 * largest >= 2**24:
        weights = xp.astype(weights, xp.float64)

    def product(x: Any) -> Any:
        quantized, step, middle = dynamic_quantize_linear(xp, x)
        whole = xp.astype(quantized, weights.dtype) - xp.astype(middle, weights.dtype)
        return xp.astype(xp.matmul(whole, weights), x.dtype) * (step * scale)

    return product


@op("AttnLSTM", 1, domain=MS, T=("float", "double"))
def attention_lstm(
    xp: Any,
    x: Any,
    w: Any,
    r: Any,
    b: Any = None,
    sequence_lens: Any = None,
    initial_h: Any = None,
    initial_c: Any = None,
    p: Any = None,
    query_weights: Any = None,
    memory_weights: Any = None,
    v: Any = None,
    memory: Any = None,
    memory_seq_lens: Any = None,
    layer_weights: Any = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    n_outputs: int = 3,
) -> tuple[Any, ...]:
    """LSTM-7 whose input is x (steps, batch, inputs) beside what it attended to at the step before (Bahdanau et al., 2014); Y, Y_h, Y_c.

    After each step the hidden state is compared with ``memory`` (batch, places, depth), as far as ``memory_seq_lens``: the memory's mean
    weighted so, or ``layer_weights`` times hidden state and mean, goes with the next input.
    """
    needed = {"QW": query_weights, "MW": memory_weights, "V": v, "M": memory}
    missing = [name for name, operand in needed.items() if operand is None]
    if missing:
        raise ValueError(f"AttnLSTM has no attention without {' and '.join(missing)}")
    size = r.shape[-1] if hidden_size is None else hidden_size
    inputs, directions = x.shape[2], w.shape[0]
    attended = memory.shape[2] if layer_weights is None else layer_weights.shape[2]
    if w.shape[2] != inputs + attended:
        raise ValueError(f"W {tuple(w.shape)} is not for {inputs} inputs and {attended} attended to")
    chosen = recurrent_activations(
        xp, activations, activation_alpha, activation_beta, ["Sigmoid", "Tanh", "Tanh"], directions, clip
    )
    plain = lstm_steps(xp, chosen, size, p, input_forget)
    masked, values = None, memory
    if memory_seq_lens is not None:
        masked = xp.arange(memory.shape[1])[None, :] >= memory_seq_lens[:, None]
        values = xp.where(masked[:, :, None], xp.zeros_like(memory), memory)

    def step_of(d: int, recurrent: Any, recurrent_bias: Any) -> Step:
        inner, from_attended = plain(d, recurrent, recurrent_bias), xp.matrix_transpose(w[d, :, inputs:])
        keys = xp.matmul(memory, memory_weights[d, ...])

        def step(projected: Any, state: State) -> State:
            h, c = inner(projected + xp.matmul(state[2], from_attended), state[:2])
            query = xp.matmul(h, query_weights[d, ...])
            scores = xp.sum(v[d, :] * xp.tanh(keys + query[:, None, :]), axis=-1)
            if masked is not None:
                scores = xp.where(masked, xp.asarray(-xp.inf, dtype=scores.dtype), scores)
            weights = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
            weights = weights / xp.sum(weights, axis=-1, keepdims=True)
            context = xp.matmul(weights[:, None, :], values)[:, 0, :]
            if layer_weights is not None:
                context = xp.matmul(xp.concat([h, context], axis=1), layer_weights[d, ...])
            return h, c, context

        return step

    start = xp.zeros((directions, x.shape[1], attended), dtype=x.dtype)
    own = w[:, :, :inputs]
    states = (initial_h, initial_c, start)
    return run_over_time(xp, x, own, r, b, sequence_lens, states, step_of, (size, 4), direction, 0)[:n_outputs]
