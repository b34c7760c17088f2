"""Feeds: what is accepted, converted and refused, in onnxruntime's order and words, and where this package does
better.
"""

from __future__ import annotations

import collections
import functools
import importlib
import pickle
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxplug.contract import MapType, OptionalType, SequenceType, SparseTensorType, TensorType, ValueType
from onnxplug.contract.errors import Fail, InvalidArgument
from onnxplug.session.device import OrtDevice
from onnxplug.session.feeds import Feeds, InputSpec
from onnxplug.session.ortvalue import OrtValue
from onnxplug.session.sparse import SparseTensor

MATRIX, VECTOR, SCALAR = TensorType("float", ("N", 2)), TensorType("float", (2,)), TensorType("float", ())
CUBE, ANY = TensorType("float", (2, 3, 4)), TensorType("float")
INTS, BYTES, BOOLS, HALVES, TEXTS = (TensorType(e, (None,)) for e in ("int64", "uint8", "bool", "float16", "string"))
SEQUENCE, TEXT_SEQUENCE = SequenceType(ANY), SequenceType(TensorType("string"))
OPTIONAL, OPTIONAL_SEQUENCE = OptionalType(VECTOR), OptionalType(SequenceType(VECTOR))
NAMES, NUMBERS = MapType("string", TensorType("float", ())), MapType("int64", TensorType("float", ()))


class Subclass(np.ndarray):
    """Not quite an ndarray."""


def ones(dtype: Any, *shape: int) -> np.ndarray:
    return np.ones(shape, dtype)


def proto(type_: ValueType) -> Any:
    from onnx import TensorProto, helper

    if isinstance(type_, SequenceType):
        return helper.make_sequence_type_proto(proto(type_.element))
    if isinstance(type_, OptionalType):
        return helper.make_optional_type_proto(proto(type_.element))
    if isinstance(type_, MapType):
        return helper.make_map_type_proto(
            TensorProto.STRING if type_.key == "string" else TensorProto.INT64, proto(type_.value)
        )
    assert isinstance(type_, TensorType)
    return helper.make_tensor_type_proto(getattr(TensorProto, type_.element.upper()), type_.shape)


@functools.cache
def onnxruntime_session(*types: ValueType) -> Any:
    """An identity model in the real onnxruntime; maps go through DictVectorizer, the only kind of node that takes
    them.
    """
    ort = pytest.importorskip("onnxruntime")
    from onnx import helper

    ort.set_default_logger_severity(4)
    nodes, inputs, outputs = [], [], []
    for name, type_ in zip(("X", "W"), types, strict=False):
        inputs.append(helper.make_value_info(name, proto(type_)))
        if isinstance(type_, MapType):
            words = {"string_vocabulary": ["a", "b"]} if type_.key == "string" else {"int64_vocabulary": [1, 2]}
            nodes.append(helper.make_node("DictVectorizer", [name], [name + "o"], domain="ai.onnx.ml", **words))
            outputs.append(helper.make_value_info(name + "o", proto(TensorType("float", (1, 2)))))
        else:
            nodes.append(helper.make_node("Identity", [name], [name + "o"]))
            outputs.append(helper.make_value_info(name + "o", proto(type_)))
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs), opset_imports=opsets, ir_version=9)
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def feeds(*types: ValueType) -> Feeds:
    return Feeds([InputSpec(name, type_) for name, type_ in zip(("X", "W"), types, strict=False)])


@pytest.fixture(params=["onnxplug", "onnxruntime"])
def run(request: pytest.FixtureRequest) -> Any:
    """run(types, feed) -> the fed values, as the model of identities returns them."""
    if request.param == "onnxplug":
        return lambda types, feed: feeds(*types)(feed)
    return lambda types, feed: onnxruntime_session(*types).run(None, feed)


def same(got: Any, expected: Any) -> bool:
    if isinstance(expected, list):
        return isinstance(got, list) and len(got) == len(expected) and all(map(same, got, expected))
    if isinstance(expected, np.ndarray):
        return got.dtype == expected.dtype and got.shape == expected.shape and np.array_equal(got, expected)
    return bool(got == expected)


def texts(*values: str) -> np.ndarray:
    return np.array(values, object)


ACCEPTED: list[tuple[ValueType, Any, Any]] = [
    (MATRIX, ones("f4", 3, 2), ones("f4", 3, 2)),
    (MATRIX, ones("f4", 0, 2), ones("f4", 0, 2)),
    (MATRIX, np.arange(16, dtype="f4").reshape(4, 4)[::2, ::-2], np.array([[3, 1], [11, 9]], "f4")),
    (MATRIX, np.asfortranarray(np.arange(6, dtype="f4").reshape(3, 2)), np.arange(6, dtype="f4").reshape(3, 2)),
    (MATRIX, ones("f4", 3, 2).view(Subclass), ones("f4", 3, 2)),
    (MATRIX, np.ma.masked_array(ones("f4", 3, 2)), ones("f4", 3, 2)),
    (MATRIX, [[1, 2]], np.array([[1, 2]], "f4")),
    (MATRIX, [(1, 2)], np.array([[1, 2]], "f4")),
    (MATRIX, [["1", "2"]], np.array([[1, 2]], "f4")),
    (MATRIX, [ones("f4", 2), ones("f8", 2)], ones("f4", 2, 2)),
    (SCALAR, ones("f4"), ones("f4")),
    (SCALAR, ones("f4", 2, 2), ones("f4", 2, 2)),
    (SCALAR, [1.5], np.array([1.5], "f4")),
    (SCALAR, [], np.array([], "f4")),
    (ANY, ones("f4", 2, 2), ones("f4", 2, 2)),
    (INTS, [1.7, -1.7], np.array([1, -1])),
    (INTS, [True], np.array([1])),
    (INTS, ones(np.longlong, 1), np.array([1])),
    (BOOLS, [1, 0, 2], np.array([True, False, True])),
    (HALVES, [1.5, 2], np.array([1.5, 2], "f2")),
    (TEXTS, np.array(["a", "bc"]), texts("a", "bc")),
    (TEXTS, np.array(["aa", "b"])[::-1], texts("b", "aa")),
    (TEXTS, np.array([1, None, 2.5, b"x", "é"], object), texts("1", "None", "2.5", "b'x'", "é")),
    (TEXTS, np.array(["a\0b", "c\0"], object), texts("a\0b", "c\0")),
    (TEXTS, np.array([b"a\0b", b"c"], "V3"), texts("a\0b", "c\0\0")),
    (TEXTS, np.array([(b"a", b"bc")], "S2,S2"), texts("a\0bc")),
    (TEXTS, ["a", 1, b"c"], texts("a", "1", "b'c'")),
    (TEXTS, [], texts()),
    (SEQUENCE, [ones("f4", 2, 4)[:, ::2], ones("f4", 3)], [ones("f4", 2, 2), ones("f4", 3)]),
    (SEQUENCE, [], []),
    (TEXT_SEQUENCE, [np.array(["a"]), np.array([1], object)], [texts("a"), texts("1")]),
    (OPTIONAL, ones("f4", 2), ones("f4", 2)),
    (OPTIONAL, [1, 2], np.array([1, 2], "f4")),
    (OPTIONAL, None, None),
    (OPTIONAL_SEQUENCE, [ones("f4", 2)], [ones("f4", 2)]),
    (OPTIONAL_SEQUENCE, None, None),
]  # fmt: skip


@pytest.mark.parametrize(("declared", "value", "expected"), ACCEPTED)
def test_accepted_feeds(run: Any, declared: ValueType, value: Any, expected: Any) -> None:
    assert same(run([declared], {"X": value}), [expected])


BAD_TYPE = "Unexpected input data type. Actual: ({}) , expected: ({})"
BAD_RANK = "Invalid rank for input: X Got: {} Expected: {} Please fix either the inputs/outputs or the model."
BAD_DIMS = "Got invalid dimensions for input: X for the following indices\n{} Please fix either the inputs/outputs or the model."
NOT_A_LIST = "Input must be a list of dictionaries or a single numpy array for input 'X'."
NO_TENSOR = "Could not create tensor from given input list"
NOT_TYPED = "The graph is missing type information needed to construct the ORT tensor"
NO_SEQUENCE = "CreateSequenceOfTensors: Input is not a tensor"

REFUSED: list[tuple[ValueType, Any, str, str]] = [
    (MATRIX, ones("f8", 1, 2), "InvalidArgument", BAD_TYPE.format("tensor(double)", "tensor(float)")),
    (MATRIX, ones("f8", 5), "InvalidArgument", BAD_TYPE.format("tensor(double)", "tensor(float)")),
    (MATRIX, ones("O", 1, 2), "InvalidArgument", BAD_TYPE.format("tensor(string)", "tensor(float)")),
    (MATRIX, ones("U3", 1, 2), "InvalidArgument", BAD_TYPE.format("tensor(string)", "tensor(float)")),
    (INTS, ones("i4", 1), "InvalidArgument", BAD_TYPE.format("tensor(int32)", "tensor(int64)")),
    (BOOLS, ones("u1", 1), "InvalidArgument", BAD_TYPE.format("tensor(uint8)", "tensor(bool)")),
    (HALVES, ones("f4", 1), "InvalidArgument", BAD_TYPE.format("tensor(float)", "tensor(float16)")),
    (TensorType("bfloat16", (None,)), ones("u2", 2), "InvalidArgument",
     BAD_TYPE.format("tensor(uint16)", "tensor(bfloat16)")),
    (TEXTS, ones("f4", 2), "InvalidArgument", BAD_TYPE.format("tensor(float)", "tensor(string)")),
    (OPTIONAL, ones("f8", 2), "InvalidArgument", BAD_TYPE.format("tensor(double)", "tensor(float)")),
    (MATRIX, ones("f4", 5), "InvalidArgument", BAD_RANK.format(1, 2)),
    (MATRIX, ones("f4"), "InvalidArgument", BAD_RANK.format(0, 2)),
    (MATRIX, [1, 2], "InvalidArgument", BAD_RANK.format(1, 2)),
    (MATRIX, [None], "InvalidArgument", BAD_RANK.format(1, 2)),
    (TEXTS, np.array([["a"]]), "InvalidArgument", BAD_RANK.format(2, 1)),
    (MATRIX, ones("f4", 1, 3), "InvalidArgument", BAD_DIMS.format(" index: 1 Got: 3 Expected: 2\n")),
    (OPTIONAL, ones("f4", 3), "InvalidArgument", BAD_DIMS.format(" index: 0 Got: 3 Expected: 2\n")),
    (CUBE, ones("f4", 1, 3, 5), "InvalidArgument",
     BAD_DIMS.format(" index: 0 Got: 1 Expected: 2\n index: 2 Got: 5 Expected: 4\n")),
    (MATRIX, {"a": 1}, "InvalidArgument", BAD_TYPE.format("(map(string,tensor(float)))", "(tensor(float))")),
    (MATRIX, ({"a": 1.0}, {"b": 2}), "InvalidArgument",
     BAD_TYPE.format("(seq(map(string,tensor(float))))", "(tensor(float))")),
    (SEQUENCE, {"a": 1}, "InvalidArgument", BAD_TYPE.format("(map(string,tensor(float)))", "(seq(tensor(float)))")),
    (NAMES, {1: 1.0}, "InvalidArgument", BAD_TYPE.format("(map(int64,tensor(float)))", "(map(string,tensor(float)))")),
    (SEQUENCE, ones("f4", 1), "InvalidArgument",
     "input with name: 'X' expected to be of type: 3 but received a tensor"),
    (OPTIONAL_SEQUENCE, ones("f4", 2), "InvalidArgument",
     "input with name: 'X' expected to be of type: 5 but received a tensor"),
    (NAMES, ones("f4", 1), "InvalidArgument", "input with name: 'X' expected to be of type: 1 but received a tensor"),
    (SCALAR, 1.5, "RuntimeError", "Unable to handle object of type <class 'float'>"),
    (MATRIX, object(), "RuntimeError", "Unable to handle object of type <class 'object'>"),
    (MATRIX, memoryview(bytes(8)).cast("B", (2, 4)), "RuntimeError", "Unable to handle object of type <class 'memoryview'>"),
    (OPTIONAL, 1.0, "RuntimeError", "Unable to handle object of type <class 'float'>"),
    (MATRIX, "abc", "RuntimeError", NOT_A_LIST),
    (TEXTS, "abc", "RuntimeError", NOT_A_LIST),
    (MATRIX, ((1, 2),), "RuntimeError", NOT_A_LIST),
    (NUMBERS, collections.UserDict({1: 1.0}), "RuntimeError", NOT_A_LIST),
    (SEQUENCE, (ones("f4", 2),), "RuntimeError",
     "Iterable of <class 'numpy.ndarray'> should be given as array for input 'X'."),
    (MATRIX, (), "RuntimeError", "Input 'X' must not be empty."),
    (MATRIX, [[1, 2], [3]], "RuntimeError", NO_TENSOR),
    (MATRIX, [[1, "a"]], "RuntimeError", NO_TENSOR),
    (MATRIX, [{"a": 1}], "RuntimeError", NO_TENSOR),
    (INTS, [2**63], "RuntimeError", NO_TENSOR),
    (BYTES, [300], "RuntimeError", NO_TENSOR),
    (BYTES, [-1], "RuntimeError", NO_TENSOR),
    (SEQUENCE, [[1, 2]], "RuntimeError", NO_SEQUENCE),
    (SEQUENCE, [{"a": 1}], "RuntimeError", NO_SEQUENCE),
    (TEXT_SEQUENCE, ["a"], "RuntimeError", NO_SEQUENCE),
    (SEQUENCE, [ones("f4", 1), ones("f8", 1)], "RuntimeError", "TensorSeq: tensor to be added has a different data type."),
    (NAMES, [{"a": 1}], "RuntimeError", NOT_TYPED),
    (NAMES, [], "RuntimeError", NOT_TYPED),
    (NAMES, {}, "RuntimeError", "Size of dictionary is empty, unable to run the prediction."),
    (NAMES, {"a": "b"}, "RuntimeError",
     "Unexpected value type  <class 'str'>, it cannot be linked to C type string for input 'X'."),
    (NUMBERS, {1: None}, "RuntimeError",
     "Unexpected value type  <class 'NoneType'>, it cannot be linked to C type int64_t for input 'X'."),
    (MATRIX, ones("c8", 1, 2), "RuntimeError", "Numpy_type 14 can't be converted to MLDataType."),
    (SEQUENCE, [ones("c8", 1, 2)], "RuntimeError", "Numpy_type 14 can't be converted to MLDataType."),
    (MATRIX, np.zeros((1, 2), "M8[s]"), "RuntimeError", "Numpy_type 21 can't be converted to MLDataType."),
    (MATRIX, np.zeros((1, 2), np.longdouble), "RuntimeError", "Numpy_type 13 can't be converted to MLDataType."),
    (MATRIX, np.zeros((1, 2), "f4,f4"), "InvalidArgument", "Actual: (tensor(string)) , expected: (tensor(float))"),
    (TEXTS, np.array([b"\xff"]), "UnicodeDecodeError", "can't decode byte 0xff"),
]  # fmt: skip


@pytest.mark.parametrize(("declared", "value", "error", "text"), REFUSED)
def test_refused_feeds(run: Any, declared: ValueType, value: Any, error: str, text: str) -> None:
    with pytest.raises(Exception) as caught:
        run([declared], {"X": value})
    assert type(caught.value).__name__ == error
    assert str(caught.value).endswith(text) or text in str(caught.value)


BOTH = [MATRIX, MATRIX]


@pytest.mark.parametrize(
    ("feed", "error", "text"),
    [
        ({}, "ValueError", "Required inputs (['X', 'W']) are missing from input feed ([])."),
        ({"X": 1.0}, "ValueError", "Required inputs (['W']) are missing from input feed (['X'])."),
        (
            {"Z": ones("f4", 1, 2), "W": None},
            "ValueError",
            "Required inputs (['X']) are missing from input feed (['Z', 'W']).",
        ),
        (
            {"X": ones("f8", 1, 2), "W": ones("f4", 1, 2), "Z": ones("f4", 1)},
            "InvalidArgument",
            "Invalid input name: Z",
        ),
        (
            {"Z": [1.0], "X": ones("f4", 1, 2), "W": ones("f4", 1, 2)},
            "RuntimeError",
            "Failed to find input with name: Z in the model input def list",
        ),
        (
            {"X": 5, "W": "q"},
            "RuntimeError",
            "Input must be a list of dictionaries or a single numpy array for input 'W'.",
        ),
        (
            {"X": "q", "W": ones("f8", 1, 2)},
            "RuntimeError",
            "Input must be a list of dictionaries or a single numpy array for input 'X'.",
        ),
        ({"W": ones("f8", 1, 2), "X": ones("f4", 5)}, "InvalidArgument", BAD_RANK.format(1, 2)),
        (
            {"X": ones("f4", 1, 2), "W": ones("f4", 1, 2), 5: ones("f4", 1)},
            "TypeError",
            "incompatible function arguments",
        ),
        ([("X", 1)], "AttributeError", "'list' object has no attribute 'keys'"),
        (ones("f4", 2), "AttributeError", "'numpy.ndarray' object has no attribute 'keys'"),
        (None, "AttributeError", "'NoneType' object has no attribute 'keys'"),
    ],
)
def test_order_of_checks(run: Any, feed: Any, error: str, text: str) -> None:
    with pytest.raises(Exception) as caught:
        run(BOTH, feed)
    assert type(caught.value).__name__ == error and text in str(caught.value)


@pytest.mark.parametrize("declared", [MATRIX, TEXTS, SEQUENCE, NAMES])
def test_nothing_fed(run: Any, declared: ValueType) -> None:
    with pytest.raises(ValueError) as caught:
        run([declared], {})
    assert str(caught.value) == "Required inputs (['X']) are missing from input feed ([])."


def test_mappings_and_none(run: Any) -> None:
    array = ones("f4", 1, 2)
    for feed in (collections.UserDict({"X": array}), MappingProxyType({"X": array}), {"X": array, "Z": None}):
        assert same(run([MATRIX], feed), [array])


def test_values_as_feeds() -> None:
    array = ones("f4", 1, 2)
    assert feeds(MATRIX)({"X": OrtValue.ortvalue_from_numpy(array)})[0] is array
    for wrong, text in (("f8", BAD_TYPE.format("tensor(double)", "tensor(float)")), ("f4", BAD_RANK.format(1, 2))):
        with pytest.raises(InvalidArgument) as caught:
            feeds(MATRIX)({"X": OrtValue.ortvalue_from_numpy(ones(wrong, 2))})
        assert caught.value.text == text
    sequence = OrtValue._wrap([array], SequenceType(ANY))
    assert feeds(SEQUENCE)({"X": sequence})[0][0] is array
    with pytest.raises(InvalidArgument, match="expected to be of type: 2 but received a tensor sequence"):
        feeds(MATRIX)({"X": sequence})
    assert feeds(OPTIONAL)({"X": OrtValue._wrap(None, OPTIONAL)}) == [None]


def test_ordinary_feeds_are_not_copied() -> None:
    x, w = ones("f4", 3, 2), ones("f4", 1, 2)
    x.flags.writeable = False
    got = feeds(MATRIX, MATRIX)({"W": w, "X": x})
    assert got[0] is x and got[1] is w
    assert feeds(TensorType("int64", (None,)))({"X": ones("i8", 1)})[0].dtype == np.int64


def test_odd_feeds_are_made_ready() -> None:
    unaligned = np.frombuffer(b"\0" + ones("f4", 4).tobytes(), np.uint8)[1:].view("f4").reshape(2, 2)
    assert not unaligned.flags.aligned
    for value in (unaligned, ones("f4", 2, 4)[:, ::2], ones(">f4", 2, 2), ones("f4", 2, 2).view(Subclass)):
        (got,) = feeds(MATRIX)({"X": value})
        assert type(got) is np.ndarray and got.flags.c_contiguous and got.flags.aligned and got.dtype.isnative
        assert np.array_equal(got, ones("f4", 2, 2))


def test_overridable_initializers_may_be_left_out() -> None:
    checked = Feeds([InputSpec("X", VECTOR), InputSpec("w", VECTOR, required=False)])
    x, w = ones("f4", 2), ones("f4", 2)
    assert checked({"X": x})[1] is None
    assert checked({"X": x, "w": w})[1] is w and checked({"w": w, "X": x})[0] is x
    with pytest.raises(InvalidArgument, match=r"index: 0 Got: 3 Expected: 2"):
        checked({"X": x, "w": ones("f4", 3)})
    between = Feeds([InputSpec("X", VECTOR), InputSpec("w", VECTOR, required=False), InputSpec("Y", VECTOR)])
    assert [value is None for value in between({"X": x, "Y": w})] == [False, True, False]
    optional_first = Feeds([InputSpec("o", OPTIONAL), InputSpec("X", VECTOR)])
    assert optional_first({"X": x})[0] is None and optional_first({"X": x})[1] is x


def test_a_required_input_fed_with_none() -> None:
    with pytest.raises(Fail, match=r"Missing Input: X$"):
        feeds(MATRIX)({"X": None})
    with pytest.raises(InvalidArgument):
        feeds(MATRIX, VECTOR)({"X": None, "W": ones("f4", 3)})


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2fnuz", "int4", "uint4"])
def test_types_beyond_numpy(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name))
    element = name.replace("_", "") if "float8" in name else name
    array = np.ones(2, dtype)
    assert feeds(TensorType(element, (2,)))({"X": array})[0] is array
    assert feeds(TensorType(element, (2,)))({"X": [1, 2]})[0].dtype == dtype
    with pytest.raises(InvalidArgument, match=rf"Actual: \(tensor\({element}\)\) "):
        feeds(VECTOR)({"X": array})


def test_values_onnxruntime_cannot_take() -> None:
    assert same(feeds(TensorType("complex64", (1,)))({"X": ones("c8", 1)}), [ones("c8", 1)])
    assert same(feeds(TEXTS)({"X": np.array([b"a", "é".encode()])}), [texts("a", "é")])
    assert same(feeds(TEXTS)({"X": np.array(["a\0b"])}), [texts("a\0b")])
    assert same(feeds(TEXTS)({"X": np.array(["x", "yy"], np.dtypes.StringDType())}), [texts("x", "yy")])
    assert same(feeds(SCALAR)({"X": np.float32(1)}), [ones("f4")])
    maps = SequenceType(NAMES)
    assert (
        feeds(maps)({"X": [{"a": 1}, {"b": 2}]})
        == feeds(maps)({"X": ({"a": 1}, {"b": 2})})
        == [[{"a": 1.0}, {"b": 2.0}]]
    )
    assert feeds(MapType("int64", TensorType("string", ())))({"X": {np.int64(1): "x"}}) == [{1: "x"}]
    counts = feeds(MapType("string", TensorType("int64", ())))
    assert counts({"X": {"a": 2.0, "b": np.array(3), "c": True}}) == [{"a": 2, "b": 3, "c": 1}]
    for odd in (1.5, np.float32(0.1), float("nan"), float("inf")):
        with pytest.raises(RuntimeError, match="'X'"):
            counts({"X": {"a": odd}})
    with pytest.raises(RuntimeError, match=r"NoneType.*'X'"):
        feeds(MapType("string", TensorType("double", ())))({"X": {"a": None}})
    with pytest.raises(RuntimeError, match="Unexpected key type  <class 'int'>"):
        feeds(NAMES)({"X": {"a": 1.0, 2: 3}})
    sparse = SparseTensor.sparse_coo_from_numpy([3, 3], ones("f4", 2), np.array([1, 5]), OrtDevice.make("cpu", 0))
    assert feeds(SparseTensorType("float", (3, None)))({"X": sparse}) == [sparse]
    with pytest.raises(InvalidArgument, match="index: 0 Got: 3 Expected: 4"):
        feeds(SparseTensorType("float", (4, 3)))({"X": OrtValue.ort_value_from_sparse_tensor(sparse)})


def test_structured_arrays_with_references_are_no_text() -> None:
    records = np.array([(1, "a")], [("a", "i4"), ("b", "O")])
    with pytest.raises(RuntimeError, match=r"Structured arrays with references hold no text: \[\('a', '<i4'\), "):
        feeds(TEXTS)({"X": records})


class OnDevice:
    """The shape of a device's tensor."""

    def __init__(self, array: np.ndarray) -> None:
        self.dtype, self.shape, self.native, self.device = array.dtype, array.shape, array, None

    def to_host(self) -> np.ndarray:
        return self.native


def test_device_values_pass_unconverted() -> None:
    value = OnDevice(ones("f4", 1, 2))
    assert feeds(MATRIX)({"X": OrtValue._wrap(value)}) == [value]
    with pytest.raises(InvalidArgument, match="index: 1 Got: 3 Expected: 2"):
        feeds(MATRIX)({"X": OrtValue._wrap(OnDevice(ones("f4", 1, 3)))})


def test_errors_are_the_exported_classes() -> None:
    state = importlib.import_module("onnxplug.capi.onnxruntime_pybind11_state")
    with pytest.raises(
        state.InvalidArgument, match=r"^\[ONNXRuntimeError\] : 2 : INVALID_ARGUMENT : Invalid input name: Z$"
    ):
        feeds(MATRIX)({"X": ones("f4", 1, 2), "Z": ones("f4", 1)})


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (MATRIX, np.ones((3, 2), np.float32)),
        (TEXTS, np.array(["a", "b"], object)),
        (TEXTS, np.array(["a", "b"])),
        (TensorType("string", (None, 1)), np.array([["a"], ["b\0c"]], ">U4")),
        (TEXT_SEQUENCE, [np.array(["a", "bc"]), np.array([["d"]], object)]),
        (SEQUENCE, [np.ones(2, np.float32), np.zeros((1, 3), np.float32)]),
        (OPTIONAL, np.ones(2, np.float32)),
        (NAMES, {"a": 1.0, "b": 2.0}),
        (NUMBERS, {1: 1.0}),
    ],
)
def test_what_needs_no_conversion(type_: ValueType, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken without the thorough way, even where pickle made dtypes of its own; lists and maps are copied."""
    feeds = Feeds([InputSpec("x", type_)])
    wanted = feeds._thorough({"x": value})
    monkeypatch.setattr(Feeds, "_thorough", None)
    for given in (value, pickle.loads(pickle.dumps(value))):
        (got,) = feeds({"x": given})
        assert repr(got) == repr(wanted[0])
        assert isinstance(given, np.ndarray) or got is not given


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (SEQUENCE, [np.ones(2, np.float64)]),
        (TEXTS, np.array(["aa", "b"])[::-1]),
        (TEXT_SEQUENCE, [np.array(["a"]), np.array([1], object)]),
        (TEXT_SEQUENCE, [np.array(["a", "b", "c"], object)[::2]]),
        (TEXT_SEQUENCE, [np.ones(2, np.int64)]),
        (NAMES, {"a": 1}),
        (NAMES, {"a": 1.0, "b": np.float32(2)}),
        (NUMBERS, {np.int64(1): 1.0}),
        (NUMBERS, {True: 1.0}),
        (MapType("int64", TensorType("double", ())), {1: 1.0}),
    ],
)
def test_what_is_converted_still(type_: ValueType, value: Any) -> None:
    feeds = Feeds([InputSpec("x", type_)])
    try:
        wanted = feeds._thorough({"x": value})
    except Exception as error:
        with pytest.raises(type(error)):
            feeds({"x": value})
    else:
        (got,) = feeds({"x": value})
        assert repr(got) == repr(wanted[0])
