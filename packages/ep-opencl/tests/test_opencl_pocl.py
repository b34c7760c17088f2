"""What is changed in PoCL's description of a processor it does not know, and what is not."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import pytest

from onnxplug_ep_opencl import pocl

PYPI = "OpenCL 3.0 PoCL 3.0-rc2  Linux, Release, RELOC, LLVM 14.0.6, SLEEF, DISTRO, POCL_DEBUG"
UNKNOWN = "OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-generic"
TRIPLE = b"x86_64-unknown-linux-gnu"


def renamed(platform: str, version: str, triple: bytes, name: bytes) -> bytes:
    """The processor's name in a description of a device, after a look at it."""
    texts = [ctypes.create_string_buffer(text) for text in (triple, name)]
    words = (ctypes.c_void_p * 96)()
    words[79], words[80] = map(ctypes.addressof, texts)
    device = SimpleNamespace(
        platform=SimpleNamespace(version=platform), version=version, int_ptr=ctypes.addressof(words)
    )
    pocl.name_processor(device)
    return ctypes.string_at(words[80])


LEVEL_3 = "sse4_2 avx avx2 bmi1 bmi2 f16c fma movbe"
LEVEL_4 = "avx512f avx512bw avx512cd avx512dq avx512vl"


@pytest.mark.parametrize(
    ("features", "name"),
    [
        (f"{LEVEL_3} {LEVEL_4} avx512_vnni", b"cascadelake"),
        (f"{LEVEL_3} {LEVEL_4}", b"x86-64-v4"),
        (f"{LEVEL_3} avx_vnni", b"x86-64-v3"),
        ("sse4_2 avx f16c", b"generic"),
    ],
)
def test_an_unknown_processor_has_the_name_of_its_level(
    features: str, name: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pocl, "_features", lambda: frozenset(features.split()))
    assert renamed(PYPI, UNKNOWN, TRIPLE, b"generic") == name


@pytest.mark.parametrize(
    ("features", "name"),
    [
        (f"{LEVEL_3} {LEVEL_4} avx512_vnni", b"cascadelake"),
        (f"{LEVEL_3} {LEVEL_4}", b"x86-64-v4"),
        (LEVEL_3, b"znver3"),
    ],
)
def test_a_processor_that_is_taken_for_one_of_narrower_vectors_has_its_own(
    features: str, name: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pocl, "_features", lambda: frozenset(features.split()))
    assert renamed(PYPI, UNKNOWN.replace("generic", "znver3"), TRIPLE, b"znver3") == name


@pytest.mark.parametrize(
    ("platform", "version", "triple", "name"),
    [
        (PYPI, UNKNOWN.replace("generic", "znver3"), TRIPLE, b"generic"),
        (PYPI, UNKNOWN.replace("generic", "skylake-avx512"), TRIPLE, b"skylake-avx512"),
        (PYPI, UNKNOWN, b"aarch64-unknown-linux-gnu", b"generic"),
        (PYPI, UNKNOWN, TRIPLE, b"znver3"),
        (PYPI.replace("3.0-rc2", "5.0"), UNKNOWN, TRIPLE, b"generic"),
        ("OpenCL 3.0 LINUX", UNKNOWN, TRIPLE, b"generic"),
    ],
)
def test_every_other_device_stays_as_it_is(platform: str, version: str, triple: bytes, name: bytes) -> None:
    assert renamed(platform, version, triple, name) == name
