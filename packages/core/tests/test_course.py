"""Shapes inside a region, followed from signature to signature: always those that a fresh start finds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from core_graphs import model
from core_providers import CPU
from hypothesis import given, settings
from hypothesis import strategies as st

import onnxplug
from onnxplug.contract.kernels import TensorSpec
from onnxplug.graph.value import Value
from onnxplug.place.units import RegionUnit
from onnxplug.plan.course import Course
from onnxplug.plan.infer import Inference
from onnxplug.plan.specs import RegionSpecs
from onnxplug.run.plans import MAX_PLANS

LAYERS = 4


def layer(i: int) -> str:
    """Attention with a past, its mask made of shapes; the layers differ in their inputs alone."""
    return f"""
        k{i} = Concat<axis = 1>(past{i}, h{i}) s{i} = Shape(k{i}) n{i} = Gather(s{i}, at) m{i} = Unsqueeze(n{i}, zero)
        t{i} = Transpose<perm = [0, 2, 1]>(k{i}) p{i} = MatMul(h{i}, t{i}) z{i} = Concat<axis = 0>(one, one, m{i})
        e{i} = Expand(half, z{i}) q{i} = Add(p{i}, e{i}) w{i} = Softmax(q{i}) o{i} = MatMul(w{i}, k{i}) h{i + 1} = Add(o{i}, h{i})"""


TEXT = (
    "g (float[B, S, 4] x, "
    + ", ".join(f"float[B, P{i}, 4] past{i}" for i in range(LAYERS))
    + f") => (h{LAYERS}, {', '.join(f'k{i}' for i in range(LAYERS))})"
    + "{ at = Constant<value_int = 1>() zero = Constant<value_ints = [0]>() one = Constant<value_ints = [1]>() "
    + "half = Constant<value_float = 0.5>() h0 = Neg(x)"
    + "".join(map(layer, range(LAYERS)))
    + "}"
)


@pytest.fixture(scope="module")
def made() -> onnxplug.InferenceSession:
    return onnxplug.InferenceSession(model(TEXT), providers=[CPU])


def region(made: onnxplug.InferenceSession) -> RegionUnit:
    (unit,) = made._engine.built.placement.main.units
    assert isinstance(unit, RegionUnit)
    return unit


def follow(made: onnxplug.InferenceSession, specs: RegionSpecs, batch: int, fresh: int, pasts: list[int]) -> None:
    def of(value: Value) -> TensorSpec:
        length = fresh if value.name == "x" else pasts[int(value.name[4:])]
        return TensorSpec(np.dtype(np.float32), (batch, length, 4))

    specs.follow(of, True, made._engine.built.runtime.evaluate_again)


def content(specs: RegionSpecs) -> dict[str, object]:
    return {
        name: (s.dtype, s.shape, None if s.constant is None else s.constant.tolist()) for name, s in specs.named.items()
    }


SIZES = st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(0, 3), st.booleans())


@settings(max_examples=40, deadline=None)
@given(st.lists(SIZES, min_size=2, max_size=6))
def test_the_same_as_from_the_start(made: onnxplug.InferenceSession, steps: list[tuple[int, int, int, bool]]) -> None:
    kept = RegionSpecs(region(made), Inference())
    for batch, fresh, past, uneven in steps:
        pasts = [past + (uneven and i == 2) for i in range(LAYERS)]
        anew = RegionSpecs(region(made), Inference())
        for specs in (kept, anew):
            follow(made, specs, batch, fresh, pasts)
        assert content(kept) == content(anew)


def test_one_node_stands_for_those_that_are_alike(
    made: onnxplug.InferenceSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    inference = Inference()
    kept, asked = RegionSpecs(region(made), inference), list[str]()
    outputs = inference.outputs
    monkeypatch.setattr(inference, "outputs", lambda node, *rest: asked.append(node.op_type) or outputs(node, *rest))
    counts = []
    for past in range(3, 8):
        asked.clear()
        follow(made, kept, 1, 1, [past] * LAYERS)
        counts.append(len(asked))
    whole, walked, *repeated = counts
    assert whole == len(region(made).nodes) and repeated == [repeated[0]] * 3
    assert repeated[0] <= walked / LAYERS + 1
    assert isinstance(kept._course, Course)


def test_a_growing_past_gives_what_each_session_gives(made: onnxplug.InferenceSession) -> None:
    rng = np.random.default_rng(3)
    for past in range(1, 24):
        feeds = {"x": rng.standard_normal((1, 1, 4)).astype(np.float32)}
        feeds |= {f"past{i}": rng.standard_normal((1, past, 4)).astype(np.float32) for i in range(LAYERS)}
        alone = onnxplug.InferenceSession(model(TEXT), providers=[CPU]) if past % 7 == 0 else made
        for got, want in zip(made.run(None, feeds), alone.run(None, feeds), strict=True):
            np.testing.assert_array_equal(got, want)


BRANCHING = """g (float[B, S, 6] x, float[C, S, 6] y) => (q, p, r, u, f, t) {
    two = Constant<value_ints = [-1, 2]>() scales = Constant<value_floats = [1.0, 1.0, 1.7]>() none = Constant<value_floats: floats = []>()
    a = Add(x, y) b = Transpose<perm = [2, 0, 1]>(a) c = Concat<axis = 0>(x, y) d = Softmax(c)
    q = Squeeze(a) p = MaxPool<kernel_shape = [3], strides = [2]>(b) r = Reshape(d, two) u = Resize(a, none, scales)
    f = Flatten(u) t = ReduceMax<keepdims = 0>(f)
}"""
"""Shapes that take decisions: what broadcasts, has a size of 1, is too short for a window or is divided by 2."""


def branching() -> onnxplug.InferenceSession:
    return onnxplug.InferenceSession(model(BRANCHING), providers=[CPU])


def all_nodes(made: onnxplug.InferenceSession) -> Any:
    """What ``RegionSpecs`` reads of a region, of all of the model's nodes."""
    units = made._engine.built.placement.main.units
    return SimpleNamespace(nodes=[n for u in units for n in (u.nodes if isinstance(u, RegionUnit) else [u.node])])


def tell(made: onnxplug.InferenceSession, specs: RegionSpecs, x: tuple[int, ...], y: tuple[int, ...]) -> None:
    shapes = {"x": x, "y": y}
    specs.follow(
        lambda value: TensorSpec(np.dtype(np.float32), shapes[value.name]), True,
        made._engine.built.runtime.evaluate_again,
    )  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.sampled_from([1, 3, 4]), st.integers(0, 5), st.booleans()),
        min_size=6,
        max_size=24,
    )
)
def test_decisions_on_the_way_are_taken_again(steps: list[tuple[int, int, int, bool]]) -> None:
    made = branching()
    kept = RegionSpecs(all_nodes(made), Inference())
    for batch, other, length, equal in steps:
        shapes = (batch, length, 6), (batch if equal else other, length, 6)
        anew = RegionSpecs(all_nodes(made), Inference())
        for specs in (kept, anew):
            tell(made, specs, *shapes)
        assert content(kept) == content(anew)


def test_no_node_is_looked_at_where_sizes_alone_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    made, inference = branching(), Inference()
    kept, asked = RegionSpecs(all_nodes(made), inference), list[str]()
    for batch in (3, 5, 7):
        tell(made, kept, (batch, 9, 6), (batch, 9, 6))
    monkeypatch.setattr(
        inference,
        "outputs",
        lambda node, *rest: asked.append(node.op_type) or Inference.outputs(inference, node, *rest),
    )
    for batch in (8, 31, 2):
        tell(made, kept, (batch, 9, 6), (batch, 9, 6))
        assert kept.named["u"].shape == (batch, 9, 10) and kept.named["c"].shape == (2 * batch, 9, 6)
    assert not asked
    tell(made, kept, (1, 9, 6), (1, 9, 6))  # which Squeeze takes away
    assert asked and kept.named["q"].shape == (9, 6)


def test_runs_without_a_plan_go_on_from_what_plans_found(monkeypatch: pytest.MonkeyPatch) -> None:
    walks = list[int]()
    walk = RegionSpecs._walk
    monkeypatch.setattr(RegionSpecs, "_walk", lambda self, *rest: walks.append(1) or walk(self, *rest))
    session = onnxplug.InferenceSession(model("g (float[B, 4] x) => (y) { a = Neg(x) y = Add(a, x) }"), providers=[CPU])
    for batch in range(1, MAX_PLANS + 8):
        (y,) = session.run(None, {"x": np.ones((batch, 4), np.float32)})
        assert y.shape == (batch, 4) and not y.any()
    assert len(walks) == 2  # of all nodes, and of those behind the first change
