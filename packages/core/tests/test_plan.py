"""Plans, seen through sessions: storage that is reused never shows in a result, and a steady state allocates nothing."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core_graphs import DATA_DEPENDENT, ELEMENTWISE, MOVING, Drawn, drawn_models, expected, model, plans, row, same
from core_providers import CPU, RULES, OwnProvider, offered
from hypothesis import given, settings
from hypothesis import strategies as st

import onnxplug
from onnxplug.contract import EPFail, Into, Kernel, KernelDef, KernelRegistry
from onnxplug.contract.errors import Fail, InvalidArgument
from onnxplug.plan import Form, Keep, Planner
from onnxplug.run.plans import MAX_PLANS

LEVELS = onnxplug.GraphOptimizationLevel


def session(source: bytes, providers: Any = (CPU,), optimize: bool = True, **entries: str) -> Any:
    options = onnxplug.SessionOptions()
    options.add_session_config_entry("ep.cpu.codegen", "0")  # a step for each node
    if not optimize:
        options.graph_optimization_level = LEVELS.ORT_DISABLE_ALL
    for key, value in entries.items():
        options.add_session_config_entry(key, value)
    return onnxplug.InferenceSession(source, options, providers=list(providers))


def feeds_of(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    return {"x": row(n, seed), "y": row(n, seed + 1)}


def runner(made: Any) -> Any:
    return made._engine.built.runner


def arrays_in(value: Any) -> list[np.ndarray]:
    return [a for item in value for a in arrays_in(item)] if isinstance(value, list) else [value]


def assert_fresh(results: list[Any], others: list[np.ndarray]) -> None:
    """Results share no memory with each other nor with ``others``."""
    arrays = arrays_in(results)
    for index, array in enumerate(arrays):
        for other in (*arrays[:index], *others):
            assert not np.shares_memory(array, other)
        assert array.flags.writeable


# ---- results


@given(drawn_models(), st.booleans(), st.lists(st.sampled_from([1, 2, 3, 5]), min_size=2, max_size=5), st.booleans())
@settings(max_examples=120, deadline=None)
def test_storage_reuse_never_shows(drawn: Drawn, optimize: bool, sizes: list[int], specialised: bool) -> None:
    source = drawn.bytes()
    made = session(source, optimize=optimize)
    kept: list[tuple[Any, Any]] = []
    for at, n in enumerate(sizes):
        feeds = feeds_of(n, at)
        before = {name: array.copy() for name, array in feeds.items()}
        with plans(specialised):
            results = made.run(None, feeds)
        assert_fresh(results, [*feeds.values(), *(r for old, _ in kept for r in old)])
        kept.append((results, expected(source, feeds)))
        same(list(feeds.values()), list(before.values()))
    for results, wanted in kept:
        same(results, wanted)


@given(drawn_models((*ELEMENTWISE, *MOVING)), st.sampled_from(["into", "returns", "views"]), st.booleans())
@settings(max_examples=120, deadline=None)
def test_in_place_writing_never_meets_what_is_still_read(drawn: Drawn, form: str, optimize: bool) -> None:
    """A provider whose kernels write one element at a time and overwrite their inputs, among CPU's, some of which give
    views."""
    source = drawn.bytes()
    with offered(Careless=lambda: OwnProvider(form=form)):
        made = session(source, ["Careless", CPU], optimize)
        for n in (3, 2, 3):
            feeds = feeds_of(n)
            results = made.run(None, feeds)
            assert_fresh(results, list(feeds.values()))
            same(results, expected(source, feeds))
            for result in results:
                result.fill(np.nan)  # a caller may do what they like with a result
        made.close()


def test_a_view_of_what_is_overwritten() -> None:
    source = model(
        "g (float[N,4] x, float[N,4] y) => (float[N,4] a) { n = Neg(x) f = Identity(n) s = Add(n, f) a = Abs(s) }"
    )
    flip = {"Identity": lambda x: x[::-1]}
    with offered(
        Careless=lambda: OwnProvider(rules={k: RULES[k] for k in ("Neg", "Add", "Abs")}),
        Flipping=lambda: OwnProvider(form="views", rules=flip),
    ):
        made, feeds = session(source, ["Careless", "Flipping", CPU], optimize=False), feeds_of(3)
        same(made.run(None, feeds), [abs(feeds["x"] + feeds["x"][::-1])])
        made.close()


def exhaust(made: Any) -> None:
    """Use up the specialised plans, so that further shapes take the shape-generic one."""
    for n in range(20, 20 + MAX_PLANS):
        made.run(None, feeds_of(n))


RETURNED = {
    "an input": "g (float[N,4] x, float[N,4] y) => (float[N,4] a) { a = Identity(x) }",
    "one input twice": "g (float[N,4] x, float[N,4] y) => (float[N,4] a, float[N,4] b) "
    "{ a = Identity(x)  b = Identity(x) }",
    "an input cast to its own type": "g (float[N,4] x, float[N,4] y) => (float[N,4] a) { a = Cast<to=1>(x) }",
    "an input dropped out": "g (float[N,4] x, float[N,4] y) => (float[N,4] a) { a = Dropout(x) }",
    "an input clipped by nothing": "g (float[N,4] x, float[N,4] y) => (float[N,4] a) { a = Clip(x) }",
    "a reshaped input": "g (float[N,4] x, float[N,4] y) => (float[M] a) { s = Constant<value_ints=[-1]>() "
    "a = Reshape(x, s) }",
    "one value in two shapes": "g (float[N,4] x, float[N,4] y) => (float[N,4] n, float[M] a, float[1,N,4] b) "
    "{ n = Neg(x) s = Constant<value_ints=[-1]>() a = Reshape(n, s) z = Constant<value_ints=[0]>() "
    "b = Unsqueeze(n, z) }",
    "one value under two names": "g (float[N,4] x, float[N,4] y) => (float[N,4] a, float[N,4] b) "
    "{ a = Neg(x) b = Identity(a) }",
    "equal nodes": "g (float[N,4] x, float[N,4] y) => (float[N,4] a, float[N,4] b) { a = Neg(x) b = Neg(x) }",
    "a constant": "g (float[N,4] x, float[N,4] y) => (float[2] a, float[N,4] b) "
    "{ a = Constant<value_floats=[1.0, 2.0]>() b = Neg(x) }",
    "a constant twice": "g (float[N,4] x, float[N,4] y) => (float[2] a, float[2] b) "
    "{ a = Constant<value_floats=[1.0, 2.0]>() b = Identity(a) }",
    "a shape": "g (float[N,4] x, float[N,4] y) => (int64[2] a, int64[2] b) { a = Shape(x) b = Identity(a) }",
    "a branch's captured value": "g (float[N,4] x, float[N,4] y) => (float[N,4] a) { "
    "z = Constant<value_float=0.0>() m = ReduceMax<keepdims=0>(x) big = Less(z, m) "
    "a = If(big)<then_branch = t () => (float[N,4] u) { u = Identity(x) }, "
    "else_branch = e () => (float[N,4] w) { w = Identity(y) }> }",
    "a branch's constant": "g (float[N,4] x, float[N,4] y) => (float[2] a) { "
    "z = Constant<value_float=0.0>() m = ReduceMax<keepdims=0>(x) big = Less(z, m) "
    "a = If(big)<then_branch = t () => (float[2] u) { u = Constant<value_floats=[1.0, 2.0]>() }, "
    "else_branch = e () => (float[2] w) { w = Constant<value_floats=[3.0, 4.0]>() }> }",
    "what a loop that never turns carries": "g (float[N,4] x, float[N,4] y) => (float[N,4] a) { "
    "n = Constant<value_int=0>() a = Loop(n, , x)<body = b (int64 i, bool c, float[N,4] v) => "
    "(bool d, float[N,4] w) { d = Identity(c) w = Neg(v) }> }",
    "what a loop carries through": "g (float[N,4] x, float[N,4] y) => (float[N,4] a) { "
    "n = Constant<value_int=2>() a = Loop(n, , x)<body = b (int64 i, bool c, float[N,4] v) => "
    "(bool d, float[N,4] w) { d = Identity(c) w = Identity(v) }> }",
    "a scan's state": "g (float[N,4] x, float[N,4] y) => (float[N,4] a, float[N,4] b) { "
    "a, b = Scan<num_scan_inputs=1, body = b (float[N,4] s, float[4] e) => (float[N,4] t, float[4] f) "
    "{ t = Identity(s) f = Identity(e) }>(x, y) }",
}  # fmt: skip


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("generic", [True, False])
@pytest.mark.parametrize("case", RETURNED)
def test_results_are_the_callers_own(case: str, generic: bool, optimize: bool) -> None:
    source = model(RETURNED[case])
    made = session(source, optimize=optimize)
    if generic:
        exhaust(made)
    feeds = feeds_of(3)
    wanted = expected(source, feeds)
    earlier: list[Any] = []
    for _ in range(3):
        results = made.run(None, feeds)
        same(results, wanted)
        assert_fresh(results, [*feeds.values(), *earlier])
        earlier += results
        for result in results:
            result.fill(77)


@pytest.mark.parametrize("optimize", [True, False])
def test_sequences_are_the_callers_own(optimize: bool) -> None:
    source = model(
        "g (float[N,4] x, float[N,4] y) => (seq(float[N,4]) a, float[N,4] b) "
        "{ a = SequenceConstruct(x, y, x) i = Constant<value_int=1>() b = SequenceAt(a, i) }"
    )
    made, feeds = session(source, optimize=optimize), feeds_of(2)
    for _ in range(2):
        sequence, element = made.run(None, feeds)
        same([*sequence, element], [feeds["x"], feeds["y"], feeds["x"], feeds["y"]])
        assert_fresh([sequence, element], list(feeds.values()))
        for array in (*sequence, element):
            array.fill(77)


def test_strings_are_the_callers_own() -> None:
    source = model("g (string[N] s, string[N] t) => (string[N] a, string[N] b) { a = Identity(s) b = Identity(s) }")
    made = session(source, optimize=False)
    feed = np.array(["one", "two"], object)
    for _ in range(2):
        a, b = made.run(None, {"s": feed, "t": feed})
        assert a.tolist() == b.tolist() == ["one", "two"]
        a[0] = b[1] = "other"
    assert feed.tolist() == ["one", "two"]


@pytest.mark.parametrize("form", ["into", "returns", "views"])
@pytest.mark.parametrize("generic", [True, False])
def test_a_kernel_may_give_its_input_back(form: str, generic: bool) -> None:
    source = model(
        "g (float[N,4] x, float[N,4] y) => (float[N,4] a, float[N,4] b, float[N,4] c, float[N,4] d) "
        "{ a = Identity(x) n = Neg(x) b = Identity(n) c = Identity(n) d = Add(n, b) }"
    )
    with offered(Careless=lambda: OwnProvider(form=form)):
        made, feeds = session(source, ["Careless", CPU], optimize=False), feeds_of(3)
        if generic:
            exhaust(made)
        for _ in range(2):
            results = made.run(None, feeds)
            same(results, expected(source, feeds))
            assert_fresh(results, list(feeds.values()))
            for result in results:
                result.fill(77)
        made.close()


# ---- shapes


def test_each_shape_has_its_plan_and_growing_sequences_share_one() -> None:
    made = session(model("g (float[N,4] x, float[N,4] y) => (float[N,4] a) { b = Add(x, y) a = Neg(b) }"))
    for n in range(1, 200):
        feeds = feeds_of(n)
        same(made.run(None, feeds), [-(feeds["x"] + feeds["y"])])
    plans = runner(made).plans.kept
    assert None in plans and len(plans) == MAX_PLANS + 1


def test_a_shape_that_keeps_coming_earns_a_plan() -> None:
    made = session(model("g (float[N,4] x, float[N,4] y) => (float[N,4] a) { b = Add(x, y) a = Neg(b) }"))
    exhaust(made)
    for _ in range(3):
        made.run(None, feeds_of(7))
    plans = runner(made).plans.kept
    assert ((7, 4), (7, 4)) in plans and len([key for key in plans if key is not None]) == MAX_PLANS
    assert ((20, 4), (20, 4)) not in plans, "the least recently used plan made room"


def test_one_shape_more_than_there_is_room_for_does_not_plan_at_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    made = session(model("g (float[N,4] x, float[N,4] y) => (float[N,4] a) { b = Add(x, y) a = Neg(b) }"))
    planner, count = runner(made).plans._planners, Counter[str]()
    plan = type(planner).plan
    monkeypatch.setattr(type(planner), "plan", lambda self, specs: count.update(["plan"]) or plan(self, specs))
    for _ in range(12):
        for n in range(1, MAX_PLANS + 2):
            made.run(None, feeds_of(n))
    assert count["plan"] < 12 * (MAX_PLANS + 1) / 2


def test_sequences_that_grow_alike_share_one_plan_however_many_there_are() -> None:
    made = session(model("g (float[N,4] x, float[N,4] y) => (float[N,4] a) { b = Add(x, y) a = Neg(b) }"))
    exhaust(made)
    plans = runner(made).plans.kept
    before = set(plans)
    for _ in range(4):
        for n in range(100, 100 + 2 * MAX_PLANS):
            made.run(None, feeds_of(n))
    assert set(plans) == before | {None}


def profile_of(made: Any, feeds: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """Node events of one run."""
    made.run(None, feeds)
    events = json.loads(Path(made.end_profiling()).read_text())
    return [e for e in events if e["cat"] == "Node"]


def profiled(source: bytes, folder: Path, **kwargs: Any) -> Any:
    options = onnxplug.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    options.add_session_config_entry("ep.cpu.codegen", "0")
    return onnxplug.InferenceSession(source, options, **{"providers": [CPU], **kwargs})


SHAPE_ARITHMETIC = model(
    "g (float[N,4] x, float[N,4] y) => (float[M,2] a, float[K] b) { "
    "s = Shape(x) z = Constant<value_ints=[0]>() n = Gather<axis=0>(s, z) two = Constant<value_ints=[2]>() "
    "m = Mul(n, two) t = Concat<axis=0>(m, two) v = Neg(x) a = Reshape(v, t) "
    "size = Size(x) q = Cast<to=7>(size) one = Constant<value_ints=[1]>() r = Reshape(q, one) w = Add(x, y) "
    "b = Reshape(w, r) }"
)


def test_shape_arithmetic_is_done_by_the_plan(tmp_path: Path) -> None:
    made, feeds = profiled(SHAPE_ARITHMETIC, tmp_path), feeds_of(3)
    same(made.run(None, feeds), expected(SHAPE_ARITHMETIC, feeds))
    events = profile_of(made, feeds)
    assert {e["args"]["op_name"] for e in events} == {"Neg", "Add"}


def test_shape_arithmetic_is_right_in_every_plan() -> None:
    made = session(SHAPE_ARITHMETIC)
    for n in [*range(0, MAX_PLANS + 4), 3, 40, 2]:
        feeds = feeds_of(n)
        same(made.run(None, feeds), expected(SHAPE_ARITHMETIC, feeds))


def test_a_profile_has_each_node_once_with_its_provider(tmp_path: Path) -> None:
    source = model(
        "g (float[N,4] x, float[N,4] y) => (float[M,4] a, float[N,4] c) { p = Relu(x) w = NonZero(p) "
        "t = Transpose(w) u = GatherND(x, t) z = Constant<value_ints=[-1, 1]>() v = Reshape(u, z) "
        "o = Constant<value_ints=[1, 4]>() a = Expand(v, o) c = Neg(y) }"
    )
    made, feeds = profiled(source, tmp_path), feeds_of(3)
    placement = made.placement()
    events = profile_of(made, feeds)
    times = Counter(e["args"]["node_name"] for e in events)
    assert set(times.values()) == {1} and set(times) <= set(placement)
    assert all(placement[e["args"]["node_name"]] == e["args"]["provider"] for e in events)


def test_terminate_ends_a_profiled_run_too(tmp_path: Path) -> None:
    made = profiled(SHAPE_ARITHMETIC, tmp_path)
    options = onnxplug.RunOptions()
    options.terminate = True
    with pytest.raises(Fail, match="terminate flag"):
        made.run(None, feeds_of(2), options)
    made.end_profiling()


def test_values_behind_the_data_are_planned_when_known() -> None:
    source = model(
        "g (float[N,4] x, float[N,4] y) => (float[K] a) { p = Relu(x) w = NonZero(p) t = Transpose(w) "
        "u = GatherND(y, t) v = Neg(u) a = Add(v, u) }"
    )
    made = session(source)
    for n in (0, 1, 4, 2):
        for seed in range(3):
            feeds = feeds_of(n, seed)
            same(made.run(None, feeds), expected(source, feeds))


# ---- steady state


def chain(length: int, width: str = "N,4") -> bytes:
    steps = " ".join(f"v{i + 1} = Add(v{i}, c)" for i in range(1, length))
    last = f"v{length}"
    return model(
        f"g (float[{width}] x) => (float[{width}] {last}) "
        f"{{ c = Constant<value_floats=[1.0]>() v1 = Add(x, c) {steps} }}"
    )


def test_a_chain_lives_in_the_slab() -> None:
    source = chain(300)
    made = session(source)
    feed = np.zeros((256, 4), np.float32)
    plan = runner(made).plan([feed])
    made_by_steps = [plan.slots[n] for step in plan.steps for n in step.outs if n is not None]
    inner = [s for s in made_by_steps if s.number not in plan.outputs]
    in_slab = sum(s.spec.nbytes for s in inner if s.keep is Keep.SLAB)
    assert in_slab >= 0.8 * sum(s.spec.nbytes for s in inner)
    assert sum(plan.slabs.values()) <= 2 * feed.nbytes, "in place, or two storages in turn"
    assert {step.form for step in plan.steps} == {Form.INTO}
    same(made.run(None, {"x": feed}), [feed + 300])


def test_a_steady_state_allocates_results_only() -> None:
    made = session(chain(300))
    feed = np.zeros((1024, 16, 4), np.float32).reshape(-1, 4)
    for _ in range(3):
        made.run(None, {"x": feed})
    kept, peaks = [], []
    for _ in range(3):  # other threads may be at work once
        gc.collect()
        tracemalloc.start()
        try:
            results = [made.run(None, {"x": feed})]
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            results.append(made.run(None, {"x": feed}))
            after, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        kept.append(after - before)
        peaks.append(peak - before)
    assert min(kept) < feed.nbytes + 4096, "one result"
    assert min(peaks) < feed.nbytes + 64 * 1024, "and nothing of its size beside it"


def test_frames_go_without_waiting_for_the_collector() -> None:
    """A plan that is dropped gives its slab back at once, also one with control flow."""
    source = model(
        "g (float[N,4] x, float[N,4] y) => (float[N,4] a) { n = Constant<value_int=3>() p = Neg(x) "
        "q = Loop(n, , p)<body = b (int64 i, bool c, float[N,4] v) => (bool d, float[N,4] w) "
        "{ d = Identity(c) t = Neg(v) w = Add(t, y) }> r = Neg(q) s = Neg(r) a = Add(s, y) }"
    )
    made = session(source)
    space = next(m for m in made._engine.built.runtime.memories if str(m.device) == "cpu:0")
    made.run(None, feeds_of(2))
    gc.collect()
    gc.disable()
    try:
        for n in range(3, 40):
            made.run(None, feeds_of(n))
        runner(made).release()
        for unit in made._engine.built.placement.main.units:
            control = made._engine.built.runtime.bound(unit)
            for body in getattr(control, "runners", {}).values():
                body.release()
        assert space.allocator.stats().extra["live_allocations"] == 0
    finally:
        gc.enable()


# ---- kernels that misbehave


class Broken(Kernel):
    def __init__(self, how: str) -> None:
        self.how = how

    def __call__(self, *inputs: Any) -> Any:
        if self.how == "raises":
            raise KeyError("no such thing")
        if self.how == "too few":
            return ()
        if self.how == "fails":
            raise EPFail("the device is gone")
        return inputs[0]

    def bind(self, inputs: Any, outputs: Any) -> Into | None:
        if self.how == "bind raises":
            raise IndexError("no such shape")
        if self.how == "bind fails":
            raise EPFail("the device is gone")
        return None


class BrokenProvider(OwnProvider):
    def __init__(self, how: str) -> None:
        super().__init__()
        ops = {"Neg": 13, "Split": 18}
        self._registry = KernelRegistry(KernelDef("", op, since, lambda node: Broken(how)) for op, since in ops.items())


SPLIT = model(
    "g (float[N,4] x, float[N,4] y) => (float[N,2] c, float[N,4] d) "
    "{ a, b = Split<axis=1, num_outputs=2>(x) c = Add(a, b) d = Neg(y) }"
)


@pytest.mark.parametrize("how", ["raises", "too few", "bind raises"])
def test_a_broken_kernel_is_a_typed_error_that_names_the_node(how: str) -> None:
    with offered(Broken=lambda: BrokenProvider(how)):
        made = session(SPLIT, ["Broken", CPU])
        for _ in range(2):
            with pytest.raises((Fail, InvalidArgument), match=r"while running (Split|Neg) node.*\(provider Broken\)"):
                made.run(None, feeds_of(3))


@pytest.mark.parametrize("how", ["fails", "bind fails"])
def test_a_failing_provider_is_left_out(how: str) -> None:
    with offered(Broken=lambda: BrokenProvider(how)):
        made, feeds = session(SPLIT, ["Broken", CPU]), feeds_of(3)
        same(made.run(None, feeds), expected(SPLIT, feeds))
        assert made.get_providers() == [CPU]


def test_garbage_is_not_collected_while_a_plan_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    collected: list[bool] = []
    plan = Planner.plan
    monkeypatch.setattr(Planner, "plan", lambda self, specs: (collected.append(gc.isenabled()), plan(self, specs))[1])
    made = session(SPLIT)
    for n in (2, 3):
        made.run(None, feeds_of(n))
    assert collected and not any(collected) and gc.isenabled()


def test_rules_and_drawn_operators_agree() -> None:
    assert set(RULES) >= set(ELEMENTWISE) and set(DATA_DEPENDENT).isdisjoint(RULES)
