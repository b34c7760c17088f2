"""Shapes inside a region, followed from signature to signature: always those that a fresh start finds."""

from __future__ import annotations

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
