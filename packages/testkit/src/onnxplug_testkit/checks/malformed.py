"""L4: models that no provider can run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from onnxplug.contract.errors import STATUS_ERRORS
from onnxplug_testkit.check import check
from onnxplug_testkit.checks.graph import ATOL, RTOL
from onnxplug_testkit.models import OPSET, chain, expected, open_session
from onnxplug_testkit.subject import Subject

DAMAGES = 60
_LEGAL = (*STATUS_ERRORS, RuntimeError, ValueError)
_NONSENSE: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("Transpose", 1, {"perm": [0, 0]}),
    ("Transpose", 1, {"perm": [0, 1, 2]}),
    ("Concat", 2, {"axis": 5}),
    ("Softmax", 1, {"axis": 4}),
    ("Flatten", 1, {"axis": 9}),
    ("ReduceMax", 1, {"axes": [6]}),
    ("Gather", 2, {"axis": 7}),
)
"""Operator, operands and attributes that no tensor of two dimensions goes with."""


@check("robust.malformed_models")
def malformed_models(subject: Subject, seed: int) -> None:
    """Damaged files and attributes without meaning raise, when the session is made or run, and leave nothing behind."""
    rng = np.random.default_rng(seed)
    made = chain(subject)
    x = rng.standard_normal((3, 16)).astype(np.float32)
    with subject.allocators() as allocators:
        for op_type, operands, attributes in _NONSENSE:
            answered = _answers(subject, _nonsense(op_type, operands, attributes), x)
            assert not answered, f"{op_type} with {attributes} gives a result for shape {list(x.shape)}"
        for data in _damaged(made.SerializeToString(), rng):
            _answers(subject, data, x)
    left = sum(a.stats().bytes_in_use for a in allocators)
    assert left == 0, f"{left} bytes stay in use after models were refused"
    with open_session(subject, made) as session:
        got = session.run(None, {"x": x})[0]
        assert np.allclose(got, expected(made, {"x": x}, subject.name)[0], RTOL, ATOL), (
            "it is wrong after models were refused"
        )


def _nonsense(op_type: str, operands: int, attributes: dict[str, Any]) -> bytes:
    """One node on a tensor of unknown rank, so that it is not seen before the run that it makes no sense."""
    names = ["x"] if operands == 1 else ["x", "i" if op_type == "Gather" else "x"]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)]
    index = [helper.make_tensor("i", TensorProto.INT64, [1], [0])] if "i" in names else []
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(
        [helper.make_node(op_type, names, ["y"], "node", **attributes)], "nonsense", inputs, [output], index
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    return bytes(made.SerializeToString())


def _damaged(data: bytes, rng: np.random.Generator) -> Iterator[bytes]:
    """A file cut off, with bytes changed, and with a piece missing."""
    for number in range(DAMAGES):
        at = int(rng.integers(1, len(data)))
        if number % 3 == 0:
            yield data[:at]
        elif number % 3 == 1:
            broken = bytearray(data)
            for place in rng.integers(0, len(data), 3):
                broken[place] = int(rng.integers(0, 256))
            yield bytes(broken)
        else:
            yield data[:at] + data[at + int(rng.integers(1, 9)) :]


def _answers(subject: Subject, data: bytes, x: np.ndarray) -> bool:
    """Whether a model can be made and run, which a damaged one may; what it raises must be of the surface's classes."""
    try:
        with open_session(subject, data) as session:
            session.run(None, {session.get_inputs()[0].name: x})
    except Exception as error:
        if isinstance(error, _LEGAL):
            return False
        raise AssertionError(f"{type(error).__name__} escapes from a malformed model: {error}") from error
    return True
