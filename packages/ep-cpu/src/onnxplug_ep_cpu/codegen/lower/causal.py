"""CausalConvWithState, of ONNX and of com.microsoft: one filter for each channel, over what lies before it."""

from __future__ import annotations

from onnxplug.contract import NodeView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.loops import copy, write_map
from onnxplug_ep_cpu.codegen.lower.quantized import MS
from onnxplug_ep_cpu.codegen.lower.support import FLOATS, attributes, floats, ranked, require

MOST = 8
"""Taps of a filter."""
ONLY = {
    "channels_last": 0, "input_channel_offset": 0, "input_channels": 0, "ndim": 1, "state_channels_last": -1, "state_length": 0,
    "state_update_capacity": 0, "state_window": 0,
}  # fmt: skip
"""What is generated of com.microsoft's further attributes."""


def _supports(node: NodeView) -> str | None:
    given = attributes(node, activation="none", **ONLY)
    if any(given[name] != value for name, value in ONLY.items()) or len(node.outputs) > 2:
        return "only channels first with a single state are generated"
    if given["activation"] not in ("none", "silu", "swish"):
        return "its activation is not known"
    x, weight, bias, past = [*node.inputs, None, None][:4]
    ranks = [(x, 3), (weight, 3), (bias, 1), (past, 3)]
    return floats(node) or next((why for v, n in ranks if (why := ranked(v, FLOATS, n))), None)


@lowering("CausalConvWithState", supports=_supports)
@lowering("CausalConvWithState", supports=_supports, domain=MS)
def causal_conv(b: Lowering, node: NodeView) -> None:
    """The state and the input behind each other, and sums of what lies apart in them."""
    x, weight, bias, past = [*node.inputs, None, None][:4]
    y, present = [*node.outputs, None][:2]
    assert x is not None and weight is not None and y is not None
    given = attributes(node, activation="none", dilation=1)
    step, (batch, channels, length), (filters, one, taps) = int(given["dilation"]), b.shape(x), b.shape(weight)
    require(None if (filters, one) == (channels, 1) and 1 <= taps <= MOST and step >= 1 else "the filter does not suit")
    before = (taps - 1) * step
    whole = b.scratch((batch, channels, before + length))
    start, end = (
        whole.shift(at).viewed((batch, channels, n), whole.strides) for at, n in ((0, before), (before, length))
    )
    if past is not None:
        require(None if b.shape(past) == start.shape else "the state does not suit the input")
        copy(b.program, b.target, b.read(past), start)
    else:
        write_map(b.program, b.target, ex.IDENTITY, [b.zeros(1).viewed((), ())], start)
    copy(b.program, b.target, b.read(x), end)
    terms, build = b.read(weight), ex.Build()
    leaves = [whole.shift(i * step).viewed(end.shape, whole.strides) for i in range(taps)]
    leaves += [terms.shift(i * terms.strides[2]).viewed((channels, 1), (terms.strides[0], 0)) for i in range(taps)]
    total = build("mul", build("leaf", 0), build("leaf", taps))
    for i in range(1, taps):
        total = build("fma", build("leaf", i), build("leaf", taps + i), total)
    if bias is not None:
        require(None if b.shape(bias) == (channels,) else "the bias does not suit the filter")
        added = b.read(bias)
        leaves.append(added.viewed((channels, 1), (added.strides[0], 0)))
        total = build("add", total, build("leaf", 2 * taps))
    if given["activation"] != "none":
        total = build("mul", total, build("sigmoid", total))
    write_map(b.program, b.target, build.finish(total), leaves, b.output(y))
    if present is not None:
        copy(b.program, b.target, whole.shift(length).viewed(start.shape, whole.strides), b.output(present))
