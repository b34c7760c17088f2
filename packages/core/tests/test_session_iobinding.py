"""IOBinding up to the run: what can be bound, what is refused, what a run reads and stores."""

from __future__ import annotations

import ctypes
import pickle
from typing import Any

import numpy as np
import pytest
from core_graphs import model
from onnx import TensorProto, helper, parser

import onnxplug
from onnxplug.contract import Device, SequenceType, TensorType
from onnxplug.session.iobinding import IOBinding
from onnxplug.session.ortvalue import OrtValue

FLOATS = TensorType("float")

pytestmark = pytest.mark.usefixtures("only_cpu")


def ones(dtype: Any, *shape: int) -> np.ndarray:
    return np.ones(shape, dtype)


class TwoByTwo:
    """The part of a session that a binding sees: input X."""

    def _feedable(self) -> dict[str, TensorType]:
        return {"X": FLOATS}


@pytest.fixture
def binding(ort: Any) -> Any:
    if ort is onnxplug:
        return IOBinding(TwoByTwo())
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 2]) for name in "XY"]
    graph = helper.make_graph([helper.make_node("Identity", ["X"], ["Y"])], "g", infos[:1], infos[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)
    return ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]).io_binding()


def test_binding_inputs(ort: Any, binding: Any) -> None:
    array = ones("f4", 2, 2)
    value = ort.OrtValue.ortvalue_from_numpy(array)
    with pytest.raises(RuntimeError, match=r"^Failed to find NodeArg with name: Z in the def list$"):
        binding.bind_cpu_input("Z", array)
    with pytest.raises(RuntimeError, match=r"^Unable to create OrtValue from the given python object$"):
        binding.bind_cpu_input("X", [1])
    with pytest.raises(RuntimeError, match=r"^Numpy_type 13"):
        binding.bind_cpu_input("X", np.zeros(1, np.longdouble))
    with pytest.raises(TypeError):
        binding.bind_cpu_input(3, array)
    binding.bind_cpu_input("X", array)
    binding.bind_ortvalue_input("X", value)
    element: Any
    for element in (np.float32, 1, "float32", np.dtype("f4")):
        binding.bind_input("X", "cpu", 0, element, (2, 2), array.ctypes.data)
    with pytest.raises(AttributeError):
        binding.bind_ortvalue_input("X", array)
    for element, error, text in (
        (np.str_, RuntimeError, "Only binding non-string Tensors is currently supported"),
        (99, RuntimeError, "tensor type 99 is not supported"),
        (8, RuntimeError, "Only binding non-string Tensors is currently supported"),
    ):
        with pytest.raises(error, match=text):
            binding.bind_input("X", "cpu", 0, element, (2, 2), array.ctypes.data)
    with pytest.raises(RuntimeError, match=r"shape.Size\(\) must (be )?>= ?0"):
        binding.bind_input("X", "cpu", 0, np.float32, (2, -2), array.ctypes.data)
    for pointer in ("x", None):
        with pytest.raises(TypeError):
            binding.bind_input("X", "cpu", 0, np.float32, (2, 2), pointer)
    with pytest.raises(
        RuntimeError, match=r"^Error when binding input: There's no data transfer registered for copying tensors from"
    ):
        binding.bind_input("X", "cuda", 0, np.float32, (2, 2), array.ctypes.data)
    with pytest.raises(Exception, match=r"^Unsupported device type: foo$"):
        binding.bind_input("X", "foo", 0, np.float32, (2, 2), array.ctypes.data)
    with pytest.raises(RuntimeError, match="Error when binding input: Failed to find input name in the mapping: Z"):
        binding.bind_ortvalue_input("Z", value)
    binding.clear_binding_inputs()
    binding.synchronize_inputs()


@pytest.mark.parametrize(
    "array", [*map(np.array, [["ab"], [b"ab"]]), np.array(["a", 1], object), np.zeros(2, "V4")], ids=repr
)
def test_text_bound_to_numbers_is_refused_by_the_run(ort: Any, array: np.ndarray) -> None:
    made = ort.InferenceSession(model("g (float[N] x) => (float[N] y) { y = Relu(x) }"))
    binding = made.io_binding()
    binding.bind_cpu_input("x", array)
    binding.bind_output("y")
    text = r"^Error in execution: Unexpected input data type. Actual: \(tensor\(string\)\) , expected: \(tensor\(float\)\)$"
    with pytest.raises(RuntimeError, match=text):
        made.run_with_iobinding(binding)


@pytest.mark.parametrize("array", [np.array(["a"]), np.ones(1, "f4"), np.zeros(1, "M8[s]")], ids=repr)
def test_inputs_to_which_no_array_is_bound(ort: Any, array: np.ndarray) -> None:
    tensor = helper.make_tensor_type_proto
    texts, floats = tensor(TensorProto.STRING, ["N"]), tensor(TensorProto.FLOAT, ["N"])
    for type_, what in (
        (texts, "non-string Tensors"),
        (helper.make_sequence_type_proto(floats), "Tensors"),
        (helper.make_optional_type_proto(floats), "Tensors"),
    ):
        graph = helper.make_graph(
            [helper.make_node("Identity", ["x"], ["y"])],
            "g", [helper.make_value_info("x", type_)], [helper.make_value_info("y", type_)],
        )  # fmt: skip
        of_type = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)
        binding = ort.InferenceSession(of_type.SerializeToString()).io_binding()
        with pytest.raises(RuntimeError, match=f"^Only binding {what} is currently supported$"):
            binding.bind_cpu_input("x", array)


def test_binding_outputs(ort: Any, binding: Any) -> None:
    array = ones("f4", 2, 2)
    assert binding.get_outputs() == [] and binding.copy_outputs_to_cpu() == []
    binding.bind_output("nope")
    binding.clear_binding_outputs()
    with pytest.raises(TypeError):
        binding.bind_output(3)
    with pytest.raises(Exception, match=r"^Unsupported device type: CPU$"):
        binding.bind_output("Y", "CPU")
    for element, shape in ((None, None), (np.float32, None)):
        with pytest.raises(
            ValueError, match=r"^`element_type` and `shape` are to be provided if pre-allocated memory is provided$"
        ):
            binding.bind_output("Y", "cpu", 0, element, shape, 5)
    with pytest.raises(AttributeError):
        binding.bind_ortvalue_output("Y", array)
    binding.bind_output("Y", "cuda")
    (unallocated,) = binding.get_outputs()
    assert not unallocated.has_value() and not unallocated.is_tensor()
    for method in ("shape", "numpy", "device_name"):
        with pytest.raises(RuntimeError, match="Only OrtValues that are Tensors"):
            getattr(unallocated, method)()
    binding.bind_ortvalue_output("Y", ort.OrtValue.ortvalue_from_numpy(array))
    assert (
        binding.get_outputs()[0].data_ptr() == array.ctypes.data and len(binding.get_outputs_as_ortvaluevector()) == 1
    )
    (copied,) = binding.copy_outputs_to_cpu()
    copied[:] = 9
    assert array.sum() == 4
    binding.bind_output("Y", "cpu", 0, np.float32, [2, 2], array.ctypes.data)
    assert binding.get_outputs()[0].numpy().sum() == 4
    binding.synchronize_outputs()


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (
            (1, 3),
            "Got invalid dimensions for output: y for the following indices\n index: 1 Got: 3 Expected: 2\n Please fix",
        ),
        ((2,), "Invalid rank for output: y Got: 1 Expected: 2 Please fix either the inputs/outputs or the model."),
        (
            (2, 2),
            "The output OrtValue provided for output 'y' .*has shape \\{2,2} but the computed output shape for this run is \\{1,2}.",
        ),
    ],
)
def test_memory_for_results_of_another_shape(ort: Any, shape: tuple[int, ...], message: str) -> None:
    text = '<ir_version: 9, opset_import: ["": 21]> g (float[N, 2] x) => (float[N, 2] y) { y = Neg(x) }'
    session = ort.InferenceSession(parser.parse_model(text).SerializeToString(), providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    binding.bind_cpu_input("x", np.zeros((1, 2), np.float32))
    binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_shape_and_type(shape, np.float32))
    with pytest.raises(RuntimeError, match=f"Error in execution: .*{message}"):
        session.run_with_iobinding(binding)


def test_a_binding_stays_in_its_process(ort: Any, binding: Any) -> None:
    with pytest.raises(TypeError, match="cannot pickle"):
        pickle.dumps(binding)


def test_outputs_before_a_run_raise_instead_of_crashing() -> None:
    binding = IOBinding(TwoByTwo())
    binding.bind_output("Y")
    with pytest.raises(RuntimeError, match=r"Outputs \['Y'\] have no value yet: call run_with_iobinding first"):
        binding.copy_outputs_to_cpu()
    with pytest.raises(RuntimeError, match="not allocated"):
        binding.get_outputs()[0].data_type()


def test_what_a_run_reads_and_stores() -> None:
    binding, array = IOBinding(TwoByTwo()), ones("f4", 2, 2)
    binding.bind_cpu_input("X", array)
    array[:] = 3
    assert binding._inputs["X"].numpy().sum() == 12
    binding.bind_output("Y")
    binding.bind_ortvalue_output("Z", OrtValue.ortvalue_from_numpy(array))
    binding.bind_output("Y", "cpu", 0)
    assert [(o.name, o.device.kind, o.value is None) for o in binding._outputs.values()] == [
        ("Y", "cpu", True),
        ("Z", "cpu", False),
    ]
    y, z = binding._bound().outputs
    y.result, z.result = ones("f4", 1), OrtValue._wrap([ones("f4", 1)], SequenceType(FLOATS))
    first, second = binding.copy_outputs_to_cpu()
    assert first.tolist() == [1] and first is not y.result and isinstance(second, list)
    value = binding.get_outputs()[0]
    assert value.data_type() == "tensor(float)" and binding.get_outputs()[0] is value
    binding.clear_binding_outputs()
    assert binding.get_outputs() == []


def test_what_is_bound_anew_counts_in_the_next_run() -> None:
    binding, array = IOBinding(TwoByTwo()), ones("f4", 2, 2)
    binding.bind_cpu_input("X", array)
    binding.bind_output("Y")
    first = binding._bound()
    assert binding._bound() is first
    binding.bind_ortvalue_input("X", OrtValue.ortvalue_from_numpy(array * 2))
    binding.bind_output("Z")
    second = binding._bound()
    assert second.inputs["X"].numpy().sum() == 8 and second.names == ["Y", "Z"] == [o.name for o in second.outputs]
    assert first.names == ["Y"] and first.inputs["X"].numpy().sum() == 4, (
        "a run that is under way keeps what it began with"
    )
    binding.bind_cpu_input("X", array * 3)
    assert binding._bound().inputs["X"].numpy().sum() == 12
    binding.bind_ortvalue_output("Z", OrtValue.ortvalue_from_numpy(array))
    assert binding._bound().outputs[1].value is not None
    binding.clear_binding_inputs()
    binding.clear_binding_outputs()
    nothing = binding._bound()
    assert not nothing.inputs and not nothing.names and not nothing.outputs


def test_inputs_that_fit_once_are_read_at_each_run() -> None:
    """What was found of bound arrays holds for later runs: their contents may change, their shapes no longer."""
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 2]) for name in "XY"]
    graph = helper.make_graph([helper.make_node("Neg", ["X"], ["Y"])], "g", infos[:1], infos[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)
    session = onnxplug.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    binding, array = session.io_binding(), ones("f4", 2, 2)
    binding.bind_cpu_input("X", array)
    binding.bind_output("Y")
    for n in range(3):
        array[:] = n
        session.run_with_iobinding(binding)
        (result,) = binding.copy_outputs_to_cpu()
        assert result.shape == (2, 2) and (result == -n).all()
    array.shape = (4, 1)  # which is the caller's array; what was bound has two columns
    session.run_with_iobinding(binding)
    assert binding.copy_outputs_to_cpu()[0].shape == (2, 2)
    wrong = session.io_binding()
    wrong.bind_cpu_input("X", array)
    wrong.bind_output("Y")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="Got: 1 Expected: 2"):
            session.run_with_iobinding(wrong)


def test_binding_memory_by_address() -> None:
    binding, block = IOBinding(TwoByTwo()), (ctypes.c_float * 4)(1, 2, 3, 4)
    binding.bind_input("X", "cpu", 0, np.float32, [2, 2], ctypes.addressof(block))
    bound = binding._inputs["X"]
    assert bound.numpy().tolist() == [[1, 2], [3, 4]] and bound.data_ptr() == ctypes.addressof(block)
    bound.numpy()[0, 0] = 7
    assert block[0] == 7
    binding.bind_input("X", "cpu", 0, np.float32, [0, 2], 0)
    assert binding._inputs["X"].shape() == [0, 2]
    with pytest.raises(RuntimeError, match="the address is null"):
        binding.bind_input("X", "cpu", 0, np.float32, [2], 0)


class OnDevice:
    """A tensor that NumPy does not see."""

    native, dtype, shape, device = object(), np.dtype("f4"), (2,), Device("acme", 1)

    def to_host(self) -> np.ndarray:
        return ones("f4", 2)


def test_device_values_are_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxplug.session.device.device_kinds", lambda: {"cpu", "acme"})
    binding, value = IOBinding(TwoByTwo()), OrtValue._wrap(OnDevice())
    binding.bind_ortvalue_input("X", value)
    binding.bind_ortvalue_output("Y", value)
    assert binding._outputs["Y"].device.kind == "acme" and binding._outputs["Y"].device.device_id() == 1
    assert binding.copy_outputs_to_cpu()[0].tolist() == [1, 1]
