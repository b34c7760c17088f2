"""One operator whose kernel is written out as text for OpenCL and CUDA, on operands of every legal layout: of com.microsoft, which the
operator tests do not draw, and those of ONNX that displace, fold and scatter."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from onnx import ModelProto, helper

from fuzz.program import Program, typed

T = TypeVar("T")
FEW = (1, 2, 3, 5)
MANY = (1, 2, 3, 4, 7, 8, 9, 16, 17, 31, 33, 65)


@dataclass
class Node:
    """An operator, its operands (None where one is left out), its attributes and the types of its outputs."""

    op_type: str
    operands: list[np.ndarray | None]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: tuple[str, ...] = ("",)
    """As the first operand is where empty."""
    domain: str = "com.microsoft"


class Choice:
    """What a seeded generator chooses."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.rng = np.random.default_rng(chance.getrandbits(32))
        self.halved = chance.random() < 0.25

    def of(self, values: Sequence[T]) -> T:
        """One of them."""
        return self.chance.choice(values)

    def maybe(self, share: float = 0.5) -> bool:
        """Yes, in so many cases."""
        return self.chance.random() < share

    def floats(self, *shape: int) -> np.ndarray:
        """Of the type of this node."""
        return self.rng.standard_normal(shape).astype(np.float16 if self.halved else np.float32)

    def integers(self, low: int, high: int, *shape: int, dtype: Any = np.int64) -> np.ndarray:
        """From ``low`` to below ``high``."""
        return np.asarray(self.rng.integers(low, high, shape)).astype(dtype)

    def bytes(self, *shape: int) -> np.ndarray:
        """Any bytes."""
        return self.integers(0, 256, *shape, dtype=np.uint8)


def _windows(c: Choice, rank: int) -> tuple[list[int], list[int], list[int], dict[str, Any]]:
    """Extents of an image, of a window, of its places, and the attributes; pads may be wider than the window."""
    while True:
        image, window = ([c.of(sizes) for _ in range(rank)] for sizes in ((1, 2, 3, 5, 8), (1, 2, 3)))
        strides, gaps = ([c.of((1, 1, 2, 5)) for _ in range(rank)] for _ in range(2))
        pads = [c.of((0, 0, 1, 4)) for _ in range(2 * rank)]
        sizes = zip(image, window, strides, gaps, pads[:rank], pads[rank:], strict=True)
        places = [(n + b + e - (k - 1) * g - 1) // s + 1 for n, k, s, g, b, e in sizes]
        if min(places) > 0 and math.prod(places) < 200:
            return image, window, places, {"strides": strides, "dilations": gaps, "pads": pads}


def _displaced(c: Choice) -> Node:
    image, window, places, given = _windows(c, 2)
    group, parts, own, count, batch = c.of((1, 2)), c.of((1, 2, 4)), c.of((2, 4)), c.of((1, 3)), c.of((1, 2, 0))
    channels = 2 * own
    offsets = 3 * c.floats(batch, parts * math.prod(window) * 2, *places)
    extremes = np.array([np.nan, np.inf, -np.inf, 6e4, -1.0, 1e30], np.float32)
    if offsets.size and c.maybe():
        offsets.flat[c.integers(0, offsets.size, 6)] = np.resize(extremes[: 5 if c.halved else 6], 6)
    operands = [
        c.floats(batch, channels, *image), c.floats(group * count, channels // group, *window), offsets,
        c.floats(group * count) if c.maybe() else None,
        c.floats(batch, parts * math.prod(window), *places) if c.maybe() else None,
    ]  # fmt: skip
    return Node("DeformConv", operands, {**given, "group": group, "offset_group": parts}, domain="")


def _folded(c: Choice) -> Node:
    image, window, places, given = _windows(c, c.of((1, 2, 2, 3)))
    x = c.floats(c.of((1, 2, 0)), c.of((1, 3)) * math.prod(window), math.prod(places))
    return Node("Col2Im", [x, np.array(image), np.array(window)], given, domain="")


def _regions(c: Choice) -> Node:
    batch, count = c.of((1, 2)), c.of((0, 1, 4))
    regions = np.concatenate([c.integers(0, batch, count, 1), 6 * c.floats(count, 4)], 1).astype(c.floats(0).dtype)
    shape = {"pooled_shape": [c.of(FEW), c.of(FEW)], "spatial_scale": c.of((1.0, 0.5, 3.0))}
    return Node("MaxRoiPool", [c.floats(batch, c.of((1, 3)), c.of(MANY), c.of(FEW)), regions], shape, domain="")


def _norms(c: Choice) -> Node:
    shape = [c.of(FEW) for _ in range(c.of((1, 2, 3)))]
    return Node("GlobalLpPool", [c.floats(c.of((1, 2, 0)), c.of(FEW), *shape)], {"p": c.of((1, 2, 2, 3))}, domain="")


def _cached(c: Choice) -> Node:
    cache = [c.of(FEW) for _ in range(c.of((2, 3, 4)))]
    axis = c.of(range(1, len(cache)))
    length, circular = c.of(range(cache[axis] + 1)), c.maybe()
    update = [length if n == axis else size for n, size in enumerate(cache)]
    starts = c.integers(*((0, 99) if circular else (0, cache[axis] - length + 1)), cache[0])
    given = {"axis": axis - c.of((0, len(cache))), "mode": "circular" if circular else "linear"}
    operands = [c.floats(*cache), c.floats(*update), starts if c.maybe(0.8) else None]
    return Node("TensorScatter", operands, given, domain="")


def _turned(c: Choice) -> Node:
    batch, rows, heads, half, three = c.of(FEW), c.of(MANY), c.of((1, 2, 3)), c.of((1, 2, 4, 8)), c.maybe()
    partly, lines = c.maybe(0.3), c.of((rows, rows + 9))
    size = 2 * half + (2 * c.of((1, 3)) if partly else 0)
    given: dict[str, Any] = {"interleaved": c.of((0, 1))}
    given |= (
        {"num_heads": heads, "rotary_embedding_dim": 2 * half}
        if partly
        else {"num_heads": heads if three else c.of((0, heads))}
    )
    x = c.floats(batch, rows, heads * size) if partly or c.maybe() else c.floats(batch, heads, rows, size)
    angles = [c.floats(lines, half), c.floats(lines, half)]
    if not three:
        places = c.integers(0, lines, batch, rows) if c.maybe() else c.integers(0, lines - rows + 1, 1)
        return Node("RotaryEmbedding", [x, places, *angles], given)
    height, width = c.of(range(half // 3 + 1)), c.of(range(half // 3 + 1))
    given |= {"mrope_section": [half - height - width, height, width], "mrope_layout": c.of((0, 1))}
    return Node("MRotaryEmbedding", [x, c.integers(0, lines, 3, batch, rows), *angles], given)


def _heads(c: Choice) -> Node:
    """MultiHeadAttention in each of its layouts."""
    batch, heads, size, rows, keys = c.of((1, 2, 3)), c.of((1, 2, 4)), c.of((4, 8, 16)), c.of(MANY), c.of(MANY)
    layout, past = c.of(("plain", "packed", "pairs", "heads")), c.of((0, 0, 3))
    past *= layout == "plain"
    wide = c.of((size, 12)) if layout in ("plain", "heads") and not past else size
    q, biased = c.floats(batch, rows, heads * size), layout == "plain" and c.maybe()
    k: np.ndarray | None
    v: np.ndarray | None
    if layout == "packed":
        q, k, v, keys = c.floats(batch, rows, heads, 3, size), None, None, rows
    elif layout == "pairs":
        k, v = c.floats(batch, keys, heads, 2, size), None
    elif layout == "heads":
        k, v = c.floats(batch, heads, keys, size), c.floats(batch, heads, keys, wide)
    else:
        k, v = c.floats(batch, keys, heads * size), c.floats(batch, keys, heads * wide)
    mask = np.ones((batch, past + keys), np.int32) if c.maybe(0.3) else None
    if mask is not None:
        mask[:, 1:] = c.integers(0, 2, batch, past + keys - 1, dtype=np.int32)
    scores = c.floats(c.of((1, batch)), c.of((1, heads)), rows, past + keys) if c.maybe(0.3) else None
    caches = [c.floats(batch, heads, past, n) if past else None for n in (size, wide)]
    bias = c.floats(heads * (2 * size + wide)) if biased else None
    outputs = ("",) * (3 if past or (layout == "plain" and c.maybe(0.3)) else 1)
    return Node("MultiHeadAttention", [q, k, v, bias, mask, scores, *caches], {"num_heads": heads}, outputs)


def _self_attention(c: Choice) -> Node:
    batch, heads, size, rows, past = c.of((1, 2, 3)), c.of((1, 2, 4)), c.of((4, 8)), c.of(MANY), c.of((0, 0, 5))
    wide = size if past else c.of((size, 12))
    width, sizes = c.of((5, 16, 33)), [heads * size, heads * size, heads * wide]
    given: dict[str, Any] = {"num_heads": heads, "unidirectional": c.of((0, 1))}
    given |= {"qkv_hidden_sizes": sizes} if wide != size or c.maybe(0.3) or width != heads * size else {}
    mask = c.of((None, np.ones((batch, past + rows), np.int32), np.full(batch, past + rows, np.int32)))
    cache = c.floats(2, batch, heads, past, size) if past else None
    bias = c.floats(sum(sizes))
    operands = [c.floats(batch, rows, width), c.floats(width, sum(sizes)), bias, mask, cache]
    return Node("Attention", operands, given, ("", "") if past else ("",))


def _grouped(c: Choice) -> Node:
    batch, shared, times, size, rows = (
        c.of((1, 2)),
        c.of((1, 2)),
        c.of((1, 2, 3)),
        c.of((16, 32)),
        c.of((1, 1, 3, 9, 17)),
    )
    past = c.of((0, 4, 9)) if rows == 1 or batch == 1 else 0
    heads, keys = shared * times, past + rows
    packed, turned = c.maybe(0.4), c.maybe()
    q, k, v = (c.floats(batch, rows, n * size) for n in (heads, shared, shared))
    parts: list[np.ndarray | None] = [np.concatenate([q, k, v], -1), None, None] if packed else [q, k, v]
    room = past + c.of((0, 0, rows))
    caches = [c.floats(batch, shared, room, size) for _ in range(2)] if past else [c.floats(batch, shared, 0, size)] * 2
    lasts = np.full(batch, keys - 1, np.int32)
    angles = [c.floats(keys + c.of((0, 7)), size // 2) for _ in range(1)] * 2 if turned else []
    given = {"num_heads": heads, "kv_num_heads": shared, "do_rotary": int(turned), "rotary_interleaved": c.of((0, 1))}
    given |= {"local_window_size": c.of((1, 4))} if c.maybe(0.3) else {}
    operands = [*parts, *caches, lasts, np.array([keys], np.int32), *angles]
    return Node("GroupQueryAttention", operands, given, ("", "", ""))


def _bits(c: Choice) -> Node:
    bits, depth, columns, block = c.of((2, 4, 4, 8)), c.of((16, 24, 32, 40, 128, 200)), c.of(MANY), c.of((16, 32, 128))
    each = -(-depth // block)
    packed, wide = c.bytes(columns, each, block * bits // 8), -(-each * bits // 8)
    shape = [(columns * each,), (columns, each)][c.maybe()]
    scales = np.abs(c.floats(*shape)) / 8
    zeros = c.of((None, c.bytes(columns * wide), c.bytes(columns, wide)))
    rows = [c.of(MANY), *[c.of(FEW)] * c.of((0, 1))][:: c.of((1, -1))]
    bias = c.floats(columns) if c.maybe(0.3) else None
    given = {"K": depth, "N": columns, "bits": bits, "block_size": block}
    return Node("MatMulNBits", [c.floats(*rows, depth), packed, scales, zeros, None, bias], given)


def _blocks(c: Choice) -> Node:
    bits, rows, block = c.of((4, 8)), c.of(MANY), c.of((16, 32, 64))
    width = c.of((16, 32, 48, 80))
    each = -(-width // block)
    places = c.integers(-rows, rows, *[c.of(FEW)] * c.of((0, 1, 2)), dtype=c.of((np.int32, np.int64)))
    zeros = c.bytes(rows, -(-each * bits // 8)) if c.maybe() else None
    scales = c.floats(rows, each)
    given = {"bits": bits, "block_size": block, "quantize_axis": 1, "gather_axis": 0}
    operands = [c.bytes(rows, width * bits // 8), places, scales, zeros]
    return Node("GatherBlockQuantized", operands, given, (typed(scales),))


def _experts(c: Choice) -> Node:
    """QMoE of packed weights, whose blocks and depths vectors divide and do not."""
    bits, count, rows = c.of((2, 4, 8)), c.of((2, 3, 5)), c.of(MANY)
    depth, inner, block = c.of((16, 32, 48, 64)), c.of((16, 32, 48, 80)), c.of((0, 16, 32))
    name = c.of(("relu", "gelu", "silu", "identity", "swiglu"))
    fused = 2 if name == "swiglu" else 1

    def layer(columns: int, deep: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        each = -(-deep // block) if block else 1
        zero = (count, columns, -(-each * bits // 8)) if block else (count, -(-columns * bits // 8))
        scale = (count, columns, each) if block else (count, columns)
        scales = (np.abs(c.floats(*scale)) / 8 + 0.01).astype(c.floats(0).dtype)
        return c.bytes(count, columns, deep * bits // 8), scales, c.floats(count, columns), c.bytes(*zero)

    if block and (depth % block or inner % block):
        block = 16
    one, two = layer(fused * inner, depth), layer(depth, inner)
    zeros = c.maybe()
    given: dict[str, Any] = {"k": c.of((1, 2)), "expert_weight_bits": bits, "activation_type": name}
    given |= {"normalize_routing_weights": c.of((0, 1))}
    given |= {"block_size": block} if block else {}
    given |= {"swiglu_fusion": 1, "activation_alpha": 1.5, "activation_beta": 1.0} if fused == 2 else {}
    x = c.floats(*c.of(((rows, depth), (1, rows, depth))))
    operands = [x, c.floats(rows, count), one[0], one[1], one[2] if c.maybe() else None, two[0], two[1]]
    operands += [two[2] if c.maybe() else None, None, None, None, *((one[3], two[3]) if zeros else ())]
    return Node("QMoE", operands, given)


def _joined(c: Choice) -> Node:
    shape, axis = [c.of(FEW) for _ in range(c.of((1, 2, 3)))], 0
    axis = c.of(range(len(shape)))
    parts: list[np.ndarray | None] = [np.array(0.5, np.float32), np.array(9, np.uint8)]
    for _ in range(c.of((1, 2, 3))):
        own = [c.of((0, 1, 4)) if n == axis else size for n, size in enumerate(shape)]
        parts += [c.bytes(*own), np.array(c.of((0.25, 0.5, 1.0)), np.float32), np.array(c.of((0, 100)), np.uint8)]
    return Node("QLinearConcat", parts, {"axis": axis - c.of((0, len(shape)))}, ("tensor(uint8)",))


def _fused(c: Choice) -> Node:
    image, window, places, given = _windows(c, 2)
    batch, channels, out = c.of((1, 2)), c.of((1, 4)), c.of((1, 3, 8))
    added = c.floats(batch, out, *places) if c.maybe() else None
    operands = [c.floats(batch, channels, *image), c.floats(out, channels, *window), c.floats(out), added]
    return Node("FusedConv", operands, {**given, "activation": c.of(("Relu", "Tanh", "Sigmoid"))})


def _embedded(c: Choice) -> Node:
    batch, rows, width, words = c.of((1, 2)), c.of(MANY), c.of((4, 17, 64)), 20
    second = c.maybe()
    ids = c.integers(0, words, batch, rows, dtype=np.int32)
    operands = [
        ids, c.integers(0, 2, batch, rows, dtype=np.int32) if second else None, c.floats(words, width),
        c.floats(rows + c.of((0, 3)), width), c.floats(2, width) if second else None, c.floats(width), c.floats(width),
        np.ones((batch, rows), np.int32) if c.maybe() else None,
    ]  # fmt: skip
    return Node("EmbedLayerNormalization", operands, {}, (typed(operands[2]), "tensor(int32)"))


NODES: tuple[Callable[[Choice], Node], ...] = (
    _displaced, _folded, _regions, _norms, _cached, _turned, _heads, _self_attention, _grouped, _bits, _blocks, _experts, _joined, _fused,
    _embedded,
)  # fmt: skip


def written(chance: random.Random) -> tuple[Program, list[str]]:
    """A program of one operator, and its outputs."""
    node = chance.choice(NODES)(Choice(chance))
    program = Program(24 if node.op_type == "TensorScatter" else 21)
    constants = {"Col2Im": (1, 2), "GroupQueryAttention": (6,)}.get(node.op_type, ())
    names = [
        "" if value is None else program.give(value, fixed=n in constants or chance.random() < 0.2)
        for n, value in enumerate(node.operands)
    ]
    while names and not names[-1]:
        names.pop()
    made = [f"y{n}" for n in range(len(node.outputs))]
    for name, text in zip(made, node.outputs, strict=True):
        program.values[name], program.types[name] = None, text or typed(node.operands[0])
    program.nodes.append(helper.make_node(node.op_type, names, made, domain=node.domain, **node.attributes))
    return program, made


def misfit(chance: random.Random) -> tuple[str, ModelProto, list[dict[str, Any]]]:
    """What of an operator another extent was given, the model, all of whose extents are open, and what to feed it."""
    program, outputs = written(chance)
    (node,) = program.nodes
    name = chance.choice([name for name in (*program.inputs, *program.constants) if program.values[name].ndim])
    value = program.values[name]
    axis = chance.randrange(value.ndim)
    size = value.shape[axis]
    count = chance.choice([n for n in (size - 1, size + 1, 2 * size + 3, 1, 0) if n != size and n >= 0])
    shape = (*value.shape[:axis], count, *value.shape[axis + 1 :])
    program.values[name] = np.resize(value, shape) if value.size else np.zeros(shape, value.dtype)
    what = f"{node.op_type}'s operand {list(node.input).index(name)} is {shape}, not {value.shape}"
    return what, program.model(outputs, "rank"), [program.feeds()]
