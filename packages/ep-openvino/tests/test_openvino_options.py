"""Options, availability, and the library as it is loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from openvino_models import NAME, model, open_session, owners

from onnxplug.contract import Available, SessionContext, Unavailable
from onnxplug_ep_openvino import device
from onnxplug_ep_openvino.options import OpenVINOOptions
from onnxplug_ep_openvino.settings import properties

ONE = model("agraph (float[N] x) => (float[N] y) { [erf] y = Erf(x) }")


def given(**options: Any) -> dict[str, str]:
    return properties(OpenVINOOptions(**options), SessionContext(3, {}, None))  # type: ignore[arg-type]


def test_float32_is_computed_in_float32_with_the_threads_of_the_session() -> None:
    assert given()["INFERENCE_PRECISION_HINT"] == "f32" and given()["INFERENCE_NUM_THREADS"] == "3"
    assert given(num_of_threads=2)["INFERENCE_NUM_THREADS"] == "2"
    assert given(precision="FP16")["INFERENCE_PRECISION_HINT"] == "f16"
    assert "INFERENCE_PRECISION_HINT" not in given(precision="ACCURACY") | given(device_type="NPU")
    with open_session(ONE, intra_op_num_threads=1) as session:
        (region,) = session.explain().to_dict()["regions"]
        assert (
            region["facts"]["inference_num_threads"] == "1" and "float" in region["facts"]["inference_precision_hint"]
        )


def test_a_file_of_properties(tmp_path: Path) -> None:
    file = tmp_path / "properties.json"
    file.write_text(
        json.dumps({"CPU": {"PERFORMANCE_HINT": "THROUGHPUT", "INFERENCE_NUM_THREADS": 1}, "GPU": {"X": "Y"}})
    )
    found = given(load_config=str(file))
    assert (found["PERFORMANCE_HINT"], found["INFERENCE_NUM_THREADS"], "X" in found) == ("THROUGHPUT", "1", False)
    file.write_text(json.dumps({"CPU": {"NO_SUCH_PROPERTY": "1"}}))
    with pytest.raises(Exception, match="NO_SUCH_PROPERTY"):
        open_session(ONE, {"load_config": str(file)}, session__strict_providers="1")
    file.write_text("[1]")
    with pytest.raises(RuntimeError, match="load_config"):
        given(load_config=str(file))


@pytest.mark.parametrize(
    ("options", "said"),
    [({"precision": "FP8"}, "precision"), ({"layout": "x"}, "layout"), ({"device_type": "TPU"}, "TPU")],
)
def test_what_cannot_be_had_is_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(Exception, match=said):
        open_session(ONE, options, session__strict_providers="1")


def test_what_is_less_exact_than_the_cpu_provider_is_left_out_on_demand() -> None:
    with open_session(ONE) as session:
        assert owners(session) == {NAME}
    with open_session(ONE, {"exact": "1"}) as session:
        assert NAME not in owners(session)


def test_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = device.check()
    assert isinstance(found, Available) and device.version() in found.detail
    first = device.devices()[0]
    assert first.metadata == first.options == {"device_type": "CPU"}

    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(device, "installed", absent)
    assert device.check() == Unavailable("the package openvino is not installed", "pip install 'openvino>=2026.4'")
    assert device.devices() == ()
    monkeypatch.setattr(device, "installed", lambda name: "2025.3.0")
    found = device.check()
    assert isinstance(found, Unavailable) and "2025.3.0" in found.reason


def test_the_library_comes_without_its_telemetry() -> None:
    text = (
        "import sys; from onnxplug_ep_openvino.device import core; core(); print('openvino_telemetry' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout == "False\n"


def test_arrays_are_handed_on_without_copies() -> None:
    from onnxplug_ep_openvino.region import tensor

    openvino = device.library()
    for array in (np.arange(6, dtype=np.float32).reshape(2, 3), np.array(True), np.array([1, 2], np.int64)):
        array.flags.writeable = False
        made = tensor(array, openvino.Type(array.dtype))
        assert made.data.ctypes.data == array.ctypes.data and np.array_equal(made.data, array)
