"""The providers of a session: named, refused, without fallback, exchanged."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from core_graphs import model
from core_providers import CPU, OwnProvider, offered
from core_sessions import PLAIN, REFERENCE, X, broken, name_of, options_with, session

import onnxplug
from onnxplug.contract import (
    CONTRACT_VERSION,
    ProviderSpec,
)
from onnxplug.contract import Unavailable as Away
from onnxplug.contract.errors import (
    EPFail,
    Fail,
)
from onnxplug.plugins.registry import unregister_provider
from onnxplug.session.fallback import fallback_for
from onnxplug_ep_reference.memory import live_buffers

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


@pytest.mark.parametrize("again", [CPU, (CPU, {"use_arena": "0"})])
def test_a_provider_named_twice(ort: Any, again: Any) -> None:
    with pytest.warns(UserWarning, match=f"Duplicate provider '{CPU}' encountered, ignoring"):
        assert ort.InferenceSession(PLAIN, providers=[CPU, again]).get_providers() == [CPU]


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
        ("AzureExecutionProvider", "is not installed"),
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


CUDA, TENSORRT, RTX = ("CUDAExecutionProvider", "TensorrtExecutionProvider", "NvTensorRTRTXExecutionProvider")


@pytest.mark.parametrize(
    ("here", "providers", "rest"),
    [
        ([], [TENSORRT, CUDA], [CPU]),
        ([TENSORRT], [TENSORRT, CUDA], [CUDA, CPU]),
        ([TENSORRT], [(TENSORRT, {}), (CUDA, {})], [CUDA, CPU]),
        ([TENSORRT], [TENSORRT], [CPU]),
        ([TENSORRT], [RTX, CUDA], [CPU]),
        ([RTX], [RTX, CUDA], [CUDA, CPU]),
        ([RTX, TENSORRT], [TENSORRT, CUDA], [CPU]),
    ],
)
def test_cuda_is_tried_after_a_tensorrt_that_is_here(here: list[str], providers: list[Any], rest: list[str]) -> None:
    with offered(**dict.fromkeys(here, OwnProvider)):
        assert fallback_for(providers) == rest


@pytest.mark.parametrize("second", [RTX, (RTX, {})])
def test_both_tensorrts_are_refused(ort: Any, second: Any, capfd: pytest.CaptureFixture[str]) -> None:
    text = "Cannot enable both 'TensorrtExecutionProvider' and 'NvTensorRTRTXExecutionProvider' in the same session."
    with pytest.raises(ValueError, match=text):
        ort.InferenceSession(PLAIN, providers=[TENSORRT, second], enable_fallback=0)
    made = ort.InferenceSession(PLAIN, providers=[CPU])
    with pytest.raises(ValueError, match=text):
        made.set_providers([second, TENSORRT])
    if ort is onnxplug:  # onnxruntime 1.31 has an AttributeError where it should fall back
        assert ort.InferenceSession(PLAIN, providers=[TENSORRT, second]).get_providers() == [CPU]
        assert f"EP Error {text}" in capfd.readouterr().out


@pytest.mark.parametrize("options", [None, [], [{}]])
def test_provider_options_without_providers_count_for_nothing(ort: Any, options: Any) -> None:
    """Also where the session's options have providers, of which ``set_providers`` without arguments makes use again."""
    settings = ort.SessionOptions()
    settings.add_provider(CPU, {})
    for given in (None, settings):
        made = ort.InferenceSession(PLAIN, given, provider_options=options, enable_fallback=0)
        made.set_providers(None, options)
        assert made.get_providers() == [CPU]


def test_no_providers_with_options_are_refused(ort: Any) -> None:
    with pytest.raises(ValueError, match="should be the same length if both are given"):
        ort.InferenceSession(PLAIN, providers=[], provider_options=[{}], enable_fallback=0)


def test_providers_of_the_options_are_those_of_set_providers_too() -> None:
    settings = onnxplug.SessionOptions()
    settings.add_provider(REFERENCE, {})
    made = onnxplug.InferenceSession(PLAIN, settings)
    with pytest.warns(UserWarning, match="has already been configured with providers"):
        made.set_providers([CPU])
    assert made.get_providers() == [CPU]
    made.set_providers()
    assert made.get_providers() == [REFERENCE, CPU]


def test_enable_fallback_is_a_number(ort: Any) -> None:
    with pytest.raises(ValueError, match="invalid literal for int"):
        ort.InferenceSession(PLAIN, providers=[CPU], enable_fallback="x")
    with pytest.raises(ValueError, match="must be either strings or"):
        ort.InferenceSession(PLAIN, providers=[3], enable_fallback=2)


def test_fallback_is_tried_once(ort: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """What fails then has the first failure as its cause; and where it succeeds, runs have no other."""
    with pytest.raises(Exception, match="protobuf parsing failed") as caught:
        ort.InferenceSession(b"no model", providers=[3])
    assert "must be either strings or" in str(caught.value.__cause__)
    made = ort.InferenceSession(PLAIN, providers=[3])
    assert capfd.readouterr().out.count("EP Error 'providers' values must be") == 2
    assert not made._enable_fallback


def test_an_unavailable_provider_is_skipped_and_explained(away: str) -> None:
    with pytest.warns(UserWarning, match="is not in available provider names"):
        made = session(providers=[away, CPU])
    assert made.get_providers() == [CPU]
    assert "the device is unplugged" in made.explain().skipped[away] and "plug it in" in str(made.explain())
    with pytest.warns(UserWarning), pytest.raises(EPFail, match=r"the device is unplugged.*plug it in"):
        session(providers=[away, CPU], options=options_with(session__strict_providers="1"))
    assert away not in onnxplug.get_available_providers()


def test_a_provider_whose_device_turns_out_to_be_of_no_use_is_skipped_and_explained() -> None:
    name = "DeadExecutionProvider"

    def create(options: Any, context: Any) -> Any:
        raise EPFail("the board does not answer")

    onnxplug.register_provider(ProviderSpec(name, CONTRACT_VERSION, create))
    try:
        made = session(providers=[name, CPU])
        assert made.get_providers() == [CPU]
        assert made.explain().skipped[name] == "the board does not answer"
        with pytest.raises(EPFail, match=f"{name} cannot be used: the board does not answer"):
            session(providers=[name, CPU], options=options_with(session__strict_providers="1"))
    finally:
        unregister_provider(name)


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
