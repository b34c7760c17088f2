"""NVRTC and ptxas without a driver: kernel text to machine code for a list of architectures, with the assembler's figures.

Both come from NVIDIA's wheels (nvidia-cuda-nvrtc-cu12, nvidia-cuda-runtime-cu12 for the headers, nvidia-cuda-nvcc-cu12 for ptxas; those
of CUDA 13, without a number in their names, have one folder for all).
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

MISSING = "capability: NVRTC (nvidia-cuda-nvrtc-cu12 and nvidia-cuda-runtime-cu12 are not installed)"


_CUDA_13 = {"cuda_nvrtc": "lib/libnvrtc.so.*", "cuda_runtime": "include/cuda_runtime.h", "cuda_nvcc": "bin/ptxas"}
"""A file by which a package is known in the folder that CUDA 13's have together."""


def _folder(package: str) -> Path | None:
    for name in (package, "cu13"):
        try:
            found = importlib.util.find_spec(f"nvidia.{name}")
        except ModuleNotFoundError:
            return None
        for place in map(Path, (found and found.submodule_search_locations) or ()):
            if name == package or next(place.glob(_CUDA_13[package]), None) is not None:
                return place
    return None


def _is_there() -> bool:
    return _folder("cuda_nvrtc") is not None and _folder("cuda_runtime") is not None


# Skipped before a test writes the kernels that would be compiled: that takes seconds.
ARCHITECTURES = [
    pytest.param(name, marks=pytest.mark.skipif(not _is_there(), reason=MISSING))
    for name in ("75", "80", "86", "89", "90", "100", "120")
]


def nvrtc() -> ctypes.CDLL:
    """The compiler; skips the test where it is not installed."""
    folder = _folder("cuda_nvrtc")
    if folder is None or not _is_there():
        pytest.skip(MISSING)
    return ctypes.CDLL(str(next(folder.glob("lib/libnvrtc.so.*"))))


@functools.cache
def options() -> tuple[str, ...]:
    """What CuPy gives the compiler: asked of CuPy itself where it is installed."""
    own = ("-ftz=true", "--device-as-default-execution-space")
    try:
        from cupy._core.core import assemble_cupy_compiler_options

        from onnxplug_ep_cuda.codegen.bound import OPTIONS
    except ImportError:
        return ("--std=c++17", f"-I{_folder('cuda_runtime')}/include", *own)
    return (*assemble_cupy_compiler_options(OPTIONS), *own)


def ptx(source: str, architecture: str, further: Sequence[str] = ()) -> bytes:
    """The PTX of ``source`` for ``compute_XX``, with the options CuPy gives and ``further`` ones. RuntimeError with the compiler's
    words."""
    library = nvrtc()
    program, log_size = ctypes.c_void_p(), ctypes.c_size_t()
    _demand(library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None))
    words = [f"--gpu-architecture=compute_{architecture}", *options(), *further]
    given = (ctypes.c_char_p * len(words))(*(word.encode() for word in words))
    try:
        status = library.nvrtcCompileProgram(program, len(words), given)
        if status:
            library.nvrtcGetProgramLogSize(program, ctypes.byref(log_size))
            log = ctypes.create_string_buffer(log_size.value)
            library.nvrtcGetProgramLog(program, log)
            raise RuntimeError(f"sm_{architecture}: {log.value.decode()}")
        _demand(library.nvrtcGetPTXSize(program, ctypes.byref(log_size)))
        text = ctypes.create_string_buffer(log_size.value)
        _demand(library.nvrtcGetPTX(program, text))
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))
    return text.value


_FIGURES = re.compile(
    r"entry function '(\w+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers", re.DOTALL
)
_REGISTERS = 64 << 10
"""Of a multiprocessor."""


def spills(code: bytes, architecture: str, folder: Path) -> list[int]:
    """Bytes that each kernel of a PTX text spills to memory."""
    return [spilt for spilt, _ in assembled(code, architecture, folder).values()]


def unfit(threads: Mapping[str, int], figures: Mapping[str, tuple[int, int]]) -> list[str]:
    """Of kernels with so many threads in a block, those that no device would start: a warp takes registers by eights for each thread,
    and warps come in fours."""
    taken = {name: -(-figures[name][1] // 8) * 8 * -(-count // 128) * 128 for name, count in threads.items()}
    return [name for name, registers in taken.items() if registers > _REGISTERS]


def assembled(code: bytes, architecture: str, folder: Path) -> dict[str, tuple[int, int]]:
    """Of each kernel of a PTX text, the bytes that it spills to memory and its registers, as the assembler says; skips the test where there
    is none."""
    nvcc = _folder("cuda_nvcc")
    if nvcc is None:
        pytest.skip("capability: ptxas (nvidia-cuda-nvcc-cu12 is not installed)")
    path = folder / f"kernels_{architecture}.ptx"
    path.write_bytes(code)
    command = [
        nvcc / "bin" / "ptxas",
        "-v",
        f"-arch=sm_{architecture}",
        path,
        "-o",
        folder / f"kernels_{architecture}.cubin",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {
        name: (int(stores) + int(loads), int(registers))
        for name, stores, loads, registers in _FIGURES.findall(done.stderr)
    }


def _demand(status: int) -> None:
    if status:
        raise RuntimeError(f"NVRTC returned {status}")
