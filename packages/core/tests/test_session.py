"""The session from its constructor to its end: arguments, providers that fail at every turn, options, profile, bindings, and
that nothing is left behind. What onnxruntime does too is tested against it where it is installed."""

from __future__ import annotations

import collections
import gc
import inspect
import json
import re
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core_graphs import expected, model, same
from core_providers import CPU, OwnProvider, offered
from onnx import ModelProto

import onnxplug
from onnxplug.contract import (
    CONTRACT_VERSION,
    Claim,
    CompiledRegion,
    Device,
    ExecutionProvider,
    KernelDef,
    KernelRegistry,
    ProviderSpec,
)
from onnxplug.contract import Unavailable as Away
from onnxplug.contract.errors import (
    STATUS_ERRORS,
    EPFail,
    Fail,
    InvalidArgument,
    ModelLoadCanceled,
    NoModel,
    NoSuchFile,
    RuntimeException,
)
from onnxplug.contract.hooks import ProviderHooks
from onnxplug.plugins import register_observer, unregister_observer
from onnxplug.plugins.manager import hook_names
from onnxplug.plugins.registry import unregister_provider
from onnxplug_ep_reference.memory import live_buffers

REFERENCE = "ReferenceExecutionProvider"
PLAIN = model("g (float[N, 2] x) => (float[N, 2] y, float[N, 2] z) { h = Neg(x) y = Abs(h) z = Add(h, x) }")
X = np.array([[1, -2]], np.float32)


@pytest.fixture(params=["onnxplug", "onnxruntime"])
def ort(request: pytest.FixtureRequest) -> Any:
    """This package, and the one it has to agree with."""
    engine = pytest.importorskip(request.param)
    engine.set_default_logger_severity(4)
    yield engine
    engine.set_default_logger_severity(2)


def name_of(error: BaseException) -> str:
    return type(error).__name__


def session(source: Any = PLAIN, providers: Sequence[Any] = (CPU,), options: Any = None, **keywords: Any) -> Any:
    return onnxplug.InferenceSession(source, options, list(providers), **{"enable_fallback": 0, **keywords})


def options_with(**entries: Any) -> Any:
    """Session options: attributes by name, config entries by their key with __ for the dot."""
    options = onnxplug.SessionOptions()
    for key, value in entries.items():
        if "__" in key:
            options.add_session_config_entry(key.replace("__", "."), value)
        else:
            setattr(options, key, value)
    return options


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


# ---- constructor: the providers


@pytest.mark.parametrize("providers", [None, [], (), [CPU], (CPU,), [(CPU, {})], [(CPU, {"anything": 1})]])
def test_the_cpu_provider_however_it_is_said(ort: Any, providers: Any) -> None:
    made = ort.InferenceSession(PLAIN, providers=providers)
    assert made.get_providers() == [CPU] and list(made.get_provider_options()) == [CPU]


MALFORMED = [
    ({"providers": {CPU: 1}}, "'providers' should be a sequence."),
    ({"providers": {CPU}}, "'providers' should be a sequence."),
    ({"providers": [[CPU, {}]]}, r"'providers' values must be either strings or \(string, dict\) tuples."),
    ({"providers": [(CPU, None)]}, r"'providers' values must be either strings or \(string, dict\) tuples."),
    ({"providers": [(CPU, {}, 1)]}, r"'providers' values must be either strings or \(string, dict\) tuples."),
    ({"providers": [3]}, r"'providers' values must be either strings or \(string, dict\) tuples."),
    ({"providers": [CPU], "provider_options": []}, "should be the same length if both are given"),
    ({"providers": [CPU], "provider_options": {}}, "'provider_options' should be a sequence."),
    ({"providers": [CPU], "provider_options": [3]}, "'provider_options' values must be dicts."),
    ({"providers": [(CPU, {})], "provider_options": [{}]}, "Only string values for 'providers' are supported"),
]


@pytest.mark.parametrize(("arguments", "text"), MALFORMED)
def test_malformed_providers(ort: Any, arguments: dict[str, Any], text: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match=text):
        ort.InferenceSession(PLAIN, enable_fallback=0, **arguments)
    assert ort.InferenceSession(PLAIN, **arguments).get_providers() == [CPU], "by default it falls back"
    assert "EP Error" in capfd.readouterr().out


def test_an_unknown_provider(ort: Any, capfd: pytest.CaptureFixture[str]) -> None:
    unknown = ["NopeExecutionProvider", CPU]
    with pytest.warns(
        UserWarning, match="Specified provider 'NopeExecutionProvider' is not in available provider names"
    ):
        made = ort.InferenceSession(PLAIN, providers=unknown)
    assert made.get_providers() == [CPU]
    said = capfd.readouterr().out
    assert "EP Error Unknown Provider Type: NopeExecutionProvider when using ['NopeExecutionProvider'" in said
    assert f"Falling back to ['{CPU}'] and retrying." in said
    with (
        pytest.warns(UserWarning),
        pytest.raises(RuntimeError, match=r"^Unknown Provider Type: NopeExecutionProvider$"),
    ):
        ort.InferenceSession(PLAIN, providers=unknown, enable_fallback=0)


def test_a_known_provider_that_is_not_here(ort: Any) -> None:
    """It is skipped, even without fallback."""
    with pytest.warns(UserWarning, match="is not in available provider names"):
        made = ort.InferenceSession(PLAIN, providers=["DmlExecutionProvider", CPU], enable_fallback=0)
    assert made.get_providers() == [CPU]


def test_a_provider_named_twice(ort: Any) -> None:
    with pytest.warns(UserWarning, match=f"Duplicate provider '{CPU}' encountered, ignoring"):
        assert ort.InferenceSession(PLAIN, providers=[CPU, CPU]).get_providers() == [CPU]


def test_a_string_is_a_sequence_of_unknown_providers(ort: Any, capfd: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings(record=True):
        assert ort.InferenceSession(PLAIN, providers=CPU).get_providers() == [CPU]
    assert "Unknown Provider Type: C" in capfd.readouterr().out


def test_providers_of_the_options(ort: Any) -> None:
    options = ort.SessionOptions()
    options.add_provider(CPU, {})
    assert options.has_providers()
    assert ort.InferenceSession(PLAIN, options).get_providers() == [CPU]
    with pytest.raises(RuntimeError, match="Unknown Provider Type: Nope"):
        options.add_provider("Nope", {})
    with pytest.raises(Exception, match=r"Failed to add provider of type 'DmlExecutionProvider'|Unknown Provider Type"):
        options.add_provider("DmlExecutionProvider", {})


def test_providers_are_in_the_order_given_and_the_cpu_provider_is_last() -> None:
    made = session(providers=[REFERENCE])
    assert made.get_providers() == [REFERENCE, CPU]
    assert set(made.placement().values()) == {REFERENCE}
    assert made.get_provider_options()[REFERENCE]["memory"] == "simulated"
    first = session(providers=[CPU, REFERENCE])
    assert first.get_providers() == [CPU, REFERENCE] and set(first.placement().values()) == {CPU}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"nope": 1}, f'{REFERENCE}: Unknown provider option: "nope". Known options: device_id, memory'),
        ({"device_id": "x"}, 'Failed to parse provider option "device_id": "x" is not an integer'),
        ({"memory": "cloud"}, 'Failed to parse provider option "memory": "cloud" is not one of simulated, host'),
        ({"float64": 3}, 'Failed to parse provider option "float64": "3" is not a boolean'),
        ({"device_id": 9}, "device_id 9: there are 2 simulated devices"),
    ],
)
def test_options_a_provider_refuses(options: dict[str, Any], text: str, capfd: pytest.CaptureFixture[str]) -> None:
    before = live_buffers()
    with pytest.raises((RuntimeError, Fail), match=re.escape(text)):
        session(providers=[(REFERENCE, options), CPU])
    assert live_buffers() == before
    if "device_id" not in options or options["device_id"] == "x":
        made = session(providers=[(REFERENCE, options), CPU], enable_fallback=1)
        assert made.get_providers() == [CPU] and text in capfd.readouterr().out


def test_strict_providers() -> None:
    strict = options_with(session__strict_providers="1")
    for name, text in (
        ("DmlExecutionProvider", "is not installed"),
        ("NopeExecutionProvider", "No provider is called"),
    ):
        with pytest.warns(UserWarning), pytest.raises(EPFail, match=f"{name} cannot be used: .*{text}"):
            session(providers=[name, CPU], options=strict, enable_fallback=1)
    with pytest.raises(RuntimeError, match="Unknown provider option"):
        session(providers=[(REFERENCE, {"nope": 1})], options=strict, enable_fallback=1)
    assert session(providers=[REFERENCE], options=strict).get_providers() == [REFERENCE, CPU]


@pytest.fixture
def away() -> Iterator[str]:
    """A provider that cannot be used on this machine."""
    name = "AwayExecutionProvider"
    check = lambda: Away("the device is unplugged", "plug it in")  # noqa: E731
    onnxplug.register_provider(
        ProviderSpec(name, CONTRACT_VERSION, lambda options, context: OwnProvider(), check=check)
    )
    yield name
    unregister_provider(name)


def test_an_unavailable_provider_is_skipped_and_explained(away: str) -> None:
    with pytest.warns(UserWarning, match="is not in available provider names"):
        made = session(providers=[away, CPU])
    assert made.get_providers() == [CPU]
    assert "the device is unplugged" in made.explain().skipped[away] and "plug it in" in str(made.explain())
    with pytest.warns(UserWarning), pytest.raises(EPFail, match=r"the device is unplugged.*plug it in"):
        session(providers=[away, CPU], options=options_with(session__strict_providers="1"))
    assert away not in onnxplug.get_available_providers()


# ---- no fallback to the CPU provider


NO_CPU = {"session__disable_cpu_ep_fallback": "1"}


@pytest.mark.parametrize("providers", [None, []])
def test_disabled_cpu_fallback_with_no_other_provider(ort: Any, providers: Any) -> None:
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    with pytest.raises(
        Exception,
        match="nodes that are assigned to the default CPU EP, but fallback to CPU EP has been explicitly disabled",
    ) as raised:
        ort.InferenceSession(PLAIN, options, providers)
    assert name_of(raised.value) == "Fail"
    with pytest.raises(Exception, match="Conflicting session configuration: explicitly added the CPU EP") as raised:
        ort.InferenceSession(PLAIN, options, [CPU])
    assert name_of(raised.value) == "InvalidArgument"


def test_disabled_cpu_fallback_names_the_nodes() -> None:
    with offered(OwnExecutionProvider=lambda: OwnProvider(wanted=["Neg_0", "Abs_0"])):
        with pytest.raises(Fail, match=r"explicitly disabled by the user\. Nodes: 'Add_0' \(Add\)$"):
            session(providers=["OwnExecutionProvider"], options=options_with(**NO_CPU))
        allowed = options_with(**NO_CPU, session__disable_cpu_ep_fallback__allow="Shape, Add")
        made = session(providers=["OwnExecutionProvider"], options=allowed)
        assert made.placement()["Add_0"] == CPU
    with offered(OwnExecutionProvider=OwnProvider):
        assert session(providers=["OwnExecutionProvider"], options=options_with(**NO_CPU)).run(["y"], {"x": X})[
            0
        ].tolist() == [[1, 2]]


def test_disabled_cpu_fallback_looks_into_nested_graphs_and_not_at_what_was_folded() -> None:
    nested = model("""g (float[2] x, bool b) => (float[2] y) { y = If (b) <then_branch = t () => (a) { a = Neg(x) },
        else_branch = e () => (a) { a = Sin(x) }> }""")
    folded = model("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { s = Sin(w) y = Add(x, s) }")
    with offered(OwnExecutionProvider=OwnProvider):
        with pytest.raises(Fail, match=r"'If_0/Sin_0' \(Sin\)"):
            session(nested, ["OwnExecutionProvider"], options_with(**NO_CPU))
        assert set(session(folded, ["OwnExecutionProvider"], options_with(**NO_CPU)).placement().values()) == {
            "OwnExecutionProvider"
        }


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


ARRAY = np.ones((1, 2), np.float32)
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


# ---- providers that fail


def broken(hook: str, error: Callable[[], BaseException], fuses: bool = False) -> Callable[[], ExecutionProvider]:
    """A maker of providers on their own device that are fine but for one hook."""

    class Fused(CompiledRegion):
        def __call__(self, context: Any, *inputs: Any) -> Any:
            raise AssertionError("never run")

    class Provider(OwnProvider):
        def __init__(self) -> None:
            super().__init__(Device("own"))
            if hook == "create":
                raise error()

        def get_capability(self, graph: Any, kernels: Any) -> Any:
            if fuses and graph.nodes:
                return [Claim(list(graph.nodes), fused="all")]
            return super().get_capability(graph, kernels)

        def compile(self, regions: Any) -> Any:
            return [Fused() for _ in regions]

    def fails(arguments: Sequence[str]) -> Any:
        scope: dict[str, Any] = {"error": error}
        exec(f"def {hook}(self, {', '.join(arguments)}):\n    raise error()", scope)
        return scope[hook]

    if hook in hook_names(ProviderHooks):
        parameters = inspect.signature(getattr(ProviderHooks, hook)).parameters
        setattr(Provider, hook, fails([p for p in parameters if p != "self"]))
    return Provider


ERRORS = {"ZeroDivisionError": ZeroDivisionError, "KeyError": lambda: KeyError("lost"), "RuntimeError": lambda: RuntimeError("no"),
          "MemoryError": MemoryError, "SystemExit": lambda: SystemExit(3), "Fail": lambda: Fail("as it is")}  # fmt: skip
CREATING = ["create", "get_capability", "get_kernel_registry", "create_allocators", "get_data_transfer"]
RUNNING = ["view", "on_run_start", "on_run_end", "sync", "create_stream"]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("hook", CREATING)
def test_a_provider_that_fails_while_the_session_is_made(hook: str, error: str) -> None:
    """A typed error that names provider and hook; the other providers are closed, and nothing is left."""
    good = lambda: OwnProvider(Device("good"), wanted=())  # noqa: E731
    with offered(GoodExecutionProvider=good, BadExecutionProvider=broken(hook, ERRORS[error])) as made:
        for order in (
            ["GoodExecutionProvider", "BadExecutionProvider", CPU],
            ["BadExecutionProvider", "GoodExecutionProvider"],
        ):
            with pytest.raises((Fail, RuntimeException)) as raised:
                session(providers=order, enable_fallback=1)
            if error != "Fail":
                assert (
                    f"BadExecutionProvider: {hook} raised" in str(raised.value) and raised.value.__cause__ is not None
                )
            assert isinstance(raised.value, RuntimeException) == (error == "MemoryError")
        assert all(p.closed and not p.allocator.live for p in made["GoodExecutionProvider"])
        assert all(not p.allocator.live for p in made["BadExecutionProvider"])
        assert session(providers=["GoodExecutionProvider"]).run(["y"], {"x": X})[0].tolist() == [[1, 2]]


@pytest.mark.parametrize("error", [e for e in ERRORS if e != "SystemExit"])
@pytest.mark.parametrize("hook", RUNNING)
def test_a_provider_that_fails_while_it_runs(hook: str, error: str) -> None:
    with offered(BadExecutionProvider=broken(hook, ERRORS[error])) as made:
        try:
            bad = session(providers=["BadExecutionProvider"])
        except (Fail, RuntimeException) as failure:
            assert error == "Fail" or f"BadExecutionProvider: {hook} raised" in str(failure)
        else:
            for _ in range(2):
                with pytest.raises((Fail, RuntimeException)) as raised:
                    bad.run(None, {"x": X})
                if error != "Fail":
                    assert "BadExecutionProvider" in str(raised.value) and f"{hook} raised" in str(raised.value)
            bad.close()
        (instance,) = made["BadExecutionProvider"]
        assert instance.closed and not instance.allocator.live


def test_a_provider_that_cannot_be_closed(caplog: pytest.LogCaptureFixture) -> None:
    with offered(
        BadExecutionProvider=broken("close", ZeroDivisionError),
        GoodExecutionProvider=lambda: OwnProvider(Device("good")),
    ) as made:
        with pytest.raises(Fail, match="BadExecutionProvider: close raised ZeroDivisionError"):
            session(providers=["BadExecutionProvider", "GoodExecutionProvider"]).close()
        assert made["GoodExecutionProvider"][0].closed
        left = session(providers=["BadExecutionProvider", "GoodExecutionProvider"])
        left.run(None, {"x": X})
        del left
        gc.collect()
        assert made["GoodExecutionProvider"][1].closed and "BadExecutionProvider: close raised" in caplog.text
        with pytest.raises(NoSuchFile):  # the reason is not covered up
            session("nowhere.onnx", ["BadExecutionProvider", "GoodExecutionProvider"])
        assert made["GoodExecutionProvider"][2].closed


@pytest.mark.parametrize("error", ERRORS)
def test_a_region_that_does_not_compile_goes_to_the_next_provider(error: str, caplog: pytest.LogCaptureFixture) -> None:
    with offered(BadExecutionProvider=broken("compile", ERRORS[error], fuses=True)) as made:
        fallen = session(providers=["BadExecutionProvider"])
        assert set(fallen.placement().values()) == {CPU} and "could not compile" in caplog.text
        assert fallen.run(["y"], {"x": X})[0].tolist() == [[1, 2]]
        assert {n["reasons"]["BadExecutionProvider"] for n in fallen.explain().nodes} != {""}
        with pytest.raises((Fail, RuntimeException), match=r"BadExecutionProvider|as it is"):
            session(providers=["BadExecutionProvider"], options=options_with(session__disable_compile_fallback="1"))
        assert not made["BadExecutionProvider"][1].allocator.live and made["BadExecutionProvider"][1].closed


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda graph: [3], "must give Claims, Declines and Inlines"),
        (lambda graph: [Claim([object()])], "named a node that is not in graph"),
        (lambda graph: [Claim(list(graph.nodes), fused="all")], "no compile"),
        (lambda graph: 3, "get_capability"),
    ],
)
def test_nonsense_from_get_capability(answer: Any, text: str) -> None:
    class Odd(OwnProvider):
        def get_capability(self, graph: Any, kernels: Any) -> Any:
            return answer(graph)

    with offered(OddExecutionProvider=Odd), pytest.raises(Fail, match=text) as raised:
        session(providers=["OddExecutionProvider"])
    assert "OddExecutionProvider" in str(raised.value)


@pytest.mark.parametrize("answer", [3, "x", [3]])
@pytest.mark.parametrize("hook", ["get_kernel_registry", "create_allocators", "get_data_transfer"])
def test_nonsense_from_other_hooks(hook: str, answer: Any) -> None:
    odd = type("Odd", (OwnProvider,), {hook: lambda self: answer})
    with offered(OddExecutionProvider=odd), pytest.raises(Fail, match="OddExecutionProvider"):
        session(providers=["OddExecutionProvider"]).run(None, {"x": X})


def kernel_that(action: Callable[..., Any]) -> Callable[[], ExecutionProvider]:
    class Own(ExecutionProvider):
        def get_kernel_registry(self) -> KernelRegistry:
            return KernelRegistry([KernelDef("", "Abs", 13, lambda node: action)])

    return Own


def raises(error: BaseException) -> Callable[..., Any]:
    def kernel(*_: Any) -> Any:
        raise error

    return kernel


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("x"), OSError("x"), AssertionError("x"), MemoryError("x"), RuntimeError("x")]
)
def test_a_kernel_that_raises(error: BaseException) -> None:
    with offered(OwnExecutionProvider=kernel_that(raises(error))):
        made = session(providers=["OwnExecutionProvider"])
        with pytest.raises(
            (Fail, RuntimeException),
            match=r"Non-zero status code returned while running Abs node. Name:'Abs_0' Status Message: .*OwnExecutionProvider",
        ) as raised:
            made.run(None, {"x": X})
        assert raised.value.__cause__ is error
        assert made.run(["z"], {"x": X}, only_z())[0].tolist() == [[0, 0]], "other outputs are still to be had"


def only_z() -> Any:
    options = onnxplug.RunOptions()
    options.only_execute_path_to_fetches = True
    return options


def test_a_kernel_that_cannot_be_made() -> None:
    class Own(ExecutionProvider):
        def get_kernel_registry(self) -> KernelRegistry:
            return KernelRegistry([KernelDef("", "Abs", 13, raises(ZeroDivisionError()))])

    with (
        offered(OwnExecutionProvider=Own),
        pytest.raises(Fail, match="OwnExecutionProvider could not create the kernel of node 'Abs_0'"),
    ):
        session(providers=["OwnExecutionProvider"])


def test_a_provider_that_gives_up_at_run_time(caplog: pytest.LogCaptureFixture) -> None:
    """EPFail: the session goes on without it, and the request is answered."""
    calls = []

    def gives_up(x: Any) -> Any:
        calls.append(x)
        raise EPFail("the device is lost")

    with offered(OwnExecutionProvider=kernel_that(gives_up)):
        made = session(providers=["OwnExecutionProvider"])
        made.enable_fallback()
        assert made.run(["y"], {"x": X})[0].tolist() == [[1, 2]]
        assert made.get_providers() == [CPU] and len(calls) == 1
        assert "OwnExecutionProvider failed at run time" in caplog.text
        made.set_providers(["OwnExecutionProvider"])
        made.disable_fallback()
        with pytest.raises(EPFail, match="the device is lost"):
            made.run(None, {"x": X})


def test_the_end_of_an_arena() -> None:
    limited = [(REFERENCE, {"mem_limit": 1 << 20, "arena_extend_strategy": "kSameAsRequested"})]
    before = live_buffers()
    made = session(providers=limited)
    small, large = np.ones((100, 2), np.float32), np.ones((200_000, 2), np.float32)
    for _ in range(2):
        assert made.run(["y"], {"x": small})[0].sum() == 200
        with pytest.raises(RuntimeException, match=r"sim:0.* smaller than requested bytes of|wanted, .* in use"):
            made.run(None, {"x": large})
    made.close()
    assert live_buffers() == before


def test_more_than_the_host_has() -> None:
    made = session(model("g (int64[2] s) => (float y) { y = ConstantOfShape(s) }"))
    with pytest.raises((RuntimeException, Fail), match=r"[Uu]nable to allocate|Failed to allocate|too large"):
        made.run(None, {"s": np.array([1 << 30, 1 << 20])})
    fixed = session(model(f"g (float[{1 << 20}, 1] x, float[1, {1 << 22}] w) => (float y) {{ y = Add(x, w) }}"))
    feeds = {"x": np.zeros((1 << 20, 1), np.float32), "w": np.zeros((1, 1 << 22), np.float32)}
    with pytest.raises(RuntimeException, match=r"[Uu]nable to allocate"):
        fixed.run(None, feeds)


# ---- the options of a session


def test_free_dimensions(ort: Any) -> None:
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_name("N", 3)
    options.add_free_dimension_override_by_name("unknown", 7)
    made = ort.InferenceSession(PLAIN, options, [CPU])
    assert made.get_inputs()[0].shape == [3, 2] and made.get_outputs()[0].shape == [3, 2]
    with pytest.raises(Exception, match="Got invalid dimensions"):
        made.run(None, {"x": X})


def test_free_dimensions_by_denotation(ort: Any) -> None:
    proto = ModelProto.FromString(PLAIN)
    proto.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_denotation("DATA_BATCH", 3)
    assert ort.InferenceSession(proto.SerializeToString(), options, [CPU]).get_inputs()[0].shape == [3, 2]


WEIGHTED = model("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }")


def test_an_initializer_in_place_of_the_models(ort: Any) -> None:
    value, options = ort.OrtValue.ortvalue_from_numpy(np.array([5, 6], np.float32)), ort.SessionOptions()
    options.add_initializer("w", value)
    options.add_initializer("unknown", value)
    made = ort.InferenceSession(WEIGHTED, options, [CPU])
    assert made.run(None, {"x": np.zeros(2, np.float32)})[0].tolist() == [5, 6]


@pytest.mark.parametrize("array", [np.ones(3, np.float32), np.ones((2, 1), np.float32), np.ones(2, np.int64)])
def test_an_initializer_that_does_not_fit(array: np.ndarray) -> None:
    options = onnxplug.SessionOptions()
    options.add_initializer("w", onnxplug.OrtValue.ortvalue_from_numpy(array))
    with pytest.raises(InvalidArgument, match=r"Initializer 'w' is tensor\(float\)\[2\], the value given"):
        session(WEIGHTED, options=options)


def test_threads_are_told_to_the_providers() -> None:
    seen = []
    spec = ProviderSpec(
        "OwnExecutionProvider", CONTRACT_VERSION, lambda options, context: seen.append(context) or OwnProvider()
    )  # type: ignore[func-returns-value]
    onnxplug.register_provider(spec)
    try:
        session(providers=["OwnExecutionProvider"], options=options_with(intra_op_num_threads=3, session__own="7"))
    finally:
        unregister_provider("OwnExecutionProvider")
    assert seen[0].threads == 3 and seen[0].config["session.own"] == "7"


@pytest.mark.parametrize("arena", [True, False])
def test_host_memory_with_and_without_an_arena(arena: bool) -> None:
    with offered(OwnExecutionProvider=OwnProvider):
        made = session(providers=["OwnExecutionProvider", CPU], options=options_with(enable_cpu_mem_arena=arena))
        for rows in (1, 5, 1):
            assert made.run(["y"], {"x": np.tile(X, (rows, 1))})[0].shape == (rows, 2)


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


# ---- profile


PROFILED = model("""g (float[2] x, bool b, int64 n) => (float[2] y, float[2] z) { h = Sin(x) i = Exp(h)
    y = If (b) <then_branch = t () => (a) { a = Neg(i) }, else_branch = e () => (a) { a = Abs(i) }>
    z = Loop (n, "", i) <body = l (int64 k, bool c, float[2] v) => (bool d, float[2] o) { d = Identity(c) o = Add(v, h) }> }""")


@pytest.mark.parametrize("providers", [[CPU], [REFERENCE, CPU]])
def test_the_profile_agrees_with_the_placement(tmp_path: Path, providers: list[str]) -> None:
    options = options_with(enable_profiling=True, profile_file_prefix=str(tmp_path / "run"))
    options.add_session_config_entry("ep.cpu.codegen", "0")  # a step for each node
    made = session(PROFILED, providers, options)
    feeds = {"x": np.ones(2, np.float32), "b": np.array(True), "n": np.array(3)}
    for _ in range(2):
        made.run(None, feeds)
    assert made.get_profiling_start_time_ns() > 0
    path = made.end_profiling()
    assert made.end_profiling() == "" and made.get_profiling_start_time_ns() == 0
    assert re.fullmatch(r"run_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_\d{3}\.json", Path(path).name)
    text = Path(path).read_text()
    events = json.loads(text)
    assert len([line for line in text.splitlines() if line.startswith("{")]) == len(events), "an event is a line"
    assert all({"cat", "pid", "tid", "dur", "ts", "ph", "name", "args"} <= set(e) and e["dur"] >= 0 for e in events)
    assert [e["name"] for e in events if e["cat"] == "Session"].count("model_run") == 2
    placement = made.placement()
    ran = collections.Counter()
    for event in events:
        arguments = event["args"]
        if event["cat"] != "Node" or arguments["op_name"] in ("If", "Loop", "Memcpy"):
            continue
        assert event["name"] == f"{arguments['node_name']}_kernel_time"
        assert placement[arguments["node_name"]] == arguments["provider"]
        ran[arguments["node_name"]] += 1
    skipped = {"If_0/Abs_0"} | {n for n in placement if n.endswith("Identity_0")}
    assert {n: c for n, c in ran.items() if n not in skipped} == {
        n: 6 if n.startswith("Loop") else 2 for n in placement if n not in skipped}  # fmt: skip
    made.run(None, feeds)
    sizes = next(e["args"] for e in events if e["cat"] == "Node" and e["args"]["op_name"] == "Sin")
    assert sizes["input_type_shape"] == [{"float": [2]}] and sizes["output_size"] == "8"


def test_a_profile_nests_and_shows_stages_and_copies(tmp_path: Path) -> None:
    """What trace viewers need: complete events that lie inside or beside each other in each thread."""
    (tmp_path / "m.onnx").write_bytes(PROFILED)
    options = options_with(enable_profiling=True, profile_file_prefix=str(tmp_path / "run"))
    made = session(str(tmp_path / "m.onnx"), [REFERENCE, CPU], options)
    feeds = {"x": np.ones(2, np.float32), "b": np.array(True), "n": np.array(3)}
    thread = threading.Thread(target=made.run, args=(None, feeds))
    thread.start()
    thread.join()
    made.run(None, feeds)
    events = json.loads(Path(made.end_profiling()).read_text())
    names = [e["name"] for e in events]
    for stage in ("graph_building", "graph_optimization", "placement", "kernel_creation", "session_initialization"):
        assert names.count(stage) == 1
    assert names.count("model_loading_uri") == 1 and len({e["tid"] for e in events}) == 2
    for tid in {e["tid"] for e in events}:
        open_until: list[int] = []
        for event in sorted((e for e in events if e["tid"] == tid), key=lambda e: (e["ts"], -e["dur"])):
            while open_until and open_until[-1] <= event["ts"]:
                open_until.pop()
            assert not open_until or event["ts"] + event["dur"] <= open_until[-1], event
            open_until.append(event["ts"] + event["dur"])
    nodes = [e["args"] for e in events if e["cat"] == "Node"]
    keys = {"op_name", "provider", "node_index", "parameter_size", "activation_size", "output_size"}
    assert all(keys <= set(n) and all(isinstance(n[k], str) for k in keys) for n in nodes)
    copies = [(n["source"], n["target"], n["output_type_shape"]) for n in nodes if n["op_name"] == "Memcpy"]
    device = next(t for _, t, _ in copies if t != "cpu:0")
    assert ("cpu:0", device, [{"float": [2]}]) in copies and (device, "cpu:0", [{"float": [2]}]) in copies


def test_a_profile_that_cannot_be_written(tmp_path: Path) -> None:
    made = session(options=options_with(enable_profiling=True, profile_file_prefix=str(tmp_path / "nowhere" / "run")))
    made.run(None, {"x": X})
    with pytest.raises(Fail, match="nowhere"):
        made.end_profiling()


# ---- placement and explanation


def test_explain_says_everything() -> None:
    with offered(OwnExecutionProvider=lambda: OwnProvider(Device("own"), wanted=["Neg_0", "Add_0"])):
        made = session(
            model("g (float[2] x) => (float[2] y) { i = Identity(x) h = Neg(i) a = Abs(h) y = Add(a, h) }"),
            ["OwnExecutionProvider"],
        )
        explained = made.explain()
        assert {n["name"]: n["provider"] for n in explained.nodes} == made.placement()
        assert explained.removed == {"Identity_0": "EliminateIdentity"}
        absolute = next(n for n in explained.nodes if n["name"] == "Abs_0")
        assert absolute["reasons"] == {"OwnExecutionProvider": "not claimed by get_capability"}
        assert [(c["value"], c["from"], c["to"]) for c in explained.copies] == [
            ("h", "own:0", "cpu:0"),
            ("a", "cpu:0", "own:0"),
        ]
        assert [e["value"] for e in explained.edges] == ["x", "y"]
        assert [(p["name"], p["nodes"]) for p in explained.providers] == [("OwnExecutionProvider", 2), (CPU, 1)]
        json.dumps(explained.to_dict())
        assert "Abs_0 (Abs-13): CPUExecutionProvider" in str(explained)


def test_the_assignment_as_onnxruntime_tells_it(ort: Any) -> None:
    made = ort.InferenceSession(PLAIN, providers=[CPU])
    with pytest.raises(Exception, match=r"session\.record_ep_graph_assignment_info"):
        made.get_provider_graph_assignment_info()
    options = ort.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    made = ort.InferenceSession(PLAIN, options, [CPU])
    groups = made.get_provider_graph_assignment_info()
    assert {g.ep_name for g in groups} == {CPU}
    assert sorted(n.op_type for g in groups for n in g.get_nodes()) == ["Abs", "Add", "Neg"]


# ---- bindings over a memory of its own


@pytest.fixture
def simulated() -> Iterator[Any]:
    on_device(X)  # takes a region for the whole process
    gc.collect()
    before = len(live_buffers())
    made = session(providers=[REFERENCE])
    yield made
    made.close()
    gc.collect()
    assert len(live_buffers()) == before


def on_device(array: np.ndarray) -> Any:
    return onnxplug.OrtValue.ortvalue_from_numpy(array, "sim", 0)


def test_values_on_a_device() -> None:
    made = session(providers=[REFERENCE])
    before = len(live_buffers())
    value = on_device(X)
    assert value.device_name() == "sim" and value.shape() == [1, 2] and value.numpy().tolist() == X.tolist()
    for x in (value, onnxplug.OrtValue.ortvalue_from_numpy(X)):
        y, z = made.run_with_ort_values(None, {"x": x})
        assert y.device_name() == "cpu" and y.numpy().tolist() == [[1, 2]] and not z.numpy().any()
        assert made.run(["y"], {"x": x})[0].tolist() == [[1, 2]]
    assert session().run(["y"], {"x": value})[0].tolist() == [[1, 2]], "a session without that device takes it too"
    made.close()
    assert len(live_buffers()) <= before + 1


def test_bound_to_a_device(simulated: Any) -> None:
    binding = simulated.io_binding()
    binding.bind_ortvalue_input("x", on_device(X))
    binding.bind_output("y", "sim")
    binding.bind_output("z")
    for _ in range(3):
        simulated.run_with_iobinding(binding)
    y, z = binding.get_outputs()
    assert (y.device_name(), z.device_name()) == ("sim", "cpu")
    assert [a.tolist() for a in binding.copy_outputs_to_cpu()] == [[[1, 2]], [[0, 0]]]
    with pytest.raises(TypeError):
        np.asarray(y._payload.native)
    binding.bind_ortvalue_input("x", y)
    simulated.run_with_iobinding(binding)
    assert binding.copy_outputs_to_cpu()[1].tolist() == [[0, 0]] and y.numpy().tolist() == [[1, 2]]


def test_bound_to_given_memory(simulated: Any) -> None:
    target, host = on_device(np.zeros((1, 2), np.float32)), np.zeros((1, 2), np.float32)
    binding = simulated.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_ortvalue_output("y", target)
    binding.bind_output("z", "cpu", 0, np.float32, [1, 2], host.ctypes.data)
    host[:] = 7
    simulated.run_with_iobinding(binding)
    assert target.numpy().tolist() == [[1, 2]] and not host.any()
    assert binding.get_outputs()[0].numpy().tolist() == [[1, 2]]
    binding.bind_ortvalue_output("y", on_device(np.zeros((3, 2), np.float32)))
    with pytest.raises(
        RuntimeError,
        match=r"Error in execution: .*has shape \{3,2\} but the computed output shape for this run is \{1,2\}",
    ):
        simulated.run_with_iobinding(binding)
    binding.bind_ortvalue_output("y", on_device(np.zeros((1, 2), np.float64)))
    with pytest.raises(RuntimeError, match="Error in execution: Unexpected output data type"):
        simulated.run_with_iobinding(binding)


def test_bindings_that_are_refused(ort: Any) -> None:
    one, other = (ort.InferenceSession(PLAIN, providers=[CPU]) for _ in range(2))
    binding = one.io_binding()
    with pytest.raises(ValueError, match="IOBinding must be used with the session that created it"):
        other.run_with_iobinding(binding)
    with pytest.raises(RuntimeError, match="Error in execution: At least one output should be requested"):
        one.run_with_iobinding(binding)
    binding.bind_output("y")
    binding.bind_cpu_input("x", X[0])
    with pytest.raises(RuntimeError, match="Error in execution: Invalid rank for input: x"):
        one.run_with_iobinding(binding)
    binding.bind_cpu_input("x", X)
    one.run_with_iobinding(binding)
    one.set_providers([CPU])
    with pytest.raises(ValueError, match="IOBinding must be used with the session that created it"):
        one.run_with_iobinding(binding)


# ---- other providers for a session


def test_set_providers() -> None:
    made = session()
    made.set_providers([REFERENCE])
    assert made.get_providers() == [REFERENCE, CPU] and set(made.placement().values()) == {REFERENCE}
    assert made.run(["y"], {"x": X})[0].tolist() == [[1, 2]]
    made.set_providers([CPU], [{}])
    assert made.get_providers() == [CPU] and made.run(["y"], {"x": X})[0].tolist() == [[1, 2]]
    assert not [b for b in live_buffers() if b.nbytes == 1], "what the session had on the device went with it"


def test_set_providers_that_fails_leaves_the_session_as_it_was() -> None:
    with offered(BadExecutionProvider=broken("get_capability", ZeroDivisionError)):
        made = session(providers=[REFERENCE])
        for wrong, error in (
            (["BadExecutionProvider"], Fail),
            (["NopeExecutionProvider"], RuntimeError),
            ([3], ValueError),
        ):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with pytest.raises(error):
                    made.set_providers(wrong)
            assert made.get_providers() == [REFERENCE, CPU] and made.run(["y"], {"x": X})[0].tolist() == [[1, 2]]


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


# ---- observers


class Watcher:
    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []

    def onnxplug_session_created(self, session: Any) -> None:
        self.told.append(("created", session.get_providers()))

    def onnxplug_placed(self, placement: Any) -> None:
        self.told.append(("placed", sorted(placement)))

    def onnxplug_run_start(self, options: Any) -> None:
        self.told.append(("start", options))

    def onnxplug_run_end(self, error: Any) -> None:
        self.told.append(("end", None if error is None else name_of(error)))


def test_observers() -> None:
    watcher = Watcher()
    register_observer(watcher)
    try:
        made = session()
        assert watcher.told == [("created", [CPU]), ("placed", ["Abs_0", "Add_0", "Neg_0"])]
        watcher.told.clear()
        options = onnxplug.RunOptions()
        made.run(None, {"x": X}, options)
        options.terminate = True
        with pytest.raises(Fail):
            made.run(None, {"x": X}, options)
        assert watcher.told == [("start", options), ("end", None), ("start", options), ("end", "Fail")]
        with pytest.raises(STATUS_ERRORS):
            session(b"garbage")
        assert len(watcher.told) == 4, "what was not made is not told"
    finally:
        unregister_observer(watcher)
    made.run(None, {"x": X})
    assert len(watcher.told) == 4


def test_an_observer_that_raises_is_told_no_more() -> None:
    class Bad:
        def onnxplug_run_start(self, session: Any) -> None:
            raise ZeroDivisionError

    bad, made = Bad(), session()
    register_observer(bad, "bad")
    try:
        with pytest.warns(
            RuntimeWarning, match="observer bad is disabled: onnxplug_run_start raised ZeroDivisionError"
        ):
            assert made.run(["y"], {"x": X})[0].tolist() == [[1, 2]]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            made.run(None, {"x": X})
    finally:
        unregister_observer(bad)


# ---- hooks at the edges of a run


class Edges(OwnProvider):
    concurrent_run = False

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Any] = []
        self.inside = 0

    def on_run_start(self, options: Any) -> None:
        self.inside += 1
        assert self.inside == 1, "two runs at once"
        self.told.append("start")

    def on_run_end(self, options: Any, error: Any) -> None:
        self.inside -= 1
        self.told.append(error)

    def sync(self) -> None:
        self.told.append("sync")


def test_hooks_at_the_edges_of_a_run() -> None:
    with offered(OwnExecutionProvider=Edges) as providers:
        made = session(providers=["OwnExecutionProvider"])
        (edges,) = providers["OwnExecutionProvider"]
        made.run(None, {"x": X})
        assert edges.told[0] == "start" and edges.told[-1] is None and "sync" in edges.told
        edges.told.clear()
        options = onnxplug.RunOptions()
        options.terminate = True
        with pytest.raises(Fail):
            made.run(None, {"x": X}, options)
        assert edges.told[0] == "start" and isinstance(edges.told[-1], Fail)
        threads = [threading.Thread(target=lambda: [made.run(None, {"x": X}) for _ in range(20)]) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert edges.inside == 0 and edges.told.count("start") == 61


def test_a_run_that_fails_at_its_edge_leaves_the_session_usable() -> None:
    failing = {"on": True}

    class Edge(Edges):
        def on_run_end(self, options: Any, error: Any) -> None:
            super().on_run_end(options, error)
            if failing["on"]:
                raise ZeroDivisionError

    with offered(OwnExecutionProvider=Edge):
        made = session(providers=["OwnExecutionProvider"])
        with pytest.raises(Fail, match="OwnExecutionProvider: on_run_end raised ZeroDivisionError"):
            made.run(None, {"x": X})
        options = onnxplug.RunOptions()
        options.terminate = True
        with pytest.raises(Fail, match="terminate flag"):  # the first failure is the one that is told
            made.run(None, {"x": X}, options)
        failing["on"] = False
        assert made.run(["y"], {"x": X})[0].tolist() == [[1, 2]]


def test_dynamic_options() -> None:
    class Dynamic(OwnProvider):
        def set_dynamic_options(self, options: Any) -> None:
            if "bad" in options:
                raise RuntimeError("bad may not change")
            self.given = dict(options)

    with offered(OwnExecutionProvider=Dynamic) as providers:
        made = session(providers=["OwnExecutionProvider"])
        made.set_ep_dynamic_options({"power": 3})
        assert providers["OwnExecutionProvider"][0].given == {"power": "3"}
        with pytest.raises(RuntimeError, match="bad may not change"):
            made.set_ep_dynamic_options({"bad": "1"})
        with pytest.raises(RuntimeError):
            made.set_ep_dynamic_options({})
