"""Models of quantized operators: one node, or a few, of generated code beside their NumPy kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from onnx import helper, numpy_helper

import onnxplug
from onnxplug_kernels.catalogue import catalogue

MS = "com.microsoft"
TYPES = st.sampled_from(["uint8", "int8"])
SIZES = st.tuples(
    st.sampled_from([1, 2, 7, 13]), st.sampled_from([1, 3, 16, 40, 301]), st.sampled_from([1, 5, 8, 24, 50])
)


def kernel(op_type: str, domain: str = "") -> Any:
    """The NumPy kernel of an operator's newest version."""
    return max((e for e in catalogue() if (e.domain, e.op_type) == (domain, op_type)), key=lambda e: e.since).function


def run(
    nodes: list[Any], fed: dict[str, np.ndarray], held: dict[str, np.ndarray], outputs: list[str]
) -> list[np.ndarray]:
    """Outputs of a model whose nodes all run as generated code."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in fed.items()],
        [helper.make_empty_tensor_value_info(n) for n in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in held.items()],
    )
    sets = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
    model = helper.make_model(graph, opset_imports=sets, ir_version=10)
    session = onnxplug.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    taken = {name for region in session.explain().regions for name in region["nodes"]}
    assert taken == set(session.placement()), "every node is generated code"
    return list(session.run(None, fed))


def one(op_type: str, inputs: list[Any], fed: set[int], domain: str = "", count: int = 1, **attributes: Any) -> Any:
    """(got, wanted) of one node, whose inputs at ``fed`` are not constants."""
    arrays = {f"x{i}": np.asarray(a) for i, a in enumerate(inputs) if a is not None}
    names = [f"x{i}" if a is not None else "" for i, a in enumerate(inputs)]
    outputs = [f"y{i}" for i in range(count)]
    node = helper.make_node(op_type, names, outputs, domain=domain, name="n", **attributes)
    parts = (
        {n: a for n, a in arrays.items() if int(n[1:]) in fed},
        {n: a for n, a in arrays.items() if int(n[1:]) not in fed},
    )
    got = run([node], *parts, outputs)
    wanted = kernel(op_type, domain)(np, *inputs, **attributes)
    return got, list(wanted) if isinstance(wanted, tuple) else [wanted]


def random(rng: np.random.Generator, element: str, *shape: int) -> np.ndarray:
    limits = np.iinfo(element)
    return rng.integers(limits.min, limits.max + 1, shape).astype(element)


def scales(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.uniform(0.001, 0.02, shape).astype(np.float32)


def same(pair: Any) -> None:
    got, wanted = pair
    for ours, theirs in zip(got, wanted, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


def near(pair: Any) -> None:
    """Equal but for numbers that lay halfway between two others before they were rounded."""
    for ours, theirs in zip(*pair, strict=True):
        assert ours.dtype == theirs.dtype
        apart = np.abs(ours.astype(int) - theirs.astype(int))
        assert apart.max(initial=0) <= 1 and (apart > 0).mean() < 0.02 if apart.size else ours.shape == theirs.shape


@st.composite
def convolutions(draw: Any) -> dict[str, Any]:
    group = draw(st.sampled_from([1, 1, 2, 5]))
    depthwise = draw(st.booleans())
    return {
        "seed": draw(st.integers(0, 999)),
        "x": draw(TYPES),
        "w": draw(TYPES),
        "group": group,
        "channels": 1 if depthwise else draw(st.integers(1, 5)),
        "outputs": 1 if depthwise else draw(st.sampled_from([1, 3, 8, 17, 33])),
        "image": draw(st.tuples(st.integers(3, 9), st.integers(3, 7))),
        "batch": draw(st.integers(1, 2)),
        "kernel": draw(st.sampled_from([(1, 1), (3, 3), (2, 3)])),
        "strides": draw(st.sampled_from([[1, 1], [2, 2], [2, 1]])),
        "pads": draw(st.sampled_from([[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 2, 0]])),
        "by_channel": draw(st.booleans()),
        "bias": draw(st.booleans()),
    }


def operands(case: dict[str, Any]) -> tuple[np.random.Generator, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Numbers, x, its zero point, w, its zero points."""
    rng = np.random.default_rng(case["seed"])
    outputs = case["outputs"] * case["group"]
    x = random(rng, case["x"], case["batch"], case["channels"] * case["group"], *case["image"])
    w = random(rng, case["w"], outputs, case["channels"], *case["kernel"])
    zero = random(rng, case["w"], outputs) if case["by_channel"] else random(rng, case["w"])
    return rng, x, random(rng, case["x"]), w, zero
