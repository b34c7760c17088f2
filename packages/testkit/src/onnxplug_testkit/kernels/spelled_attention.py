"""Attention of com.microsoft's that no other runtime computes on a processor as the kit asks for it, in ONNX's own operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from onnx import NodeProto

Attributes = Mapping[str, Any]
Shapes = list[list[int]]
"""Of the inputs that are given."""
Write = Callable[[NodeProto, Attributes, Shapes], str]


def _gemma_rotary(node: NodeProto, given: Attributes, shapes: Shapes) -> str:
    angles, *parts = node.input
    texts = [
        f"""
        a{place} = Mul ({x}, cos)
        b{place} = Mul ({turned}, sin)
        {made} = Add (a{place}, b{place})
        """
        for place, (x, turned, made) in enumerate(zip(parts[::2], parts[1::2], node.output, strict=True))
    ]
    return f"""
        behind = Constant <value_ints = [1]> ()
        wide = Unsqueeze ({angles}, behind)
        cosine = Cos (wide)
        sine = Sin (wide)
        cos = CastLike (cosine, {parts[0]})
        sin = CastLike (sine, {parts[0]})
        {"".join(texts)}
    """


def _decoder_self_attention(node: NodeProto, given: Attributes, shapes: Shapes) -> str:
    x, w, b, _, past, _, length = node.input
    heads = given["num_heads"]
    batch, _, _ = shapes[0]
    size = shapes[1][1] // 3 // heads
    parts = "".join(
        f"""
        keys{place} = Gather <axis = 0> ({past}, number{place})
        before{place} = Slice (keys{place}, none, filled, along)
        behind{place} = Slice (keys{place}, next, room, along)
        seen{place} = Concat <axis = 2> (before{place}, {part})
        kept{place} = Concat <axis = 2> (seen{place}, behind{place})
        whole{place} = Unsqueeze (kept{place}, none)
        """
        for place, part in enumerate(("kh", "vh"))
    )
    return f"""
        number0 = Constant <value_int = 0> ()
        number1 = Constant <value_int = 1> ()
        none = Constant <value_ints = [0]> ()
        one = Constant <value_ints = [1]> ()
        along = Constant <value_ints = [2]> ()
        room = Constant <value_ints = [{shapes[3][3]}]> ()
        filled = Cast <to = 7> ({length})
        next = Add (filled, one)
        split = Constant <value_ints = [{batch}, {heads}, 1, {size}]> ()
        flat = Constant <value_ints = [{batch}, 1, {heads * size}]> ()
        product = MatMul ({x}, {w})
        sum = Add (product, {b})
        q, k, v = Split <axis = 2, num_outputs = 3> (sum)
        qh = Reshape (q, split)
        kh = Reshape (k, split)
        vh = Reshape (v, split)
        {parts}
        turned = Transpose <perm = [0, 1, 3, 2]> (seen0)
        raw = MatMul (qh, turned)
        factor = Constant <value_float = {1 / math.sqrt(size)!r}> ()
        scale = CastLike (factor, raw)
        scores = Mul (raw, scale)
        weights = Softmax <axis = -1> (scores)
        read = MatMul (weights, seen1)
        {node.output[0]} = Reshape (read, flat)
        {node.output[1]} = Concat <axis = 0> (whole0, whole1)
    """


def _sparse_attention(node: NodeProto, given: Attributes, shapes: Shapes) -> str:
    """Where no key is cached and the layout leaves out no block before a query's, as in the kit's own structure."""
    heads, shared = given["num_heads"], given["kv_num_heads"]
    (batch, length, width), room = shapes[0], shapes[3][2]
    size = width // heads
    parts = "".join(
        f"""
        {name}_split = Reshape ({source}, {"many" if name == "q" else "few"})
        {name} = Transpose <perm = [0, 2, 1, 3]> ({name}_split)
        """
        for name, source in zip("qkv", node.input, strict=False)
    )
    wide = "".join(
        f"""
        {name}_apart = Unsqueeze ({name}, second)
        {name}_wide = Expand ({name}_apart, groups)
        {name}_all = Reshape ({name}_wide, every)
        {made} = Concat <axis = 2> ({name}, empty)
        """
        for name, made in zip("kv", node.output[1:], strict=True)
    )
    return f"""
        many = Constant <value_ints = [{batch}, {length}, {heads}, {size}]> ()
        few = Constant <value_ints = [{batch}, {length}, {shared}, {size}]> ()
        second = Constant <value_ints = [2]> ()
        groups = Constant <value_ints = [{batch}, {shared}, {heads // shared}, {length}, {size}]> ()
        every = Constant <value_ints = [{batch}, {heads}, {length}, {size}]> ()
        flat = Constant <value_ints = [{batch}, {length}, {width}]> ()
        behind = Constant <value_ints = [{batch}, {shared}, {room - length}, {size}]> ()
        nothing = ConstantOfShape (behind)
        empty = CastLike (nothing, {node.input[0]})
        {parts}
        {wide}
        turned = Transpose <perm = [0, 1, 3, 2]> (k_all)
        raw = MatMul (q, turned)
        factor = Constant <value_float = {1 / math.sqrt(size)!r}> ()
        scale = CastLike (factor, raw)
        scores = Mul (raw, scale)
        square = Constant <value_ints = [{length}, {length}]> ()
        none = ConstantOfShape (square)
        hidden = Constant <value_float = -10000.0> ()
        whole = Add (none, hidden)
        ahead = Constant <value_int = 1> ()
        future = Trilu <upper = 1> (whole, ahead)
        bias = CastLike (future, raw)
        masked = Add (scores, bias)
        weights = Softmax <axis = -1> (masked)
        read = MatMul (weights, v_all)
        together = Transpose <perm = [0, 2, 1, 3]> (read)
        {node.output[0]} = Reshape (together, flat)
    """


ATTENTION: Mapping[str, Write] = {
    "DecoderMaskedSelfAttention": _decoder_self_attention,
    "GemmaRotaryEmbedding": _gemma_rotary,
    "SparseAttention": _sparse_attention,
}
