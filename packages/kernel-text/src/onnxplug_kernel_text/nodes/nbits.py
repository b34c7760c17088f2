"""Products with weights of a few bits, and rows of such, as launches."""

from __future__ import annotations

import math
from dataclasses import dataclass

from onnxplug_kernel_text.nbits import EDGE, FEW, GROUP, SIDE, Form, rows, rows_by_column, tiles
from onnxplug_kernel_text.nodes.call import NodeCall, Ref
from onnxplug_kernel_text.nodes.indexing import launched
from onnxplug_kernel_text.nodes.launch import Job, Launch, integers, text_type

_FLOATS = ("f32", "f16", "bf16")


@dataclass(frozen=True)
class FewBits:
    """A MatMulNBits: the text's form, operands and result, extents."""

    form: Form
    tensors: tuple[Ref, ...]
    rows: int
    columns: int
    depth: int
    block: int

    @property
    def blocks(self) -> int:
        return -(-self.depth // self.block)


def few_bits(call: NodeCall) -> FewBits | None:
    """MatMulNBits of domain com.microsoft, but with weights whose blocks are no runs of rows."""
    a, attributes = call.input(0), call.attributes
    depth, columns, block, bits = (
        attributes.get(n, d) for n, d in (("K", 0), ("N", 0), ("block_size", 0), ("bits", 4))
    )
    type_, scale, zeros, bias = text_type(a.dtype), call.input(2), call.given(3), call.given(5)
    if call.given(4) is not None or attributes.get("weight_prepacked", 0) or bits not in (2, 4, 8) or block % 8:
        return None
    zero_type = None if zeros is None else text_type(zeros.dtype)
    if type_ not in _FLOATS or text_type(scale.dtype) not in _FLOATS or zero_type not in (None, "u8", *_FLOATS):
        return None
    if (bias is not None and bias.dtype != a.dtype) or call.output().dtype != a.dtype:
        return None
    if min(depth, columns, block) < 1 or a.shape[-1:] != (depth,):
        return None
    each = -(-depth // block)
    points = columns * (-(-each * bits // 8) if zero_type == "u8" else each)
    sizes = math.prod(call.input(1).shape), math.prod(scale.shape)
    if sizes != (columns * each * block * bits // 8, columns * each):
        return None
    if (zeros is not None and math.prod(zeros.shape) != points) or (bias is not None and bias.shape != (columns,)):
        return None
    form = Form(type_, text_type(scale.dtype), zero_type, bits, bias is not None)
    tensors = (*(call.read(n) for n in (0, 1, 2, 3, 5) if call.given(n) is not None), call.write())
    return FewBits(form, tensors, math.prod(a.shape[:-1]), columns, depth, block)


def matmul_nbits(call: NodeCall) -> Job | None:
    """The launches of ``few_bits`` by groups that share columns or tiles."""
    made = few_bits(call)
    if made is None:
        return None
    scalars = integers(made.rows, made.columns, made.depth, made.blocks, made.block)
    if made.rows <= 2 * FEW:
        grid, group, text = made.columns * -(-made.rows // FEW), GROUP, rows_by_column(call.op_type, made.form)
    else:
        grid, group = -(-made.columns // EDGE) * -(-made.rows // EDGE), SIDE**2
        text = tiles(call.op_type, made.form)
    return Job([Launch(text, call.op_type, made.tensors, scalars, grid, group)])


def gather_blocks(call: NodeCall, block: int) -> Job | None:
    """GatherBlockQuantized of domain com.microsoft: rows of a matrix of bytes, quantized along them; ``block``: work-items of a group. None
    for operands that do not fit."""
    table, places, scales = call.input(0), call.input(1), call.input(2)
    zeros, bits = call.given(3), call.attributes.get("bits", 4)
    rows_, width = table.shape
    blocks = -(-(width * 8 // bits) // call.attributes.get("block_size", 128))
    if scales.shape != (rows_, blocks) or call.output().shape != (*places.shape, width * 8 // bits):
        return None
    if zeros is not None and zeros.shape != (rows_, -(-blocks * bits // 8)):
        return None
    text = rows(call.op_type, text_type(places.dtype), text_type(scales.dtype), bits, zeros is not None)
    refs = [*(call.read(n) for n in range(3 if zeros is None else 4)), call.write()]
    scalars = (call.output().shape[-1], table.shape[0], scales.shape[1], call.attributes.get("block_size", 128))
    return Job(launched(call.op_type, text, refs, block, math.prod(call.output().shape), *scalars))
