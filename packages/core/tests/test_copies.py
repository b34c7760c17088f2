"""Providers with memory of their own beside the CPU: right results, every copy needed, none made twice, all explained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from core_graphs import Drawn, drawn_models, expected, model, plans, row, same
from core_providers import CPU, OwnProvider, offered, read, upload
from hypothesis import given, settings
from hypothesis import strategies as st

import onnxplug
from onnxplug.contract import ArenaConfig, Device, Into, Kernel, KernelDef, KernelRegistry, RuntimeException

ACME, BOLT = Device("acme"), Device("bolt", 1)
FORMS = ("into", "returns", "views")
HOST = "cpu:0"


def feeds_of(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    return {"x": row(n, seed), "y": row(n, seed + 1)}


class Pair:
    """A session on Acme, Bolt and the CPU, and what the two providers' transfers did."""

    def __init__(self, session: Any, acme: OwnProvider, bolt: OwnProvider) -> None:
        self.session, self.acme, self.bolt = session, acme, bolt

    def moves(self) -> Counter[tuple[str, str]]:
        """Copies between different spaces so far, by direction."""
        moves = Counter([*self.acme.transfer.moves(), *self.bolt.transfer.moves()])
        return Counter({way: count for way, count in moves.items() if way[0] != way[1]})

    def copied_by(self, feeds: dict[str, np.ndarray]) -> tuple[list[Any], Counter[tuple[str, str]]]:
        """Results of a run, and the copies it made."""
        before = self.moves()
        results = self.session.run(None, feeds)
        return results, self.moves() - before

    def explained(self) -> Counter[tuple[str, str]]:
        """Copies a run makes, as ``explain`` has them; what no transfer knows the way for goes through the host."""
        found = self.session.explain()
        ways: Counter[tuple[str, str]] = Counter()
        for copy in (*found.copies, *found.edges):
            at, to = copy["from"], copy["to"]
            direct = HOST in (at, to) or any(
                p.transfer.can_copy(*(next(d for d in (ACME, BOLT) if str(d) == s) for s in (at, to)))
                for p in (self.acme, self.bolt)
            )
            ways.update([(at, to)] if direct else [(at, HOST), (HOST, to)])
        return ways


@contextmanager
def on_three(
    source: bytes,
    acme: set[str] | None = None,
    bolt: set[str] | None = None,
    form: str = "into",
    optimize: bool = True,
    reaches: bool = False,
) -> Iterator[Pair]:
    """A session whose nodes Acme and Bolt share with the CPU; closing it checks that all memory came back."""
    options = onnxplug.SessionOptions()
    if not optimize:
        options.graph_optimization_level = onnxplug.GraphOptimizationLevel.ORT_DISABLE_ALL
    with offered(
        Acme=lambda: OwnProvider(ACME, acme, form, reaches=[BOLT] if reaches else ()),
        Bolt=lambda: OwnProvider(BOLT, bolt, form),
    ) as made:
        session = onnxplug.InferenceSession(source, options, providers=["Acme", "Bolt", CPU])
        yield Pair(session, made["Acme"][-1], made["Bolt"][-1])
        session.close()
        assert made["Acme"][-1].closed and not made["Acme"][-1].allocator.live


def shares(data: Any, names: list[str]) -> tuple[set[str], set[str]]:
    """Two disjoint sets of nodes for Acme and Bolt."""
    owners = {name: data.draw(st.sampled_from(["Acme", "Bolt", CPU]), label=name) for name in names}
    return {n for n, o in owners.items() if o == "Acme"}, {n for n, o in owners.items() if o == "Bolt"}


@given(drawn_models(), st.sampled_from(FORMS), st.booleans(), st.booleans(), st.booleans(), st.data())
@settings(max_examples=100, deadline=None)
def test_results_are_those_of_the_cpu(
    drawn: Drawn, form: str, optimize: bool, reaches: bool, specialised: bool, data: Any
) -> None:
    source = drawn.bytes()
    acme, bolt = shares(data, [n.name for n in drawn.nodes])
    with plans(specialised), on_three(source, acme, bolt, form, optimize, reaches) as pair:
        kept = []
        for seed, n in enumerate((3, 2, 3)):
            feeds = feeds_of(n, seed)
            before = {name: array.copy() for name, array in feeds.items()}
            kept.append((pair.session.run(None, feeds), expected(source, feeds)))
            same(list(feeds.values()), list(before.values()))
        for results, wanted in kept:
            same(results, wanted)


@given(drawn_models(), st.sampled_from(FORMS), st.booleans(), st.data())
@settings(max_examples=80, deadline=None)
def test_every_copy_is_explained_and_none_is_made_twice(drawn: Drawn, form: str, reaches: bool, data: Any) -> None:
    acme, bolt = shares(data, [n.name for n in drawn.nodes])
    with on_three(drawn.bytes(), acme, bolt, form, reaches=reaches) as pair:
        explanation = pair.session.explain()
        ways = [(c["value"], c["from"], c["to"]) for c in (*explanation.copies, *explanation.edges)]
        assert len(set(ways)) == len(ways), "once for each value and direction"
        for n in (2, 3, 2):
            _, copied = pair.copied_by(feeds_of(n))
            if any(node.op_type == "Shape" for node in drawn.nodes):
                assert copied <= pair.explained()  # what only shape arithmetic would read stays where it is
            else:
                assert copied == pair.explained()


def test_a_value_read_twice_is_copied_once() -> None:
    source = model(
        "g (float[N,4] x, float[N,4] y) => (float[N,4] a, float[N,4] b, float[N,4] c) { [n0] p = Neg(x) "
        "[n1] a = Abs(p) [n2] b = Add(p, y) [n3] c = Sub(p, x) }"
    )
    with on_three(source, acme={"n0"}, bolt={"n2"}) as pair:
        feeds = feeds_of(2)
        results, copied = pair.copied_by(feeds)
        same(results, expected(source, feeds))
        copies = {(c["value"], c["from"], c["to"]) for c in pair.session.explain().copies}
        assert copies == {("x", HOST, "acme:0"), ("p", "acme:0", HOST), ("p", "acme:0", "bolt:1")}
        edges = {(c["value"], c["from"], c["to"]) for c in pair.session.explain().edges}
        assert edges == {("y", HOST, "bolt:1"), ("b", "bolt:1", HOST)}
        assert copied == pair.explained()


def test_a_transfer_that_knows_the_way_is_used() -> None:
    source = model("g (float[N,4] x, float[N,4] y) => (float[N,4] a) { [n0] p = Neg(x) [n1] a = Abs(p) }")
    for reaches in (False, True):
        with on_three(source, {"n0"}, {"n1"}, reaches=reaches) as pair:
            results, copied = pair.copied_by(feeds_of(2))
            same(results, [abs(feeds_of(2)["x"])])
            assert (("acme:0", "bolt:1") in copied) == reaches


def test_constants_are_uploaded_once_at_creation() -> None:
    source = model(
        "g (float[N,4] x, float[N,4] y) => (float[N,4] a, float[N,4] b) { c = Constant<value_floats=[1.0, 2.0, 3.0, 4.0]>() "
        "[n0] p = Add(x, c) [n1] q = Sub(p, c) [n2] a = Mul(q, c) [n3] b = Max(q, c) }"
    )
    with on_three(source, {"n0", "n1"}, {"n2"}) as pair:
        uploaded = Counter({("cpu:0", "acme:0"): 1, ("cpu:0", "bolt:1"): 1})
        assert pair.moves() == uploaded
        total = uploaded
        for n in range(1, 20):
            feeds = feeds_of(n)
            results, copied = pair.copied_by(feeds)
            same(results, expected(source, feeds))
            assert copied == pair.explained()
            total = total + copied
        assert pair.moves() == total


def test_a_packed_constant_is_not_uploaded() -> None:
    class AddPacked(Kernel):
        packed = (1,)

        def __init__(self, node: Any) -> None:
            self.constant = node.inputs[1].constant

        def __call__(self, x: Any, y: Any) -> Any:
            assert y is None
            return upload(read(x) + self.constant, ACME)

        def bind(self, inputs: Any, outputs: Any) -> Into | None:
            return Into(self._write) if None not in (*inputs, *outputs) else None

        def _write(self, x: Any, y: Any, out: Any) -> None:
            assert y is None
            read(out)[...] = read(x) + self.constant

    class Packing(OwnProvider):
        def __init__(self) -> None:
            super().__init__(ACME)
            self._registry = KernelRegistry([KernelDef("", "Add", 14, AddPacked)])

    source = model(
        "g (float[N,4] x) => (float[N,4] a) { c = Constant<value_floats=[1.0, 2.0, 3.0, 4.0]>() a = Add(x, c) }"
    )
    with offered(Acme=Packing) as made:
        session = onnxplug.InferenceSession(source, providers=["Acme", CPU])
        for n in range(1, 20):
            same(session.run(None, {"x": row(n)}), [row(n) + np.array([1, 2, 3, 4], np.float32)])
        uploads = [move for move in made["Acme"][-1].transfer.moves() if move[0] == HOST]
        assert len(uploads) == 19, "only the feeds"
        session.close()


def test_what_only_a_shape_is_wanted_of_is_not_copied() -> None:
    source = model(
        "g (float[N,4] x, float[N,4] y) => (float[M] a, int64[2] s) { [n0] p = Neg(x) [n1] s = Shape(p) "
        "[n2] z = ReduceProd<keepdims=1>(s) [n3] a = Reshape(y, z) }"
    )
    with on_three(source, acme={"n0"}) as pair:
        feeds = feeds_of(3)
        results, copied = pair.copied_by(feeds)
        same(results, expected(source, feeds))
        assert ("acme:0", HOST) not in copied


YES = "yes = Constant<value = bool {1}>()"
LOOPS = {
    "loop": "g (float[N,4] x, float[N,4] y) => (float[N,4] a, float[K,4] b) { [n0] p = Neg(x) [n1] q = Abs(y) "
    "YES t = Constant<value_int=3>() c = Constant<value_floats=[1.0, 2.0, 3.0, 4.0]>() "
    "a, b = Loop(t, yes, p)<body = body (int64 i, bool on, float[N,4] v) => (bool go, float[N,4] w, float[4] u) "
    "{ [b0] go = Identity(on) [b1] w = Add(v, q) [b2] k = Sub(w, c) [b3] m = Max(k, y) zero = Constant<value_ints=[0]>() "
    "[b4] u = ReduceMax<keepdims=0>(m, zero) }> }",
    "loop carrying two": "g (float[N,4] x, float[N,4] y) => (float[N,4] a, float[N,4] b) { "
    "YES t = Constant<value_int=4>() [n0] p = Neg(x) a, b = Loop(t, yes, p, y)"
    "<body = body (int64 i, bool on, float[N,4] v, float[N,4] w) "
    "=> (bool go, float[N,4] vv, float[N,4] ww) { [b0] go = Identity(on) [b1] vv = Sub(w, v) [b2] ww = Add(v, x) }> }",
    "loop that swaps": "g (float[N,4] x, float[N,4] y) => (float[N,4] a, float[N,4] b) { "
    "YES t = Constant<value_int=3>() [n0] p = Neg(x) [n1] q = Abs(y) a, b = Loop(t, yes, p, q)"
    "<body = body (int64 i, bool on, float[N,4] v, float[N,4] w) "
    "=> (bool go, float[N,4] vv, float[N,4] ww) { [b0] go = Identity(on) [b1] vv = Identity(w) [b2] ww = Identity(v) }> }",
    "loop that never turns": "g (float[N,4] x, float[N,4] y) => (float[N,4] a, float[N,4] b) { "
    "YES t = Constant<value_int=0>() [n0] p = Neg(x) r = Loop(t, yes, p)"
    "<body = body (int64 i, bool on, float[N,4] v) "
    "=> (bool go, float[N,4] w) { [b0] go = Identity(on) [b1] w = Add(v, y) }> [n1] a = Neg(r) [n2] b = Identity(r) }",
    "loop that grows": "g (float[N,4] x, float[N,4] y) => (float[M,4] a) { YES t = Constant<value_int=3>() [n0] p = Neg(x) "
    "r = Loop(t, yes, p)<body = body (int64 i, bool on, float[K,4] v) => (bool go, float[L,4] w) "
    "{ [b0] go = Identity(on) [b1] u = Neg(v) [b2] w = Concat<axis=0>(u, y) }> [n1] a = Abs(r) }",
    "if": "g (float[N,4] x, float[N,4] y) => (float[N,4] a, float[N,4] b) { [n0] p = Neg(x) [n1] q = Abs(y) "
    "[n2] m = ReduceMax<keepdims=0>(x) z = Constant<value_float=2.5>() [n3] big = Less(z, m) "
    "a = If(big)<then_branch = then () => (float[N,4] u) { [b0] u = Add(p, q) }, "
    "else_branch = other () => (float[N,4] w) { [c0] w = Sub(q, y) }> [n4] b = Add(a, p) }",
    "if of captured values": "g (float[N,4] x, float[N,4] y) => (float[N,4] a, float[N,4] b) { [n0] p = Neg(x) "
    "[n2] m = ReduceMax<keepdims=0>(x) z = Constant<value_float=2.5>() [n3] big = Less(z, m) "
    "a = If(big)<then_branch = then () => (float[N,4] u) { [b0] u = Identity(p) }, "
    "else_branch = other () => (float[N,4] w) { [c0] w = Identity(y) }> [n4] b = Add(a, p) }",
    "scan": "g (float[N,4] x, float[N,4] y) => (float[4] a, float[N,4] b) { [n0] p = Neg(x) "
    "c = Constant<value_floats=[1.0, 2.0, 3.0, 4.0]>() zero = Constant<value_ints=[0]>() "
    "[n1] s = ReduceMax<keepdims=0>(y, zero) "
    "a, b = Scan<num_scan_inputs=1, body = body (float[4] v, float[4] e) => (float[4] w, float[4] f) "
    "{ [b0] w = Add(v, e) [b1] k = Mul(e, c) [b2] f = Max(k, s) }>(s, p) }",
    "loop in if in loop": "g (float[N,4] x, float[N,4] y) => (float[N,4] a) { YES t = Constant<value_int=2>() "
    "[n0] p = Neg(x) a = Loop(t, yes, p)<body = body (int64 i, bool on, float[N,4] v) => (bool go, float[N,4] w) { "
    "[b0] go = Identity(on) one = Constant<value_int=1>() [b1] odd = Equal(i, one) "
    "w = If(odd)<then_branch = then () => (float[N,4] u) { [c0] g = Add(v, y) "
    "u = Loop(t, yes, g)<body = inner (int64 j, bool on2, float[N,4] vv) => (bool go2, float[N,4] ww) "
    "{ [d0] go2 = Identity(on2) [d1] ww = Sub(vv, p) }> }, "
    "else_branch = other () => (float[N,4] o) { [e0] o = Max(v, p) }> }> }",
}  # fmt: skip


@pytest.mark.parametrize("case", LOOPS)
def test_control_flow_across_memory_spaces(case: str) -> None:
    source = model(LOOPS[case].replace("YES", YES))
    names = list(onnxplug.InferenceSession(source, providers=[CPU]).placement())

    @given(st.data(), st.sampled_from(FORMS), st.booleans(), st.booleans())
    @settings(max_examples=20, deadline=None)
    def check(data: Any, form: str, optimize: bool, specialised: bool) -> None:
        acme, bolt = shares(data, names)
        with plans(specialised), on_three(source, acme, bolt, form, optimize) as pair:
            kept = []
            for seed, n in enumerate((3, 2, 3)):
                feeds = feeds_of(n, seed)
                kept.append((pair.session.run(None, feeds), expected(source, feeds)))
            for results, wanted in kept:
                same(results, wanted)

    check()


@pytest.mark.parametrize("case", LOOPS)
@pytest.mark.parametrize("form", FORMS)
def test_control_flow_on_one_device(case: str, form: str) -> None:
    source = model(LOOPS[case].replace("YES", YES))
    with on_three(source, None, set(), form) as pair:
        for seed, n in enumerate((3, 2, 3)):
            feeds = feeds_of(n, seed)
            same(pair.session.run(None, feeds), expected(source, feeds))


def test_captured_values_are_copied_once_and_carried_values_stay() -> None:
    text = LOOPS["loop"].replace("YES", YES).replace("value_int=3", "value_int=TURNS").replace(", float[K,4] b", "")
    text = text.replace("a, b = Loop", "a = Loop").replace(", float[4] u)", ")").replace("[b4] u =", "[b4] unread =")
    counts = []
    for turns in (1, 2, 9):
        source = model(text.replace("TURNS", str(turns)))
        with on_three(source, {"b1", "n0"}, set()) as pair:
            feeds = feeds_of(3)
            results, copied = pair.copied_by(feeds)
            same(results, expected(source, feeds))
            counts.append(copied)
    assert counts[0] == counts[1] == counts[2], "however often the loop turns"


@pytest.mark.parametrize("form", FORMS)
def test_results_on_a_device_are_the_callers_own(form: str) -> None:
    source = model(
        "g (float[N,4] x, float[N,4] y) => (float[N,4] a, float[N,4] b, float[N,4] c) "
        "{ a = Identity(x) n = Neg(x) b = Identity(n) c = Add(n, y) }"
    )
    with offered(Acme=lambda: OwnProvider(ACME, form=form)):
        options = onnxplug.SessionOptions()
        options.graph_optimization_level = onnxplug.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxplug.InferenceSession(source, options, providers=["Acme", CPU])
        runner, memories = session._engine.built.runner, session._engine.built.runtime.memories
        kept = []
        for seed in range(20):
            feeds = feeds_of(seed % 19 + 1, seed)
            given_arrays = [memories[ACME].upload(feeds[name]) for name in "xy"]
            results = runner.run([g.native for g in given_arrays])
            for array in given_arrays:
                array.write(np.full(array.shape, 99, np.float32))
            kept.append((results, expected(source, feeds)))
        for results, wanted in kept:
            same([r.to_host() for r in results], wanted)
            for result in results:
                result.write(np.full(result.shape, 77, np.float32))
        del kept, results, given_arrays, array, result
        session.close()


def test_scalars_cross_memory_spaces() -> None:
    source = model("g (float x, float y) => (float a) { [n0] p = Neg(x) [n1] q = Abs(p) [n2] a = Add(q, y) }")
    with on_three(source, {"n0", "n2"}, {"n1"}) as pair:
        feeds = {"x": np.array(3, np.float32), "y": np.array(4, np.float32)}
        same(pair.session.run(None, feeds), [np.array(7, np.float32)])
        memory = pair.session._engine.built.runtime.memories[ACME]
        scalar = memory.upload(feeds["x"])
        scalar.write(feeds["y"])
        same([scalar.to_host()], [feeds["y"]])
        del scalar


def test_empty_tensors_cross_memory_spaces() -> None:
    source = model("g (float[N,4] x, float[N,4] y) => (float[N,4] a) { [n0] p = Neg(x) [n1] a = Add(p, y) }")
    with on_three(source, {"n0"}, {"n1"}) as pair:
        same(pair.session.run(None, feeds_of(0)), [np.zeros((0, 4), np.float32)])


def test_a_device_that_is_full_is_a_typed_error_and_the_session_goes_on() -> None:
    source = model("g (float[N,4] x, float[N,4] y) => (float[N,4] a) { p = Neg(x) q = Add(p, y) a = Abs(q) }")
    arena = ArenaConfig(limit=64 << 10)
    with offered(Acme=lambda: OwnProvider(ACME, arena=arena)):
        session = onnxplug.InferenceSession(source, providers=["Acme", CPU])
        for _ in range(3):
            with pytest.raises(RuntimeException, match=r"Available memory of .* is smaller than requested bytes"):
                session.run(None, feeds_of(10_000))
            feeds = feeds_of(5)
            same(session.run(None, feeds), expected(source, feeds))
        session.close()


def test_a_result_that_shows_a_copied_value_keeps_it() -> None:
    source = model(
        "g (float[N,4] x) => (float[M,2,2] a, float[N,4] d) <int64[3] shape = {-1, 2, 2}> "
        "{ [n0] p = Neg(x) [n1] a = Reshape(p, shape) [n2] q = Add(x, x) [n3] b = Reshape(q, shape) [n4] d = Neg(x) }"
    )
    with plans(False), on_three(source, acme={"n0", "n2", "n4"}, form="into", optimize=False) as pair:
        for n in (3, 2):
            feeds = {"x": feeds_of(n)["x"]}
            same(pair.session.run(None, feeds), expected(source, feeds))
