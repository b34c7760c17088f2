"""Kernels and their registry. The registry is a provider's claim: what is registered is what the conformance kit will
test."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

import numpy as np

from onnxplug.contract.graph import NodeView
from onnxplug.contract.records import record
from onnxplug.contract.versions import versions_of


@record(frozen=True, slots=True)
class TensorSpec:
    """What is known of a kernel's operand when a plan is made: dtype, full shape, and the array when it is constant in
    that plan."""

    dtype: np.dtype
    shape: tuple[int, ...]
    constant: np.ndarray | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the dense row-major tensor."""
        size = self.dtype.itemsize
        for dim in self.shape:
            size *= dim
        return size


@record(frozen=True, slots=True)
class Into:
    """A kernel specialised to shapes: ``call(*inputs, *outputs)`` writes every output, returns nothing.

    With ``workspace`` > 0 the plan appends one uint8 array of that many bytes to the arguments.
    """

    call: Callable[..., object]
    workspace: int = 0


class Kernel:
    """A node's kernel for one session, made once by ``KernelDef.create`` (attributes read, constants packed). Holds no
    state of a run. Inputs on the host are aligned arrays, which may be read-only and may have gaps between elements, as
    views have them that other kernels return."""

    packed: tuple[int, ...] = ()
    """Indices of constant inputs this kernel packed and will not read again; the plan passes None for them."""

    def __call__(self, *inputs: Any) -> Any:
        """Return the output array, or a tuple of them, for inputs of any legal shape: fresh arrays or views of inputs,
        never written to."""
        raise NotImplementedError(f"{type(self).__name__} only writes into outputs of known shape")

    def bind(self, inputs: Sequence[TensorSpec | None], outputs: Sequence[TensorSpec | None]) -> Into | None:
        """The kernel for these shapes, writing into given outputs; None when only the returning form exists.

        An ``inputs`` entry is None for an omitted input or a value that is not a dense tensor; an ``outputs`` entry for
        an omitted one.
        """
        return None


@record(frozen=True, slots=True)
class Mismatch:
    """Why no kernel of a registry takes a node."""

    reason: str


@record(frozen=True, slots=True)
class KernelDef:
    """One registered kernel.

    ``since``/``until``: schema versions taken, both included; ``until`` None means the schema of ``since`` alone.
    ``types``: constraint name -> type strings taken ("tensor(float)"); a constraint not named takes what the schema
    allows, one without types has no operand. ``create(node)`` makes the node's kernel: a ``Kernel``, or any callable, which
    then is the returning form.
    ``host_inputs``/``host_outputs``: operands that live in host memory whatever the provider's device is. ``alias``:
    output -> input whose bytes it shows under another shape (Reshape). ``inplace``: output -> inputs whose memory it
    may overwrite when they are of equal size and not needed any more.
    """

    domain: str
    op_type: str
    since: int
    create: Callable[[NodeView], Kernel | Callable[..., Any]]
    until: int | None = None
    types: Mapping[str, frozenset[str]] = field(default_factory=dict)
    host_inputs: frozenset[int] = frozenset()
    host_outputs: frozenset[int] = frozenset()
    alias: Mapping[int, int] = field(default_factory=dict)
    inplace: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    @property
    def last(self) -> int:
        """The newest version that the kernel is for."""
        return self.since if self.until is None else self.until

    def mismatch(self, node: NodeView) -> str | None:
        """Why this kernel does not take ``node`` (of the same operator), or None when it does."""
        if not self.since <= node.since_version <= self.last:
            span = f"{self.since}" if self.last == self.since else f"{self.since}-{self.last}"
            return f"kernel is for version {span}, the node is version {node.since_version}"
        for name, taken in self.types.items():
            got = node.constraint_types.get(name)
            if got is not None and not taken:
                return f"operands of type {name} are not taken"
            if got is not None and got not in taken:
                return f"type {name}={got} is not among {', '.join(sorted(taken))}"
        return None


class KernelLookup(Protocol):
    """What ``get_capability`` asks about a node."""

    def kernel_for(self, node: NodeView) -> KernelDef | Mismatch:
        """The kernel of the asking provider's registry, or why there is none."""

    def owner(self, node: NodeView) -> str | None:
        """The provider of higher priority that has taken the node; a fused claim that holds such a node is dropped whole."""


class KernelRegistry:
    """The kernels of one provider. ``add`` checks each against ONNX's schema history and refuses overlapping ranges
    (ValueError)."""

    def __init__(self, definitions: Iterable[KernelDef] = ()) -> None:
        self._kernels: dict[tuple[str, str], list[KernelDef]] = {}
        for definition in definitions:
            self.add(definition)

    def add(self, definition: KernelDef) -> None:
        """Register one kernel."""
        _check_versions(definition.domain, definition.op_type, definition.since, definition.last)
        rivals = self._kernels.setdefault((definition.domain, definition.op_type), [])
        for other in rivals:
            if definition.since <= other.last and other.since <= definition.last and _types_meet(definition, other):
                label = _label(definition.domain, definition.op_type)
                own, theirs = f"{definition.since}-{definition.last}", f"{other.since}-{other.last}"
                raise ValueError(f"{label}: versions {own} overlap the kernel for {theirs}")
        rivals.append(definition)

    def kernel_for(self, node: NodeView) -> KernelDef | Mismatch:
        """The kernel that takes ``node``, or the reason why none does."""
        kernels = self._kernels.get((node.domain, node.op_type))
        if not kernels:
            return Mismatch(f"no kernel for {node.domain + '.' if node.domain else ''}{node.op_type}")
        reasons = []
        for definition in kernels:
            reason = definition.mismatch(node)
            if reason is None:
                return definition
            reasons.append(reason)
        return Mismatch("; ".join(reasons))

    def __iter__(self) -> Iterator[KernelDef]:
        for kernels in self._kernels.values():
            yield from kernels

    def __len__(self) -> int:
        return sum(map(len, self._kernels.values()))


def kernel(
    op_type: str,
    since: int,
    until: int | None = None,
    *,
    domain: str = "",
    host_inputs: Iterable[int] = (),
    host_outputs: Iterable[int] = (),
    **types: Iterable[str],
) -> Callable[[Callable[..., Any]], KernelDef]:
    """Turn a function into a ``KernelDef``: tensor inputs positional, attributes keyword-only, returning fresh arrays.

    ``@kernel("Softmax", since=13, T=("float", "double"))``. A class may be decorated too: it is called with the node, and its instance
    is the node's kernel.
    """

    def define(target: Callable[..., Any]) -> KernelDef:
        create: Callable[[NodeView], Any] = (
            target if inspect.isclass(target) else functools.partial(_with_attributes, target)
        )
        return KernelDef(
            domain, op_type, since, create, until, {k: type_strings(v) for k, v in types.items()},
            frozenset(host_inputs), frozenset(host_outputs),
        )  # fmt: skip

    return define


def type_strings(elements: Iterable[str]) -> frozenset[str]:
    """Element names to dense tensor type strings; full type strings ("seq(tensor(float))") pass unchanged."""
    return frozenset(e if "(" in e else f"tensor({e})" for e in elements)


def _with_attributes(function: Callable[..., Any], node: NodeView) -> Callable[..., Any]:
    return functools.partial(function, **node.attributes)


def _label(domain: str, op_type: str) -> str:
    return f"kernel {domain + '.' if domain else ''}{op_type}"


def _types_meet(a: KernelDef, b: KernelDef) -> bool:
    return all(a.types[k] & b.types[k] for k in a.types.keys() & b.types.keys())


@functools.lru_cache(maxsize=4096)
def _check_versions(domain: str, op_type: str, since: int, last: int) -> None:
    """ValueError for a range that ONNX's history does not have. Providers register the same for every session."""
    known = versions_of(domain, op_type)
    if not known:
        return  # a contrib or custom operator: its schema comes from a provider's get_op_schemas
    label, listed = _label(domain, op_type), ", ".join(map(str, sorted(known)))
    if last < min(known):
        return  # onnxruntime wrote some operators before ONNX had them (LayerNormalization-1): likewise a provider's
    if since not in known:
        raise ValueError(f"{label}: since={since} is not a schema version of it ({listed})")
    if last > max(known) and last != since:
        raise ValueError(f"{label}: until={last} promises versions that do not exist yet ({listed})")
    if last < since:
        raise ValueError(f"{label}: until={last} is below since={since}")
