"""What the tests of generated convolutions share: arrays, windows that fit, one node against its NumPy kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
from codegen_models import model, run_native
from hypothesis import assume
from hypothesis import strategies as st
from onnx import helper

RNG = np.random.default_rng(5)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def close(ours: np.ndarray, theirs: np.ndarray) -> None:
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=2e-6 * max(1.0, float(np.abs(theirs).max(initial=0))))


def check(op: str, reference: Any, x: np.ndarray, constants: dict[str, np.ndarray], **attributes: Any) -> np.ndarray:
    """One node through a session against its NumPy kernel."""
    node = helper.make_node(op, ["x", *constants], ["y"], **attributes)
    (ours,) = run_native(model([node], {"x": x}, ["y"], constants, opset=22), {"x": x})
    wide = [a.astype(np.float64) for a in (x, *constants.values())]
    close(ours, reference(np, *wide, **attributes))
    return ours


@st.composite
def windows(draw: st.DrawFn, transposed: bool = False) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """(spatial sizes, kernel, attributes) of a window that fits."""
    rank = draw(st.integers(1, 3))
    sizes = tuple(draw(st.integers(1 if transposed else 3, 8)) for _ in range(rank))
    kernel = tuple(draw(st.integers(1, 4)) for _ in range(rank))
    mode = draw(st.sampled_from(["NOTSET", "VALID"] if transposed else ["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    attributes: dict[str, Any] = {"strides": [draw(st.integers(1, 3)) for _ in range(rank)]}
    attributes["dilations"] = [draw(st.integers(1, 2)) if mode == "NOTSET" else 1 for _ in range(rank)]
    if mode == "NOTSET":
        attributes["pads"] = [draw(st.integers(0, 1 if transposed else 2)) for _ in range(2 * rank)]
    else:
        attributes["auto_pad"] = mode
    padded = [n + sum(attributes.get("pads", [0] * 2 * rank)[i::rank]) for i, n in enumerate(sizes)]
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, attributes["dilations"], strict=True)]
    if not transposed:
        assume(all(e <= n for e, n in zip(extents, padded, strict=True)))
    return sizes, kernel, attributes
