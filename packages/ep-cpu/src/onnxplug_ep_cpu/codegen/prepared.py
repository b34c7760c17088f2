"""What all binds of a region share: its nodes, who reads what, and constants as kernels want them."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from onnxplug.contract import NodeView, Region, TensorType, ValueView, numpy_dtype
from onnxplug.contract import element_of as onnx_element
from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import fuse
from onnxplug_ep_cpu.codegen.lower.entries import is_lowered, lowerings
from onnxplug_ep_cpu.codegen.packer import aligned, aligned_zeros
from onnxplug_ep_cpu.codegen.settings import Settings
from onnxplug_ep_cpu.codegen.shelf import varies
from onnxplug_ep_cpu.codegen.tensor import Tensor, is_narrow
from onnxplug_ep_cpu.codegen.tuning import Choices
from onnxplug_kernels.fitting import RULES


class Prepared:
    """Made by a region's first bind. Used by one thread at a time."""

    def __init__(self, region: Region, settings: Settings, growing: frozenset[str] | None) -> None:
        self.region, self.settings, self.choices = region, settings, Choices(growing)
        self.nodes: Sequence[NodeView] = region.graph.nodes
        self.varies = varies(region)
        """Whether the model leaves shapes open: kernels are then chosen to serve many."""
        lowerings(self.nodes)  # enters their patterns as well
        self.steps = fuse.steps(self.nodes, {v.name for v in region.outputs})
        readers = [n for n in self.nodes if not fuse.asks_shape(n)]
        self.uses = Counter(v.name for n in readers for v in (*n.inputs, *n.captures) if v is not None)
        for name in fuse.joined_readers(self.nodes, {v.name for v in region.outputs}):
            self.uses[name] = 1
        self.reader = {v.name: n for n in readers for v in (*n.inputs, *n.captures) if v is not None}
        """Value -> the last node that reads it."""
        self.joined: dict[str, tuple[NodeView, int]] = {}
        """Value -> the concatenation that reads it and the axis."""
        self.constants: dict[str, Tensor] = {}
        """Constants that kernels have read, as tensors."""
        reads = [v for n in self.nodes for v in (*n.inputs, *n.captures) if v is not None]
        self.constant = {v.name for v in reads if v.is_constant}
        """Names of constants."""
        self._values = {v.name: v for n in self.nodes for v in n.outputs if v is not None}
        self.ruled = [n for n in self.nodes if (n.domain, n.op_type) in RULES]
        """Those whose operands' sizes must go together."""
        self.decided = {id(n) for n in self.nodes if not is_lowered(n)}
        """Nodes that are here because shapes decide what they make: they have no lowering."""
        self.numbers: dict[str, int] = {}
        """The number of each word that a node knows, the same for all operands that are strings."""
        self.halves: dict[str, str] = {}
        """Weights -> the element type that holds all of their numbers in few bits."""
        self._packed: dict[tuple[str, object], np.ndarray] = {}
        self._tables: dict[tuple[str, object], Table] = {}
        self._made: dict[tuple[str, object], Any] = {}
        self._zeros = np.zeros(64, np.float32)
        for node in self.nodes:
            if node.op_type == "Concat" and node.domain == "":
                self._join(node)

    def _join(self, node: NodeView) -> None:
        (whole,) = node.outputs
        names = [v.name for v in node.inputs if v is not None]
        if whole is None or whole.shape is None or whole.dtype == object or len(set(names)) < len(names):
            return
        axis = node.attributes.get("axis", 1) % len(whole.shape)
        if all(name in self._values and name not in self.joined for name in names):
            self.joined.update((name, (node, axis)) for name in names)

    def aside(self) -> Prepared:
        """The same region with constants of its own."""
        other = copy.copy(self)
        other.constants, other._packed = {}, {}
        return other

    def value(self, name: str) -> ValueView:
        """A value made inside the region, by name."""
        return self._values[name]

    def makes(self, value: ValueView) -> bool:
        """Whether a node of the region makes the value."""
        return value.name in self._values

    def packed(self, value: ValueView, form: object, make: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """A constant in another form, made once."""
        found = self.held(value, form)
        if found is None:
            assert value.constant is not None
            array = value.constant
            array = array.astype(np.float32) if is_narrow(array.dtype) else array
            found = self._packed[value.name, form] = aligned(make(array))
        return found

    def table(self, node: NodeView, form: object, make: Callable[[], np.ndarray]) -> Table:
        """A constant made of a node's attributes, once."""
        value = next(v for v in node.outputs if v is not None)
        found = self._tables.get((value.name, form))
        if found is None:
            found = self._tables[value.name, form] = Table(f"{value.name}:{form}", aligned(make()))
        return found

    def made(self, node: NodeView, make: Callable[[], Any], form: object = None) -> Any:
        """What ``make`` makes of a node's attributes, once for each ``form``."""
        key = next(v.name for v in node.outputs if v is not None), form
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def held(self, value: ValueView, form: object) -> np.ndarray | None:
        """What was made of a constant, if it was."""
        return self._packed.get((value.name, form))

    def hold(self, value: ValueView, form: object, shape: tuple[int, ...], element: str = "float32") -> np.ndarray:
        """Zeros that are kept as a form of a constant, to be filled."""
        made = self._packed[value.name, form] = aligned_zeros(
            shape, numpy_dtype(element) if element == "bfloat16" else element
        )
        return made

    def facts(self) -> Mapping[str, Any]:
        """Bytes of packed constants and what Winograd's filters take of them beyond the model's, and the chosen algorithms."""
        return {
            "packed_bytes": sum(array.nbytes for array in self._packed.values()),
            "winograd_surplus_bytes": self.choices.surplus,
            "algorithms": dict(self.choices.algorithms),
        }

    def zeros(self, count: int) -> np.ndarray:
        """At least ``count`` float32 zeros."""
        if len(self._zeros) < count:
            self._zeros = np.zeros(count, np.float32)
        return self._zeros


@record(frozen=True, slots=True, eq=False)
class Table:
    """A constant that no value of the graph is, seen as one."""

    name: str
    constant: np.ndarray
    producer: NodeView | None = None
    consumers: Sequence[NodeView] = ()

    @property
    def type(self) -> TensorType:
        return TensorType(onnx_element(self.constant.dtype), self.constant.shape)

    @property
    def dtype(self) -> np.dtype:
        return self.constant.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.constant.shape

    @property
    def is_constant(self) -> bool:
        return True

    def view(self) -> np.ndarray:
        return self.constant

    def release(self) -> None:
        """It cannot be had again."""
