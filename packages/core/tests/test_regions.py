"""Providers that compile: regions in every form."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from core_graphs import ELEMENTWISE, Drawn, drawn_models, expected, model, plans, row, same
from core_providers import CPU, offered, read
from core_regions import ACME, CHAIN, Compiled, Compiling, feeds_of, session_on
from hypothesis import given, settings
from hypothesis import strategies as st

import onnxplug
from onnxplug.contract import HOST, Claim, Device, KernelDef, KernelRegistry
from onnxplug.run import runtime, unplanned
from onnxplug.run.plans import MAX_PLANS
from onnxplug.run.runtime import MAX_BOUND

FORMS = st.sets(st.sampled_from(["shapes", "into", "workspace", "function"]))


@given(drawn_models(), FORMS, st.booleans(), st.booleans(), st.booleans(), st.data())
@settings(max_examples=120, deadline=None)
def test_results_are_those_of_single_nodes(
    drawn: Drawn, traits: set[str], on_device: bool, optimize: bool, specialised: bool, data: Any
) -> None:
    source = drawn.bytes()
    wanted = data.draw(st.sets(st.sampled_from([n.name for n in drawn.nodes])))
    options = onnxplug.SessionOptions()
    if not optimize:
        options.graph_optimization_level = onnxplug.GraphOptimizationLevel.ORT_DISABLE_ALL
    with plans(specialised), offered(Acme=lambda: Compiling(ACME if on_device else HOST, traits, wanted)):
        session = onnxplug.InferenceSession(source, options, providers=["Acme", CPU])
        kept = []
        for seed, n in enumerate((3, 2, 3)):
            feeds = feeds_of(n, seed)
            kept.append((session.run(None, feeds), expected(source, feeds)))
        for results, wants in kept:
            same(results, wants)
        session.close()


@given(drawn_models(ELEMENTWISE))
@settings(max_examples=60, deadline=None)
def test_a_region_says_what_it_reads_and_makes(drawn: Drawn) -> None:
    with offered(Acme=Compiling) as made:
        session = onnxplug.InferenceSession(drawn.bytes(), providers=["Acme", CPU])
        outputs = {o.name for o in session.get_outputs()}
        for region in made["Acme"][-1].regions:
            inside = {id(v) for n in region.graph.nodes for v in n.outputs}
            assert all(id(v) not in inside and v.constant is None for v in region.inputs)
            assert len({id(v) for v in (*region.inputs, *region.outputs)}) == len(region.inputs) + len(region.outputs)
            for value in region.outputs:
                assert id(value) in inside
                readers = [n for n in value.consumers if n not in region.graph.nodes]
                assert readers or value.name in outputs
        explained = session.explain()
        regions = {r["name"]: r for r in explained.regions}
        assert set(regions) == {r.name for r in made["Acme"][-1].regions}
        assert all(n["region"] is None or n["name"] in regions[n["region"]]["nodes"] for n in explained.nodes)
        session.close()


@pytest.mark.parametrize("device", [HOST, ACME])
def test_a_region_that_writes_into_given_outputs_is_not_called_otherwise(device: Device) -> None:
    with offered(Acme=lambda: Compiling(device, {"shapes", "into", "workspace"})) as made:
        session = session_on()
        for n in (3, 2, 3):
            same(session.run(None, feeds_of(n)), expected(CHAIN, feeds_of(n)))
        (unit,) = made["Acme"][-1].units
        assert unit.calls == ["run_into"] * 3
        assert all(c.threads >= 1 and not c.cancelled() for c in unit.contexts)
        session.close()


@pytest.mark.parametrize("device", [HOST, ACME])
def test_a_region_that_is_a_function_is_asked_otherwise_only_for_what_it_declines(device: Device) -> None:
    with offered(Acme=lambda: Compiling(device, {"shapes", "into", "workspace", "function"})) as made:
        session = session_on()
        for n in (3, 2, 3):
            same(session.run(None, feeds_of(n)), expected(CHAIN, feeds_of(n)))
        (unit,) = made["Acme"][-1].units
        assert unit.calls == ["function", "function", "run_into", "function"]
        session.close()


@pytest.mark.parametrize("device", [HOST, ACME])
@pytest.mark.parametrize("shapes", [set(), {"shapes"}])
def test_a_region_gets_its_workspace_whatever_the_plan_knows(device: Device, shapes: set[str]) -> None:
    with offered(Acme=lambda: Compiling(device, {"workspace", *shapes})) as made:
        session = session_on()
        for n in range(1, MAX_PLANS + 6):
            same(session.run(None, feeds_of(n)), expected(CHAIN, feeds_of(n)))
        (unit,) = made["Acme"][-1].units
        assert len(unit.contexts) == MAX_PLANS + 5 and all(c.workspace is not None for c in unit.contexts)
        unit.contexts.clear()
        session.close()


def test_a_region_behind_the_data_gets_its_workspace() -> None:
    source = model(
        "g (float[N,4] x, float[N,4] y) => (float[K] a) { p = NonZero(x) t = Transpose(p) u = GatherND(y, t) "
        "[n0] v = Neg(u) [n1] a = Abs(v) }"
    )
    with offered(Acme=lambda: Compiling(HOST, {"workspace", "shapes", "into"})):
        session = session_on(source)
        for seed in range(4):
            same(session.run(None, feeds_of(3, seed)), expected(source, feeds_of(3, seed)))
        session.close()


@pytest.mark.parametrize("device", [HOST, ACME])
def test_a_small_region_behind_the_data_is_bound_once_for_each_of_many_shapes(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = model(
        "g (float[N,4] x, float[N,4] y) => (float[K] a) { p = NonZero(x) t = Transpose(p) u = GatherND(y, t) "
        "[n0] v = Neg(u) [n1] a = Abs(v) }"
    )
    bound: list[Any] = []

    def bind(region: Compiled, specs: Any) -> Compiled:
        bound.append(specs)
        return region

    monkeypatch.setattr(Compiled, "bind", bind)
    with offered(Acme=lambda: Compiling(device, {"workspace", "shapes", "into"})) as made:
        session, count = session_on(source), 2 * MAX_BOUND
        for k in (*range(count), *reversed(range(count))):
            x = np.zeros(4 * count, np.float32)
            x[:k] = 1
            feeds = {"x": x.reshape(count, 4), "y": row(count, k)}
            same(session.run(None, feeds), expected(source, feeds))
        assert len(bound) == count
        for unit in made["Acme"][-1].units:
            unit.contexts.clear()
        session.close()


def test_a_region_behind_the_data_is_kept_for_few_shapes_of_large_results(monkeypatch: pytest.MonkeyPatch) -> None:
    source = model(
        "g (float[N,4] x, float[N,4] y) => (float[K] a) { p = NonZero(x) t = Transpose(p) u = GatherND(y, t) "
        "[n0] v = Neg(u) [n1] a = Abs(v) }"
    )
    bound: list[int] = []

    def bind(region: Compiled, specs: Any) -> Compiled:
        made = Compiled(region.region, region.device, region.traits)
        living.add(made)
        bound.append(1)
        return made

    living: weakref.WeakSet[Compiled] = weakref.WeakSet()
    monkeypatch.setattr(Compiled, "bind", bind)
    monkeypatch.setattr(unplanned, "RESULTS", 4 * sum(range(91, 101)))
    monkeypatch.setattr(runtime, "MAX_BOUND", 1)
    with offered(Acme=lambda: Compiling(HOST, {"shapes", "into"})):
        session = session_on(source)
        for k in range(1, 101):
            x = np.zeros(400, np.float32)
            x[:k] = 1
            feeds = {"x": x.reshape(100, 4), "y": row(100, k)}
            same(session.run(None, feeds), expected(source, feeds))
        gc.collect()
        assert len(bound) == 100
        assert len(living) == 10
        session.close()


def test_outputs_may_be_known_in_part() -> None:
    source = model(
        "g (float[N,4] x, float[N,4] y) => (float[N,4] a, float[N,4] b) { [n0] p = Add(x, y) [n1] a = Relu(p) "
        "[n2] b = Neg(p) }"
    )
    with offered(Acme=lambda: Compiling(HOST, {"shapes", "one unknown"})):
        session = session_on(source)
        same(session.run(None, feeds_of(3)), expected(source, feeds_of(3)))
        session.close()


def test_names_are_stable_and_follow_the_content() -> None:
    def name(text: str) -> str:
        with offered(Acme=Compiling) as made:
            session_on(model(text)).close()
            (region,) = made["Acme"][-1].regions
            return region.name

    text = "g (float[N,4] x, float[N,4] y) => (float[N,4] a) { p = Add(x, y) a = Relu(p) }"
    assert name(text) == name(text) == name(text.replace("p", "other"))
    assert len({name(t) for t in (text, text.replace("Relu", "Neg"), text.replace("N,4", "N,5"))}) == 3
    constant = "g (float[4] x) => (float[4] a) { c = Constant<value_floats=[1.0, 2.0, 3.0, 4.0]>() a = Add(x, c) }"
    assert name(constant) != name(constant.replace("4.0", "5.0"))


def test_a_whole_construct_may_be_claimed() -> None:
    source = model(
        "g (float[N,4] x, float[N,4] y) => (float[N,4] a) { [n0] p = Neg(x) [n1] m = ReduceMax<keepdims=0>(x) "
        "z = Constant<value_float=0.0>() [n2] big = Less(z, m) [n3] a = If(big)"
        "<then_branch = t () => (float[N,4] u) { [b0] u = Add(p, y) }, "
        "else_branch = e () => (float[N,4] w) { [c0] w = Sub(p, y) }> }"
    )

    class Branch(Compiled):
        def __call__(self, context: Any, *inputs: Any) -> Any:
            given = dict(zip([v.name for v in self.region.inputs], map(read, inputs), strict=True))
            assert set(given) == {"big", "p", "y"}
            return [given["p"] + given["y"] if given["big"] else given["p"] - given["y"]]

    class WholeIf(Compiling):
        def get_capability(self, graph: Any, kernels: Any) -> Any:
            for node in graph.nodes:
                if node.op_type == "If":
                    yield Claim([node], "branch")

        def compile(self, regions: Any) -> Any:
            return [Branch(r, HOST, set()) for r in regions]

    with offered(Acme=WholeIf):
        session = session_on(source)
        assert session.placement()["n3"] == "Acme"
        for seed in range(3):
            same(session.run(None, feeds_of(2, seed)), expected(source, feeds_of(2, seed)))
        session.close()


def never(node: Any) -> Any:
    raise NotImplementedError("whatever is claimed is compiled")


class Registering(Compiling):
    """Registers what it compiles, as the conformance kit wants it, without kernels."""

    def get_kernel_registry(self) -> Any:
        return KernelRegistry(
            [KernelDef("", name, since, never) for name, since in (("Shape", 21), ("Gather", 13), ("Mul", 14))]
        )


def test_shapes_are_worked_out_beside_a_provider_that_has_its_kernels_in_regions_only() -> None:
    source = model("""agraph (float[N, 4] x) => (float[M] y) {
        shape = Shape(x)
        zero = Constant<value_int = 0>()
        rows = Gather(shape, zero)
        four = Constant<value_int = 4>()
        count = Mul(rows, four)
        one = Constant<value_ints = [1]>()
        wanted = Reshape(count, one)
        y = Reshape(x, wanted)
    }""")
    with offered(Acme=Registering):
        session = onnxplug.InferenceSession(source, providers=["Acme", CPU])
        for n in (3, 2):
            same(session.run(None, {"x": row(n)}), [row(n).reshape(-1)])
