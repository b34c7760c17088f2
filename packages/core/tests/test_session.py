"""The session from its constructor to its end: models, the table of runs, partial runs, and that nothing is left behind. What
onnxruntime does too is tested against it where it is installed."""

from __future__ import annotations

import collections
import gc
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core_graphs import expected, model, same
from core_providers import CPU, offered
from core_sessions import PLAIN, PROFILED, REFERENCE, X, name_of, only_z, session

from onnxplug.contract import (
    ExecutionProvider,
    KernelDef,
    KernelRegistry,
)
from onnxplug.contract.errors import (
    InvalidArgument,
    ModelLoadCanceled,
    NoModel,
)
from onnxplug_ep_reference.memory import live_buffers

# ---- constructor: the model


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (bytearray(PLAIN), "TypeError"), (memoryview(PLAIN), "TypeError"), (None, "TypeError"), (3, "TypeError"), ("", "TypeError"),
        (["x"], "TypeError"), ("nowhere.onnx", "NoSuchFile"), (Path("nowhere.onnx"), "NoSuchFile"), (".", "InvalidProtobuf"),
        (b"", "InvalidArgument"), (b"garbage", "InvalidProtobuf"), (PLAIN[:-3], "InvalidProtobuf"), (__file__, "InvalidProtobuf"),
    ],
)  # fmt: skip
def test_what_is_no_model(ort: Any, source: Any, error: str) -> None:
    with pytest.raises(Exception) as raised:
        ort.InferenceSession(source, providers=[CPU])
    assert name_of(raised.value) == error
    if error not in ("TypeError",):
        assert re.match(r"\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ", str(raised.value))


def test_a_missing_file_has_onnxruntimes_words(ort: Any) -> None:
    with pytest.raises(
        Exception,
        match=r"NO_SUCHFILE : Load model from nowhere.onnx failed:Load model nowhere.onnx failed. File doesn't exist",
    ):
        ort.InferenceSession("nowhere.onnx", providers=[CPU])


def test_what_is_a_model(ort: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(PLAIN)
    for source in (PLAIN, str(path), path):
        assert ort.InferenceSession(source, providers=[CPU]).run(["y"], {"x": X})[0].tolist() == [[1, 2]]


@pytest.mark.parametrize("options", [None, {}, 0, ""])
def test_falsy_options_are_the_defaults(ort: Any, options: Any) -> None:
    assert ort.InferenceSession(PLAIN, options).get_session_options().enable_mem_pattern is True


def test_options_of_another_type(ort: Any) -> None:
    with pytest.raises(TypeError):
        ort.InferenceSession(PLAIN, {"a": 1})


def test_the_options_are_copied(ort: Any) -> None:
    options = ort.SessionOptions()
    options.logid = "before"
    made = ort.InferenceSession(PLAIN, options, [CPU])
    options.logid = "after"
    assert made.get_session_options().logid == "before" and made.get_session_options() is not options


def test_other_keywords_are_ignored(ort: Any) -> None:
    ort.InferenceSession(PLAIN, providers=[CPU], whatever=3, disabled_optimizers=["ConstantFolding"])


def test_a_cancelled_load(ort: Any) -> None:
    options = ort.SessionOptions()
    options.set_load_cancellation_flag(True)
    with pytest.raises(Exception) as raised:
        ort.InferenceSession(PLAIN, options, [CPU])
    assert name_of(raised.value) == ModelLoadCanceled.__name__


# ---- run: the table


@pytest.fixture
def plain(ort: Any) -> Any:
    return ort.InferenceSession(PLAIN, providers=[CPU])


@pytest.mark.parametrize("names", [None, [], (), ""])
def test_all_outputs(plain: Any, names: Any) -> None:
    assert [r.tolist() for r in plain.run(names, {"x": X})] == [[[1, 2]], [[0, 0]]]


def test_some_outputs(plain: Any) -> None:
    assert [r.tolist() for r in plain.run(["z", "y", "z"], {"x": X})] == [[[0, 0]], [[1, 2]], [[0, 0]]]
    assert [r.tolist() for r in plain.run(("y",), collections.UserDict({"x": X}))] == [[[1, 2]]]


BAD_RUNS: list[tuple[Any, Any, str, str]] = [
    (["nope"], {"x": X}, "InvalidArgument", "Invalid output name:nope"),
    (["h"], {"x": X}, "InvalidArgument", "Invalid output name:h"),
    ("y", {"x": X}, "TypeError", ""),
    (3, {"x": X}, "TypeError", ""),
    (None, {}, "ValueError", r"Required inputs \(\['x'\]\) are missing from input feed \(\[\]\)\."),
    (None, {"q": X}, "ValueError", r"Required inputs \(\['x'\]\) are missing from input feed \(\['q'\]\)\."),
    (None, {"x": X, "q": X}, "InvalidArgument", "Invalid input name: q"),
    (None, [("x", X)], "AttributeError", "keys"),
    (None, None, "AttributeError", "keys"),
    (
        None,
        {"x": X.astype(np.float64)},
        "InvalidArgument",
        r"Unexpected input data type. Actual: \(tensor\(double\)\) , expected: \(tensor\(float\)\)",
    ),
    (
        None,
        {"x": X.astype(np.int32)},
        "InvalidArgument",
        r"Actual: \(tensor\(int32\)\) , expected: \(tensor\(float\)\)",
    ),
    (
        None,
        {"x": X[0]},
        "InvalidArgument",
        "Invalid rank for input: x Got: 1 Expected: 2 Please fix either the inputs/outputs or the model.",
    ),
    (
        None,
        {"x": np.ones((1, 3), np.float32)},
        "InvalidArgument",
        "Got invalid dimensions for input: x for the following indices\n index: 1 Got: 3 Expected: 2",
    ),
    (None, {"x": [[1, 2], [3]]}, "RuntimeError", "Could not create tensor from given input list"),
    (
        None,
        {"x": ((1, 2),)},
        "RuntimeError",
        "Input must be a list of dictionaries or a single numpy array for input 'x'.",
    ),
    (None, {"x": 1.5}, "RuntimeError", "Unable to handle object of type <class 'float'>"),
    (None, {"x": X.astype(np.complex64)}, "RuntimeError", "Numpy_type 14 can't be converted to MLDataType."),
    (None, {"x": None}, "Fail", "Missing Input: x"),
    (["nope"], {"x": X[0]}, "InvalidArgument", "Invalid rank for input"),
]


@pytest.mark.parametrize(("names", "feeds", "error", "text"), BAD_RUNS)
def test_runs_that_are_refused(plain: Any, names: Any, feeds: Any, error: str, text: str) -> None:
    with pytest.raises(Exception, match=text or None) as raised:
        plain.run(names, feeds)
    assert name_of(raised.value) == error
    assert plain.run(["y"], {"x": X})[0].tolist() == [[1, 2]], "the session is as it was"


@pytest.mark.parametrize("options", [3, {}, "x"])
def test_run_options_of_another_type(plain: Any, options: Any) -> None:
    with pytest.raises(TypeError):
        plain.run(None, {"x": X}, options)


FEEDS = {
    "a list": [[1, -2]], "integers in a list": [[1, -2]], "every other column": np.array([[1, 9, -2, 9]], np.float32)[:, ::2],
    "upside down": np.array([[-2, 1]], np.float32)[:, ::-1], "in Fortran's order": np.asfortranarray(np.tile(X, (3, 1))),
    "no rows": np.empty((0, 2), np.float32),
}  # fmt: skip


@pytest.mark.parametrize("kind", FEEDS)
def test_feeds_of_every_kind(plain: Any, kind: str) -> None:
    got = plain.run(["z"], {"x": FEEDS[kind]})[0]
    assert got.dtype == np.float32 and got.shape == np.shape(FEEDS[kind]) and not got.any()


def test_what_is_given_is_not_kept_and_what_is_got_is_the_callers(ort: Any) -> None:
    made = ort.InferenceSession(model("g (float[2] x) => (float[2] y) { y = Identity(x) }"), providers=[CPU])
    x = np.array([1, 2], np.float32)
    x.flags.writeable = False
    (y,) = made.run(None, {"x": x})
    y[0] = 9
    assert x.tolist() == [1, 2] and made.run(None, {"x": x})[0].tolist() == [1, 2]


def test_numpy_scalars_are_feeds() -> None:
    """More than onnxruntime takes."""
    made = session(model("g (float x) => (float y) { y = Neg(x) }"))
    for value in (np.float32(2), np.array(2, np.float32), [2.0]):
        assert np.ravel(made.run(None, {"x": value})[0]).tolist() == [-2]
    with pytest.raises(InvalidArgument, match="Unexpected input data type"):
        made.run(None, {"x": np.float64(2)})


def test_feeds_may_be_values(plain: Any, ort: Any) -> None:
    value = ort.OrtValue.ortvalue_from_numpy(X)
    assert plain.run(["y"], {"x": value})[0].tolist() == [[1, 2]]
    (y,) = plain.run_with_ort_values(["y"], {"x": value})
    assert y.numpy().tolist() == [[1, 2]] and y.device_name() == "cpu"
    assert len(plain.run_with_ort_values(None, {"x": value})) == 2
    with pytest.raises(AttributeError):
        plain.run_with_ort_values(None, {"x": X})
    for names, feeds in ((["nope"], {"x": value}), (None, {"q": value})):
        with pytest.raises(Exception, match=r"Invalid|missing") as raised:
            plain.run_with_ort_values(names, feeds)
        assert name_of(raised.value) in ("InvalidArgument", "ValueError")


def test_a_raised_terminate_flag(plain: Any, ort: Any) -> None:
    options = ort.RunOptions()
    options.terminate = True
    with pytest.raises(Exception, match="Exiting due to terminate flag being set to true") as raised:
        plain.run(None, {"x": X}, options)
    assert name_of(raised.value) == "Fail"
    options.terminate = False
    assert len(plain.run(None, {"x": X}, options)) == 2


def test_inspection(plain: Any) -> None:
    (x,) = plain.get_inputs()
    assert (x.name, x.type, x.shape) == ("x", "tensor(float)", ["N", 2])
    assert str(x) == "NodeArg(name='x', type='tensor(float)', shape=['N', 2])"
    assert [o.name for o in plain.get_outputs()] == ["y", "z"] and plain.get_overridable_initializers() == []
    assert plain.end_profiling() == "" and plain.get_profiling_start_time_ns() == 0


# ---- partial runs

PARTS = model("g (float[2] x) => (float[2] y, float[2] z) { a = Neg(x) y = Abs(a) b = Sin(x) z = Cos(b) }")


def test_only_the_path_to_the_fetches() -> None:
    ran: list[str] = []

    class Watching(ExecutionProvider):
        def get_kernel_registry(self) -> KernelRegistry:
            return KernelRegistry(
                [KernelDef("", op, v, self._maker(op)) for op, v in (("Abs", 13), ("Sin", 7), ("Cos", 7), ("Neg", 13))]
            )

        def _maker(self, op: str) -> Any:
            rule = {"Abs": np.abs, "Sin": np.sin, "Cos": np.cos, "Neg": np.negative}[op]
            return lambda node: lambda x: ran.append(op) or rule(x)  # type: ignore[func-returns-value]

    with offered(OwnExecutionProvider=Watching):
        made, x = session(PARTS, ["OwnExecutionProvider"]), np.array([1, -2], np.float32)
        whole = made.run(None, {"x": x})
        assert ran == ["Neg", "Abs", "Sin", "Cos"]
        ran.clear()
        for names, wanted in ((["z"], ["Sin", "Cos"]), (["y"], ["Neg", "Abs"]), (["z", "z"], ["Sin", "Cos"])):
            results = made.run(names, {"x": x}, only_z())
            assert ran == wanted
            same(results, [whole[["y", "z"].index(n)] for n in names])
            ran.clear()
        made.run(["z"], {"x": x})
        assert len(ran) == 4, "only when it is asked for"


@pytest.mark.parametrize("providers", [[CPU], [REFERENCE, CPU]])
def test_partial_runs_on_any_memory(providers: list[str]) -> None:
    made, x = session(PARTS, providers), np.array([1, -2], np.float32)
    for names in (["z"], ["y"], ["z", "y"], None):
        wanted = expected(PARTS, {"x": x})
        results = made.run(names, {"x": x}, only_z())
        for got, name in zip(results, names or ["y", "z"], strict=True):
            np.testing.assert_allclose(got, wanted[["y", "z"].index(name)], rtol=1e-6)


# ---- the end of a session


def test_a_session_leaves_nothing_behind() -> None:
    """Neither closed, nor dropped, nor as a context manager, nor made anew."""
    gc.collect()
    before = len(live_buffers())

    def used() -> Any:
        made = session(PROFILED, [REFERENCE])
        for n in (1, 2):
            made.run(None, {"x": np.ones(2, np.float32), "b": np.array(n == 1), "n": np.array(n)})
        return made

    made = used()
    assert len(live_buffers()) > before
    made.close()
    made.close()
    assert len(live_buffers()) == before
    made = used()
    del made
    assert len(live_buffers()) == before, "and no collector is needed"
    with used() as made:
        pass
    assert len(live_buffers()) == before
    made = used()
    made.set_providers([CPU])
    assert len(live_buffers()) == before


def test_a_closed_session_says_so(simulated: Any) -> None:
    made = session()
    made.close()
    for call in (
        lambda: made.run(None, {"x": X}),
        made.placement,
        made.explain,
        made.get_providers,
        made.get_outputs,
        made.get_modelmeta,
    ):
        with pytest.raises(NoModel, match="The session is closed"):
            call()


def test_results_on_a_device_outlive_their_session() -> None:
    gc.collect()
    before = len(live_buffers())
    made = session(providers=[REFERENCE])
    binding = made.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y", "sim")
    made.run_with_iobinding(binding)
    (y,) = binding.get_outputs()
    made.set_providers([CPU])
    assert y.numpy().tolist() == [[1, 2]]
    del made, binding
    gc.collect()
    assert y.numpy().tolist() == [[1, 2]] and len(live_buffers()) > before
    del y
    gc.collect()
    assert len(live_buffers()) == before
