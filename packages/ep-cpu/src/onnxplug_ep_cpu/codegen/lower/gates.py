"""Gates of hybrid language models, of com.microsoft."""

from __future__ import annotations

from onnxplug.contract import NodeView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.lower.activation import softplus
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.loops import write_map
from onnxplug_ep_cpu.codegen.lower.norm import normalized
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.quantized import MS
from onnxplug_ep_cpu.codegen.lower.support import attributes, floats, rank, require


def _gate_supports(node: NodeView) -> str | None:
    _, bias, scale, rates = [*node.inputs, None][:4]
    if rank(bias) > 1 or rank(scale) > 1 or (rates is None and any(v is not None for v in node.outputs[1:])):
        return "its operands do not suit each other"
    return floats(node)


@lowering("LinearAttentionGate", domain=MS, supports=_gate_supports)
def linear_attention_gate(b: Lowering, node: NodeView) -> None:
    """scale softplus(a + bias), and the sigmoid of what rates are made of."""
    a, bias, scale, rates = [*node.inputs, None][:4]
    decay, beta = [*node.outputs, None][:2]
    assert a is not None and bias is not None and scale is not None
    if decay is not None:
        build = ex.Build()
        steps = softplus(build, build("add", build("leaf", 0), build("leaf", 1)))
        expr = build.finish(build("mul", build("leaf", 2), steps))
        b.pend(decay, Pending(b.shape(decay), expr, [b.read(v) for v in (a, bias, scale)]))
    if beta is not None and rates is not None:
        b.pend(beta, Pending(b.shape(beta), (("leaf", 0), ("sigmoid", 0)), [b.read(rates)]))


def _norm_supports(node: NodeView) -> str | None:
    if (
        attributes(node, activation="silu")["activation"] not in ("silu", "swish", "sigmoid")
        or rank(node.inputs[0]) < 1
    ):
        return "its activation is not known"
    return floats(node)


@lowering("GatedRMSNorm", domain=MS, supports=_norm_supports)
def gated_rms_norm(b: Lowering, node: NodeView) -> None:
    """Runs of the last axis divided by their root mean square, times scale and gate."""
    (x, scale, gate), (y,) = node.inputs, node.outputs
    assert x is not None and scale is not None and gate is not None and y is not None
    given, shape, sizes = attributes(node, activation="silu", epsilon=1e-5), b.shape(x), b.shape(scale)
    require(None if len(sizes) == 1 and sizes[0] > 0 and shape[-1] % sizes[0] == 0 else "the scale does not suit")
    require(None if b.shape(gate) == shape else "the gate does not suit")
    runs = (*shape[:-1], shape[-1] // sizes[0], sizes[0])
    order, axes = tuple(range(len(runs))), (len(runs) - 1,)
    opened, source = (b.reshaped(b.dense(v), runs) for v in (gate, x))
    norm = b.write(
        normalized(b, runs, axes, (ex.IDENTITY, [source], order), [b.read(scale)], given["epsilon"], centred=False)
    )
    build, result = ex.Build(), b.output(y)
    factor = build("sigmoid", build("leaf", 1))
    if given["activation"] != "sigmoid":
        factor = build("mul", build("leaf", 1), factor)
    expr = build.finish(build("mul", build("leaf", 0), factor))
    write_map(b.program, b.target, expr, [b.reshaped(norm, shape), b.reshaped(opened, shape)], result)
