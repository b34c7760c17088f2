"""What com.microsoft's operators that no other runtime computes on a processor stand for, in ONNX's own operators and its text."""

from __future__ import annotations

import math
from collections.abc import Mapping

import onnx.parser
from onnx import NodeProto

from onnxplug_testkit.kernels.spelled_attention import ATTENTION, Attributes, Shapes, Write, told

VERSION = 21
"""Of ai.onnx in all of these texts."""
_WORDS = """
    whole = Constant <value_ints = [-1]> ()
    all_places = Reshape ({offset}, whole)
    zero = Constant <value_ints = [0]> ()
    count = Constant <value_ints = [{count}]> ()
    first = Slice (all_places, zero, count)
    last_axis = Constant <value_ints = [-1]> ()
    column = Unsqueeze (first, last_axis)
    places = Cast <to = 7> (column)
    room = Constant <value_ints = [{rows}, {width}]> ()
    nothing = ConstantOfShape (room)
    typed = CastLike (nothing, {x})
    laid = ScatterND (typed, places, {x})
    shape = Constant <value_ints = [{batch}, {length}, {width}]> ()
    restored = Reshape (laid, shape)
"""


def spelled(node: NodeProto, given: Attributes, shapes: Shapes) -> list[NodeProto] | None:
    """The nodes, from the same inputs to the same outputs; None for other operators."""
    write = _TEXTS.get(node.op_type)
    if write is None:
        return None
    inputs, outputs = (", ".join(f"float {name}" for name in names if name) for names in (node.input, node.output))
    text = write(node, given, shapes)
    if text is None:
        return None
    found: list[NodeProto] = list(onnx.parser.parse_graph(f"g ({inputs}) => ({outputs}) {{{text}}}").node)
    return found


def _group_norm(node: NodeProto, given: Attributes, shapes: Shapes) -> str:
    x, gamma, beta = node.input[:3]
    added, total = "", x
    if node.op_type == "SkipGroupNorm":
        around = "1, 2" if given.get("channels_last", 1) else "2, 3"
        behind = "0" if given.get("channels_last", 1) else "1, 2"
        total = node.output[1]
        bias = f"{total} = Identity (once)"
        if len(node.input) > 4:
            turned = f"Unsqueeze ({node.input[4]}, behind)" if behind != "0" else f"Identity ({node.input[4]})"
            bias = f"bias = {turned} {total} = Add (once, bias)"
        added = f"""
            around = Constant <value_ints = [{around}]> ()
            behind = Constant <value_ints = [{behind}]> ()
            skip = Unsqueeze ({node.input[3]}, around)
            once = Add ({x}, skip)
            {bias}
        """
    turn, back = ("0, 3, 1, 2", "0, 2, 3, 1") if given.get("channels_last", 1) else ("0, 1, 2, 3",) * 2
    epsilon = float(given.get("epsilon", 1e-5))
    gate = (
        "gate = Sigmoid (normed) active = Mul (normed, gate)" if given["activation"] else "active = Identity (normed)"
    )
    return f"""{added}
        turned = Transpose <perm = [{turn}]> ({total})
        scale = CastLike ({gamma}, turned)
        shift = CastLike ({beta}, turned)
        normed = GroupNormalization <num_groups = {given["groups"]}, epsilon = {epsilon!r}> (turned, scale, shift)
        {gate}
        {node.output[0]} = Transpose <perm = [{back}]> (active)
    """


def _gemm_fast_gelu(node: NodeProto, given: Attributes, shapes: Shapes) -> str:
    x, w, *bias = node.input
    return f"""
        product = MatMul ({x}, {w})
        sum = {f"Add (product, {bias[0]})" if bias else "Identity (product)"}
        {node.output[0]} = Gelu <approximate = "tanh"> (sum)
    """


def _nhwc_conv(node: NodeProto, given: Attributes, shapes: Shapes) -> str:
    return f"""
        image = Transpose <perm = [0, 3, 1, 2]> ({node.input[0]})
        filter = Transpose <perm = [0, 3, 1, 2]> ({node.input[1]})
        made = Conv <{told(given)}> (image, {", ".join(("filter", *node.input[2:]))})
        {node.output[0]} = Transpose <perm = [0, 2, 3, 1]> (made)
    """


def _restore_padding(node: NodeProto, given: Attributes, shapes: Shapes) -> str:
    (count, width), (batch, length) = shapes
    x, offset = node.input
    words = _WORDS.format(x=x, offset=offset, count=count, rows=batch * length, width=width, batch=batch, length=length)
    return f"{words} {node.output[0]} = Identity (restored)"


def _remove_padding(node: NodeProto, given: Attributes, shapes: Shapes) -> str:
    batch, length, width = shapes[0]
    x, counts = node.input
    words, order, ends, longest = node.output
    return f"""
        flat = Constant <value_ints = [-1]> ()
        rows = Constant <value_ints = [-1, {width}]> ()
        table = Constant <value_ints = [{batch}, {length}]> ()
        one = Constant <value_ints = [1]> ()
        zero = Constant <value_ints = [0]> ()
        start = Constant <value_int = 0> ()
        end = Constant <value_int = {length}> ()
        step = Constant <value_int = 1> ()
        range = Range (start, end, step)
        each = Cast <to = 7> ({counts})
        rows_of = Constant <value_ints = [-1, 1]> ()
        limits = Reshape (each, rows_of)
        inside = Less (range, limits)
        is_word = Reshape (inside, flat)
        is_padding = Not (is_word)
        vectors = Reshape ({x}, rows)
        {words} = Compress <axis = 0> (vectors, is_word)
        of_words = NonZero (is_word)
        of_padding = NonZero (is_padding)
        both = Concat <axis = 1> (of_words, of_padding)
        laid = Reshape (both, table)
        {order} = Cast <to = 6> (laid)
        sums = CumSum (each, start)
        bounds = Concat <axis = 0> (zero, sums)
        {ends} = Cast <to = 6> (bounds)
        most = ReduceMax <keepdims = 1> (each)
        {longest} = Cast <to = 6> (most)
    """


def _relative_position_bias(node: NodeProto, given: Attributes, shapes: Shapes) -> str:
    buckets, heads = shapes[0]
    table, queries, keys = node.input
    both = bool(given.get("is_bidirectional", 0))
    half = buckets // 2 if both else buckets
    exact = half // 2
    scale = (half - exact) / math.log(given["max_distance"] / exact)
    turned = (
        "ahead = Less (signed, none) first = Where (ahead, half, none) distance = Abs (signed)"
        if both
        else "first = Identity (none) distance = Max (signed, none)"
    )
    return f"""
        none = Constant <value_int = 0> ()
        one = Constant <value_int = 1> ()
        half = Constant <value_int = {half}> ()
        last = Constant <value_int = {half - 1}> ()
        exact = Constant <value_int = {exact}> ()
        steps = Constant <value_float = {float(exact)}> ()
        scale = Constant <value_float = {scale!r}> ()
        front = Constant <value_ints = [0]> ()
        behind = Constant <value_ints = [1]> ()
        shape = Constant <value_ints = [{heads}, {buckets}]> ()
        rows = Reshape ({table}, shape)
        query = Squeeze ({queries})
        key = Squeeze ({keys})
        down = Range (none, query, one)
        across = Range (none, key, one)
        column = Unsqueeze (down, behind)
        signed = Sub (column, across)
        {turned}
        at_least = Max (distance, one)
        number = Cast <to = 1> (at_least)
        ratio = Div (number, steps)
        grown = Log (ratio)
        beyond = Mul (grown, scale)
        cut = Cast <to = 7> (beyond)
        further = Add (exact, cut)
        ranged = Min (further, last)
        near = Less (distance, exact)
        place = Where (near, distance, ranged)
        bucket = Add (first, place)
        taken = Gather <axis = 1> (rows, bucket)
        {node.output[0]} = Unsqueeze (taken, front)
    """


def _gated_relative_position_bias(node: NodeProto, given: Attributes, shapes: Shapes) -> str:
    query, query_bias, positions, weight, bias, eco = node.input[:6]
    heads = given["num_heads"]
    words, biased = f"biased = Add ({query}, {query_bias})", "biased"
    if len(node.input) > 6:
        (count, width), (batch, length) = shapes[0], shapes[6]
        sizes = {"count": count, "rows": batch * length, "width": width, "batch": batch, "length": length}
        words, biased = words + _WORDS.format(x="biased", offset=node.input[6], **sizes), "restored"
    else:
        batch, length, width = shapes[0]
    halves = shapes[3][1] // 2
    return f"""{words}
        split = Constant <value_ints = [{batch}, {length}, {heads}, {width // heads}]> ()
        parts = Reshape ({biased}, split)
        by_head = Transpose <perm = [0, 2, 1, 3]> (parts)
        product = MatMul (by_head, {weight})
        sum = Add (product, {bias})
        paired = Constant <value_ints = [{batch}, {heads}, {length}, 2, {halves}]> ()
        pairs = Reshape (sum, paired)
        behind = Constant <value_ints = [-1]> ()
        sums = ReduceSum <keepdims = 0> (pairs, behind)
        gates = Sigmoid (sums)
        left, right = Split <axis = -1, num_outputs = 2> (gates)
        scaled = Mul (right, {eco})
        one_ = Constant <value_float = 1.0> ()
        one = CastLike (one_, scaled)
        less = Sub (scaled, one)
        gated = Mul (left, less)
        two = Add (one, one)
        gate = Add (gated, two)
        {node.output[0]} = Mul (gate, {positions})
    """


def _nhwc_fused_conv(node: NodeProto, given: Attributes, shapes: Shapes) -> str:
    said = told({name: value for name, value in given.items() if not name.startswith("activation")})
    x, w, b, added = (*node.input, "", "")[:4]
    slope = f"<alpha = {given['activation_params'][0]!r}>" if "activation_params" in given else ""
    beside = f"beside = Transpose <perm = [0, 3, 1, 2]> ({added}) sum = Add (made, beside)"
    return f"""
        image = Transpose <perm = [0, 3, 1, 2]> ({x})
        made = Conv <{said}> (image, {", ".join(filter(None, (w, b)))})
        {beside if added else "sum = Identity (made)"}
        active = {given["activation"]} {slope} (sum)
        {node.output[0]} = Transpose <perm = [0, 2, 3, 1]> (active)
    """


def _complex_mul(node: NodeProto, given: Attributes, shapes: Shapes) -> str:
    first, second = ("Sub", "Add") if node.op_type == "ComplexMul" else ("Add", "Sub")
    return f"""
        a, b = Split <axis = -1, num_outputs = 2> ({node.input[0]})
        c, d = Split <axis = -1, num_outputs = 2> ({node.input[1]})
        ac = Mul (a, c)
        bd = Mul (b, d)
        bc = Mul (b, c)
        ad = Mul (a, d)
        real = {first} (ac, bd)
        imaginary = {second} (bc, ad)
        {node.output[0]} = Concat <axis = -1> (real, imaginary)
    """


_TEXTS: Mapping[str, Write] = {
    **ATTENTION,
    "ComplexMul": _complex_mul,
    "ComplexMulConj": _complex_mul,
    "GatedRelativePositionBias": _gated_relative_position_bias,
    "GemmFastGelu": _gemm_fast_gelu,
    "GroupNorm": _group_norm,
    "NhwcConv": _nhwc_conv,
    "NhwcFusedConv": _nhwc_fused_conv,
    "RelativePositionBias": _relative_position_bias,
    "RemovePadding": _remove_padding,
    "RestorePadding": _restore_padding,
    "SkipGroupNorm": _group_norm,
}
