"""DynamicQuantizeLSTM of domain ``com.microsoft``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxplug_kernels.activations import Activation, recurrent_activations
from onnxplug_kernels.catalogue import op
from onnxplug_kernels.ops.quantize import dynamic_quantize_linear

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

    X as a whole, and the hidden state of each step, are quantized to uint8 before they meet the weights.
    """
    backward = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}.get(direction)
    if backward is None or len(backward) != w.shape[0]:
        raise ValueError(f"direction {direction!r} does not go with W {w.shape}")
    steps, batch, _ = x.shape
    size = r.shape[1]
    chosen = recurrent_activations(
        xp, activations, activation_alpha, activation_beta, ["Sigmoid", "Tanh", "Tanh"], len(backward), clip
    )
    rows = _requantized(xp, xp.reshape(x, (steps * batch, -1)))
    zeros = xp.zeros((batch, size), dtype=x.dtype)
    outputs, last_h, last_c = [], [], []
    for d, reverse in enumerate(backward):
        projected = xp.matmul(rows, _weights(xp, w, w_scale, w_zero_point, d))
        recurrent = _weights(xp, r, r_scale, r_zero_point, d)
        if b is not None:
            projected = projected + (b[d, : 4 * size] + b[d, 4 * size :])
        projected = xp.reshape(projected, (steps, batch, 4 * size))
        if reverse:
            projected = _reversed(xp, projected, sequence_lens)
        peephole = None if p is None else xp.reshape(p[d, :], (3, size))
        h = zeros if initial_h is None else initial_h[d, ...]
        c = zeros if initial_c is None else initial_c[d, ...]
        shown, seen = [], h
        for t in range(steps):
            sums = projected[t, ...] + xp.matmul(_requantized(xp, seen), recurrent)
            new_h, new_c = _step(xp, sums, c, peephole, chosen[d], input_forget)
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
    xp: Any, sums: Any, c: Any, peephole: Any, functions: Sequence[Activation], input_forget: int
) -> tuple[Any, Any]:
    """The next (h, c); gates stand in the order input, output, forget, cell."""
    f, g, h_of = functions
    size = c.shape[1]
    into, out, forget, cell = (sums[:, i * size : (i + 1) * size] for i in range(4))
    if peephole is not None:
        into, forget = into + peephole[0, :] * c, forget + peephole[2, :] * c
    into = f(into)
    c = (1 - into if input_forget else f(forget)) * c + into * g(cell)
    if peephole is not None:
        out = out + peephole[1, :] * c
    return f(out) * h_of(c), c


def _weights(xp: Any, w: Any, scale: Any, zero_point: Any, direction: int) -> Any:
    """One direction's weights as floats; scale and zero point are one, or one for each column."""
    zero = xp.astype(zero_point[direction, ...], scale.dtype)
    return (xp.astype(w[direction, ...], scale.dtype) - zero) * scale[direction, ...]


def _requantized(xp: Any, x: Any) -> Any:
    """x as uint8 quantization leaves it, in floats again."""
    quantized, scale, zero_point = dynamic_quantize_linear(xp, x)
    return (xp.astype(quantized, x.dtype) - xp.astype(zero_point, x.dtype)) * scale
