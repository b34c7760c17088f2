"""The ONNX backend data (node, simple, PyTorch) through sessions, as a user runs models: results and placement."""

from __future__ import annotations

import functools
import glob
import os
import warnings
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases
from onnx.backend.test.loader import load_model_tests

import onnxplug as ort

RANDOM = "test_bernoulli"
"""Without a fixed meaning: the data's outputs are one draw of onnx's own generator."""
REFERENCE_SAMPLE = 5
"""Every fifth case also runs on the reference provider, whose own tests run all of them kernel by kernel."""


class Case(NamedTuple):
    name: str
    model: onnx.ModelProto
    data: list[tuple[list[Any], list[Any]]]
    rtol: float
    atol: float


def value(proto: Any) -> Any:
    if isinstance(proto, onnx.TensorProto):
        return numpy_helper.to_array(proto)
    if isinstance(proto, onnx.SequenceProto):
        return numpy_helper.to_list(proto)
    return numpy_helper.to_optional(proto) if isinstance(proto, onnx.OptionalProto) else proto


def read(path: str, info: onnx.ValueInfoProto) -> Any:
    kinds = {"sequence_type": onnx.SequenceProto, "optional_type": onnx.OptionalProto}
    proto = kinds.get(info.type.WhichOneof("value"), onnx.TensorProto)()
    with open(path, "rb") as file:
        proto.ParseFromString(file.read())
    return value(proto)


def files(folder: str, kind: str, infos: Any) -> list[Any]:
    found = glob.glob(os.path.join(folder, f"{kind}_*.pb"))
    paths = sorted(found, key=lambda path: int(path.rpartition("_")[2][:-3]))
    return [read(path, infos[index]) for index, path in enumerate(paths)]


@functools.cache
def cases() -> dict[str, Case]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = {
            t.name: Case(
                t.name,
                t.model,
                [([value(i) for i in ins], [value(o) for o in outs]) for ins, outs in t.data_sets],
                t.rtol,
                t.atol,
            )
            for t in collect_testcases(None)
        }
    for kind in ("simple", "pytorch-operator", "pytorch-converted"):
        for test in load_model_tests(kind=kind):
            model = onnx.load(os.path.join(test.model_dir, "model.onnx"))
            folders = sorted(glob.glob(os.path.join(test.model_dir, "test_data_set*")))
            data = [(files(f, "input", model.graph.input), files(f, "output", model.graph.output)) for f in folders]
            found[test.name] = Case(test.name, model, data, test.rtol, test.atol)
    return {name: case for name, case in found.items() if not name.startswith(RANDOM)}


def check(case: Case, providers: list[Any]) -> ort.InferenceSession:
    session = ort.InferenceSession(case.model.SerializeToString(), providers=providers)
    required = [i.name for i in session.get_inputs()]
    declared = [i.name for i in case.model.graph.input]
    for inputs, outputs in case.data:
        names = declared if len(inputs) > len(required) else required
        results = session.run(None, dict(zip(names, inputs, strict=False)))
        assert len(results) == len(outputs)
        for result, wanted in zip(results, outputs, strict=True):
            compare(result, wanted, case)
    return session


def compare(result: Any, wanted: Any, case: Case) -> None:
    if isinstance(wanted, list):
        assert isinstance(result, list) and len(result) == len(wanted)
        for one, other in zip(result, wanted, strict=True):
            compare(one, other, case)
    elif wanted is None:
        assert result is None
    else:
        wanted = np.asarray(wanted)
        assert result.shape == wanted.shape
        if wanted.dtype.kind in "OUS":
            assert result.tolist() == np.array([text(w) for w in wanted.ravel()], object).reshape(wanted.shape).tolist()
            return
        assert result.dtype == wanted.dtype
        exact = wanted.dtype.kind in "iub"
        if exact:
            np.testing.assert_array_equal(result, wanted)
        else:
            wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
            rtol = (
                max(case.rtol, 2**-6) if wanted.dtype.name == "bfloat16" else case.rtol
            )  # two units in the last place
            np.testing.assert_allclose(result.astype(wide), wanted.astype(wide), rtol, case.atol)


def text(word: Any) -> str:
    return word.decode() if isinstance(word, bytes) else str(word)


@pytest.mark.parametrize("name", list(cases()))
def test_cpu(name: str) -> None:
    session = check(cases()[name], ["CPUExecutionProvider"])
    assert set(session.placement().values()) <= {"CPUExecutionProvider"}


@pytest.mark.parametrize("name", list(cases())[::REFERENCE_SAMPLE])
def test_reference_before_cpu(name: str) -> None:
    check(cases()[name], ["ReferenceExecutionProvider", "CPUExecutionProvider"]).close()
