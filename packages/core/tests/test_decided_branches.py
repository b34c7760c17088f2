"""Ifs that shapes decide: their branches stand in the graph, which is placed anew for each way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from core_graphs import model
from core_passes import BRANCHING, OFF, session
from core_providers import CPU, OwnProvider, offered

import onnxplug
from onnxplug.contract import Device, Fail
from onnxplug.run import planners

SQUEEZED = """g (float[A, B, 4] x, float[4, 4] w) => (y) <int64 one = {1}, int64[1] axis = {1}> {
    h = MatMul(x, w) s = Shape(h) n = Gather(s, one) single = Equal(n, one)
    z = If (single) <then_branch = t () => (a) { a = Squeeze(h, axis) },
                     else_branch = e () => (a) { r = Shape<start = 0, end = 1>(h) m = ReduceSum<keepdims = 0>(r) two = Add(one, one)
        even = Less(m, two) a = If (even) <then_branch = p () => (q) { q = Neg(h) }, else_branch = o () => (q) { q = Abs(h) }> }>
    u = Mul(z, z) y = Sigmoid(u) }"""


def expected(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    h = (x.astype(np.float64) @ w) ** 2
    return 1 / (1 + np.exp(-(h[:, 0] if x.shape[1] == 1 else h)))


def feed(*shape: int) -> dict[str, np.ndarray]:
    numbers = np.random.default_rng(sum(shape))
    return {"x": numbers.standard_normal((*shape, 4)).astype(np.float32), "w": np.eye(4, dtype=np.float32)}


def steps(made: Any) -> list[str]:
    events = json.loads(Path(made.end_profiling()).read_text())
    return [name for e in events if e["cat"] == "Node" for name in e["args"].get("nodes", [e["args"]["op_name"]])]


@pytest.mark.parametrize("codegen", ["0", "1"])
def test_each_way_gives_its_own_results_and_all_runs_keep_to_theirs(codegen: str) -> None:
    options = onnxplug.SessionOptions()
    options.add_session_config_entry("ep.cpu.codegen", codegen)
    made = onnxplug.InferenceSession(model(SQUEEZED), options, providers=[CPU])
    for shape in [(1, 1), (3, 1), (3, 2), (1, 2), (5, 1), (1, 5), (3, 2), (0, 1), (2, 0)]:
        (y,) = made.run(None, feed(*shape))
        np.testing.assert_allclose(y, expected(**feed(*shape)), rtol=1e-5)


def test_what_ran_is_what_is_told(tmp_path: Path) -> None:
    options = onnxplug.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "profile")
    made = onnxplug.InferenceSession(model(SQUEEZED), options, providers=[CPU])
    before = made.placement()
    made.run(None, feed(2, 2))
    ran = steps(made)
    assert "If" not in ran and set(ran) <= made.placement().keys() == before.keys()
    shown = {n["name"]: n["region"] for n in made.explain().nodes}
    assert len({shown[name] for name in ran}) == 1 and shown[ran[0]] in [r["name"] for r in made.explain().regions]


@pytest.mark.parametrize(
    "keywords", [{"level": OFF}, {"disabled_optimizers": ["ConstantBranches", *BRANCHING["disabled_optimizers"]]}]
)
def test_without_the_pass_branches_stay(keywords: dict[str, Any]) -> None:
    made = session(model(SQUEEZED), **keywords)
    for shape in [(3, 1), (3, 2)]:
        np.testing.assert_allclose(made.run(None, feed(*shape))[0], expected(**feed(*shape)), rtol=1e-5)
    assert not made._engine.built.variants


def test_ways_are_shared_by_what_decides_alike() -> None:
    made = session(model(SQUEEZED))
    for size in range(2, 40):
        made.run(None, feed(size, 1))
    assert len(made._engine.built.variants) == 1


def test_ways_beyond_those_that_are_placed_branch_in_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planners, "MOST", 2)
    made = session(model(SQUEEZED))
    for shape in [(1, 1), (2, 2), (3, 3), (1, 1), (3, 2)]:
        np.testing.assert_allclose(made.run(None, feed(*shape))[0], expected(**feed(*shape)), rtol=1e-5)
    assert len(made._engine.built.variants) == 2


def test_what_data_decides_is_no_way_of_its_own() -> None:
    made = session(
        model("""g (float[N, 3] x, bool b) => (y) { s = Shape(x) y = If (b) <then_branch = t () => (a) { a = Expand(x, s) },
            else_branch = e () => (a) { c = MatMul(x, x) a = Neg(c) }> }""")
    )
    x = np.ones((3, 3), np.float32)
    for chosen, wanted in ((True, x), (False, -3 * x)):
        np.testing.assert_array_equal(made.run(None, {"x": x, "b": np.array(chosen)})[0], wanted)
    assert not made._engine.built.variants


INSIDE = """g (float[N] x, bool b, int64 n) => (y, z) { w = Abs(x)
    y = If (b) <then_branch = t () => (r) { s = Size(w) k = Cast<to = 9>(s)
        r = If (k) <then_branch = p () => (q) { q = ReduceMax<keepdims = 0>(w) },
                     else_branch = o () => (q) { q = ReduceSum<keepdims = 0>(w) }> },
      else_branch = e () => (r) { r = ReduceSum<keepdims = 0>(x) }>
    t = Constant<value = bool {1}>()
    z = Loop (n, t, x) <body = l (int64 i, bool c, float[M] v) => (bool d, o) { d = Identity(c) s = Size(v) f = Cast<to = 9>(s)
        o = If (f) <then_branch = p () => (q) { m = Neg(v) q = Concat<axis = 0>(m, v) },
                     else_branch = e () => (q) { q = Identity(v) }> }> }"""


@pytest.mark.parametrize("size", [0, 1, 3])
def test_branches_and_bodies_have_ways_of_their_own(size: int) -> None:
    made = session(model(INSIDE))
    x = -np.arange(1, size + 1, dtype=np.float32)
    grown = x
    for _ in range(2):
        grown = np.concatenate([-grown, grown]) if size else grown
    for chosen, wanted in ((True, max(-x, default=0)), (False, x.sum())):
        y, z = made.run(None, {"x": x, "b": np.array(chosen), "n": np.array(2)})
        np.testing.assert_array_equal(y, wanted)
        np.testing.assert_array_equal(z, grown)


def test_branches_that_do_not_fit_stay(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    made = session(model(SQUEEZED))
    calls: list[str] = []

    def refuse(graph: Any, like: Any) -> Any:
        calls.append(graph.name)
        raise Fail("shapes contradict each other")

    monkeypatch.setattr(made._engine.built.runtime, "place_again", refuse)
    for shape in [(3, 1), (4, 1)]:
        np.testing.assert_allclose(made.run(None, feed(*shape))[0], expected(**feed(*shape)), rtol=1e-5)
    assert len(calls) == 1 and "shapes contradict each other" in caplog.text


class OnlyBesideBranches(OwnProvider):
    """Takes nodes of graphs with an If, none of others."""

    def get_capability(self, graph: Any, kernels: Any) -> Any:
        return super().get_capability(graph, kernels) if any(n.op_type == "If" for n in graph.nodes) else ()


def test_no_way_leads_to_the_cpu_where_the_session_forbids_it(caplog: pytest.LogCaptureFixture) -> None:
    options = onnxplug.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    others = "MatMul,Shape,Gather,Equal,If,Squeeze,ReduceSum,Add,Less,Neg,Abs,Sigmoid"
    options.add_session_config_entry("session.disable_cpu_ep_fallback.allow", others)
    with offered(Acme=OnlyBesideBranches):
        made = onnxplug.InferenceSession(model(SQUEEZED), options, providers=["Acme"])
        np.testing.assert_allclose(made.run(None, feed(3, 1))[0], expected(**feed(3, 1)), rtol=1e-5)
        assert not made._engine.built.variants and "(Mul)" in caplog.text


def test_part_of_the_outputs() -> None:
    made = session(model(SQUEEZED.replace("(y) <", "(y, u) <")))
    options = onnxplug.RunOptions()
    options.only_execute_path_to_fetches = True
    for shape in [(3, 1), (3, 2)]:
        (y,) = made.run(["y"], feed(*shape), options)
        np.testing.assert_allclose(y, expected(**feed(*shape)), rtol=1e-5)


SHARED = """g (float[N, 4] x, int64 n) => (float[M, 4] y, float[K, 4] z) <int64 one = {1}, int64[1] zero = {0}> { [n0] p = Neg(x)
    [n1] s = Shape<end = 1>(p) [n2] r = Squeeze(s, zero) [n3] k = Greater(r, one)
    [n4] y = If (k) <then_branch = t () => (a) { [t0] b = Abs(p) [t1] a = Neg(b) }, else_branch = e () => (a) { [e0] a = Neg(p) }>
    [n5] z = Loop (n, , y) <body = b (int64 i, bool c, float[L, 4] v) => (bool d, w) { [b0] h = Shape<end = 1>(v) [b1] j = Squeeze(h, zero)
        [b2] f = Greater(j, one) [b3] w = If (f) <then_branch = u () => (a) { [u0] q = Sub(v, p) [u1] a = Neg(q) },
            else_branch = m () => (a) { [m0] a = Add(v, p) }> [b4] d = Identity(c) }> }"""


@pytest.mark.parametrize(
    "owned", ["n0 n4/t0", "n4/t1 n5/b3/u0", "n4/e0 n5/b3/m0 n5/b3/u1", "n0 n4/t0 n4/t1 n4/e0 n5/b3/u0 n5/b3/u1"]
)
def test_ways_of_several_providers(owned: str) -> None:
    device, names = Device("acme"), set(owned.split())
    with offered(Acme=lambda: OwnProvider(device, names)) as made:
        mine = onnxplug.InferenceSession(model(SHARED), providers=["Acme", CPU])
        owners = mine.placement()
        for rows in (1, 3, 1, 2):
            x = np.random.default_rng(rows).standard_normal((rows, 4)).astype(np.float32)
            y, z = mine.run(None, {"x": x, "n": np.array(3)})
            want = -np.abs(x) if rows > 1 else x
            np.testing.assert_allclose(y, want, rtol=1e-6)
            for _ in range(3):
                want = -(want + x) if rows > 1 else want - x
            np.testing.assert_allclose(z, want, rtol=1e-5)
        assert mine._engine.built.variants and mine.placement() == owners
        assert {name for name, owner in owners.items() if owner == "Acme"} == names
        mine.close()
        assert not made["Acme"][-1].allocator.live


@pytest.mark.parametrize("condition", [[], [True, False]])
def test_a_condition_has_exactly_one_element(condition: list[bool]) -> None:
    text = """<ir_version: 9, opset_import: ["": 20]> g (bool[K] c, float[N] x) => (float[M] y) {
        [choice] y = If(c) <then_branch = t () => (float[A] a) { a = Neg(x) }, else_branch = e () => (float[B] b) { b = Abs(x) }>
    }"""
    chooser = onnxplug.InferenceSession(onnx.parser.parse_model(text), providers=["CPUExecutionProvider"])
    with pytest.raises(
        Fail, match=r"running If node\. Name:'choice' .*If nodes condition input must have exactly one element"
    ):
        chooser.run(None, {"c": np.array(condition, bool), "x": np.ones(2, np.float32)})
