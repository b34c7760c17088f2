"""Attention of com.microsoft's that no other runtime computes on a processor as the kit asks for it, in ONNX's own operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from onnx import NodeProto

Attributes = Mapping[str, Any]
Shapes = list[list[int]]
"""Of the inputs that are given."""
Write = Callable[[NodeProto, Attributes, Shapes], str | None]
"""None: the node is not one of those the text is for."""


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
    """DecoderMaskedMultiHeadAttention on the projections."""
    x, w, b, mask, past, added, length, beams, places = [*node.input, "", ""][:9]
    said = told(given)
    behind = ", ".join(name or '""' for name in (mask, added, "keys", "values", length, beams, places))
    return f"""
        number0 = Constant <value_int = 0> ()
        number1 = Constant <value_int = 1> ()
        none = Constant <value_ints = [0]> ()
        product = MatMul ({x}, {w})
        sum = Add (product, {b})
        q, k, v = Split <axis = 2, num_outputs = 3> (sum)
        keys = Gather <axis = 0> ({past}, number0)
        values = Gather <axis = 0> ({past}, number1)
        {node.output[0]}, kept0, kept1 = com.microsoft.DecoderMaskedMultiHeadAttention <{said}> (q, k, v, {behind})
        whole0 = Unsqueeze (kept0, none)
        whole1 = Unsqueeze (kept1, none)
        {node.output[1]} = Concat <axis = 0> (whole0, whole1)
    """


def _sparse_attention(node: NodeProto, given: Attributes, shapes: Shapes) -> str:
    """Where all sequences have as many cached keys; behind the last key presents are zero."""
    heads, shared, past = given["num_heads"], given["kv_num_heads"], 3 if node.input[1] else 1
    (batch, length, _), (_, _, room, size) = shapes[0], shapes[past]
    width, turned = heads * size, ", ".join(node.input[9:])
    together = f"""
        widths = Constant <value_ints = [{width}, {shared * size}, {shared * size}]> ()
        q_part, k_part, v_part = Split <axis = 2> ({node.input[0]}, widths)
    """
    sources = node.input[:3] if node.input[1] else ("q_part", "k_part", "v_part")
    made = "".join(
        f"""
        {name}_split = Reshape ({source}, {"many" if name == "q" else "few"})
        {name}_heads = Transpose <perm = [0, 2, 1, 3]> ({name}_split)
        """
        for name, source in zip("qkv", sources, strict=True)
    )
    rotary = "".join(
        f"{name} = com.microsoft.RotaryEmbedding <interleaved = {given.get('rotary_interleaved', 0)}> ({name}_heads, start, {turned})\n"
        if given.get("do_rotary")
        else f"{name} = Identity ({name}_heads)\n"
        for name in "qk"
    )
    wide = "".join(
        f"""
        {name}_before = Slice ({held}, none, start, second)
        {name}_known = Concat <axis = 2> ({name}_before, {name})
        {present} = Concat <axis = 2> ({name}_known, empty)
        {name}_apart = Unsqueeze ({name}_known, second)
        {name}_wide = Expand ({name}_apart, groups)
        {name}_all = Reshape ({name}_wide, every)
        """
        for name, held, present in zip("kv", node.input[3:5], node.output[1:], strict=True)
    )
    return f"""
        none = Constant <value_ints = [0]> ()
        single = Constant <value_ints = [1]> ()
        second = Constant <value_ints = [2]> ()
        length = Constant <value_ints = [{length}]> ()
        told = Cast <to = 7> ({node.input[7]})
        total = Reshape (told, single)
        start = Sub (total, length)
        many = Constant <value_ints = [{batch}, {length}, {heads}, {size}]> ()
        few = Constant <value_ints = [{batch}, {length}, {shared}, {size}]> ()
        flat = Constant <value_ints = [{batch}, {length}, {width}]> ()
        narrow = Constant <value_ints = [{batch}, {shared}]> ()
        broad = Constant <value_ints = [{batch}, {heads}]> ()
        each = Constant <value_ints = [{batch}, {shared}, {heads // shared}]> ()
        room = Constant <value_ints = [{room}]> ()
        size = Constant <value_ints = [{size}]> ()
        left = Sub (room, total)
        behind = Concat <axis = 0> (narrow, left, size)
        nothing = ConstantOfShape (behind)
        empty = CastLike (nothing, {node.input[0]})
        groups = Concat <axis = 0> (each, total, size)
        every = Concat <axis = 0> (broad, total, size)
        {"" if node.input[1] else together}{made}{rotary}
        v = Identity (v_heads)
        {wide}
        turned = Transpose <perm = [0, 1, 3, 2]> (k_all)
        raw = MatMul (q, turned)
        factor = Constant <value_float = {given.get("scale") or 1 / math.sqrt(size)!r}> ()
        scale = CastLike (factor, raw)
        scores = Mul (raw, scale)
        {_blocks(node, given, length, shapes[past + 2], shapes[past + 3])}
        bias = CastLike (unseen, raw)
        masked = Add (scores, bias)
        weights = Softmax <axis = -1> (masked)
        read = MatMul (weights, v_all)
        together = Transpose <perm = [0, 2, 1, 3]> (read)
        {node.output[0]} = Reshape (together, flat)
    """


def _blocks(node: NodeProto, given: Attributes, length: int, rows: list[int], columns: list[int]) -> str:
    """``unseen``, what is added to scores: the blocks that layouts name, which heads take in turns, and no key behind a query's."""
    (layouts, ends), spots = rows, columns[1]
    return f"""
        zero = Constant <value_int = 0> ()
        one = Constant <value_int = 1> ()
        side = Constant <value_int = {given["sparse_block_size"]}> ()
        total0 = Squeeze (total)
        start0 = Squeeze (start)
        length0 = Squeeze (length)
        keys = Range (zero, total0, one)
        steps = Range (zero, length0, one)
        places = Add (steps, start0)
        key_block = Div (keys, side)
        query_block = Div (places, side)
        rows = Cast <to = 7> ({node.input[5]})
        columns = Cast <to = 7> ({node.input[6]})
        limit = Constant <value_ints = [{ends}]> ()
        ends = Slice (rows, single, limit, single)
        ends_wide = Unsqueeze (ends, second)
        count = Constant <value_int = {spots}> ()
        spots = Range (zero, count, one)
        passed = LessOrEqual (ends_wide, spots)
        counted = Cast <to = 7> (passed)
        row_of = ReduceSum <keepdims = 0> (counted, single)
        depth = Constant <value_int = {ends - 1}> ()
        pair = Constant <value_floats = [0.0, 1.0]> ()
        row_hot = OneHot <axis = -1> (row_of, depth, pair)
        column_hot = OneHot <axis = -1> (columns, depth, pair)
        row_turned = Transpose <perm = [0, 2, 1]> (row_hot)
        named = MatMul (row_turned, column_hot)
        turns = Constant <value_ints = [{given["num_heads"] // layouts}, 1, 1]> ()
        of_heads = Tile (named, turns)
        by_query = Gather <axis = 1> (of_heads, query_block)
        by_key = Gather <axis = 2> (by_query, key_block)
        nought = Constant <value_float = 0.0> ()
        named_block = Greater (by_key, nought)
        places_wide = Unsqueeze (places, single)
        before = LessOrEqual (keys, places_wide)
        seen = And (named_block, before)
        hidden = Constant <value_float = -10000.0> ()
        unseen = Where (seen, nought, hidden)
    """


def _multi_head(node: NodeProto, given: Attributes, shapes: Shapes) -> str | None:
    """Where queries, keys and values, or keys and values, are one operand."""
    read = [*node.input, "", ""]
    (query, key, value), others = read[:3], read[3:]
    if key and value:
        return None
    packed, count = (key, 2) if key else (query, 3)
    batch, length, heads, _, size = shapes[1 if key else 0]
    names = ", ".join("qkv"[-count:])
    parts = "".join(f"flat_{name} = Reshape ({name}, flat)\n" for name in "qkv"[-count:])
    first = query if key else "flat_q"
    behind = "".join(f", {name}" if name else ', ""' for name in others[:-2])
    return f"""
        flat = Constant <value_ints = [{batch}, {length}, {heads * size}]> ()
        {names} = Split <axis = 3, num_outputs = {count}> ({packed})
        {parts}
        {", ".join(node.output)} = com.microsoft.MultiHeadAttention <{told(given)}> ({first}, flat_k, flat_v{behind})
    """


def _group_query(node: NodeProto, given: Attributes, shapes: Shapes) -> str | None:
    """Where queries and keys are normed, each head by itself."""
    if len(node.input) < 16 or not node.input[1]:
        return None
    (batch, length, width), (_, _, narrow) = shapes[:2]
    common, size = given.get("qk_norm_epsilon", 1e-6), width // given["num_heads"]
    parts = "".join(
        f"""
        flat_{name} = Constant <value_ints = [{batch}, {length}, {wide}]> ()
        split_{name} = Reshape ({source}, apart)
        made_{name} = SimplifiedLayerNormalization <epsilon = {epsilon!r}, axis = -1> (split_{name}, {weight})
        normed_{name} = Reshape (made_{name}, flat_{name})
        """
        for name, source, weight, wide, epsilon in (
            ("q", node.input[0], node.input[14], width, given.get("q_norm_epsilon", common)),
            ("k", node.input[1], node.input[15], narrow, given.get("k_norm_epsilon", common)),
        )
    )
    said = told({name: value for name, value in given.items() if not name.endswith("norm_epsilon")})
    behind = ", ".join(name or '""' for name in node.input[2:14])
    return f"""
        apart = Constant <value_ints = [{batch}, {length}, -1, {size}]> ()
        {parts}
        {", ".join(node.output)} = com.microsoft.GroupQueryAttention <{said}> (normed_q, normed_k, {behind})
    """


def told(given: Attributes) -> str:
    """Attributes as a text has them."""
    return ", ".join(f'{name} = "{v}"' if isinstance(v, str) else f"{name} = {v}" for name, v in given.items())


ATTENTION: Mapping[str, Write] = {
    "DecoderMaskedSelfAttention": _decoder_self_attention,
    "GemmaRotaryEmbedding": _gemma_rotary,
    "GroupQueryAttention": _group_query,
    "MultiHeadAttention": _multi_head,
    "SparseAttention": _sparse_attention,
}
