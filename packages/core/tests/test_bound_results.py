"""Results written where they were bound, by regions that update an input in place: only where nothing else wants what was there."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from core_graphs import model, plans
from core_providers import CPU, RULES, OwnProvider, offered
from core_sessions import options_with, session
from onnx import ModelProto, numpy_helper

import onnxplug
from onnxplug.contract import HOST, Claim, CompiledRegion, Device, EPFail, Region

SHAPE = (256, 128)


class Largest(CompiledRegion):
    """Max nodes, each over what the one before gave; the result of the first may lie in its first operand."""

    def __init__(self, region: Region) -> None:
        self._region = region
        first = region.graph.nodes[0]
        place = [v.name for v in region.inputs].index(first.inputs[0].name)
        self.inplace = {[v.name for v in region.outputs].index(first.outputs[0].name): (place,)}
        self.updated = 0

    def output_shapes(self, inputs: Any) -> Any:
        return [inputs[0]] * len(self._region.outputs)

    def __call__(self, context: Any, *inputs: Any) -> Sequence[Any]:
        raise AssertionError("its shapes are known")

    def run_into(self, context: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
        given = {v.name: x for v, x in zip(self._region.outputs, outputs, strict=True)}
        known = {v.name: x for v, x in zip(self._region.inputs, inputs, strict=True)}
        self.updated += any(out is x for out in outputs for x in inputs)
        for node in self._region.graph.nodes:
            (made,) = node.outputs
            room = given.get(made.name)
            known[made.name] = np.maximum(*(known[v.name] for v in node.inputs), out=room)
        return True


class Updating(OwnProvider):
    """Has all Max nodes as one region."""

    made: Largest

    def get_capability(self, graph: Any, kernels: Any) -> Iterator[Claim]:
        yield Claim([node for node in graph.nodes if node.op_type == "Max"], fused="largest")

    def compile(self, regions: Sequence[Region]) -> Sequence[CompiledRegion]:
        (self.made,) = map(Largest, regions)
        return [self.made]


def plain_options() -> Any:
    return options_with(graph_optimization_level=onnxplug.GraphOptimizationLevel.ORT_DISABLE_ALL)


def feeds(*names: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(SHAPE).astype(np.float32) for name in names}


def bound(made: Any, inputs: dict[str, np.ndarray], results: dict[str, np.ndarray | None]) -> list[np.ndarray]:
    binding = made.io_binding()
    for name, array in inputs.items():
        binding.bind_ortvalue_input(name, onnxplug.OrtValue.ortvalue_from_numpy(array))
    for name, room in results.items():
        if room is None:
            binding.bind_output(name)
        else:
            binding.bind_ortvalue_output(name, onnxplug.OrtValue.ortvalue_from_numpy(room))
    made.run_with_iobinding(binding)
    return [value.numpy() for value in binding.get_outputs()]


@pytest.mark.parametrize("shape", ["256,128", "N,M"])
def test_a_region_updates_an_input_that_is_bound_as_its_result(shape: str) -> None:
    source = model(f"g (float[{shape}] x, float[{shape}] y) => (float[{shape}] a) {{ a = Max(x, y) }}")
    with offered(Own=Updating) as made:
        sess, given = session(source, ["Own", CPU], plain_options()), feeds("x", "y")
        wanted = np.maximum(given["x"], given["y"])
        (found,) = bound(sess, given, {"a": given["x"]})
        assert made["Own"][0].made.updated == 1
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(given["x"], wanted)


def test_an_input_of_which_the_region_reads_a_view_too_is_not_updated() -> None:
    source = model(
        "g (float[256,128] x, float[256,128] y) => (float[256,128] a, float[256,128] b) "
        "{ v = Identity(x)  a = Max(x, y)  t = Neg(y)  b = Max(t, v) }"
    )
    view = lambda: OwnProvider(form="views", rules={"Identity": lambda x: x, "Neg": np.negative})  # noqa: E731
    with offered(Own=Updating, Views=view) as made:
        sess, given = session(source, ["Own", "Views", CPU], plain_options()), feeds("x", "y")
        wanted = [np.maximum(given["x"], given["y"]), np.maximum(-given["y"], given["x"])]
        results = bound(sess, given, {"a": given["x"], "b": None})
        assert made["Own"][0].made.updated == 0
        for found, want in zip(results, wanted, strict=True):
            np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize(
    ("nodes", "device"),
    [("a = Max(x, y) b = Sub(a, x)", HOST), ("b = Abs(x) a = Max(x, y)", Device("own"))],  # a copy may be under way
    ids=["behind", "on a device"],
)
def test_an_input_that_something_else_reads_is_not_updated(nodes: str, device: Device) -> None:
    source = model(f"g (float[256,128] x, float[256,128] y) => (float[256,128] a, float[256,128] b) {{ {nodes} }}")
    other = lambda: OwnProvider(device, rules={op: RULES[op] for op in ("Sub", "Abs")})  # noqa: E731
    with offered(Own=Updating, Other=other) as made:
        sess, given = session(source, ["Own", "Other", CPU], plain_options()), feeds("x", "y")
        first = np.maximum(given["x"], given["y"])
        wanted = [first, first - given["x"] if device == HOST else abs(given["x"])]
        results = bound(sess, given, {"a": given["x"], "b": None})
        assert made["Own"][0].made.updated == 0
        for found, want in zip(results, wanted, strict=True):
            np.testing.assert_array_equal(found, want)
        sess.close()


@pytest.mark.parametrize("specialised", [True, False])
def test_a_result_that_shows_another_is_not_left_in_bound_memory(specialised: bool) -> None:
    source = model("g (float[N,M] x, float[N,M] y) => (float[N,M] a, float[N,M] b) { a = Max(x, y)  b = Identity(a) }")
    view = lambda: OwnProvider(form="views", rules={"Identity": lambda x: x})  # noqa: E731
    with offered(Own=Updating, Views=view):
        sess, given = session(source, ["Own", "Views", CPU], plain_options()), feeds("x", "y")
        room = np.zeros(SHAPE, np.float32)
        wanted = np.maximum(given["x"], given["y"])
        with plans(specialised):
            _, shown = bound(sess, given, {"a": room, "b": None})
        room.fill(0)
        np.testing.assert_array_equal(shown, wanted)


def two_results() -> bytes:
    return model("g (float[N,128] x) => (float[N,128] a, float[N,128] b) { a = Neg(x)  b = Abs(x) }")


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_of_results_bound_on_one_memory_the_one_bound_last_is_whole(order: str) -> None:
    sess, given = session(two_results()), feeds("x")
    memory = np.zeros(SHAPE[0] * SHAPE[1] + 128, np.float32)
    rooms = {"a": memory[:-128].reshape(SHAPE), "b": memory[128:].reshape(SHAPE)}
    wanted = {"a": -given["x"], "b": abs(given["x"])}
    bound(sess, given, {name: rooms[name] for name in order})
    np.testing.assert_array_equal(rooms[order[1]], wanted[order[1]])


def test_a_result_bound_on_an_initializer_is_written_behind_the_run() -> None:
    """One whose memory is the caller's."""
    held = numpy_helper.from_array(np.zeros(SHAPE, np.float32), "w")
    text = "g (float[256,128] x) => (float[256,128] a, float[256,128] b) { a = Neg(x)  b = Add(x, w) }"
    source, given, options = ModelProto.FromString(model(text)), feeds("x", "w"), plain_options()
    source.graph.initializer.append(held)
    wanted = [-given["x"], given["x"] + given["w"]]
    options.add_initializer("w", onnxplug.OrtValue.ortvalue_from_numpy(given["w"]))
    sess = session(source.SerializeToString(), options=options)
    results = bound(sess, {"x": given["x"]}, {"a": given["w"], "b": None})
    for found, want in zip(results, wanted, strict=True):
        np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize(
    ("room", "message"),
    [
        (np.zeros(SHAPE, np.float64), "Unexpected output data type"),
        (np.zeros((SHAPE[0] + 1, SHAPE[1]), np.float32), "output .b. has shape"),
        (np.zeros((1, *SHAPE), np.float32), "Invalid rank for output: b"),
    ],
    ids=["type", "size", "rank"],
)
def test_memory_that_does_not_fit_is_refused_and_left_alone(room: np.ndarray, message: str) -> None:
    sess, given = session(two_results()), feeds("x")
    with pytest.raises(RuntimeError, match=message):
        bound(sess, given, {"a": None, "b": room})
    assert not room.any()


def test_memory_that_is_read_only_is_left_alone() -> None:
    sess, given, room = session(two_results()), feeds("x"), np.zeros(SHAPE, np.float32)
    room.flags.writeable = False
    with pytest.raises(RuntimeError, match="read-only"):
        bound(sess, given, {"a": None, "b": room})
    assert not room.any()


def test_a_provider_that_gives_up_behind_an_update_is_replaced() -> None:
    """The run is answered, and what was fed but not bound as a result is intact."""

    def gives_up(x: Any) -> Any:
        raise EPFail("the device is lost")

    source = model(
        "g (float[256,128] x, float[256,128] y) => (float[256,128] a, float[256,128] b, float[256,128] c) "
        "{ a = Max(x, y)  b = Abs(y)  c = Neg(a) }"
    )
    fails = lambda: OwnProvider(rules={"Neg": gives_up})  # noqa: E731
    with offered(Own=Updating, Failing=fails) as made:
        sess, given = session(source, ["Own", "Failing", CPU], plain_options(), enable_fallback=1), feeds("x", "y")
        x, y = given["x"].copy(), given["y"].copy()
        results = bound(sess, given, {"a": given["x"], "c": np.empty(SHAPE, np.float32), "b": None})
        assert made["Own"][0].made.updated == 1
        for found, want in zip(results, (np.maximum(x, y), -np.maximum(x, y), abs(y)), strict=True):
            np.testing.assert_array_equal(found, want)
        np.testing.assert_array_equal(given["y"], y)


@pytest.mark.parametrize("terminate", [False, True])
def test_nothing_bound_is_kept_when_a_run_is_over(terminate: bool) -> None:
    sess, run_options = session(two_results()), onnxplug.RunOptions()
    run_options.terminate = terminate
    arrays = {"x": np.zeros(SHAPE, np.float32), "b": np.zeros(SHAPE, np.float32)}
    known = [weakref.ref(array) for array in arrays.values()]
    binding = sess.io_binding()
    binding.bind_ortvalue_input("x", onnxplug.OrtValue.ortvalue_from_numpy(arrays["x"]))
    binding.bind_ortvalue_output("b", onnxplug.OrtValue.ortvalue_from_numpy(arrays["b"]))
    gc.disable()
    try:
        with suppress(RuntimeError):
            sess.run_with_iobinding(binding, run_options)
        del binding, arrays
        assert [array() for array in known] == [None, None]
    finally:
        gc.enable()
