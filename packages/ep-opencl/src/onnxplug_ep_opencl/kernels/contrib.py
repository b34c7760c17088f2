"""Operators of domain com.microsoft: variants of Gelu, normalisations of sums, embeddings, products with something fused in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from onnxplug.contract import NodeView
from onnxplug_ep_opencl.kernels.call import Call, text_type
from onnxplug_ep_opencl.kernels.elementwise import launch
from onnxplug_ep_opencl.kernels.lines import LONG, side_by_side
from onnxplug_ep_opencl.kernels.product import Product, gemm, matrices, multiply
from onnxplug_ep_opencl.kernels.shared import described, unfit
from onnxplug_ep_opencl.kernels.window import as_product, conv, unknown_rank
from onnxplug_ep_opencl.launch import Job, Launch
from onnxplug_kernel_text.expression import statements
from onnxplug_kernel_text.layout import broadcast, dense, space
from onnxplug_kernel_text.nodes import rotary as turned
from onnxplug_kernel_text.nodes.embed import embedded
from onnxplug_kernel_text.nodes.launch import Job as Described
from onnxplug_kernel_text.types import arithmetic, literal

_PARAMETERS: Mapping[str, Mapping[str, float]] = {
    "Clip": {"min": -3.4028235e38, "max": 3.4028235e38}, "Elu": {"alpha": 1.0}, "HardSigmoid": {"alpha": 0.2, "beta": 0.5}, "HardSwish": {},
    "LeakyRelu": {"alpha": 0.01}, "Relu": {}, "Sigmoid": {}, "Softplus": {}, "Softsign": {}, "Tanh": {}, "ThresholdedRelu": {"alpha": 1.0},
}  # fmt: skip
"""Activations -> attributes of the operator of that name, with defaults, in the order of their parameters."""


def gelu(call: Call) -> list[Launch]:
    """Gelu, BiasGelu, FastGelu and QuickGelu."""
    out = call.output()
    type_ = text_type(out.dtype)
    given = [n for n, spec in enumerate(call.inputs) if spec is not None]
    held, total = arithmetic(type_), " + ".join(f"x{n}" for n in range(len(given)))
    lines = [f"const {held} t = {total};"]
    if call.op_type == "FastGelu":
        inner, outer, half = (literal(n, type_) for n in (0.035677408136300125, 0.7978845608028654, 0.5))
        lines.append(f"y0 = {half} * t * ({literal(1, type_)} + tanh(t * ({inner} * t * t + {outer})));")
    elif call.op_type == "QuickGelu":
        one, alpha = literal(1, type_), literal(call.attributes.get("alpha", 1.702), type_)
        lines.append(f"y0 = t * ({one} / ({one} + EXP(-({alpha} * t))));")
    else:
        lines += [*statements("u", "Gelu", ["t"], [type_], type_, {}), "y0 = u;"]
    walks = [broadcast(call.input(n).shape, out.shape) for n in given]
    inputs = [(call.read(n), type_) for n in given]
    return launch(
        call.target, call.op_type, inputs, [(call.write(), type_)], space(out.shape, [*walks, dense(out.shape)]), " ".join(lines)
    )  # fmt: skip


@described
def embed_norm(call: Call) -> Described | None:
    """EmbedLayerNormalization."""
    return embedded(call, side_by_side(call.target, LONG), call.fault())


@described
def rotary(call: Call) -> Described | None:
    """RotaryEmbedding, of ONNX as well, and MRotaryEmbedding."""
    make = turned.embedding if call.version >= 23 else turned.embedding_contrib
    if call.op_type == "MRotaryEmbedding":
        make = turned.embedding_of_three
    return make(call, call.fault())


def scaled(node: NodeView) -> str | None:
    """MRotaryEmbedding whose angles are scaled."""
    scale = node.attributes.get("scale", 1.0)
    return f"scale {scale}" if node.op_type == "MRotaryEmbedding" and scale != 1 else None


def unnormalised(node: NodeView) -> str | None:
    """What is wanted must have been computed: the mean of a simplified normalisation is none."""
    if node.op_type == "SkipSimplifiedLayerNormalization" and len(node.outputs) > 1 and node.outputs[1] is not None:
        return "the mean of a normalisation without one"
    return None


def fused_matmul(call: Call) -> Product:
    """FusedMatMul."""
    alpha = call.attributes.get("alpha", 1.0)
    turned = bool(call.attributes.get("transA", 0)), bool(call.attributes.get("transB", 0))
    value = "x" if alpha == 1 else f"{literal(alpha, text_type(call.output().dtype))} * x"
    return matrices(call, fused_matmul, call.input(0).shape, call.input(1).shape, turned, (), f"y = {value};")


def unmatched(node: NodeView) -> str | None:
    """FusedMatMul that is no product of stacks of matrices as they lie."""
    if node.attributes.get("transBatchA", 0) or node.attributes.get("transBatchB", 0):
        return "a batch axis among the rows (transBatch)"
    shapes = [None if value is None else value.shape for value in node.inputs[:2]]
    return "operands must be known to be matrices" if any(s is None or len(s) < 2 for s in shapes) else None


def inactive(node: NodeView) -> str | None:
    """An activation that is not written."""
    name = node.attributes.get("activation", "")
    return None if not name or name in _PARAMETERS else f"activation {name}"


def unshaped(node: NodeView) -> str | None:
    """FusedConv whose activation is not written or whose rank is not known."""
    return unknown_rank(node) or inactive(node)


def fused_gemm(call: Call) -> Product:
    """FusedGemm."""
    given = [call.attributes.get(f"activation_{name}") for name in ("alpha", "beta")]
    made = gemm(call)
    return replace(made, body=f"{made.body} {_activated(call, given)}")


def fused_conv(call: Call) -> Job:
    """FusedConv: Conv, plus a fourth operand, and an activation of the sum."""
    out = call.output()
    type_, activation = text_type(out.dtype), _activated(call, call.attributes.get("activation_params", ()))
    added = call.given(3) is not None
    if added and call.input(3).shape != out.shape:
        unfit(call)
    made = as_product(call)
    if made is not None:
        sides = [replace(made.out, ref=call.read(3))] if added else []
        sum_ = f"y = y + e{len(made.others)};" if added else ""
        body = f"{made.body} {sum_} {activation}"
        return multiply(
            call.target, call.op_type, replace(made, others=[*made.others, *sides], body=body), call.scratch(1)
        )
    before = conv(call)
    inputs = [(call.write(), type_), *([(call.read(3), type_)] if added else [])]
    walked = space(out.shape, [dense(out.shape)] * (len(inputs) + 1))
    body = f"{arithmetic(type_)} y = x0{' + x1' if added else ''}; {activation} y0 = y;"
    after = launch(call.target, "activated", inputs, [(call.write(), type_)], walked, body)
    return Job([*before.launches, *after], before.workspace)


def _activated(call: Call, given: Sequence[Any]) -> str:
    """Statements that put ``y`` through the node's activation."""
    name = call.attributes.get("activation", "")
    if not name:
        return ""
    type_ = text_type(call.output().dtype)
    values = [*given, *[None] * len(_PARAMETERS[name])]
    attributes = {p: d if v is None else v for (p, d), v in zip(_PARAMETERS[name].items(), values, strict=False)}
    lines = statements("active_", name, ["made_"], [type_], type_, attributes)
    return f"const {arithmetic(type_)} made_ = y; {' '.join(lines)} y = active_;"
