"""Regions that run trip after trip by themselves: providers that do so, partly, or wrongly; and bodies of many kinds."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core_graphs import model
from core_providers import CPU, RULES, OwnProvider, offered
from hypothesis import given, settings
from hypothesis import strategies as st

import onnxplug
from onnxplug.contract import Claim, CompiledRegion, TripOperand
from onnxplug.contract.errors import Fail, InvalidArgument
from onnxplug.run.lane import ROOM

REFERENCE = "ReferenceExecutionProvider"
SCAN = """g (float[3] h, float[3] k, float[N, 4] x, float[M, 3] e, float[3, 4] m) => (p, q, y, z) {
    w = Transpose(m) p, q, y, z = Scan <num_scan_inputs = 2, scan_input_directions = [1, 0],
    scan_input_axes = [0, 0], scan_output_directions = [0, 1], scan_output_axes = [0, 1], body =
    b (float[3] s, float[3] t, float[4] a, float[3] c) => (u, v, o, r) {
        i = MatMul(a, w) j = Add(s, i) u = Min(j, c) v = Sub(s, t) o = Neg(j) r = Mul(u, c) }> (h, k, x, e) }"""
LOOP = """g (float[2] x, int64 n, float[1] most) => (y, s, i) {
    one = Constant<value = float[2, 1] {1, 0}>() t = Constant<value = bool {1}>() y, s, i = Loop (n, t, x) <body =
    l (int64 i, bool c, float[2] v) => (bool[1] d, o, p, q) {
        o = Add(v, v) p = Neg(v) q = Mul(i, i) e = MatMul(o, one) d = Less(e, most) }> }"""


class Tripping(CompiledRegion):
    """A region that runs its nodes one after the other, ``patience`` trips at a time; so many it has run."""

    def __init__(self, region: Any, patience: int) -> None:
        self._region, self._patience = region, patience
        self.ran, self.alone, self.gaps = 0, 0, 0

    def _compute(self, inputs: Sequence[Any]) -> list[np.ndarray]:
        known = {id(v): array for v, array in zip(self._region.inputs, inputs, strict=True)}
        for node in self._region.graph.nodes:
            operands = [known.get(id(v), v.constant) for v in node.inputs]
            known[id(node.outputs[0])] = np.asarray(RULES[node.op_type](*operands))
        return [known[id(v)] for v in self._region.outputs]

    def __call__(self, context: Any, *inputs: Any) -> Any:
        return self._compute(inputs)

    def output_shapes(self, inputs: Any) -> Any:
        types = [v.dtype for v in self._region.inputs]
        return [
            a.shape
            for a in self._compute([np.zeros(s, t) for s, t in zip(inputs, types, strict=True) if s is not None])
        ]

    def run_into(self, context: Any, inputs: Any, outputs: Any) -> bool:
        self.alone += 1
        for output, result in zip(outputs, self._compute(inputs), strict=True):
            output[...] = result
        return True

    def trips(self, inputs: Sequence[TripOperand], outputs: Sequence[TripOperand]) -> Callable[..., int] | None:
        def run(workspace: Any, trips: int, going: Any, *arrays: Any) -> int:
            if not all(o.of(arrays, 0).flags.c_contiguous for o in inputs):
                self.gaps += 1
                return 0
            for trip in range(min(trips, self._patience)):
                made = self._compute([o.of(arrays, trip) for o in inputs])
                for operand, result in zip(outputs, made, strict=True):
                    place = operand.of(arrays, trip)
                    assert not any(np.shares_memory(place, o.of(arrays, trip)) for o in inputs)
                    place[...] = result
                self.ran += 1
                if going is not None and not going.item():
                    return trip + 1
            return min(trips, self._patience)

        return run


class Provider(OwnProvider):
    """Compiles the whole of each body."""

    def __init__(self, make: Callable[[Any], CompiledRegion]) -> None:
        super().__init__()
        self._make = make
        self.made: list[CompiledRegion] = []

    def get_kernel_registry(self) -> Any:
        return None

    def get_capability(self, graph: Any, kernels: Any) -> Any:
        nodes = list(graph.nodes)
        return [Claim(nodes, fused="trip")] if all(node.op_type in RULES for node in nodes) else []

    def compile(self, regions: Any) -> Any:
        self.made += [self._make(region) for region in regions]
        return self.made[-len(regions) :]


def both(source: bytes, feed: dict[str, Any], provider: Callable[[], OwnProvider]) -> Any:
    """Results of a provider, which are those of the Reference provider."""
    wanted = onnxplug.InferenceSession(source, providers=[REFERENCE]).run(None, feed)
    with offered(Acme=provider) as made:
        session = onnxplug.InferenceSession(source, providers=["Acme", CPU])
        for _ in range(2):
            for mine, expected in zip(session.run(None, feed), wanted, strict=True):
                assert mine.shape == expected.shape and mine.dtype == expected.dtype
                np.testing.assert_allclose(mine, expected, rtol=1e-5, atol=1e-5)
        session.close()
    (region,) = made["Acme"][0].made
    return region


@pytest.mark.parametrize("patience", [0, 1, 2, 3, 1000])
@pytest.mark.parametrize("length", [1, 2, 7, ROOM, 2 * ROOM + 3])
def test_a_provider_runs_the_trips_of_a_scan(length: int, patience: int) -> None:
    rng = np.random.default_rng(length)
    feed = {
        name: rng.standard_normal(shape).astype(np.float32)
        for name, shape in {"h": (3,), "k": (3,), "x": (length, 4), "e": (length, 3), "m": (3, 4)}.items()
    }
    region = both(model(SCAN), feed, lambda: Provider(lambda region: Tripping(region, patience)))
    assert region.ran + region.alone == 2 * length
    if patience > length:
        assert not region.alone


def test_a_provider_that_wants_operands_without_gaps_gets_them() -> None:
    text = SCAN.replace("float[N, 4] x", "float[4, N] x").replace("input_axes = [0, 0]", "input_axes = [1, 0]")
    feed = {"h": (3,), "k": (3,), "x": (4, 5), "e": (5, 3), "m": (3, 4)}
    rng = np.random.default_rng(0)
    values = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in feed.items()}
    region = both(model(text), values, lambda: Provider(lambda region: Tripping(region, 9)))
    assert region.gaps == 2 and not region.alone


@pytest.mark.parametrize("patience", [0, 1, 2, 3, 1000])
@pytest.mark.parametrize("trips", [1, 2, 7, ROOM, 2 * ROOM + 3])
def test_a_provider_runs_the_trips_of_a_loop(trips: int, patience: int) -> None:
    """Up to the one that says so."""
    feed = {"x": np.array([1, 0.5], np.float32), "n": np.array(100), "most": np.array([2.0**trips], np.float32)}
    region = both(model(LOOP), feed, lambda: Provider(lambda region: Tripping(region, patience)))
    assert region.ran + region.alone == 2 * trips


def says(answer: Any) -> Callable[..., Any]:
    return lambda self, inputs, outputs: lambda workspace, trips, going, *arrays: answer


def fails(self: Any, inputs: Any, outputs: Any) -> Any:
    def run(*arrays: Any) -> int:
        raise KeyError("lost")

    return run


@pytest.mark.parametrize(
    "trips", [says(-1), says(1000), says(None), says("all"), fails, lambda self, *_: 7, lambda self, *_: {}["lost"]]
)
def test_a_function_that_says_what_it_must_not(trips: Callable[..., Any]) -> None:
    kind = type("Nasty", (Tripping,), {"trips": trips})
    feed = {"x": np.ones(2, np.float32), "n": np.array(9), "most": np.array([99], np.float32)}
    with offered(Nasty=lambda: Provider(lambda region: kind(region, 0))):
        session = onnxplug.InferenceSession(model(LOOP), providers=["Nasty", CPU], enable_fallback=0)
        with pytest.raises((Fail, InvalidArgument), match=r"Name:'trip_\w+' .*\(provider Nasty\)"):
            session.run(None, feed)


def test_a_profile_sees_each_trip(tmp_path: Path) -> None:
    options = onnxplug.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "trips")
    made: list[Tripping] = []

    def make(region: Any) -> Tripping:
        made.append(Tripping(region, 1000))
        return made[-1]

    with offered(Acme=lambda: Provider(make)):
        session = onnxplug.InferenceSession(model(LOOP), options, providers=["Acme", CPU])
        feed = {"x": np.ones(2, np.float32), "n": np.array(5), "most": np.array([999], np.float32)}
        session.run(None, feed)
        events = json.loads(Path(session.end_profiling()).read_text())
        assert (made[0].alone, made[0].ran) == (5, 0)
        assert sum(event["name"].startswith("trip_") and event["cat"] == "Node" for event in events) == 5
        session.run(None, feed)
    assert (made[0].alone, made[0].ran) == (5, 5)


def test_a_long_loop_ends_when_its_run_is_terminated() -> None:
    """Between trips, whoever runs them."""
    options = onnxplug.RunOptions()

    class Terminating(Tripping):
        def _compute(self, inputs: Sequence[Any]) -> list[np.ndarray]:
            options.terminate = self.ran == 2 * ROOM - 1
            return super()._compute(inputs)

    made: list[Tripping] = []
    with offered(Acme=lambda: Provider(lambda region: made.append(Terminating(region, 1000)) or made[-1])):
        session = onnxplug.InferenceSession(model(LOOP), providers=["Acme", CPU])
        feed = {"x": np.zeros(2, np.float32), "n": np.array(2**40), "most": np.array([1], np.float32)}
        with pytest.raises(Fail, match="terminate flag"):
            session.run(None, feed, options)
    assert made[0].ran == 2 * ROOM


BINARY, UNARY = ("Add", "Sub", "Mul", "Max", "Min"), ("Neg", "Tanh", "Sigmoid", "Abs", "Relu")


@st.composite
def scans(draw: st.DrawFn) -> tuple[str, dict[str, np.ndarray]]:
    """A Scan of elementwise operators and products, and a feed."""
    size, length = draw(st.integers(1, 5)), draw(st.sampled_from([1, 2, 3, 8, ROOM + 1]))
    states, scanned, made = draw(st.integers(0, 2)), draw(st.integers(1, 2)), draw(st.integers(0, 2))
    made = made or int(not states)
    names = [f"s{n}" for n in range(states)] + [f"x{n}" for n in range(scanned)]
    values, lines = [*names, "c"], []
    for n in range(draw(st.integers(1, 6))):
        kind = draw(st.integers(0, 2))
        first, second = draw(st.sampled_from(values)), draw(st.sampled_from(values))
        if kind == 0:
            lines.append(f"v{n} = {draw(st.sampled_from(BINARY))}({first}, {second})")
        else:
            lines.append(
                f"v{n} = MatMul({first}, w)" if kind == 1 else f"v{n} = {draw(st.sampled_from(UNARY))}({first})"
            )
        values.append(f"v{n}")
    for n in range(states):  # damped, so that errors do not grow from trip to trip
        lines += [f"d{n} = Tanh({draw(st.sampled_from(values))})", f"t{n} = Mul(d{n}, half)"]
    for n in range(made):
        lines.append(f"y{n} = {draw(st.sampled_from(['Identity', 'Neg', 'Tanh']))}({draw(st.sampled_from(values))})")

    def flags(name: str, count: int) -> str:
        return f", {name} = {draw(st.lists(st.integers(0, 1), min_size=count, max_size=count))}" if count else ""

    axes = draw(st.lists(st.integers(0, 1), min_size=scanned, max_size=scanned))
    kind = f"float[{size}]"
    inside = ", ".join(f"{kind} {name}" for name in names)
    outs = [f"t{n}" for n in range(states)] + [f"y{n}" for n in range(made)]
    rows = [f"float[{f'{size}, T' if axes[n] else f'T, {size}'}] x{n}" for n in range(scanned)]
    given_ = ", ".join([*[f"{kind} s{n}" for n in range(states)], *rows, f"{kind} c", f"float[{size}, {size}] w"])
    text = (
        f"g ({given_}) => ({', '.join(f'r{n}' for n in range(len(outs)))}) {{ half = Constant<value = float {{0.5}}>() "
        f"{', '.join(f'r{n}' for n in range(len(outs)))} = Scan <num_scan_inputs = {scanned}, scan_input_axes = {axes}"
        f"{flags('scan_input_directions', scanned)}{flags('scan_output_directions', made)}{flags('scan_output_axes', made)}, "
        f"body = b ({inside}) => ({', '.join(outs)}) {{ {' '.join(lines)} }}> ({', '.join(names)}) }}"
    )
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    feed = {name: rng.standard_normal(size).astype(np.float32) for name in names[:states]}
    for n in range(scanned):
        feed[f"x{n}"] = rng.standard_normal((size, length) if axes[n] else (length, size)).astype(np.float32)
    feed["c"] = rng.standard_normal(size).astype(np.float32)
    feed["w"] = (rng.standard_normal((size, size)) / size).astype(np.float32)
    return text, feed


@settings(max_examples=15, deadline=None)
@given(scans())
def test_scans_of_many_kinds(drawn: tuple[str, dict[str, np.ndarray]]) -> None:
    text, feed = drawn
    source = model(text)
    wanted = onnxplug.InferenceSession(source, providers=[REFERENCE]).run(None, feed)
    made = onnxplug.InferenceSession(source, providers=[CPU])
    for _ in range(2):
        for mine, expected in zip(made.run(None, feed), wanted, strict=True):
            assert mine.shape == expected.shape and mine.dtype == expected.dtype
            np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-5)
