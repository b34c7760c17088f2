"""What is known of a region's values when its nodes are lowered: shapes, element types, constants, and how often each is read."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np

from onnxplug.contract import TensorSpec, ValueView
from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.program import Buffer
from onnxplug_ep_cpu.codegen.tensor import Ints, element_of, is_narrow
from onnxplug_ep_cpu.codegen.undecided import Open

if TYPE_CHECKING:
    from onnxplug_ep_cpu.codegen.prepared import Prepared


@record(slots=True)
class Known:
    """What a region and one bind of it say of values; nothing here makes code."""

    specs: dict[str, TensorSpec]
    """Shapes and types in this bind, and what shapes decide."""
    prepared: Prepared
    outputs: dict[str, Buffer]
    """Values that leave the region, by name."""
    open: Open
    """Arrays that another bind of the program may have otherwise."""
    singles: dict[str, np.ndarray] = field(default_factory=dict, init=False)
    """Constants of half precision as float32."""

    def is_computed(self, value: ValueView) -> bool:
        """Whether the program makes the value: shapes do not decide it."""
        spec = self.specs.get(value.name)
        return spec is None or spec.constant is None

    def shape(self, value: ValueView) -> Ints:
        """The value's shape; Unsupported when shapes do not decide it."""
        spec = self.specs.get(value.name)
        if spec is None:
            raise Unsupported(f"the shape of '{value.name}' is not known before it runs")
        return spec.shape

    def knows(self, value: ValueView) -> bool:
        """Whether shapes decide the value's shape."""
        return value.name in self.specs

    def varies(self, value: ValueView) -> bool:
        """Whether the model leaves a size of the value open, other than its first, the number of images."""
        shape = value.shape
        return self.prepared.varies and (shape is None or not all(isinstance(n, int) for n in shape[1:]))

    def element(self, value: ValueView) -> str:
        """NumPy's name of the value's element type; half precision is computed in float32, strings are numbered."""
        assert value.dtype is not None
        if value.dtype == object:
            return "int64"
        return "float32" if is_narrow(value.dtype) else element_of(value.dtype)

    def is_constant(self, value: ValueView) -> bool:
        """Whether the value is constant or decided by shapes; the array is not looked at, it may have been packed and let go."""
        spec = self.specs.get(value.name)
        return value.name in self.prepared.constant or (spec is not None and spec.constant is not None)

    def constant(self, value: ValueView | None) -> np.ndarray | None:
        """The array of a value that is constant or that shapes decide, else None."""
        if value is None:
            return None
        array = value.constant
        if array is None:
            spec = self.specs.get(value.name)
            array = None if spec is None else spec.constant
            self.open.look(value.name)
        if array is None or not is_narrow(array.dtype):
            return array
        if value.name not in self.singles:
            self.singles[value.name] = array.astype(np.float32)
        return self.singles[value.name]

    def numbers(self, value: ValueView) -> list[int] | None:
        """The integers of a value that is constant or that shapes decide, in row-major order, else None."""
        followed = self.open.numbers.get(value.name)
        if followed is not None:
            return followed
        array = self.constant(value)
        return None if array is None else [int(n) for n in array.reshape(-1)]

    def uses(self, value: ValueView) -> int:
        """How often the value is read, by nodes of the region or by others."""
        return self.prepared.uses.get(value.name, 0) + (value.name in self.outputs)
