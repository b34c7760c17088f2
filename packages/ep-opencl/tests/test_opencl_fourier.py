"""DFT and STFT, as products, against CPU in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from opencl_models import PROVIDER, needs_device, one_node, reference, run

import onnxplug as ort

pytestmark = needs_device
FORMS = ("register", "local")
rng = np.random.default_rng(31)


def normal(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def close(got: np.ndarray, want: np.ndarray, magnitude: float, depth: int) -> None:
    """|error| <= depth * eps * sum |x|, since no element of the matrix is larger than 1: each addition rounds once."""
    assert got.shape == want.shape
    assert np.abs(got - want).max(initial=0) <= (depth + 4) * np.finfo(got.dtype).eps * magnitude


HALF = {"onesided": 1}
CASES: list[tuple[tuple[int, ...], int, int | None, dict[str, int]]] = [
    ((2, 12, 1), 1, None, {}),
    ((2, 12, 1), 1, None, HALF),
    ((2, 12, 2), 1, None, {}),
    ((2, 3, 5, 7, 2), 2, 8, {}),
    ((2, 3, 40, 7, 1), -3, 25, {}),
    ((2, 3, 40, 7, 1), -3, 25, HALF),
    ((1, 1, 2), 1, 2, {}),
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("shape", "axis", "length", "attributes"), CASES)
def test_transforms(
    shape: tuple[int, ...], axis: int, length: int | None, attributes: dict[str, int], form: str
) -> None:
    feeds = {"x": normal(*shape)}
    if length is None:
        attributes, opset = {**attributes, "axis": axis}, 17
    else:
        feeds |= {"length": np.array(length, np.int64), "axis": np.array(axis, np.int64)}
        opset = 20
    (got,) = run(one_node("DFT", feeds, opset, **attributes), feeds, kernel_shape=form)
    want = reference("DFT", feeds, opset, **attributes)
    close(got, want, float(np.abs(feeds["x"]).sum(axis).max()) * 2, shape[axis] * 2)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("parts", "onesided"), [(1, 0), (1, 1), (2, 0)])
@pytest.mark.parametrize("given", ["window", "length", "both"])
def test_transforms_of_frames(given: str, parts: int, onesided: int, form: str) -> None:
    feeds: dict[str, Any] = {"x": normal(2, 50, parts), "step": np.array(7, np.int64)}
    feeds["window"] = np.hanning(16).astype(np.float32)
    feeds["length"] = np.array(16, np.int64)
    model = one_node("STFT", feeds, constants=("window",), onesided=onesided)
    if given != "both":
        model = _without(model, "length" if given == "window" else "window")
    session = ort.InferenceSession(model, providers=[(PROVIDER, {"kernel_shape": form})])
    assert set(session.placement().values()) == {PROVIDER}
    (got,) = session.run(None, {"x": feeds["x"]})
    (want,) = ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": feeds["x"]})
    close(got, want, 16 * float(np.abs(feeds["x"]).max()), 16 * parts)


def test_what_is_declined_has_a_reason() -> None:
    for shape, word, inverse in (((1, 6000, 1), "too long", 0), ((1, "n", 1), "length", 0), ((1, 8, 1), "inverse", 1)):
        feeds = {"x": normal(1, 8, 1)}
        model = onnx.load_from_string(one_node("DFT", feeds, 17, inverse=inverse))
        for dim, extent in zip(model.graph.input[0].type.tensor_type.shape.dim, shape, strict=True):
            dim.Clear()
            if isinstance(extent, int):
                dim.dim_value = extent
            else:
                dim.dim_param = extent
        del model.graph.value_info[:]
        model.graph.output[0].type.Clear()
        session = ort.InferenceSession(model.SerializeToString(), providers=[PROVIDER, "CPUExecutionProvider"])
        (node,) = session.explain().nodes
        assert word in node["reasons"][PROVIDER]


def _without(model: bytes, name: str) -> bytes:
    made = onnx.load_from_string(model)
    made.graph.node[0].input[:] = ["" if n == name else n for n in made.graph.node[0].input]
    kept = [i for i in made.graph.initializer if i.name != name]
    del made.graph.initializer[:]
    made.graph.initializer.extend(kept)
    return made.SerializeToString()


def test_a_declined_transform_of_constants_is_computed_by_the_next_provider() -> None:
    """Constants are folded by kernels, which know of what the provider declines, too."""
    x = normal(1, 6, 5, 2)
    attributes = {"axis": 1, "inverse": 1, "onesided": 1}
    model = one_node("DFT", {"x": x}, 19, constants=("x",), **attributes)
    (want,) = ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {})
    (got,) = ort.InferenceSession(model, providers=[PROVIDER, "CPUExecutionProvider"]).run(None, {})
    np.testing.assert_array_equal(got, want)
