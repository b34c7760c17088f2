"""EmbedLayerNormalization and QEmbedLayerNormalization: BERT's first layer, the sum of three embeddings normalized."""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug.contract import NodeView, ValueView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.heads import part
from onnxplug_ep_cpu.codegen.lower.loops import write_map
from onnxplug_ep_cpu.codegen.lower.move import gather_rows
from onnxplug_ep_cpu.codegen.lower.norm import normalized
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.quantized import single
from onnxplug_ep_cpu.codegen.lower.reduce import reduced
from onnxplug_ep_cpu.codegen.lower.support import FLOAT32, FLOATS, attributes, rank, require, typed
from onnxplug_ep_cpu.codegen.tensor import Tensor

_INTEGERS = (0, 1, 7, 8)
"""Operands that are indices or a mask."""


def _supports(node: NodeView) -> str | None:
    for index, value in enumerate(node.inputs):
        if reason := typed(value, {"int32", "int64"} if index in _INTEGERS else FLOATS):
            return reason
        if value is not None and rank(value) != (1 if index in (5, 6) else 2):
            return "the rank of an operand is not what the operator takes"
    y, counts, total = [*node.outputs, None, None][:3]
    return typed(y) or typed(counts, {"int32"}) or typed(total)


@lowering("EmbedLayerNormalization", supports=_supports, domain="com.microsoft")
def embed_layer_normalization(b: Lowering, node: NodeView) -> None:
    """Layer normalisation of word + position + segment embeddings; how many words each mask leaves; the sum."""
    ids, segments, words, places, kinds, gamma, beta, mask, positions = [*node.inputs, *[None] * 9][:9]
    y, counts, total = [*node.outputs, None, None][:3]
    assert ids is not None and words is not None and places is not None and y is not None
    _check(b, ids, (segments, mask), (words, places, kinds, gamma, beta))
    leaves = [gather_rows(b, words, ids)]
    if positions is None:
        leaves.append(part(b.read(places), 0, 0, b.shape(y)[1]))
    else:
        leaves.append(gather_rows(b, places, positions))
    if kinds is not None and segments is not None:
        leaves.append(gather_rows(b, kinds, segments))
    kept = None if total is None else b.output(total)
    _finish(b, node, leaves, [b.read(v) for v in (gamma, beta) if v is not None], kept)
    if counts is not None:
        b.define(counts, _words(b, ids, mask))


def _quantized_supports(node: NodeView) -> str | None:
    for index, value in enumerate(node.inputs):
        kinds = {"int32"} if index in (0, 1, 7) else FLOAT32 if 8 <= index < 13 else {"uint8", "int8"}
        if reason := typed(value, kinds):
            return reason
        if value is not None and index < 8 and rank(value) != (1 if index in (5, 6) else 2):
            return "the rank of an operand is not what the operator takes"
        if index >= 8 and (reason := single(value)):
            return reason
    y, counts = [*node.outputs, None][:2]
    return typed(y, FLOAT32) or typed(counts, {"int32"})


@lowering("QEmbedLayerNormalization", supports=_quantized_supports, domain="com.microsoft")
def quantized_embed_layer_normalization(b: Lowering, node: NodeView) -> None:
    """EmbedLayerNormalization of tables of bytes, of which the rows that are wanted are turned into floats."""
    ids, segments, words, places, kinds, gamma, beta, mask = node.inputs[:8]
    y, counts = [*node.outputs, None][:2]
    assert ids is not None and words is not None and places is not None and y is not None
    _check(b, ids, (segments, mask), (words, places, kinds, gamma, beta))
    held: list[Tensor | None] = [gather_rows(b, words, ids), part(b.read(places), 0, 0, b.shape(y)[1])]
    held.append(gather_rows(b, kinds, segments) if kinds is not None and segments is not None else None)
    held += [b.read(v) if v is not None else None for v in (gamma, beta)]
    floats = []
    for number, tensor in enumerate(held):
        scale, zero = node.inputs[8 + number], node.inputs[13 + number]
        if tensor is None:
            continue
        require(None if scale is not None and zero is not None else "a table has no scale or no zero point")
        assert scale is not None and zero is not None
        build, made = ex.Build(), b.scratch(tensor.shape)
        off = build("sub", build("to_float32", build("leaf", 0)), build("to_float32", build("leaf", 1)))
        operands = [tensor, *(b.read(v).viewed((), ()) for v in (zero, scale))]
        write_map(b.program, b.target, build.finish(build("mul", off, build("leaf", 2))), operands, made)
        floats.append(made)
    rows = 2 if held[2] is None else 3
    _finish(b, node, floats[:rows], floats[rows:], None)
    if counts is not None:
        b.define(counts, _words(b, ids, mask))


def _check(b: Lowering, ids: ValueView, numbers: Sequence[ValueView | None], rows: Sequence[ValueView | None]) -> None:
    """Unsupported for numbers that are not one for each word, and for rows that are not as long as each other."""
    strange = [v.name for v in numbers if v is not None and b.shape(v) != b.shape(ids)]
    strange += [
        v.name for v in rows if v is not None and rows[0] is not None and b.shape(v)[-1] != b.shape(rows[0])[-1]
    ]
    require(f"{', '.join(strange)} do not fit the other operands" if strange else None)


def _finish(b: Lowering, node: NodeView, leaves: list[Tensor], affine: list[Tensor], kept: Tensor | None) -> None:
    """The node's first output, of the embeddings that are summed; ``kept`` becomes the sum."""
    y = node.outputs[0]
    assert y is not None
    expr: ex.Expr = (("leaf", 0), ("leaf", 1), ("add", 0, 1))
    if len(leaves) == 3:
        expr = (*expr, ("leaf", 2), ("add", 2, 3))
    epsilon = attributes(node, epsilon=1e-12)["epsilon"]
    b.pend(y, normalized(b, b.shape(y), (2,), (expr, leaves, (0, 1, 2)), affine, epsilon, kept=kept))
    if kept is not None:
        b.read(y)


def _words(b: Lowering, ids: ValueView, mask: ValueView | None) -> Tensor:
    """How many entries of each row of the mask are 1; none without one."""
    batch, length = b.shape(ids)
    if mask is None or not length:
        return b.write(Pending((batch,), (("int32", 0),), [], element="int32"))
    build = ex.Build()
    element = b.element(mask)
    one = build("equal", build("leaf", 0), build(element, 1))
    expr = build.finish(build("where", one, build("int32", 1), build("int32", 0)))
    tensor = reduced(b, "add", expr, [b.read(mask)], (batch, length), (1,), "int32")
    view = tensor.reshaped((batch,))
    assert view is not None, "a dimension of size 1 is no obstacle"
    return view
