"""A few seeds of the fuzzer: what ``nox -s fuzz`` does for long."""

from __future__ import annotations

import random

import numpy as np
import pytest
from onnx import helper

from fuzz.contend import CONTENDERS, difference
from fuzz.damage import damaged
from fuzz.hunt import program_of
from fuzz.judge import judge, verdict
from fuzz.program import captured
from fuzz.shrink import shrink
from fuzz.written import NODES, misfit
from onnxplug.contract import Available

pytest.importorskip("onnxruntime")
SEEDS = (300, 301, 302, 304, 306, 307, 308, 311, 313, 316)


@pytest.mark.parametrize("seed", SEEDS)
def test_seeds_answer_as_onnxruntime(seed: int) -> None:
    model, runs = program_of(seed)
    found = judge(model, runs, ["numpy", "native"])
    assert found is None or found.theirs, found


@pytest.mark.parametrize("seed", (85, 645, 1509, 2652, 3246, 4042))
def test_corners_answer_as_onnxruntime(seed: int) -> None:
    """Seeds in which a tensor was once taken for one of another size."""
    model, runs = program_of(seed, corners=True)
    found = judge(model, runs, ["numpy", "native"])
    assert found is None or found.theirs, found


def test_damage_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [helper.make_node("Concat", ["x", "x"], ["y"], axis=1)]
    infos = [helper.make_tensor_value_info(name, 1, [2, 2 * n]) for name, n in (("x", 1), ("y", 2))]
    case = helper.make_model(helper.make_graph(nodes, "g", infos[:1], infos[1:]), ir_version=10)
    x = np.ones((2, 2), np.float32)
    monkeypatch.setattr("fuzz.damage.cases", lambda: (("concat", case, {"x": x}),))
    told = set()
    for seed in range(40):
        what, model, runs = damaged(random.Random(seed))
        told.add(what)
        assert not [v for v in verdict(model, runs, ["numpy", "native"]) if v[1] in ("untyped", "fault", "differs")], (
            what
        )
    assert len(told) > 20 and damaged(random.Random(3))[0] == damaged(random.Random(3))[0]
    assert verdict(case, [{"x": x}], ["numpy"]) == []


def test_opencl_stays_within_its_tensors() -> None:
    """Some models of all kinds, with every tensor between forbidden pages; the first one's transform of constants once went beside them."""
    check = pytest.importorskip("onnxplug_ep_opencl.device").check
    if not isinstance(check(), Available):
        pytest.skip("no OpenCL device")
    what, model, runs = damaged(random.Random(128))
    assert "dft" in what and verdict(model, runs, ["opencl"]) == []
    for model, runs in (program_of(seed, text=n >= 4) for n, seed in enumerate((*SEEDS[:4], 6, 12))):
        found = judge(model, runs, ["opencl"])
        assert found is None or found.theirs, found
    what, model, runs = misfit(random.Random(687))
    assert "MultiHeadAttention" in what and verdict(model, runs, ["opencl"]) == []


def test_written_operators_are_of_all_kinds() -> None:
    made = {program_of(seed, text=True)[0].graph.node[0].op_type for seed in range(150)}
    assert len(made) == len(NODES) + 1  # one of them makes RotaryEmbedding or MRotaryEmbedding


def test_a_seed_gives_the_same_model_again() -> None:
    one, two = (program_of(302) for _ in range(2))
    assert one[0] == two[0]
    assert all(np.array_equal(one[1][0][name], value) for name, value in two[1][0].items())


def test_differences_beyond_rounding_are_seen() -> None:
    x = np.linspace(1, 2, 5, dtype=np.float32)
    assert not difference(x * np.float32(1 + 1e-7), x)
    assert "for" in difference(x * np.float32(1.001), x)
    assert "shape" in difference(x[:, None], x)
    assert "float64" in difference(x.astype(np.float64), x)
    assert difference([x], [x, x])


def test_a_fault_that_is_only_logged_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from onnxplug_ep_cpu.codegen.region import NativeRegion

    def faulty(*_: object) -> None:
        raise AssertionError("of the generator")

    model, runs = program_of(301)
    monkeypatch.setattr(NativeRegion, "_prepare", faulty)
    found = judge(model, runs, ["native"])
    assert found is not None and "raises GeneratorFault" in found.text and "of the generator" in found.text


def test_a_failing_model_is_made_small() -> None:
    """What fails here is every model with a Tanh."""
    nodes = [
        helper.make_node(op, [f"v{i}"], [f"v{i + 1}"]) for i, op in enumerate(("Neg", "Abs", "Tanh", "Relu", "Sin"))
    ]
    infos = [helper.make_tensor_value_info(name, 1, [2]) for name in ("v0", "v5")]
    model = helper.make_model(helper.make_graph(nodes, "g", infos[:1], infos[1:]), ir_version=10)
    feeds = [{"v0": np.ones(2, np.float32)}]
    small, kept = shrink(model, feeds, lambda model, _: any(n.op_type == "Tanh" for n in model.graph.node))
    assert [n.op_type for n in small.graph.node] == ["Tanh", "Relu", "Sin"]
    assert set(kept[0]) == {i.name for i in small.graph.input} and captured(small.graph.node)[0] in kept[0]
    assert CONTENDERS["numpy"](small.SerializeToString(), kept).outputs
