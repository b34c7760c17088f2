"""Providers chosen by a policy, a function, or devices, instead of a list of names."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
from core_graphs import model
from core_providers import CPU, OwnProvider

import onnxplug
from onnxplug.contract import CONTRACT_VERSION, DeviceInfo, ProviderSpec
from onnxplug.contract.errors import Fail, InvalidArgument
from onnxplug.plugins.registry import unregister_provider
from onnxplug.session.device_enums import OrtExecutionProviderDevicePolicy as Policy

SOURCE = model("g (float[N, 2] x) => (float[N, 2] y) { y = Neg(x) }")


def spec(name: str, vendor: str, *devices: DeviceInfo, indexed: bool = False) -> ProviderSpec:
    import dataclasses

    fields = [("device_id", int, dataclasses.field(default=0))] if indexed else []
    options = dataclasses.make_dataclass("Options", fields, frozen=True)
    return ProviderSpec(
        f"{name}ExecutionProvider",
        CONTRACT_VERSION,
        lambda given, context: OwnProvider(),
        vendor=vendor,
        devices=lambda: devices,
        options=options,
    )


SPECS = (
    spec("Npu", "acme", DeviceInfo("NPU", vendor="acme")),
    spec("AnyGpu", "else", DeviceInfo("GPU", 0, "acme"), DeviceInfo("GPU", 1, "acme", metadata={"Discrete": "1"}), indexed=True),
    spec("AcmeGpu", "acme", DeviceInfo("GPU", 0, "acme"), DeviceInfo("GPU", 1, "acme", metadata={"Discrete": "1"}), indexed=True),
)  # fmt: skip


@pytest.fixture(autouse=True)
def providers() -> Iterator[None]:
    for each in SPECS:
        onnxplug.register_provider(each)
    try:
        yield
    finally:
        for each in SPECS:
            unregister_provider(each.name)


def chosen(policy: Any) -> dict[str, dict[str, str]]:
    options = onnxplug.SessionOptions()
    if callable(policy):
        options.set_provider_selection_policy_delegate(policy)
    else:
        options.set_provider_selection_policy(policy)
    return onnxplug.InferenceSession(SOURCE, options, enable_fallback=0).get_provider_options()


@pytest.mark.parametrize("policy", [Policy.PREFER_NPU, Policy.MAX_EFFICIENCY, Policy.MIN_OVERALL_POWER])
def test_policies_for_npus(policy: Policy) -> None:
    assert list(chosen(policy)) == ["NpuExecutionProvider", CPU]


@pytest.mark.parametrize("policy", [Policy.PREFER_GPU, Policy.MAX_PERFORMANCE])
def test_policies_for_gpus_take_the_discrete_one_and_the_vendors_provider_first(policy: Policy) -> None:
    found = chosen(policy)
    assert list(found) == ["AcmeGpuExecutionProvider", "AnyGpuExecutionProvider", CPU]
    assert found["AcmeGpuExecutionProvider"] == {"device_id": "1"}


@pytest.mark.parametrize("policy", [Policy.PREFER_CPU, Policy.DEFAULT])
def test_policies_for_the_cpu(policy: Policy) -> None:
    assert list(chosen(policy)) == [CPU]


def test_a_policy_without_such_a_device_means_the_cpu() -> None:
    unregister_provider("NpuExecutionProvider")
    try:
        assert list(chosen(Policy.PREFER_NPU)) == [CPU]
    finally:
        onnxplug.register_provider(SPECS[0])


def test_a_function_is_shown_devices_in_order_and_the_models_metadata() -> None:
    seen: list[Any] = []

    def delegate(*told: Any) -> Any:
        seen.append(told)
        return [d for d in told[0] if d.ep_name.startswith("AnyGpu")][::-1]

    with pytest.warns(UserWarning, match="Duplicate provider 'AnyGpuExecutionProvider'"):  # whose memory is the host's
        found = chosen(delegate)
    assert list(found) == ["AnyGpuExecutionProvider", CPU] and found["AnyGpuExecutionProvider"] == {"device_id": "0"}
    devices, metadata, runtime, limit = seen[0]
    names = [d.ep_name.removesuffix("ExecutionProvider") for d in devices]
    assert names[:1] == ["Npu"] and names[1:5] == ["AcmeGpu", "AnyGpu", "AcmeGpu", "AnyGpu"] and names[-1] == "CPU"
    assert (metadata["graph_name"], metadata["model_version"], dict(runtime), limit) == ("g", str(2**63 - 1), {}, 8)
    assert set(metadata) == {
        "doc_string", "domain", "graph_description", "graph_name", "model_version", "producer_name", "producer_version",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("delegate", "text"),
    [
        (lambda *told: [], "EP selection delegate did not select anything."),
        (lambda *told: 1 / 0, "EP selection delegate failed: ZeroDivisionError: division by zero"),
        (lambda *told: ["x"], "must select at most 8 of the devices given"),
        (lambda *told: list(told[0]) * 9, "must select at most 8 of the devices given"),
    ],
)
def test_functions_that_do_not_select(delegate: Any, text: str) -> None:
    with pytest.raises(Fail, match=text):
        chosen(delegate)


def test_devices_by_hand() -> None:
    devices = [d for d in onnxplug.get_ep_devices() if d.ep_name == "AcmeGpuExecutionProvider"]
    options = onnxplug.SessionOptions()
    options.add_provider_for_devices([devices[1]], {})
    made = onnxplug.InferenceSession(SOURCE, options, enable_fallback=0)
    assert made.get_provider_options() == {
        "AcmeGpuExecutionProvider": {"device_id": "1"},
        CPU: made.get_provider_options()[CPU],
    }
    with pytest.raises(InvalidArgument, match="must have the same execution provider"):
        options.add_provider_for_devices(onnxplug.get_ep_devices(), {})


def test_arguments_win_over_options_with_a_warning() -> None:
    options = onnxplug.SessionOptions()
    options.set_provider_selection_policy(Policy.PREFER_NPU)
    with pytest.warns(UserWarning, match="InferenceSession will only use the providers passed to InferenceSession"):
        made = onnxplug.InferenceSession(SOURCE, options, [CPU])
    assert made.get_providers() == [CPU]


def test_hardware_is_listed_once() -> None:
    state = onnxplug.capi.onnxruntime_pybind11_state
    found = [(d.type.name, d.vendor, d.device_id) for d in state.get_hardware_devices()]
    assert len(found) == len(set(found)) and ("GPU", "acme", 1) in found
    device = state.get_hardware_devices()[0]
    details = state.get_hardware_device_ep_incompatibility_details
    assert details(CPU, device) == {"reasons_bitmask": 0, "notes": None, "error_code": 0}
    (npu,) = [d for d in onnxplug.get_ep_devices() if d.ep_name == "NpuExecutionProvider"]
    with pytest.raises(RuntimeError, match="NpuExecutionProvider"):
        npu.create_sync_stream()


def test_incompatibility_of_what_is_no_provider(ort: Any) -> None:
    state = importlib.import_module(ort.__name__ + ".capi.onnxruntime_pybind11_state")
    first = ort.get_ep_devices()[0]
    device = first.device
    assert first.ep_metadata["version"]
    for name in ("NoExecutionProvider", ""):
        with pytest.raises(state.InvalidArgument, match=f"No valid factory found for execution provider '{name}'"):
            state.get_hardware_device_ep_incompatibility_details(name, device)
    with pytest.raises(TypeError):
        state.get_hardware_device_ep_incompatibility_details(None, device)


def test_kernels_and_schemas_are_listed() -> None:
    state = onnxplug.capi.onnxruntime_pybind11_state
    kernels = state.get_registered_ep_kernel_defs("NpuExecutionProvider")
    (neg,) = [k for k in kernels if k.op_name == "Neg"]
    assert (neg.domain, neg.provider, neg.version_range) == ("", "NpuExecutionProvider", (13, 13))
    assert {k.provider for k in state.get_all_opkernel_def()} >= {CPU, "NpuExecutionProvider"}
    with pytest.raises(Fail):
        state.get_registered_ep_kernel_defs("NoExecutionProvider")
    assert {s.name for s in state.get_all_operator_schema()} >= {"Conv", "If"}


def test_questions_about_compiled_models_that_have_no_answer(ort: Any) -> None:
    """The classes of exceptions that onnxruntime's own tests expect, with both packages."""
    state = importlib.import_module(ort.__name__ + ".capi.onnxruntime_pybind11_state")
    verdict = state.get_model_compatibility_for_ep_devices
    for devices, told, kind in (([], "x", RuntimeError), (state.get_ep_devices()[:1], None, TypeError)):
        with pytest.raises(kind):
            verdict(devices, told)
    for question, source in (("", "nope.onnx"), ("_bytes", b"")):
        with pytest.raises(RuntimeError):
            getattr(state, "get_compatibility_info_from_model" + question)(source, CPU)


def test_devices_of_inputs_are_those_of_the_sessions_providers() -> None:
    other = spec("Other", "acme", DeviceInfo("CPU", vendor="acme"))
    onnxplug.register_provider(other)
    try:
        assert {CPU, other.name} <= {device.ep_name for device in onnxplug.get_ep_devices()}
        for providers in ([CPU], [other.name, CPU]):
            (device,) = onnxplug.InferenceSession(SOURCE, providers=providers).get_input_epdevices()
            assert device is not None and device.ep_name == providers[0]
    finally:
        unregister_provider(other.name)
