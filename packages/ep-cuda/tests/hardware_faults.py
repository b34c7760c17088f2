"""Errors of a run that only the device sees, as an index out of range: tests for a GPU, which ``test_cuda_hardware`` takes over."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import onnx.parser
import pytest
from fault_models import CULPRIT, FAULTS, Faulty, floats

import onnxplug
from onnxplug.contract.errors import STATUS_ERRORS, InvalidArgument

__all__ = [
    "test_a_run_ends_with_its_own_errors_and_no_other_ones",
    "test_an_error_that_a_run_did_not_wait_for_is_told_by_the_next_that_waits",
    "test_constants_that_do_not_go_together_are_the_runs_error",
    "test_layers_whose_operands_do_not_go_together_are_refused",
    "test_of_several_nodes_the_first_is_named_in_runs_of_shapes_that_no_plan_knows",
    "test_what_only_the_device_sees_is_the_error_that_it_is_on_the_processor",
]
CUDA = "CUDAExecutionProvider"


@pytest.mark.parametrize("name", FAULTS)
def test_what_only_the_device_sees_is_the_error_that_it_is_on_the_processor(name: str) -> None:
    found = FAULTS[name]()
    strict = onnxplug.SessionOptions()
    strict.add_session_config_entry("session.strict_providers", "1")
    plain = onnxplug.InferenceSession(found.model(), providers=["CPUExecutionProvider"])
    with pytest.raises(STATUS_ERRORS) as told:
        plain.run(None, found.feeds(good=False))
    for recorded in (0, 1):
        made = onnxplug.InferenceSession(found.model(), strict, providers=[(CUDA, {"enable_cuda_graph": recorded})])
        for _ in range(2):
            with pytest.raises(told.type, match=CULPRIT):
                made.run(None, found.feeds(good=False))
            for got, right in zip(
                made.run(None, found.feeds(good=True)), plain.run(None, found.feeds(good=True)), strict=True
            ):
                np.testing.assert_allclose(got, right, rtol=1e-3, atol=1e-3)


LOOKUPS = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["" : 21]> g (float[N, 4] x, int64[K] i, bool[N] m) => (float[] y) '
    "{ n = NonZero(m) k = Squeeze(n) some = Gather(x, k) [first] a = Gather(some, i) [second] b = Gather(some, i) y = Add(a, b) }"
)
del LOOKUPS.graph.output[0].type.tensor_type.shape.dim[:]
LOOKUPS.graph.output[0].type.tensor_type.ClearField("shape")


def looked_up(i: list[int], rows: int = 5) -> dict[str, np.ndarray]:
    """Numbers, indices, and which rows there are to be taken."""
    return {"x": floats(rows, 4), "i": np.array(i), "m": np.arange(rows) != 1}


def test_of_several_nodes_the_first_is_named_in_runs_of_shapes_that_no_plan_knows() -> None:
    made = onnxplug.InferenceSession(LOOKUPS.SerializeToString(), providers=[CUDA, "CPUExecutionProvider"])
    for rows in (5, 9, 5):
        with pytest.raises(InvalidArgument, match="first: an index is out of bounds"):
            made.run(None, looked_up([0, rows - 1], rows))
        given = looked_up([0, -1], rows)
        np.testing.assert_array_equal(made.run(None, given)[0], 2 * given["x"][[0, -1]])


def test_a_run_ends_with_its_own_errors_and_no_other_ones() -> None:
    made = onnxplug.InferenceSession(LOOKUPS.SerializeToString(), providers=[CUDA, "CPUExecutionProvider"])

    def outcome(number: int) -> bool:
        try:
            made.run(None, looked_up([number % 3, 4 if number % 2 else 3]))
        except InvalidArgument:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(outcome, range(40))) == [number % 2 == 0 for number in range(40)]


def test_an_error_that_a_run_did_not_wait_for_is_told_by_the_next_that_waits() -> None:
    found, unwaited = FAULTS["Gather"](), onnxplug.RunOptions()
    unwaited.add_run_config_entry("disable_synchronize_execution_providers", "1")
    made, binding = onnxplug.InferenceSession(found.model(), providers=[CUDA]), {}
    for good in (False, True):
        binding[good] = made.io_binding()
        for name, array in found.feeds(good=good).items():
            binding[good].bind_ortvalue_input(name, onnxplug.OrtValue.ortvalue_from_numpy(array, "cuda", 0))
        binding[good].bind_output("y0", "cuda")
    made.run_with_iobinding(binding[False], unwaited)
    with pytest.raises(RuntimeError, match=CULPRIT):
        made.run_with_iobinding(binding[True])
    made.run_with_iobinding(binding[True])
    with pytest.raises(RuntimeError, match=CULPRIT):
        made.run_with_iobinding(binding[False])


def test_constants_that_do_not_go_together_are_the_runs_error() -> None:
    data = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[2] x) => (float[2] y) '
        "<float[3] table = {1.0, 2.0, 3.0}, int64[2] i = {0, 3}> { [lookup] a = Gather(table, i) y = Mul(a, x) }"
    ).SerializeToString()
    with pytest.raises(InvalidArgument, match="lookup"):
        onnxplug.InferenceSession(data, providers=[CUDA]).run(None, {"x": np.ones(2, np.float32)})


GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
SHAPES: dict[str, dict[int, tuple[int, ...]]] = {
    op: {0: (5, 2, 3), 1: (1, g * 4, 3), 2: (1, g * 4, 4), 3: (1, 2 * g * 4), 4: (2,), 5: (1, 2, 4)}
    for op, g in GATES.items()
}
"""Of inputs, weights, recurrent weights, biases, lengths and first states of two sequences in four units."""
SHAPES["LSTM"] |= {6: (1, 2, 4), 7: (1, 12)}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("op", GATES)
def test_layers_whose_operands_do_not_go_together_are_refused(op: str, dtype: str) -> None:
    """A kernel that takes all extents from some of the operands would read beside the others."""
    right = [np.array([5, 2], np.int32) if n == 4 else floats(*shape, dtype=dtype) for n, shape in SHAPES[op].items()]
    found = Faulty(op, right, 0, right[0], {"hidden_size": 4}, version=22)
    made = onnxplug.InferenceSession(found.model(), providers=[CUDA])
    plain = onnxplug.InferenceSession(found.model(), providers=["CPUExecutionProvider"])
    for n, shape in SHAPES[op].items():
        for axis in range(len(shape)):
            for extent in {shape[axis] - 1, 1, shape[axis] + 1} - {shape[axis], 0}:
                other = (*shape[:axis], extent, *shape[axis + 1 :])
                given = found.feeds(good=True) | {f"x{n}": np.ones(other, right[n].dtype)}
                if n == 0 and axis == 0:  # there may be any number of steps, but for lengths
                    given["x4"] = np.array([extent, 1], np.int32)
                    np.testing.assert_allclose(
                        made.run(None, given)[0], plain.run(None, given)[0], rtol=1e-2, atol=1e-2
                    )
                    continue
                with pytest.raises(STATUS_ERRORS) as told:
                    plain.run(None, given)
                with pytest.raises(told.type, match=CULPRIT):
                    made.run(None, given)
    np.testing.assert_allclose(
        made.run(None, found.feeds(good=True))[0], plain.run(None, found.feeds(good=True))[0], rtol=1e-2, atol=1e-2
    )
