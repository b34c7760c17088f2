"""Binding again for shapes that differ in some sizes: that nothing shows of it in results, and how often regions are lowered."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from codegen_models import model, session
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from onnxplug.contract import assign_offsets
from onnxplug.contract.errors import InvalidArgument
from onnxplug.contract.sizes import Tape
from onnxplug_ep_cpu.codegen import families, program, region
from onnxplug_ep_cpu.codegen.families import FRUITLESS, TEMPLATES, Family
from onnxplug_ep_cpu.codegen.lower import winograd
from onnxplug_ep_cpu.codegen.program import ROOMY, Buffer, Form, Program, Ref


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


def test_scratch_memory_is_laid_out_for_some_growth_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    laid_out = list[int]()

    def assigned(*given: Any) -> int:
        laid_out.append(assign_offsets(*given))
        return laid_out[-1]

    monkeypatch.setattr(program, "assign_offsets", assigned)
    tape, calls = Tape([100]), Program()
    for i in range(8):
        calls.call(None, [Ref(Buffer("scratch", tape.sizes[0] * (1000 + 77 * i)))], 1, 1.0)  # type: ignore[arg-type]
    addresses = SimpleNamespace(addresses=lambda kernels: dict.fromkeys(kernels, 0))
    form = Form(calls, addresses, 0, 0, 1)  # type: ignore[arg-type]
    tape.close()
    made = [form.image({}, tape.repeat([length])).workspace for length in range(100, 150)]
    assert 2 <= len(laid_out) <= 4, "each time there is room for an eighth more"
    assert made[-1] < ROOMY
    assert form.image({}, tape.repeat([10])).workspace == made[-1], "what is small is not worth the time"
    assert form.image({}, tape.repeat([300])).workspace > ROOMY
    assert form.image({}, tape.repeat([10])).workspace < made[0] / 8


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


def test_a_table_that_many_calls_read_is_made_once_for_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    reads = winograd._reads
    monkeypatch.setattr(winograd, "_reads", lambda *given: (made.append(given), reads(*given))[1])
    node, weights = WINDOWS["Winograd"]
    running = session(images(node, channels=64, **weights))
    for number, size in enumerate((88, 96, 104), 1):  # in several chunks each
        running.run(None, {"x": np.ones((1, 64, size, size), np.float32)})
        assert len(made) == number


def test_the_product_of_whole_chunks_is_described_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    product = winograd.product
    monkeypatch.setattr(
        winograd, "product", lambda b, sizes, *rest, **named: (seen.append(sizes), product(b, sizes, *rest, **named))
    )
    node, weights = WINDOWS["Winograd"]
    proto = images(node, channels=64, **weights)
    x = {"x": np.random.default_rng(1).standard_normal((1, 64, 120, 120)).astype(np.float32)}
    (found,) = session(proto).run(None, x)
    assert len(seen) == 2  # and that of the last one
    made = session(proto)
    for size in (88, 104, 120):
        made.run(None, {"x": x["x"][:, :, :size, :size]})
    assert made.run(None, x)[0].tobytes() == found.tobytes()


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
