"""What a run returns is its caller's alone: views of what only the run made go out as they are, others are copied."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import onnxplug as ort
from onnxplug.run.owned import own


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


def test_elements_that_are_no_strings_become_some() -> None:
    made = session("g (string[N] x) => (string[N] y) { y = Identity(x) }")
    (y,) = made.run(None, {"x": np.array(["a", 1, None, np.str_("b")], object)})
    assert y.tolist() == ["a", "1", "None", "b"] and {type(e) for e in y.tolist()} == {str}
