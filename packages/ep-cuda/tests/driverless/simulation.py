"""A GPU that is simulated: CuPy and the provider as they are, their kernels compiled by NVRTC and run on the processor.

A plugin of pytest (``-p driverless.simulation``) for tests that need a device; ``start`` for programs.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from driverless import calls, cublas, kernels
from driverless.machine import Machine

_driver: calls.Driver | None = None


def start() -> calls.Driver:
    """The device, before CuPy is imported. ``ONNXPLUG_SIMULATED``: the folder where compiled kernels are kept, and graphs with the numbers
    that it folded, which are not for the user's cache."""
    global _driver
    if _driver is not None:
        return _driver
    os.environ["CUPY_COMPILE_WITH_PTX"] = "1"
    folder = Path(os.environ.get("ONNXPLUG_SIMULATED", "") or tempfile.mkdtemp())
    os.environ.setdefault("CUPY_CACHE_DIR", str(folder / "cupy"))
    os.environ.setdefault("ONNXPLUG_CACHE_DIR", str(folder / "onnxplug"))
    driver = _driver = calls.install(Machine(folder))
    driver.order = int(os.environ.get("ONNXPLUG_SIMULATED_ORDER", "0"))
    driver.queues.uneven = bool(driver.order)
    driver.library = cublas.load(Path(tempfile.mkdtemp()))

    import cupy

    from driverless import libraries
    from onnxplug.contract import Available
    from onnxplug_ep_cuda import device, plugin

    cublas.hand(driver.library, driver.queues.put, lambda name: driver.broken.append(f"{name} computes nothing here"))
    libraries.install(driver)
    cupy.RawModule = kernels.judging(driver, cupy.RawModule)
    plugin.check = device.check = lambda *_: Available("simulated")  # type: ignore[attr-defined, assignment]
    device.gpu_names = lambda load: ["simulated"]
    device.missing_cudnn = lambda: None

    from onnxplug_ep_cuda import provider

    provider.missing_cudnn = lambda: None
    provider.CUDAProvider._with_cudnn = lambda self: libraries.session(driver)(self.options, self.queue)  # type: ignore[method-assign]
    return driver


start()


@pytest.fixture(autouse=True)
def obeyed() -> Iterator[None]:
    """A test fails where a rule of CUDA's was broken."""
    driver = start()
    driver.broken.clear()
    yield
    said = list(driver.broken)
    driver.broken.clear()
    assert said == []


def pytest_collection_finish(session: Any) -> None:
    """The conformance kit interrupts runs in functions of the provider: those here are CUDA's, which are none of Python's."""
    kit = sys.modules.get("onnxplug_testkit.checks.interrupts")
    if kit is not None:
        kit.OTHERS.add(__package__)


def pytest_sessionfinish(session: Any, exitstatus: int) -> None:
    """CuPy's objects would call what is gone at the interpreter's end."""
    session.config.add_cleanup(lambda: os._exit(int(exitstatus)))
