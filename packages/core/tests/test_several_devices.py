"""Several devices of one provider in one session: each is an instance of its own, in the order in which they are named."""

from __future__ import annotations

import dataclasses
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core_graphs import model
from core_providers import CPU, OwnProvider
from core_sessions import options_with, session

import onnxplug
from onnxplug.contract import CONTRACT_VERSION, Device, DeviceInfo, ProviderSpec
from onnxplug.contract.errors import EPFail
from onnxplug.plugins import registry
from onnxplug.plugins.registry import unregister_provider

OWN = "OwnExecutionProvider"
FIRST, SECOND = f"{OWN}[own:0]", f"{OWN}[own:1]"
CHAIN = model("g (float[N, 2] x) => (float[N, 2] y) { p = Neg(x) q = Abs(p) y = Add(q, p) }")
OWNERS = {"Neg_0": FIRST, "Abs_0": SECOND, "Add_0": FIRST}
X = np.array([[1, -2]], np.float32)
ALL = "Neg_0 Abs_0 Add_0"
TWO = [(OWN, {"device_id": 0, "wanted": "Neg_0 Add_0"}), (OWN, {"device_id": 1})]
"""The first device leaves the node in the middle to the second."""


@dataclasses.dataclass(frozen=True)
class OwnOptions:
    device_id: int = 0
    wanted: str = ALL


@pytest.fixture
def made() -> Iterator[list[OwnProvider]]:
    """The provider's objects that sessions made."""
    found: list[OwnProvider] = []

    def create(options: OwnOptions, context: Any) -> OwnProvider:
        if options.device_id > 1:
            raise EPFail(f"device {options.device_id} does not answer")
        found.append(OwnProvider(Device("own", options.device_id), options.wanted.split()))
        return found[-1]

    onnxplug.register_provider(
        ProviderSpec(
            OWN,
            CONTRACT_VERSION,
            create,
            "own",
            options=OwnOptions,
            devices=lambda: [DeviceInfo("GPU", 0, "acme"), DeviceInfo("GPU", 1, "acme", options={"wanted": "Abs_0"})],
            several_devices=True,
        )
    )
    try:
        yield found
    finally:
        unregister_provider(OWN)


def check(found: list[np.ndarray]) -> None:
    np.testing.assert_array_equal(found[0], np.abs(X) - X)


def test_each_is_offered_the_nodes_in_its_turn(made: list[OwnProvider]) -> None:
    both = session(CHAIN, TWO)
    check(both.run(None, {"x": X}))
    assert both.placement() == OWNERS
    told = both.explain()
    assert [(p["name"], p["nodes"]) for p in told.providers] == [(FIRST, 2), (SECOND, 1), (CPU, 0)]
    assert [(c["from"], c["to"]) for c in told.copies] == [("own:0", "own:1"), ("own:1", "own:0")]
    (reasons,) = [node["reasons"] for node in told.nodes if node["name"] == "Neg_0"]
    assert reasons[SECOND] == f"taken by {FIRST}, which has priority"
    assert [device.moves() for device in (made[0].transfer, made[1].transfer)] == [
        [("cpu:0", "own:0"), ("own:0", "cpu:0"), ("cpu:0", "own:0"), ("own:0", "cpu:0")],
        [("cpu:0", "own:1"), ("own:1", "cpu:0")],
    ]


def test_a_program_that_knows_providers_by_name_goes_on(made: list[OwnProvider]) -> None:
    both = session(CHAIN, TWO)
    assert both.get_providers() == [OWN, CPU]
    options = both.get_provider_options()
    assert options[OWN] == {"device_id": "0", "wanted": "Neg_0 Add_0"}
    assert options[SECOND] == {"device_id": "1", "wanted": ALL}
    assert [d.device.device_id for d in both.get_input_epdevices()] == [0]
    again = pickle.loads(pickle.dumps(both))
    assert again.placement() == both.placement()
    check(again.run(None, {"x": X}))


def test_a_profile_tells_them_apart(made: list[OwnProvider], tmp_path: Path) -> None:
    profiled = session(CHAIN, TWO, options_with(enable_profiling=True, profile_file_prefix=str(tmp_path / "p")))
    check(profiled.run(None, {"x": X}))
    events = [e["args"] for e in json.loads(Path(profiled.end_profiling()).read_text()) if e["cat"] == "Node"]
    assert {e["node_name"]: e["provider"] for e in events if e["op_name"] != "Memcpy"} == OWNERS
    between = [
        (e["source"], e["target"])
        for e in events
        if e["op_name"] == "Memcpy" and "cpu:0" not in (e["source"], e["target"])
    ]
    assert between == [("own:0", "own:1"), ("own:1", "own:0")]


def test_values_of_both_are_inputs_and_places_of_results(made: list[OwnProvider]) -> None:
    both = session(CHAIN, TWO)
    for number in (0, 1):
        held = both.create_ortvalue_from_shape_and_type((1, 2), np.float32, "own", number)
        held.update_inplace(X)
        binding = both.io_binding()
        binding.bind_ortvalue_input("x", held)
        binding.bind_output("y", "own", 1 - number)
        both.run_with_iobinding(binding)
        (result,) = binding.get_outputs()
        assert (held._tensor().device, result._tensor().device) == (Device("own", number), Device("own", 1 - number))
        check([result.numpy()])


def test_one_device_named_twice_counts_once(made: list[OwnProvider]) -> None:
    """As onnxruntime has it, whatever else the options say."""
    for entry in (OWN, (OWN, {"wanted": "Abs_0"})):
        with pytest.warns(UserWarning, match=f"Duplicate provider '{OWN}' encountered, ignoring."):
            one = session(CHAIN, [(OWN, {}), entry])
        assert set(one.placement().values()) == {OWN} and list(one.get_provider_options()) == [OWN, CPU]
    assert [provider.closed for provider in made[1:]] == [False, True]


def test_one_that_does_not_say_that_it_can_is_used_once(made: list[OwnProvider]) -> None:
    one_only = dataclasses.replace(registry.spec(OWN), several_devices=False)
    onnxplug.register_provider(one_only, replace=True)
    with pytest.warns(UserWarning, match=f"Duplicate provider '{OWN}' encountered, ignoring."):
        one = session(CHAIN, TWO)
    assert one.placement() == {"Neg_0": OWN, "Abs_0": CPU, "Add_0": OWN} and len(made) == 1


def test_devices_by_hand_are_entries(made: list[OwnProvider]) -> None:
    devices = [d for d in onnxplug.get_ep_devices() if d.ep_name == OWN]
    by_hand, selected, preferred = (onnxplug.SessionOptions() for _ in range(3))
    by_hand.add_provider_for_devices(devices[::-1], {})
    selected.set_provider_selection_policy_delegate(lambda found, *_: [d for d in found if d.ep_name == OWN][::-1])
    preferred.set_provider_selection_policy(onnxplug.OrtExecutionProviderDevicePolicy.PREFER_GPU)
    for options in (by_hand, selected):
        both = onnxplug.InferenceSession(CHAIN, options, enable_fallback=0)
        assert [p["name"] for p in both.explain().providers] == [SECOND, FIRST, CPU]
        assert both.placement() == OWNERS
    (one, _) = onnxplug.InferenceSession(CHAIN, preferred, enable_fallback=0).explain().providers
    assert (one["name"], one["options"]["device_id"]) == (OWN, "0"), (
        "a policy asks for a kind of device, not for all of it"
    )


def test_one_that_is_of_no_use_is_skipped_with_its_options(made: list[OwnProvider]) -> None:
    with_two = session(CHAIN, [(OWN, {"device_id": 7}), (OWN, {"device_id": 1})])
    assert set(with_two.placement().values()) == {OWN} and with_two.get_provider_options()[OWN]["device_id"] == "1"
    assert with_two.explain().skipped == {f"{OWN} {{'device_id': '7'}}": "device 7 does not answer"}


def test_one_that_fails_in_a_run_leaves_the_other(made: list[OwnProvider], capsys: pytest.CaptureFixture[str]) -> None:
    both = onnxplug.InferenceSession(CHAIN, providers=TWO)

    class Lost(list[Any]):
        def append(self, _: Any) -> None:
            raise EPFail("the device is gone")

    made[1].transfer.log = Lost()
    check(both.run(None, {"x": X}))
    assert both.placement() == {"Neg_0": OWN, "Abs_0": CPU, "Add_0": OWN}
    assert both.get_provider_options()[OWN]["device_id"] == "0"
    assert "the device is gone" in capsys.readouterr().out
