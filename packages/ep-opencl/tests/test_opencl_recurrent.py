"""RNN, GRU and LSTM against CPU in double precision, by work-items alone and by groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from opencl_models import PROVIDER, needs_device, one_node

import onnxplug as ort

pytestmark = needs_device
FORMS = ("register", "local")
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
rng = np.random.default_rng(31)


def operands(operator: str, optional: str = "", directions: int = 1, layout: int = 0, size: int = 37) -> dict[str, Any]:
    """Of five steps of three sequences; ``optional``: letters of the inputs behind the weights that are there."""
    steps, batch, width, gates = 5, 3, 6, GATES[operator]
    state = (batch, directions, size) if layout else (directions, batch, size)
    shapes = {
        "x": (batch, steps, width) if layout else (steps, batch, width),
        "w": (directions, gates * size, width),
        "r": (directions, gates * size, size),
        "b": (directions, 2 * gates * size),
        "l": (batch,),
        "h": state,
        "c": state,
        "p": (directions, 3 * size),
    }
    made = {n: rng.uniform(-0.6, 0.6, s).astype(np.float32) for n, s in shapes.items() if n in "xwr" + optional}
    if "l" in optional:
        made["l"] = np.array([3, 5, 0], np.int32)
    return made


def model(operator: str, feeds: dict[str, Any], constants: Any = (), **attributes: Any) -> bytes:
    """A node with the inputs of ``feeds``, others omitted."""
    import onnx

    made = onnx.load_from_string(
        one_node(
            operator,
            feeds,
            22,
            3 if operator == "LSTM" else 2,
            constants,
            hidden_size=feeds["r"].shape[2],
            **attributes,
        )
    )
    names = [n if n in feeds else "" for n in ("xwrblh" if operator != "LSTM" else "xwrblhcp")]
    del made.graph.node[0].input[:]
    made.graph.node[0].input.extend(names)
    return made.SerializeToString()


def results(
    operator: str, feeds: dict[str, Any], form: str, constants: Any = (), **attributes: Any
) -> list[np.ndarray]:
    session = ort.InferenceSession(
        model(operator, feeds, constants, **attributes), providers=[(PROVIDER, {"kernel_shape": form})]
    )
    assert set(session.placement().values()) == {PROVIDER}
    return session.run(None, {i.name: feeds[i.name] for i in session.get_inputs()})


def right(operator: str, feeds: dict[str, Any], **attributes: Any) -> list[np.ndarray]:
    wide = {n: a.astype(np.float64) if a.dtype != np.int32 else a for n, a in feeds.items()}
    session = ort.InferenceSession(model(operator, wide, **attributes), providers=["CPUExecutionProvider"])
    return session.run(None, wide)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("operator", "optional", "attributes"),
    [
        ("LSTM", "", {}),
        ("LSTM", "blhcp", {"direction": "bidirectional"}),
        ("LSTM", "bp", {"layout": 1, "input_forget": 1, "clip": 0.3, "direction": "reverse"}),
        ("GRU", "b", {}),
        ("GRU", "blh", {"direction": "bidirectional", "linear_before_reset": 1}),
        ("GRU", "h", {"layout": 1, "direction": "reverse"}),
        (
            "RNN",
            "bl",
            {"direction": "bidirectional", "activations": ["Relu", "ThresholdedRelu"], "activation_alpha": [0.1]},
        ),
        ("RNN", "h", {"activations": ["ScaledTanh"], "activation_alpha": [0.7], "activation_beta": [1.5], "clip": 0.4}),
        ("RNN", "h", {"activations": ["Affine"], "activation_alpha": [0.5], "activation_beta": [0.25]}),
    ],
)
def test_steps_of_sequences(operator: str, optional: str, attributes: dict[str, Any], form: str) -> None:
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    feeds = operands(operator, optional, directions, attributes.get("layout", 0))
    got = results(operator, feeds, form, constants=("w", "r", "b"), **attributes)
    for mine, want in zip(got, right(operator, feeds, **attributes), strict=True):
        # Sums of 43 products below 0.36 and of a state below 1, five times over, through functions of slope 1 or so.
        np.testing.assert_allclose(mine, want, rtol=0, atol=2e-5)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_weights_that_a_run_brings_in_other_types(dtype: Any, form: str) -> None:
    feeds = {n: a.astype(dtype) for n, a in operands("LSTM", "b", size=16).items()}
    got = results("LSTM", feeds, form)
    for mine, want in zip(got, right("LSTM", feeds), strict=True):
        np.testing.assert_allclose(mine, want, rtol=0, atol=1e-13 if dtype == np.float64 else 2**-11)


@pytest.mark.parametrize("form", FORMS)
def test_a_length_beyond_the_steps_is_an_error_that_names_the_node(form: str) -> None:
    feeds = operands("GRU", "l", size=4) | {"l": np.array([1, 6, 2], np.int32)}
    with pytest.raises(Exception, match=r"out of bounds"):
        results("GRU", feeds, form)


def test_too_few_activations_are_declined() -> None:
    feeds = operands("LSTM")
    session = ort.InferenceSession(
        model("LSTM", feeds, activations=["Sigmoid"]), providers=[PROVIDER, "CPUExecutionProvider"]
    )
    (node,) = session.explain().nodes
    assert "1 activations given, 3 needed" in node["reasons"][PROVIDER]
