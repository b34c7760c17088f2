"""Binding again for shapes that differ in some sizes: the tape that follows them, and that nothing shows in results."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from codegen_models import model, session
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from onnxplug.contract import TensorSpec
from onnxplug.contract.errors import InvalidArgument
from onnxplug_ep_cpu.codegen import families, region
from onnxplug_ep_cpu.codegen.families import FRUITLESS, TEMPLATES, Family
from onnxplug_ep_cpu.codegen.recipes import Recipe, decided, key_of, remembered
from onnxplug_ep_cpu.codegen.sizes import Size, Tape, computed, greatest, least, portion
from onnxplug_kernels.windows import Windows

SIZES = st.integers(0, 40)


# ---- the tape


def tiling(n: Any, m: Any) -> list[Any]:
    """What a lowering does with sizes: arithmetic, choices, tables."""
    block = max(1, min(n, 8))
    rows = sorted([n, m, 3 * n - m])
    blocks = -(-m // block) if m % 2 else m // block
    strides = tuple(math.prod((n, m, 4)[i:]) for i in range(3))
    table = len(range(n)) if n > 30 else 7
    return [block, blocks, *rows, *strides, table, *divmod(m, block), 0.5 * n + m / 2, n if n else m, np.int64(4) * m]


@given(SIZES, SIZES, SIZES, SIZES)
@examples(max_examples=200, deadline=None)
def test_a_tape_gives_what_plain_numbers_give_or_nothing(n: int, m: int, other_n: int, other_m: int) -> None:
    tape = Tape([n, m])
    made = tiling(*tape.sizes)
    assert [x.value if isinstance(x, Size) else x for x in made] == tiling(n, m)
    tape.close()
    values = tape.repeat([other_n, other_m])
    if values is not None:
        assert [values[x.position] if isinstance(x, Size) else x for x in made] == tiling(other_n, other_m)
    assert tape.repeat([n, m]) is not None


@pytest.mark.parametrize(
    "look",
    [
        lambda n: n == 5,
        lambda n: range(n),
        lambda n: {n: 0},
        lambda n: f"{n}",
        lambda n: [0] * n,
        lambda n: float(n),
        lambda n: np.zeros(n),
        lambda n: np.float32(3) * n,
        lambda n: n * np.ones(2),
    ],
)
def test_whoever_looks_at_a_size_ties_the_tape_to_it(look: Any) -> None:
    tape = Tape([5])
    look(tape.sizes[0])
    assert tape.repeat([5]) is not None and tape.repeat([6]) is None


def test_a_comparison_ties_the_tape_to_its_answer_only() -> None:
    tape = Tape([5])
    assert tape.sizes[0] < 8 and tape.sizes[0] != 1
    assert tape.repeat([7]) is not None and tape.repeat([8]) is None and tape.repeat([1]) is None


@given(SIZES, SIZES, SIZES)
@examples(max_examples=50, deadline=None)
def test_the_smaller_and_the_larger_number_tie_nothing(n: int, m: int, other: int) -> None:
    def made(n: int) -> list[int]:
        return [least(n, m), greatest(m, n), least(n, n + 1), portion(n, m), computed(pow, n, 2)]

    tape = Tape([n])
    found = made(tape.sizes[0])
    values = tape.repeat([other])
    assert values is not None
    assert [values[x.position] if isinstance(x, Size) else x for x in found] == made(other)


def test_where_the_arithmetic_fails_there_is_no_answer() -> None:
    tape = Tape([5])
    assert (12 // tape.sizes[0]).value == 2 and tape.repeat([0]) is None


def test_a_closed_tape_records_nothing() -> None:
    tape = Tape([5])
    tape.close()
    assert tape.sizes[0] + 1 == 6 and tape.sizes[0] < 9 and tape.repeat([99]) is not None


def test_sizes_of_another_tape_are_numbers() -> None:
    old, new = Tape([3]), Tape([5])
    old.close()
    total = new.sizes[0] + old.sizes[0]
    assert new.repeat([6])[total.position] == 9  # type: ignore[index]


def test_what_is_decided_by_sizes_serves_all_for_which_it_comes_out_so() -> None:
    half = remembered(lambda n: n // 2)
    tape = Tape([8, 3])
    n, _ = tape.sizes
    assert half(n) == 4 and not isinstance(half(n), Size) and isinstance(half(8), int)
    assert decided(lambda window, many: window.kernel[0] * many[0] > 16, window(n), (3, n))
    assert tape.repeat([9, 5]) is not None
    assert tape.repeat([10, 3]) is None
    assert tape.repeat([6, 3]) is None
    assert tape.serves_others


def window(n: Any) -> Windows:
    return Windows((n,), (1,), (1,), (0,), (0,), (0,), (n - 1,))


def test_recipes_make_anew_what_lies_in_records_after_the_tape_is_closed() -> None:
    tape = Tape([8])
    recipe = Recipe(
        lambda moves, more: (*moves.kernel, *moves.output, *more), (window(tape.sizes[0]), (1, tape.sizes[0]))
    )
    assert key_of(recipe.given) == key_of((window(tape.sizes[0]), (1, tape.sizes[0])))
    assert key_of(recipe.given) != key_of((window(8), (1, 8)))
    assert tape.repeat([9]) is not None
    tape.close()
    assert recipe.made() == (8, 7, 1, 8)
    assert recipe.made(tape.repeat([5])) == (5, 4, 1, 5)


# ---- families


def specs(**shapes: Sequence[int]) -> dict[str, TensorSpec]:
    return {name: TensorSpec(np.dtype(np.float32), tuple(shape)) for name, shape in shapes.items()}


def test_a_family_takes_equal_numbers_for_one() -> None:
    family = Family.of(specs(a=(2, 4), b=(4, 9)), specs(a=(2, 5), b=(5, 9)))
    assert family is not None
    assert family.given(specs(a=(2, 7), b=(7, 9))) == [7]
    assert family.given(specs(a=(2, 7), b=(8, 9))) is None
    assert family.given(specs(a=(3, 7), b=(7, 9))) is None
    assert family.given(specs(a=(2, 7, 1), b=(7, 9))) is None
    assert family.given(specs(a=(2, 7))) is None


def test_what_differs_in_more_than_numbers_is_no_family() -> None:
    assert Family.of(specs(a=(2, 4)), specs(a=(2, 4))) is None
    assert Family.of(specs(a=(2, 4)), specs(a=(2, 4, 1))) is None
    assert Family.of(specs(a=(2, 4)), specs(b=(2, 5))) is None


# ---- regions


def block(heads: int = 2, size: int = 8) -> ModelProto:
    """Attention with a growing past: shape arithmetic, masks made of it, a table read from a moving place."""
    rng = np.random.default_rng(0)
    width = heads * size
    weights = {f"w{i}": rng.standard_normal((width, width)).astype(np.float32) / 4 for i in "qkvo"}
    constants: dict[str, np.ndarray] = {
        **weights,
        "zero": np.array(0),
        "one": np.array(1),
        "two": np.array(2),
        "first": np.array([0]),
        "heads": np.array([heads]),
        "size": np.array([size]),
        "width": np.array([width]),
        "scale": np.array(size**-0.5, np.float32),
        "never": np.array(-1e9, np.float32),
        "free": np.array(0, np.float32),
        "places": rng.standard_normal((128, width)).astype(np.float32),
    }
    n = helper.make_node
    nodes = [
        n("Shape", ["x"], ["dims"]),
        n("Gather", ["dims", "one"], ["s"]),
        n("Gather", ["dims", "first"], ["batch"]),
        n("Shape", ["past_k"], ["held"]),
        n("Gather", ["held", "two"], ["p"]),
        n("Add", ["s", "p"], ["total"]),
        n("Unsqueeze", ["s", "first"], ["s1"]),
        n("Unsqueeze", ["p", "first"], ["p1"]),
        n("Unsqueeze", ["total", "first"], ["t1"]),
        n("Slice", ["places", "p1", "t1", "first"], ["here"]),
        n("Add", ["x", "here"], ["h"]),
        n("Concat", ["batch", "s1", "heads", "size"], ["apart"], axis=0),
        n("Concat", ["batch", "s1", "width"], ["together"], axis=0),
        n("Range", ["p", "total", "one"], ["rows"]),
        n("Range", ["zero", "total", "one"], ["columns"]),
        n("Unsqueeze", ["rows", "one1"], ["rows1"]),
        n("LessOrEqual", ["columns", "rows1"], ["seen"]),
        n("Where", ["seen", "free", "never"], ["mask"]),
    ]
    constants["one1"] = np.array([1])
    for name in "qkv":
        nodes += [
            n("MatMul", ["h", f"w{name}"], [f"{name}0"]),
            n("Reshape", [f"{name}0", "apart"], [f"{name}1"]),
            n("Transpose", [f"{name}1"], [f"{name}2"], perm=[0, 2, 1, 3]),
        ]
    nodes += [
        n("Concat", ["past_k", "k2"], ["k"], axis=2),
        n("Concat", ["past_v", "v2"], ["v"], axis=2),
        n("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        n("MatMul", ["q2", "kt"], ["scores"]),
        n("Mul", ["scores", "scale"], ["scaled"]),
        n("Add", ["scaled", "mask"], ["masked"]),
        n("Softmax", ["masked"], ["shares"], axis=-1),
        n("MatMul", ["shares", "v"], ["mixed"]),
        n("Transpose", ["mixed"], ["back"], perm=[0, 2, 1, 3]),
        n("Reshape", ["back", "together"], ["flat"]),
        n("MatMul", ["flat", "wo"], ["o"]),
        n("Add", ["o", "x"], ["y"]),
        n("ReduceMean", ["y", "one1"], ["mean"], keepdims=0),
    ]
    inputs = {"x": np.zeros((1, 2, width), np.float32)}
    inputs.update((name, np.zeros((1, heads, 2, size), np.float32)) for name in ("past_k", "past_v"))
    proto = model(nodes, inputs, ["y", "k", "v", "mean"], constants, symbolic=True)
    for value in proto.graph.input[1:]:
        value.type.tensor_type.shape.dim[1].dim_value, value.type.tensor_type.shape.dim[3].dim_value = heads, size
    proto.graph.input[0].type.tensor_type.shape.dim[2].dim_value = width
    return proto


def feeds(batch: int, fresh: int, past: int, heads: int = 2, size: int = 8) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(batch * 10_000 + fresh * 100 + past)
    return {
        "x": rng.standard_normal((batch, fresh, heads * size)).astype(np.float32),
        "past_k": rng.standard_normal((batch, heads, past, size)).astype(np.float32),
        "past_v": rng.standard_normal((batch, heads, past, size)).astype(np.float32),
    }


LENGTHS = st.integers(1, 20) | st.integers(20, 90)
SIGNATURES = st.lists(st.tuples(st.integers(1, 3), LENGTHS, st.just(0) | st.integers(0, 30)), min_size=3, max_size=8)
STEPS = st.tuples(st.integers(1, 2), st.just(1), st.integers(0, 60)).flatmap(
    lambda first: st.just([(first[0], 1, first[2] + i) for i in range(6)])
)


@given(SIGNATURES | STEPS, st.sampled_from([1, 2]))
@examples(max_examples=25, deadline=None)
def test_binding_again_gives_what_a_fresh_bind_gives(signatures: list[tuple[int, int, int]], threads: int) -> None:
    proto = block()
    kept = session(proto, threads)
    for signature in signatures:
        fresh = session(proto, threads).run(None, feeds(*signature))
        for found, wanted in zip(kept.run(None, feeds(*signature)), fresh, strict=True):
            np.testing.assert_array_equal(found, wanted)


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """One entry for each time that a region is lowered."""
    seen: list[Any] = []
    lower = region.NativeRegion._lowered

    def counting(self: Any, *operands: Any) -> Any:
        seen.append(operands)
        return lower(self, *operands)

    monkeypatch.setattr(region.NativeRegion, "_lowered", counting)
    return seen


def test_a_growing_past_is_lowered_a_few_times_only(lowered: list[Any]) -> None:
    made = session(block())
    for past in range(1, 61):
        made.run(None, feeds(1, 1, past))
    assert made.explain().regions and len(lowered) < 15


def test_texts_of_any_length_are_lowered_a_few_times_only(lowered: list[Any]) -> None:
    made = session(block())
    lengths = np.random.default_rng(5).permutation(np.arange(8, 96))[:70].tolist()
    for length in lengths[:12]:
        made.run(None, feeds(1, length, 0))
    lowered.clear()
    for length in lengths[12:]:
        made.run(None, feeds(1, length, 0))
    assert len(lowered) < 10


def test_what_serves_no_other_signature_is_soon_lowered_plainly(
    lowered: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(families.Template, "image", lambda *_: None)
    made = session(block())
    for past in range(1, 3 + FRUITLESS + 4):
        made.run(None, feeds(1, 1, past))
    followed = [bool(open_.arrays) for _, open_ in lowered]
    assert followed.count(True) == FRUITLESS and not any(followed[-4:])


SCALES = {"twice": np.array([1, 1, 2, 2], np.float32), "half": np.array([1, 1, 0.5, 1.5], np.float32)}


def images(*nodes: NodeProto, channels: int = 20, **weights: Sequence[int]) -> ModelProto:
    """A model of ``x``, images of any size (of one row where the first weights are those of a line), that makes ``y``."""
    rng = np.random.default_rng(1)
    constants = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in weights.items()}
    constants |= {name: scales for name, scales in SCALES.items() if any(name in node.input for node in nodes)}
    dims = max([len(shape) for shape in weights.values()], default=4)
    proto = model(
        list(nodes), {"x": np.zeros((1, channels, *[8] * (dims - 2)), np.float32)}, ["y"], constants, symbolic=True
    )
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = channels
    return proto


def places() -> ModelProto:
    """A lowering that looks at the sizes of images itself."""
    n = helper.make_node
    return images(
        n("MaxPool", ["x"], ["m", "i"], kernel_shape=[3, 3], pads=[1] * 4),
        n("Cast", ["i"], ["y"], to=TensorProto.FLOAT),
    )


def test_images_whose_size_a_lowering_looks_at_are_soon_lowered_plainly(lowered: list[Any]) -> None:
    made = session(places())
    for size in range(4, 12):
        made.run(None, {"x": np.ones((1, 20, size, 2 * size), np.float32)})
    followed = [not all(isinstance(n, int) for n in specs_["x"].shape) for specs_, _ in lowered]
    assert followed == [False, True, True, *[False] * 5]


def test_a_size_that_comes_again_is_not_lowered_again(lowered: list[Any]) -> None:
    made = session(places())
    for size in range(4, 28):  # more than there are plans for
        for _ in range(4):
            made.run(None, {"x": np.ones((1, 20, size, size), np.float32)})
    assert len(lowered) == 24


n = helper.make_node
WINDOWS = {
    "direct": (n("Conv", ["x", "w"], ["y"], pads=[1, 0, 1, 2], strides=[2, 1]), {"w": (4, 20, 3, 3)}),
    "pointwise": (n("Conv", ["x", "w"], ["y"], strides=[2, 2]), {"w": (24, 20, 1, 1)}),
    "same": (n("Conv", ["x", "w"], ["y"], auto_pad="SAME_UPPER", strides=[2, 2]), {"w": (24, 20, 5, 5)}),
    "groups": (n("Conv", ["x", "w"], ["y"], group=2, pads=[1] * 4), {"w": (32, 10, 3, 3)}),
    "Winograd": (n("Conv", ["x", "w"], ["y"], pads=[1] * 4), {"w": (64, 64, 3, 3)}),
    "dilated": (n("Conv", ["x", "w"], ["y"], pads=[3, 3], dilations=[3]), {"w": (64, 64, 3)}),
    "line": (n("Conv", ["x", "w"], ["y"], pads=[4, 5], dilations=[2]), {"w": (32, 20, 7)}),
    "dots": (n("Conv", ["x", "w"], ["y"], pads=[3, 3]), {"w": (1, 64, 7)}),
    "depthwise": (n("Conv", ["x", "w"], ["y"], group=20, pads=[15, 16]), {"w": (20, 1, 32)}),
    "transposed": (n("ConvTranspose", ["x", "w"], ["y"], pads=[2, 2], strides=[4]), {"w": (20, 16, 8)}),
    "transposed image": (n("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2]), {"w": (20, 16, 2, 2)}),
    "transposed dots": (n("ConvTranspose", ["x", "w"], ["y"], strides=[2]), {"w": (64, 1, 4)}),
    "largest": (n("MaxPool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), {}),
    "mean": (n("AveragePool", ["x"], ["y"], kernel_shape=[3, 2], pads=[1, 0, 1, 1]), {}),
    "mean of all": (n("GlobalAveragePool", ["x"], ["y"]), {}),
    "twice as large": (n("Resize", ["x", "", "twice"], ["y"]), {}),
    "blended": (n("Resize", ["x", "", "half"], ["y"], mode="linear"), {}),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_over_images_of_any_size_are_lowered_a_few_times_only(name: str, lowered: list[Any]) -> None:
    node, weights = WINDOWS[name]
    channels = 64 if any(64 in shape[:2] for shape in weights.values()) else 20
    proto = images(node, channels=channels, **weights)
    line = any(len(shape) == 3 for shape in weights.values())
    made, rng = session(proto), np.random.default_rng(3)
    sizes = rng.integers(40, 400, (20, 1)) if line else rng.integers(20, 40, (20, 2))
    feeds_ = [{"x": rng.standard_normal((1, channels, *size)).astype(np.float32)} for size in sizes.tolist()]
    found = [made.run(None, each)[0] for each in feeds_]
    assert len(lowered) < 10
    for each, result in zip(feeds_, found, strict=True):
        np.testing.assert_array_equal(result, session(proto).run(None, each)[0])


def test_what_is_kept_is_bounded(lowered: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Family] = []
    follow = Family._follow
    monkeypatch.setattr(Family, "_follow", lambda self, *a: (kept.append(self), follow(self, *a))[1])
    made = session(block())
    for fresh in range(1, 60):
        made.run(None, feeds(1, fresh, 3))
    assert kept and all(len(family._templates) <= TEMPLATES for family in kept)


def test_a_lowering_that_cannot_be_followed_is_repeated_plainly(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower = region.NativeRegion._form

    def stubborn(self: Any, specs_: Any, open_: Any) -> Any:
        for spec in specs_.values():
            for size in spec.shape:
                if not isinstance(size, int):
                    raise TypeError("a number, please")
        return lower(self, specs_, open_)

    monkeypatch.setattr(region.NativeRegion, "_form", stubborn)
    kept, proto = session(block()), block()
    with caplog.at_level(logging.DEBUG, families.log.name):
        for past in range(4):
            for found, wanted in zip(
                kept.run(None, feeds(1, 1, past)), session(proto).run(None, feeds(1, 1, past)), strict=True
            ):
                np.testing.assert_array_equal(found, wanted)
    assert "a number, please" in caplog.text


def test_integers_that_shapes_decide_are_followed(lowered: list[Any]) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["dims"]),
        helper.make_node("Slice", ["dims", "one", "two"], ["n"]),
        helper.make_node("Sub", ["n", "one"], ["last"]),
        helper.make_node("Slice", ["x", "last", "n", "one"], ["end"]),
        helper.make_node("Cast", ["dims"], ["sizes"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["sizes"], ["total"], keepdims=0),
        helper.make_node("Mul", ["end", "total"], ["y"]),
    ]
    x = np.zeros((2, 3), np.float32)
    made = session(
        model(nodes, {"x": x}, ["y"], {"one": np.array([1]), "two": np.array([2])}, symbolic=True), threads=1
    )
    for n in (3, 4, 5, 9, 17):
        x = np.arange(2 * n, dtype=np.float32).reshape(2, n)
        np.testing.assert_array_equal(made.run(None, {"x": x})[0], x[:, -1:] * (n + 2))


@pytest.mark.parametrize("room", [0, 64])
def test_steps_of_group_query_attention_are_lowered_a_few_times_only(lowered: list[Any], room: int) -> None:
    """Caches grow, or have room from the start; the total length is the mask's, as onnxruntime-genai's builder writes it."""
    constants = {"axis": np.array([1]), "one": np.array([1])}
    n = helper.make_node
    nodes = [
        n("ReduceSum", ["mask", "axis"], ["seen"]),
        n("Sub", ["seen", "one"], ["last"]),
        n("Cast", ["last"], ["lengths"], to=TensorProto.INT32),
        n("Shape", ["mask"], ["extent"]),
        n("Gather", ["extent", "axis"], ["wide"]),
        n("Cast", ["wide"], ["total"], to=TensorProto.INT32),
        n(
            "GroupQueryAttention", ["q", "k", "v", "past_k", "past_v", "lengths", "total"], ["y", "present_k", "present_v"],
            domain="com.microsoft", num_heads=4, kv_num_heads=2,
        ),
    ]  # fmt: skip
    rng, size = np.random.default_rng(0), 8
    shapes = {"q": [1, "s", 4 * size], "k": [1, "s", 2 * size], "v": [1, "s", 2 * size], "mask": [1, "t"]}
    shapes |= {f"past_{name}": [1, 2, "p", size] for name in "kv"}
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64 if name == "mask" else TensorProto.FLOAT, shape)
        for name, shape in shapes.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in ("y", "present_k", "present_v")]
    graph = helper.make_graph(
        nodes, "g", inputs, outputs, [numpy_helper.from_array(a, name) for name, a in constants.items()]
    )
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    made = session(helper.make_model(graph, opset_imports=sets, ir_version=10))
    caches = [np.zeros((1, 2, room, size), np.float32)] * 2
    rows = {
        name: rng.standard_normal((1, 40, heads * size)).astype(np.float32)
        for name, heads in (("q", 4), ("k", 2), ("v", 2))
    }
    got, done = [], 0
    for count in [3, *[1] * 37]:
        fed = {name: array[:, done : done + count] for name, array in rows.items()}
        done += count
        fed |= {"mask": np.ones((1, done), np.int64), "past_k": caches[0], "past_v": caches[1]}
        y, *caches = made.run(None, fed)
        got.append(y)
    fed = {**rows, "mask": np.ones((1, 40), np.int64)}
    fed |= {f"past_{name}": np.zeros((1, 2, room, size), np.float32) for name in "kv"}
    np.testing.assert_allclose(np.concatenate(got, 1), made.run(None, fed)[0], rtol=1e-4, atol=1e-5)
    assert len(lowered) < 12
    with pytest.raises(InvalidArgument):  # a row of the cache between the past and what is new would be nobody's
        made.run(None, {**fed, "mask": np.ones((1, room + 41), np.int64)})
