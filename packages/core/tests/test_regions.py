"""Providers that compile: regions in every form, and who takes over when one fails."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from core_graphs import ELEMENTWISE, Drawn, drawn_models, expected, model, plans, row, same
from core_providers import CPU, RULES, OwnProvider, offered, read, upload
from hypothesis import given, settings
from hypothesis import strategies as st

import onnxplug
from onnxplug.contract import HOST, Claim, CompiledRegion, Device, EPFail, KernelDef, KernelRegistry, Region
from onnxplug.contract.errors import Fail
from onnxplug.contract.grouping import convex_groups
from onnxplug.run import runtime, unplanned
from onnxplug.run.plans import MAX_PLANS
from onnxplug.run.runtime import MAX_BOUND

ACME = Device("acme")


def feeds_of(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    return {"x": row(n, seed), "y": row(n, seed + 1)}


class Compiled(CompiledRegion):
    """A region run by the rules of ``core_providers``, one node after the other. ``traits`` say which optional parts of
    the contract it has, or how it misbehaves."""

    def __init__(self, region: Region, device: Device, traits: set[str]) -> None:
        self.region, self.device, self.traits = region, device, traits
        self.contexts: list[Any] = []
        self.calls: list[str] = []

    def _compute(self, inputs: Sequence[Any]) -> list[np.ndarray]:
        known = {id(v): read(array) for v, array in zip(self.region.inputs, inputs, strict=True)}
        for node in self.region.graph.nodes:
            operands = [known.get(id(v), v.constant) for v in node.inputs]
            known[id(node.outputs[0])] = np.asarray(RULES[node.op_type](*operands))
        return [known[id(v)] for v in self.region.outputs]

    def _scribble(self, context: Any, shapes: Sequence[Any]) -> None:
        self.contexts.append(context)
        if "workspace" in self.traits:
            scratch = read(context.workspace)
            assert scratch.shape == (self.workspace(shapes),) and scratch.dtype == np.uint8
            scratch.fill(0xAA)

    def __call__(self, context: Any, *inputs: Any) -> Sequence[Any]:
        self.calls.append("call")
        if "fails" in self.traits:
            raise EPFail("the device is gone")
        if "raises" in self.traits:
            raise KeyError("no such thing")
        self._scribble(context, [tuple(x.shape) for x in inputs])
        results = self._compute(inputs)
        if "too few" in self.traits:
            return results[:-1]
        if "wrong shape" in self.traits:
            return [upload(r[:1], self.device) if self.device != HOST else r[:1] for r in results]
        if self.device == HOST:
            return results
        return [upload(r, self.device) for r in results]

    def output_shapes(self, inputs: Any) -> Any:
        if "shapes raise" in self.traits:
            raise KeyError("no such shape")
        if "shapes fail" in self.traits:
            raise EPFail("the device is gone")
        if "shapes" not in self.traits or None in inputs:
            return None
        found = [array.shape for array in self._compute([np.zeros(s, np.float32) for s in inputs])]
        return [None, *found[1:]] if "one unknown" in self.traits else found

    def run_into(self, context: Any, inputs: Any, outputs: Any) -> bool:
        self.calls.append("run_into")
        if "into" not in self.traits:
            return False
        self._scribble(context, [tuple(x.shape) for x in inputs])
        results = [r.copy() for r in self._compute(inputs)]
        for output in outputs:
            read(output).fill(np.nan)
        for output, result in zip(outputs, results, strict=True):
            read(output)[...] = result
        return True

    def function(self) -> Any:
        return self._direct if "function" in self.traits else None

    def _direct(self, workspace: Any, *operands: Any) -> bool:
        self.calls.append("function")
        count = len(self.region.inputs)
        if operands[0].shape[0] == 2:
            return False
        for output, result in zip(operands[count:], self._compute(operands[:count]), strict=True):
            read(output)[...] = result
        return True

    def workspace(self, inputs: Any) -> int:
        if "workspace" not in self.traits:
            return 0
        assert None not in inputs
        return 64 + sum(int(np.prod(shape)) for shape in inputs)


class Compiling(OwnProvider):
    """Claims maximal groups of the nodes it has rules for, as regions."""

    def __init__(self, device: Device = HOST, traits: set[str] | None = None, wanted: set[str] | None = None) -> None:
        super().__init__(device, wanted)
        self.traits = traits or set()
        self.regions: list[Region] = []
        self.units: list[Compiled] = []

    def get_capability(self, graph: Any, kernels: Any) -> Any:
        def takes(node: Any) -> bool:
            return node.op_type in RULES and node.domain == "" and (self.wanted is None or node.name in self.wanted)

        for number, group in enumerate(convex_groups(graph, takes)):
            yield Claim(group, f"group{number}")

    def get_kernel_registry(self) -> Any:
        return None

    def compile(self, regions: Any) -> Any:
        self.regions = list(regions)
        if "compile raises" in self.traits:
            raise ValueError("this chip cannot")
        if "compile gives nothing" in self.traits:
            return None
        if "compile gives something else" in self.traits:
            return [object() for _ in regions]
        self.units = [Compiled(r, self.device, self.traits) for r in regions]
        return self.units[1:] if "compile gives too few" in self.traits else self.units


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


CHAIN = model(
    "g (float[N,4] x, float[N,4] y) => (float[N,4] a) { c = Constant<value_floats=[1.0, 2.0, 3.0, 4.0]>() "
    "[n0] p = Add(x, c) [n1] q = Mul(p, y) [n2] a = Relu(q) }"
)


def session_on(source: bytes = CHAIN, **kwargs: Any) -> Any:
    return onnxplug.InferenceSession(source, **{"providers": ["Acme", CPU], **kwargs})


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


# ---- failures


WAYS = ["compile raises", "compile gives nothing", "compile gives something else", "compile gives too few"]


@pytest.mark.parametrize("way", WAYS)
def test_the_next_provider_takes_what_cannot_be_compiled(way: str, caplog: pytest.LogCaptureFixture) -> None:
    with offered(Acme=lambda: Compiling(ACME, {way}), Bolt=OwnProvider), caplog.at_level(logging.WARNING):
        session = session_on(providers=["Acme", "Bolt", CPU])
        assert "Acme could not compile 1 region(s)" in caplog.text
        same(session.run(None, feeds_of(3)), expected(CHAIN, feeds_of(3)))
        assert set(session.placement().values()) == {"Bolt"}
        for node in session.explain().nodes:
            assert "compil" in node["reasons"]["Acme"], node
            assert "Bolt" in node["reasons"][CPU], "not of the one that gave up"
        if way == "compile raises":
            assert "this chip cannot" in str(session.explain())
        session.close()


@pytest.mark.parametrize("way", WAYS)
def test_what_cannot_be_compiled_is_an_error_where_fallback_is_disabled(way: str) -> None:
    options = onnxplug.SessionOptions()
    options.add_session_config_entry("session.disable_compile_fallback", "1")
    with offered(Acme=lambda: Compiling(HOST, {way})) as made:
        with pytest.raises(Fail, match="Acme"):
            session_on(sess_options=options)
        assert made["Acme"][-1].closed


FAILURES = ["fails", "shapes fail"]


@pytest.mark.parametrize("way", FAILURES)
@pytest.mark.parametrize("device", [HOST, ACME])
def test_a_provider_that_fails_is_left_out(way: str, device: Device, caplog: pytest.LogCaptureFixture) -> None:
    with offered(Acme=lambda: Compiling(device, {way}), Bolt=OwnProvider), caplog.at_level(logging.WARNING):
        session = session_on(providers=["Acme", "Bolt", CPU])
        feeds = feeds_of(3)
        before = {name: array.copy() for name, array in feeds.items()}
        same(session.run(None, feeds), expected(CHAIN, feeds))
        same(list(feeds.values()), list(before.values()))
        assert "Acme failed at run time" in caplog.text and "the device is gone" in caplog.text
        assert session.get_providers() == ["Bolt", CPU] and set(session.placement().values()) == {"Bolt"}
        caplog.clear()
        same(session.run(["a"], feeds_of(4)), expected(CHAIN, feeds_of(4)))
        assert not caplog.text
        session.close()


def test_a_failing_provider_is_an_error_where_fallback_is_disabled() -> None:
    with offered(Acme=lambda: Compiling(HOST, {"fails"})):
        session = session_on(enable_fallback=0)
        for _ in range(2):
            with pytest.raises(EPFail, match="the device is gone"):
                session.run(None, feeds_of(3))
        session.enable_fallback()
        same(session.run(None, feeds_of(3)), expected(CHAIN, feeds_of(3)))


class Unplugged(OwnProvider):
    """A device that is pulled out: from then on its memory cannot be used."""

    def __init__(self, when: Callable[[list[Any]], bool]) -> None:
        super().__init__(ACME)
        copy = self.transfer.copy

        def failing(source: Any, destination: Any, stream: Any = None) -> None:
            if when(self.transfer.log):
                raise EPFail("no answer from the bus")
            copy(source, destination, stream)

        self.transfer.copy = failing  # type: ignore[method-assign]


MIXED = model(
    "g (float[N,4] x, float[N,4] y) => (float[N,4] a, float[N,4] b) { [n0] p = Neg(x) [n1] q = Softsign(p) "
    "[n2] r = Add(p, y) [n3] a = Sub(q, r) [n4] b = Softsign(x) }"
)


@pytest.mark.parametrize("after", range(5))
def test_a_device_that_goes_in_the_middle_of_a_run(after: int) -> None:
    with offered(Acme=lambda: Unplugged(lambda log: len(log) >= after)):
        session, feeds = session_on(MIXED), feeds_of(3)
        for result, want in zip(session.run(None, feeds), expected(MIXED, feeds), strict=True):
            np.testing.assert_allclose(result, want, rtol=1e-6)
        assert session.get_providers() == [CPU]
        session.close()


@pytest.mark.parametrize("way", ["raises", "too few", "wrong shape", "shapes raise"])
def test_a_broken_region_is_a_typed_error_that_names_it(way: str) -> None:
    with offered(Acme=lambda: Compiling(HOST, {way, "shapes"})):
        session = session_on()
        for _ in range(2):
            with pytest.raises(Fail, match="group0"):
                session.run(None, feeds_of(3))


def test_a_claim_without_a_compiler_is_refused() -> None:
    class Cannot(OwnProvider):
        def get_capability(self, graph: Any, kernels: Any) -> Any:
            return [Claim(list(graph.nodes), "all")]

    with offered(Acme=Cannot), pytest.raises(Fail, match=r"Acme claims the fused region 'all' but .* no compile"):
        session_on()


def test_cancelling_reaches_a_region() -> None:
    options = onnxplug.RunOptions()
    seen: list[bool] = []

    class Long(Compiled):
        def __call__(self, context: Any, *inputs: Any) -> Any:
            seen.append(context.cancelled())
            options.terminate = True
            seen.append(context.cancelled())
            raise Fail("stopped")

    class Slow(Compiling):
        def compile(self, regions: Any) -> Any:
            return [Long(r, HOST, set()) for r in regions]

    with offered(Acme=Slow):
        session = session_on()
        with pytest.raises(Fail, match="stopped"):
            session.run(None, feeds_of(2), options)
    assert seen == [False, True]


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
