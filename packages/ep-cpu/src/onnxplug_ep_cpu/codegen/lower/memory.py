"""Memory that programs work on beside operands and results: constants as they lie, and the run's workspace."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnxplug.contract.sizes import greatest
from onnxplug_ep_cpu.codegen.kernels.map import SIZES
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.program import ALIGNMENT, Buffer
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor, dense_strides, element_of


def scratch(shape: Ints, order: Sequence[int] | None = None, element: str = "float32") -> Tensor:
    """Fresh memory of the run's workspace."""
    slack = ALIGNMENT if element in ("int16", "int8", "uint8") else 0  # integer products read pairs and quads
    buffer = Buffer("scratch", greatest(1, math.prod(shape)) * SIZES[element] + slack)
    return Tensor(buffer, shape, dense_strides(shape, order), element=element)


def tensor_of(array: np.ndarray) -> Tensor:
    """A constant as a row-major tensor; it must outlive the program."""
    return lying(np.require(array, requirements=("C", "A")).reshape(array.shape))


def lying(array: np.ndarray) -> Tensor:
    """A constant as it lies, with whatever strides it has; it must outlive the program."""
    element = element_of(array.dtype)
    if element not in SIZES:
        raise Unsupported(f"constants of type {element} are not generated")
    buffer = Buffer("constant", array.nbytes, array=array)
    strides = tuple(s // array.itemsize for s in array.strides)
    return Tensor(
        buffer,
        array.shape,
        dense_strides(array.shape) if array.flags.c_contiguous else strides,
        element=element,
    )
