"""The provider's options: onnxruntime's keys of its OpenVINO provider, as far as they have an effect here."""

from __future__ import annotations

from dataclasses import dataclass

from onnxplug.contract import option


@dataclass(frozen=True)
class OpenVINOOptions:
    """Options of OpenVINOExecutionProvider."""

    device_type: str = option(
        "CPU", "OpenVINO's device: CPU, GPU, GPU.1, NPU, or several with a way to choose: AUTO:GPU,CPU, HETERO:GPU,CPU"
    )
    precision: str = option(
        "",
        "arithmetic of float32: FP32, FP16, or ACCURACY, the device's most exact; empty: FP32, on an NPU what it has",
        choices=("", "FP32", "FP16", "ACCURACY"),
    )
    num_of_threads: int = option(0, "threads of the CPU; 0: as many as the session has", least=0)
    num_streams: int = option(1, "requests that the device works on at once, sharing the threads", least=1)
    cache_dir: str = option("", "folder of compiled regions; empty: they are not kept")
    load_config: str = option(
        "", 'path of a JSON file with properties by device: {"CPU": {"PERFORMANCE_HINT": "THROUGHPUT"}}'
    )
    exact: bool = option(
        False, "leave to others also what OpenVINO computes less exactly, or otherwise for NaN, than ONNX says"
    )
