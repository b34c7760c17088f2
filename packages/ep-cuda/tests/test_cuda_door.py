"""Without a driver: the front door, check(), the options, and sessions that ask for CUDA all the same."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx.parser
import pytest

import onnxplug
from onnxplug.contract import Available, Unavailable, dump_options, parse_options
from onnxplug.contract.errors import EPFail
from onnxplug_ep_cuda import device as door
from onnxplug_ep_cuda.options import UNLIMITED, CUDAOptions
from onnxplug_ep_cuda.plugin import onnxplug_provider

CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
HERE = isinstance(door.check(), Available)
MODEL = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["" : 21]> g (float[N] x) => (float[N] y) { y = Neg(x) }'
).SerializeToString()


def options(**given: str) -> CUDAOptions:
    return parse_options(CUDAOptions, given)


def missing(name: str) -> Any:
    raise OSError(f"{name}: no such file")


def test_the_front_door_imports_neither_cupy_nor_the_provider() -> None:
    code = (
        "import sys, onnxplug_ep_cuda.plugin as p; s = p.onnxplug_provider(); s.check(); s.devices();"
        "print(sorted(m for m in sys.modules if m.startswith(('cupy', 'cudnn', 'onnxplug_ep_cuda.provider'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_check_says_what_is_missing_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(door, "find_spec", lambda name: None)
    answer = door.check()
    assert isinstance(answer, Unavailable)
    assert "CuPy is not installed" in answer.reason and "onnxplug-ep-cuda[cuda12]" in answer.fix

    monkeypatch.setattr(door, "find_spec", lambda name: name)
    answer = door.check(missing)
    assert isinstance(answer, Unavailable) and door.DRIVER in answer.reason and "driver" in answer.fix

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    answer = door.check(lambda name: ctypes.CDLL(None))
    assert isinstance(answer, Unavailable) and "hides every GPU" in answer.reason and "unset" in answer.fix


def test_a_cupy_that_does_not_fit_is_named() -> None:
    assert door.unfit_cupy(["cupy-cuda12x"], 12) is None and door.unfit_cupy(["cupy-cuda12x"], 13) is None
    assert (
        door.unfit_cupy([], 12) is None and door.unfit_cupy(["cupy-cuda13x"], 0) is None
    )  # built from source; no word
    both = door.unfit_cupy(["cupy-cuda12x", "cupy-cuda13x"], 13)
    assert both is not None and "overwrite" in both.reason and "pip uninstall cupy-cuda12x cupy-cuda13x" in both.fix
    older = door.unfit_cupy(["cupy-cuda13x"], 12)
    assert older is not None and "needs a driver of CUDA 13" in older.reason and "[cuda12]" in older.fix
    assert door.driver_major(ctypes.CDLL(None)) == 0


def test_a_cudnn_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "find_spec", lambda name: None)
    assert "onnxplug-ep-cuda[cudnn]" in str(door.missing_cudnn())


def test_cuda_itself_is_asked_where_the_management_library_does_not_work() -> None:
    def counted(count: Any) -> int:
        count._obj.value = 2
        return 0

    refusing = SimpleNamespace(nvmlInit_v2=lambda: 9)
    works = SimpleNamespace(cuInit=lambda flags: 0, cuDeviceGetCount=counted)
    broken = SimpleNamespace(cuInit=lambda flags: 803)
    libraries: dict[str, Any] = {door.NVML: refusing, door.DRIVER: works}
    assert door.gpu_names(libraries.__getitem__) == ["GPU 0", "GPU 1"]
    libraries[door.DRIVER] = broken
    with pytest.raises(OSError, match="cuInit returned 803"):
        door.gpu_names(libraries.__getitem__)


def test_visible_devices_are_counted_as_cuda_counts() -> None:
    names = ["a", "b", "c"]
    assert door.visible(names, None) == names
    assert door.visible(names, "2,0") == ["c", "a"]
    assert door.visible(names, "1,7,0") == ["b"]
    assert door.visible(names, "1,-1,0") == ["b"]
    assert door.visible(names, "GPU-1234") == ["GPU-1234"]


def test_a_device_that_is_not_there_is_refused_in_onnxruntimes_words() -> None:
    with pytest.raises(
        RuntimeError, match=r"Invalid device ID: 9, must be between 0 \(inclusive\) and 2 \(exclusive\)"
    ):
        door.device(9, 2)
    assert str(door.device(1, 2)) == "cuda:1"


def test_defaults_are_onnxruntimes() -> None:
    expected = {
        "device_id": "0", "has_user_compute_stream": "0", "user_compute_stream": "0", "gpu_mem_limit": str(2**64 - 1),
        "arena_extend_strategy": "kNextPowerOfTwo", "cudnn_conv_algo_search": "EXHAUSTIVE", "cudnn_conv_use_max_workspace": "1",
        "cudnn_conv1d_pad_to_nc1d": "0", "do_copy_in_default_stream": "1", "gpu_external_alloc": "0", "gpu_external_free": "0",
        "gpu_external_empty_cache": "0", "enable_cuda_graph": "0", "enable_cudnn": "1", "use_tf32": "1", "prefer_nhwc": "0",
        "fuse_conv_bias": "0", "sdpa_kernel": "0", "use_ep_level_unified_stream": "0", "tunable_op_enable": "0",
        "tunable_op_tuning_enable": "0", "tunable_op_max_tuning_duration_ms": "0", "enable_skip_layer_norm_strict_mode": "0",
    }  # fmt: skip
    assert dump_options(options()) == expected


def test_options_are_parsed_as_onnxruntime_does() -> None:
    given = options(gpu_mem_limit="2147483648", use_tf32="False", do_copy_in_default_stream="True", device_id="1")
    assert (given.limit, given.use_tf32, given.do_copy_in_default_stream, given.device_id) == (2 << 30, False, True, 1)
    assert options().limit is None and options(gpu_mem_limit=str(UNLIMITED)).limit is None
    assert options(user_compute_stream="4711", has_user_compute_stream="0").has_user_compute_stream
    with pytest.raises(RuntimeError, match='Unknown provider option: "gpu_memory_limit"'):
        options(gpu_memory_limit="1")
    with pytest.raises(RuntimeError, match='Failed to parse provider option "arena_extend_strategy"'):
        options(arena_extend_strategy="kNextPowerOf2")
    with pytest.raises(RuntimeError, match='Failed to parse provider option "gpu_mem_limit"'):
        options(gpu_mem_limit="-1")
    with pytest.raises(RuntimeError, match="together"):
        options(gpu_external_alloc="4096")


def test_options_without_effect_are_named() -> None:
    assert options(tunable_op_enable="1", use_tf32="0", prefer_nhwc="1").without_effect() == [
        "prefer_nhwc",
        "tunable_op_enable",
    ]


def test_every_option_is_documented() -> None:
    import dataclasses

    assert all(field.metadata["doc"] for field in dataclasses.fields(onnxplug_provider().options))


@pytest.mark.skipif(HERE, reason="a GPU is here: the provider is not missing")
def test_a_session_that_asks_for_cuda_runs_on_the_cpu_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.warns(UserWarning, match=f"Specified provider '{CUDA}' is not in available provider names"):
        session = onnxplug.InferenceSession(MODEL, providers=[(CUDA, {"device_id": 0}), CPU])
    assert session.get_providers() == [CPU]
    np.testing.assert_array_equal(session.run(None, {"x": np.ones(2, np.float32)})[0], [-1, -1])


@pytest.mark.skipif(HERE, reason="a GPU is here: the provider is not missing")
def test_strict_providers_make_the_reason_an_error() -> None:
    strict = onnxplug.SessionOptions()
    strict.add_session_config_entry("session.strict_providers", "1")
    with pytest.raises(EPFail, match=f"{CUDA}.*To fix"), pytest.warns(UserWarning):
        onnxplug.InferenceSession(MODEL, strict, providers=[CUDA])
