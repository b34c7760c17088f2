"""Schemas of the operators that onnx does not define: domain ``com.microsoft`` and what onnxruntime adds to the default one.

Formal parameters, types and attributes are onnxruntime's (``ContribOperators.md``); shapes follow the kernels. One
family per file, entered by ``declare.contrib``; ``op_schemas`` makes onnx's objects of them once per process.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx.defs import OpSchema


@functools.cache
def op_schemas() -> tuple[OpSchema, ...]:
    """Every schema of this package."""
    from onnxplug_ep_cpu.schemas.declare import declared

    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return tuple(declaration.schema() for declaration in declared())
