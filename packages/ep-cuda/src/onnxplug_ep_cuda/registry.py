"""The kernel registry: the portable entries of ``onnxplug_kernels`` over CuPy, on the element types that CuPy holds.

Nothing here imports CuPy: the namespace is an argument, so that the same registry is made, and its functions are run, with NumPy for
shapes and types on a machine without a GPU.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np

from onnxplug.contract import Into, Kernel, KernelDef, KernelRegistry, NodeView, TensorSpec, type_strings
from onnxplug_ep_cuda.codegen.kernel import CountedKernel, Place, generated
from onnxplug_ep_cuda.codegen.launch import Call
from onnxplug_ep_cuda.codegen.table import ALONE, CACHES, COUNTED, DESCRIBED, LOWERINGS, ON_DEVICE
from onnxplug_ep_cuda.faults import Faults
from onnxplug_ep_cuda.kernels import Form, forms, recurrent, self_attention
from onnxplug_ep_cuda.memory import VECTOR
from onnxplug_ep_cuda.namespace import Namespace
from onnxplug_ep_cuda.refusals import DEVICE_TYPES, UNFIT, WRITTEN_TYPES
from onnxplug_kernel_text.nodes.attention import Attend, Problem
from onnxplug_kernels.catalogue import OpKernel, catalogue
from onnxplug_kernels.fitting import RULES, fitted, misfit

ALIASES = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
"""Operators whose output is the input under another shape."""

HOST_RESULTS = frozenset({"Shape", "Size"})
"""Operators that look at no element: what they give is a few numbers for the host."""


class ArrayKernel(Kernel):
    """A function of arrays with its attributes. Results are dense arrays of the namespace that begin where memory may be read by vectors:
    a slice that lies in one piece need not."""

    __slots__ = ("_empty", "_form", "_function", "_place", "_xp", "attributes")

    def __init__(
        self, xp: Any, place: Place, function: Callable[..., Any], form: Form | None, attributes: Mapping[str, Any],
        empty: Collection[int] = (),
    ) -> None:  # fmt: skip
        """``empty``: the inputs that the writing form takes without elements."""
        self._xp, self._place, self._function, self._form, self.attributes = xp, place, function, form, attributes
        self._empty = empty

    def __call__(self, *inputs: Any) -> Any:
        if not self._place.entered:  # constant folding, outside of a run
            with self._place.inside():
                return self._dense(self._function(*inputs))
        return self._dense(self._function(*inputs))

    def bind(self, inputs: Any, outputs: Any) -> Any:
        """The writing form for these shapes, where there is one."""
        specs = (*(spec for n, spec in enumerate(inputs) if n not in self._empty), *outputs)
        if self._form is None or any(isinstance(s, TensorSpec) and 0 in s.shape for s in specs):
            return None
        with self._place.inside():
            return self._form(inputs, outputs, **self.attributes)

    def _dense(self, results: Any) -> Any:
        if isinstance(results, tuple):
            return tuple(None if result is None else self._laid_out(result) for result in results)
        return self._laid_out(results)

    def _laid_out(self, result: Any) -> Any:
        if not result.flags.c_contiguous:
            return self._xp.ascontiguousarray(result)
        return result if isinstance(result, np.ndarray | np.generic) or result.data.ptr % VECTOR == 0 else result.copy()


def registry(
    xp: Any, place: Place, *, tf32: bool, attend: Attend | None = None, faults: Faults | None = None
) -> KernelRegistry:
    """The kernels over an array namespace. ``tf32``: products of float32 may be computed in TF32. ``attend``: how attentions are
    computed where not by the generated kernel. ``faults``: where kernels tell of errors."""
    writing = forms(tf32=tf32)
    return KernelRegistry(
        KernelDef(
            entry.domain,
            entry.op_type,
            since,
            functools.partial(
                _create, xp, place, entry, writing.get((entry.domain, entry.op_type)), attend, tf32, faults
            ),
            until,
            types,
            frozenset(entry.host_inputs) - ON_DEVICE.get((entry.domain, entry.op_type), frozenset()),
            frozenset({0}) if entry.op_type in HOST_RESULTS else frozenset(),
            alias={0: 0} if entry.domain == "" and entry.op_type in ALIASES else {},
        )
        for entry, since, until, types in claimable()
    )


@functools.cache
def claimable() -> tuple[tuple[OpKernel, int, int, Mapping[str, frozenset[str]]], ...]:
    """Entry, first and last version, and the types CuPy holds of each constraint, for every operator to be claimed."""
    return tuple(
        (entry, since, until, types)
        for entry in catalogue()
        if (entry.portable or (entry.domain, entry.op_type) in ALONE)
        and (entry.domain, entry.op_type) not in UNFIT
        and entry.domain != "ai.onnx.ml"
        for since, until, types in _spans(entry)
    )


def _spans(entry: OpKernel) -> Iterator[tuple[int, int, Mapping[str, frozenset[str]]]]:
    """The entry's versions, cut where the schema's types change: (first, last, types)."""
    found: list[tuple[int, int, Mapping[str, frozenset[str]]]] = []
    refused = {name for name, elements in entry.types.items() if not elements}  # operands that a node may not have
    for version, allowed in _schemas(entry.domain, entry.op_type, entry.since, entry.until):
        named = {name: type_strings(elements) for name, elements in entry.types.items()}
        held = WRITTEN_TYPES if (entry.domain, entry.op_type) in ALONE else DEVICE_TYPES
        types = {
            name: (strings & named[name] if name in named else strings) & held
            for name, strings in {**named, **allowed}.items()
        }
        if not all(types[name] for name in types.keys() - refused):
            continue
        if found and found[-1][2] == types and _adjacent(entry, found[-1][1], version):
            found[-1] = (found[-1][0], version, types)
        else:
            found.append((version, version, types))
    yield from found


def _schemas(domain: str, op_type: str, since: int, until: int) -> list[tuple[int, Mapping[str, frozenset[str]]]]:
    """Versions of an operator with the types its schema allows; for one that onnx does not define, its own version and no types."""
    found = {
        schema.since_version: {c.type_param_str: frozenset(c.allowed_type_strs) for c in schema.type_constraints}
        for schema in _history().get((domain, op_type), ())
        if since <= schema.since_version <= until
    }
    return sorted(found.items()) if found else [(since, {})]


@functools.cache
def _history() -> Mapping[tuple[str, str], list[Any]]:
    from onnx import defs

    schemas: dict[tuple[str, str], list[Any]] = {}
    for schema in defs.get_all_schemas_with_history():
        schemas.setdefault((schema.domain, schema.name), []).append(schema)
    return schemas


def _adjacent(entry: OpKernel, earlier: int, later: int) -> bool:
    return not any(
        earlier < schema.since_version < later for schema in _history().get((entry.domain, entry.op_type), ())
    )


def _create(
    xp: Any,
    place: Place,
    entry: OpKernel,
    form: Form | None,
    attend: Attend | None,
    tf32: bool,
    faults: Faults | None,
    node: NodeView,
) -> Kernel | Callable[..., Any]:
    attributes, name = dict(node.attributes), (entry.domain, entry.op_type)
    if name in ALONE:
        kernel, lowering, made, _ = ALONE[name]
        return kernel(xp, place, lowering, made, node, faults)
    if entry.op_type in HOST_RESULTS:
        return functools.partial(entry.function, np, **attributes)
    counted = {"n_outputs": len(node.outputs)} if _counts_outputs(entry.function) else {}
    if isinstance(xp, Namespace):
        xp = xp.of(node)
    function = functools.partial(entry.function, xp, **attributes, **counted)
    if name in COUNTED:
        lowering, made, along = COUNTED[name]
        plain = ArrayKernel(xp, place, function, None, attributes)
        return CountedKernel(xp, place, lowering, made, node, faults, along, plain)
    if attend is not None and name in DESCRIBED:
        form = functools.partial(_attending, attend, DESCRIBED[name], faults, node)
    elif attend is not None and name == ("com.microsoft", "Attention"):
        form = functools.partial(self_attention.form, attend, tf32, node)
    elif name in recurrent.OPERATORS:
        form = functools.partial(recurrent.form, node, faults=faults)
    elif form is None and (lower := LOWERINGS.get(name)) is not None:
        form = functools.partial(generated, lower, node, faults=faults)
    if name in RULES:
        function = functools.partial(fitted, *name, attributes, function)
        form = None if form is None else functools.partial(_fitting, form, *name)
    if name in ON_DEVICE:
        function = functools.partial(_with_hosted, ON_DEVICE[name], function)
    return ArrayKernel(xp, place, function, form, attributes, CACHES.get(name, ()))


def _with_hosted(hosted: Collection[int], function: Callable[..., Any], *inputs: Any) -> Any:
    """``function`` of inputs of which some are brought to the host."""
    return function(*(x.get() if n in hosted and hasattr(x, "get") else x for n, x in enumerate(inputs)))


def _fitting(form: Form, domain: str, op_type: str, inputs: Any, outputs: Any, **attributes: Any) -> Into | None:
    """The writing form of operands that fit one another: generated kernels would read beside others, which the function refuses."""
    shapes = [None if spec is None else spec.shape for spec in inputs]
    return form(inputs, outputs, **attributes) if misfit(domain, op_type, shapes, attributes) is None else None


def _attending(
    attend: Attend,
    describe: Callable[[Call], Problem | None],
    faults: Faults | None,
    node: NodeView,
    inputs: Any,
    outputs: Any,
    **_: Any,
) -> Into | None:
    problem = describe(Call.of(node, inputs, outputs, faults))
    return None if problem is None or not problem.fits else attend(problem, len(inputs) + len(outputs))


@functools.cache
def _counts_outputs(function: Callable[..., Any]) -> bool:
    return "n_outputs" in inspect.signature(function).parameters
