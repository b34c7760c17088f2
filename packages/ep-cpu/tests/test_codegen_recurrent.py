"""Generated RNN, GRU and LSTM against the NumPy kernels in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import onnxplug
from onnxplug.contract.errors import InvalidArgument
from onnxplug_kernels.ops.recurrent import gru, lstm, rnn

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
KERNELS = {"RNN": rnn, "GRU": gru, "LSTM": lstm}
NAMES = ("x", "w", "r", "b", "sequence_lens", "initial_h", "initial_c", "p")


def session_of(
    op_type: str, arrays: dict[str, np.ndarray], free: dict[str, Any], threads: int, computed: bool = False
) -> Any:
    """A session of one node whose weights are initializers, or else fed; ``free`` are its attributes."""
    outputs = ["y", "y_h", "y_c"][: 3 if op_type == "LSTM" else 2]
    states = ("x", "sequence_lens", "initial_h", "initial_c")
    fed = {name: a for name, a in arrays.items() if computed or name in states}
    names = [name if name in arrays else "" for name in NAMES[: 8 if op_type == "LSTM" else 6]]
    node = helper.make_node(op_type, names, outputs, hidden_size=arrays["r"].shape[2], **free)
    types = {np.dtype(np.int32): TensorProto.INT32}
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(n, types.get(a.dtype, TensorProto.FLOAT), a.shape) for n, a in fed.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None] * (4 if n == "y" else 3)) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in arrays.items() if n not in fed],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    options = onnxplug.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxplug.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    assert session.explain().regions, "the node is generated code"
    return session, fed


def check(
    op_type: str, arrays: dict[str, np.ndarray], attributes: dict[str, Any], threads: int = 1, computed: bool = False
) -> None:
    session, fed = session_of(op_type, arrays, attributes, threads, computed)
    got = session.run(None, fed)
    wide = {n: a.astype(np.float64) if a.dtype == np.float32 else a for n, a in arrays.items()}
    keep = NAMES[: 8 if op_type == "LSTM" else 6]
    want = KERNELS[op_type](np, *(wide.get(n) for n in keep), **attributes)
    for ours, theirs in zip(got, want, strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=2e-6)
    for ours, again in zip(got, session.run(None, fed), strict=True):
        np.testing.assert_array_equal(ours, again)


def made(
    op_type: str, sizes: tuple[int, int, int, int], directions: int, given_: set[str], layout: int
) -> dict[str, Any]:
    steps, batch, inputs, hidden = sizes
    rng = np.random.default_rng(hash(sizes) % 1000)
    gates = GATES[op_type]

    def random(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / np.sqrt(shape[-1] or 1)).astype(np.float32)

    state = (batch, directions, hidden) if layout else (directions, batch, hidden)
    arrays = {
        "x": random(*((batch, steps, inputs) if layout else (steps, batch, inputs))),
        "w": random(directions, gates * hidden, inputs),
        "r": random(directions, gates * hidden, hidden),
        "b": random(directions, 2 * gates * hidden),
        "sequence_lens": rng.integers(0, steps + 1, batch).astype(np.int32),
        "initial_h": random(*state),
        "initial_c": random(*state),
        "p": random(directions, 3 * hidden),
    }
    never = set() if op_type == "LSTM" else {"initial_c", "p"}
    return {n: a for n, a in arrays.items() if n in ("x", "w", "r") or (n in given_ and n not in never)}


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(GATES)),
    st.tuples(st.integers(1, 5), st.integers(1, 6), st.integers(1, 5), st.sampled_from([1, 3, 8, 13, 20])),
    st.sampled_from(["forward", "reverse", "bidirectional"]),
    st.sets(st.sampled_from(NAMES[3:])),
    st.integers(0, 1),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_every_form_is_the_kernels(
    op_type: str,
    sizes: Any,
    direction: str,
    given_: set[str],
    layout: int,
    special: bool,
    clipped: bool,
    computed: bool,
) -> None:
    attributes: dict[str, Any] = {"direction": direction, "layout": layout}
    if special and op_type != "RNN":
        attributes["linear_before_reset" if op_type == "GRU" else "input_forget"] = 1
    if clipped:
        attributes["clip"] = 0.5
    arrays = made(op_type, sizes, 2 if direction == "bidirectional" else 1, given_, layout)
    check(op_type, arrays, attributes, computed=computed)


@pytest.mark.parametrize(("op_type", "before"), [("RNN", 0), ("LSTM", 0), ("GRU", 0), ("GRU", 1)])
@pytest.mark.parametrize("hidden", [3, 13, 20])
def test_an_infinite_state_reaches_no_unit_that_does_not_see_it(op_type: str, before: int, hidden: int) -> None:
    """Units that fill up the last vector once turned it into NaN for all others."""
    arrays = made(op_type, (3, 2, 4, hidden), 1, {"initial_h"}, 0)
    arrays["initial_h"][0, 0, 1] = -np.inf
    check(op_type, arrays, {"linear_before_reset": before} if op_type == "GRU" else {})


@pytest.mark.parametrize("op_type", sorted(GATES))
def test_steps_shared_among_threads(op_type: str) -> None:
    arrays = made(op_type, (6, 3, 24, 200), 1, {"b", "initial_h", "sequence_lens"}, 0)
    check(op_type, arrays, {}, threads=2)


@pytest.mark.parametrize("op_type", sorted(GATES))
@pytest.mark.parametrize("batch", [1, 2, 3, 5, 7, 9, 16])
def test_results_do_not_depend_on_the_number_of_threads(op_type: str, batch: int) -> None:
    """Which rows of the batch are computed together does."""
    arrays = made(op_type, (4, batch, 20, 48), 1, {"b"}, 0)
    runs = [session_of(op_type, arrays, {}, threads) for threads in (1, 2, 3)]
    one, *others = [session.run(None, fed) for session, fed in runs]
    for other in others:
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("length", [-1, 6, 2**31 - 1])
@pytest.mark.parametrize("op_type", sorted(GATES))
def test_lengths_beyond_the_steps_are_refused(op_type: str, length: int) -> None:
    arrays = made(op_type, (5, 3, 4, 6), 1, {"b", "sequence_lens"}, 0)
    session, fed = session_of(op_type, arrays, {}, 1)
    text = r"Invalid value/s in sequence_lens\. All values must be >= 0 and <= seq_length\. seq_length=5"
    with pytest.raises(InvalidArgument, match=text):
        session.run(None, {**fed, "sequence_lens": np.array([5, length, 0], np.int32)})
    with pytest.raises(InvalidArgument, match=r"Input sequence_lens must have shape \{3\}\. Actual:\{1\}"):
        session_of(op_type, {**arrays, "sequence_lens": np.array([5], np.int32)}, {}, 1)[0].run(
            None, {**fed, "sequence_lens": np.array([5], np.int32)}
        )
    session.run(None, fed)


def test_an_empty_sequence_leaves_the_initial_state() -> None:
    arrays = made("LSTM", (0, 2, 3, 5), 2, {"b", "initial_h", "initial_c"}, 0)
    check("LSTM", arrays, {"direction": "bidirectional"})


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("Relu", ()), ("Affine", (0.5, 0.1)), ("LeakyRelu", (0.2,)), ("ThresholdedRelu", (0.1,)), ("ScaledTanh", (0.9, 0.5)),
     ("HardSigmoid", (0.3, 0.4)), ("Elu", (0.7,)), ("Softsign", ()), ("Softplus", ())],
)  # fmt: skip
def test_activations(name: str, parameters: tuple[float, ...]) -> None:
    attributes: dict[str, Any] = {"activations": [name]}
    if parameters:
        attributes["activation_alpha"] = [parameters[0]]
    if len(parameters) > 1:
        attributes["activation_beta"] = [parameters[1]]
    check("RNN", made("RNN", (4, 2, 3, 9), 1, {"b"}, 0), attributes)


@pytest.mark.parametrize("op_type", sorted(GATES))
@pytest.mark.parametrize("hidden", [1, 7, 16, 45, 200])
def test_weights_that_are_computed(op_type: str, hidden: int) -> None:
    """They may be what a model computes, or initializers that a caller may replace, as in models of IR version 3."""
    for special in (0, 1):
        attributes = (
            {} if op_type == "RNN" else {"linear_before_reset" if op_type == "GRU" else "input_forget": special}
        )
        arrays = made(op_type, (4, 3, 6, hidden), 2, {"b", "p", "initial_h"}, 0)
        check(op_type, arrays, {"direction": "bidirectional", **attributes}, threads=2, computed=True)
