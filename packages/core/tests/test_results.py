"""What a run returns is its caller's alone: views of what only the run made go out as they are, others are copied."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug as ort
from onnxplug.run.owned import own, shows_one_of


def session(text: str) -> ort.InferenceSession:
    source = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 20]> {text}')
    return ort.InferenceSession(source.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(
    "text",
    [
        "g (string[4] x) => (string[2, 2] y) <int64[2] s = {2, 2}> { y = Reshape(x, s) }",
        "g (string[4] x) => (string[4] y) { y = Identity(x) }",
        """g (string[4] x) => (string[2, 2] y, string[4] z) <int64[2] s = {2, 2}, string e = {""}> {
            z = StringConcat(x, e) y = Reshape(z, s) }""",
    ],
)  # fmt: skip
def test_strings_that_are_handed_on(text: str) -> None:
    made = session(text)
    x = np.array(["a", "b", "c", "d"], object)
    for _ in range(2):
        results = made.run(None, {"x": x})
        for result in results:
            result.reshape(-1)[0] = "other"
        assert x[0] == "a"
        assert [r.ravel().tolist() for r in results] == [["other", "b", "c", "d"]] * len(results)
        assert not any(np.shares_memory(results[0], r) for r in results[1:])


def test_whose_an_array_is() -> None:
    root = np.arange(6)
    whole, part, turned, constant = root.reshape(2, 3), root[:3], root.reshape(2, 3).T, np.ones(2)
    taken: set[int] = set()
    assert own(whole, set(), taken) is whole and taken == {id(root)}
    assert own(whole, set(), taken) is not whole, "a second result of the same memory"
    for view in (part, turned):
        copied = own(view, set(), set())
        assert copied is not view and not np.shares_memory(copied, view)
    (copied,) = own([constant], {id(constant)}, set())
    assert copied is not constant
    assert own(None, set(), set()) is None


def test_which_arrays_show_one_that_was_given() -> None:
    x, item = np.arange(6), np.ones(2)
    given = [None, {"a": 1.0}, [np.ones(2), item], x]
    assert all(shows_one_of(array, given) for array in (x, x.reshape(2, 3), x[1:], item, item[:1]))
    assert not any(shows_one_of(array, given) for array in (x.copy(), np.ones(2), np.ones((2, 2))[0]))


def test_elements_that_are_no_strings_become_some() -> None:
    made = session("g (string[N] x) => (string[N] y) { y = Identity(x) }")
    (y,) = made.run(None, {"x": np.array(["a", 1, None, np.str_("b")], object)})
    assert y.tolist() == ["a", "1", "None", "b"] and {type(e) for e in y.tolist()} == {str}


SEQUENCES = [
    "g (seq(float[2]) q, float[2] x) => (float y) <int64 z = {1}> { y = SequenceAt(q, z) }",
    "g (seq(float[2]) q, float[2] x) => (float y) <int64 z = {1}, int64[2] s = {2, 1}> { t = SequenceAt(q, z) y = Reshape(t, s) }",
    # the same list twice
    "g (seq(float[2]) q, float[2] x) => (seq(float) a, seq(float) b) { a = SequenceInsert(q, x) b = Identity(a) }",
    # what is in a sequence is a result itself
    "g (seq(float[2]) q, float[2] x) => (seq(float) a, float[2] y) { y = Neg(x) a = SequenceInsert(q, y) }",
    "g (seq(float[2]) q, float[2] x) => (seq(float) a, float y) <int64 z = {0}> { a = SequenceInsert(q, x) y = SequenceAt(a, z) }",
    "g (seq(float[2]) q, float[2] x) => (seq(float) a, seq(float) b) { y = Neg(x) a = SequenceInsert(q, y) b = SequenceInsert(a, y) }",
]


@pytest.mark.parametrize("text", SEQUENCES)
def test_items_of_sequences_are_nobody_else_s(text: str) -> None:
    made = session(text)
    fed = {"q": [np.array([1, 2], np.float32), np.array([3, 4], np.float32)], "x": np.array([5, 6], np.float32)}
    first = made.run(None, fed)
    arrays = [array for result in first for array in (result if isinstance(result, list) else [result])]
    given = [*fed["q"], fed["x"]]
    for at, array in enumerate(arrays):
        assert not any(np.shares_memory(array, other) for other in (*given, *arrays[:at]))
    before = [array.copy() for array in arrays]
    again = made.run(None, {"q": [-item for item in fed["q"]], "x": -fed["x"]})
    for array, old in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, old)
    assert len(again) == len(first)


def test_sequences_that_a_loop_collects() -> None:
    made = session(
        """g (float[2] x, int64 n) => (seq(float) s, seq(float) t) <bool yes = {1}> { e = SequenceEmpty()
        s = Loop(n, yes, e) <body = b (int64 i, bool c, seq(float) a) => (bool d, seq(float) r) {
            d = Identity(c) f = CastLike(i, x) p = Mul(x, f) r = SequenceInsert(a, p) }>
        t = SequenceInsert(s, x) }"""
    )
    x = np.array([1, 2], np.float32)
    s, t = made.run(None, {"x": x, "n": np.array(4)})
    assert [item.tolist() for item in s] == [[0, 0], [1, 2], [2, 4], [3, 6]]
    assert [item.tolist() for item in t] == [[0, 0], [1, 2], [2, 4], [3, 6], [1, 2]]
    arrays = [*s, *t, x]
    assert not any(np.shares_memory(a, b) for at, a in enumerate(arrays) for b in arrays[:at])


def test_numpy_s_warnings_are_off_for_the_run_alone(recwarn: pytest.WarningsRecorder) -> None:
    made = session("g (double[2] x) => (double[2] y) { y = Log(x) }")
    with np.errstate(divide="warn", over="raise"):
        before = np.geterr()
        assert made.run(None, {"x": np.zeros(2)})[0].tolist() == [-np.inf, -np.inf]
        assert np.geterr() == before
    assert not recwarn.list
    failing = session("g (float[N] x, int64[k] s) => (float y) { z = Reshape(x, s) y = Det(z) }")
    before = np.geterr()
    with pytest.raises(Exception, match="Reshape"):
        failing.run(None, {"x": np.ones(4, np.float32), "s": np.array([3])})
    assert np.geterr() == before


WIDE = """g (int64[N] x, uint64[N] u, int32[N] i, seq(int64[M]) q) =>
    (int64[N] y, uint64[N] v, int32[N] j, seq(int64[M]) r, int64 z) {
    y = Neg(x) v = Identity(u) j = Neg(i) r = Identity(q) z = ReduceSum<keepdims = 0>(x) }"""
FED = {"x": np.array([1, 2]), "u": np.array([3], np.uint64), "i": np.array([4], np.int32), "q": [np.array([5])]}


@pytest.mark.parametrize("runtime", [ort, pytest.param("onnxruntime", id="onnxruntime")])
def test_integers_of_64_bits_are_long_long(runtime: Any) -> None:
    """As in onnxruntime; NumPy prints the type of such an array where its own int64 is C's long."""
    runtime = pytest.importorskip(runtime) if isinstance(runtime, str) else runtime
    source = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 20]> {WIDE}').SerializeToString()
    made = runtime.InferenceSession(source, providers=["CPUExecutionProvider"])
    told = []
    made.run_async(None, FED, lambda results, data, error: told.append(results), None)
    y, v, j, (r,), z = made.run(None, FED)
    assert [a.dtype.char for a in (y, v, j, r, z)] == ["q", "Q", "i", "q", "q"]
    assert repr(y) == repr(np.array([-1, -2], np.longlong))
    assert made.run(["y", "y"], {**FED, "x": y, "u": v, "q": [r]})[1].tolist() == [1, 2]
    fed = {n: runtime.OrtValue.ortvalue_from_numpy(a) for n, a in FED.items() if n != "q"}
    assert fed["x"].numpy().dtype.char == "q"
    text = "g (int64[N] x) => (int64[N] y) { y = Neg(x) }"
    one = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 20]> {text}').SerializeToString()
    made = runtime.InferenceSession(one, providers=["CPUExecutionProvider"])
    (value,) = made.run_with_ort_values(None, {"x": fed["x"]})
    binding = made.io_binding()
    binding.bind_cpu_input("x", y)
    binding.bind_output("y")
    made.run_with_iobinding(binding)
    assert [a.dtype.char for a in (value.numpy(), *binding.copy_outputs_to_cpu())] == ["q", "q"]
    while not told:
        time.sleep(0.01)
    assert told[0][0].dtype.char == "q"
