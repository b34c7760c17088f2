"""Launches of generated kernels held against their texts: the types of scalars, and addresses that are in memory that is taken."""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from driverless.calls import Driver

_SCALARS = {
    "i8": np.int8, "u8": np.uint8, "b8": np.uint8, "i16": np.int16, "u16": np.uint16, "i32": np.int32, "u32": np.uint32, "i64": np.int64,
    "u64": np.uint64, "f16": np.float16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip
_KERNEL = re.compile(r"KERNEL void (\w+)\(((?:[^()]|\([^()]*\))*)\)")
_PARAMETER = re.compile(r"TENSOR\((\w+), *\w+\)|const (\w+) \w+")


def signatures(text: str) -> dict[str, list[tuple[str, str]]]:
    """Of each kernel of a text, its parameters: ("tensor" or "scalar", type)."""
    found = {}
    for name, given in _KERNEL.findall(text):
        found[name] = [
            ("tensor", tensor) if tensor else ("scalar", plain) for tensor, plain in _PARAMETER.findall(given)
        ]
    return found


def judging(driver: Driver, made: Callable[..., Any]) -> Callable[..., Any]:
    """``cupy.RawModule`` whose kernels are judged before they are launched."""

    class Module:
        def __init__(self, code: str, **given: Any) -> None:
            self._module, self._taken = made(code=code, **given), signatures(code)

        def get_function(self, name: str) -> Callable[..., None]:
            function, taken = self._module.get_function(name), self._taken.get(name)
            if taken is None:  # one of CuPy's own
                return function  # type: ignore[no-any-return]

            def launch(grid: Any, block: Any, arguments: Any) -> None:
                driver.broken += [f"{name}: {said}" for said in _wrong(driver, taken, arguments)]
                function(grid, block, arguments)

            return launch

    return Module


def _wrong(driver: Driver, taken: list[tuple[str, str]], given: Any) -> list[str]:
    if len(given) != len(taken):
        return [f"takes {len(taken)} arguments, not {len(given)}"]
    found = []
    for number, ((kind, type_), argument) in enumerate(zip(taken, given, strict=True)):
        wanted = np.uint64 if kind == "tensor" else _SCALARS[type_]
        if type(argument) is not wanted:
            found.append(f"argument {number} is a {type(argument).__name__}, not a {wanted.__name__}")
        elif kind == "tensor" and not _is_taken(driver, int(argument)):
            found.append(f"argument {number} is no address of memory that is taken")
        elif kind == "tensor" and int(argument) % np.dtype(_SCALARS.get(type_, np.float16)).itemsize:
            found.append(f"argument {number} is not aligned")
    return found


def _is_taken(driver: Driver, address: int) -> bool:
    blocks = driver.blocks | driver.mapped
    starts = sorted(blocks)
    at = bisect.bisect_right(starts, address) - 1
    return at >= 0 and address < starts[at] + blocks[starts[at]]
