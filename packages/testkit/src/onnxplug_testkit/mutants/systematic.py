"""Mutants that nobody wrote down: of every operator, a provider for each attribute, value of an attribute and operand that it ignores.

``survivors`` tells which of them the trials of kernels let pass, so that what the kit's structures do not try is known. An alteration
that changes nothing by the operator's text is no mutant: defaults that are given, and what ``_changes_nothing`` names.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import defs, helper

from onnxplug.contract import CONTRACT_VERSION, ExecutionProvider, KernelDef, KernelRegistry, NodeView, ProviderSpec
from onnxplug.plugins import registry
from onnxplug_testkit.kernels.structures import structures
from onnxplug_testkit.models import CPU
from onnxplug_testkit.mutants import judge
from onnxplug_testkit.mutants.base import NAME
from onnxplug_testkit.subject import Subject

Attributes = dict[str, Any]
Operands = list[Any]

_ORDERLESS = frozenset({"Squeeze", "Unsqueeze", "CenterCropPad"})
_REPEATED = frozenset({"kernel_shape", "hidden_size"})
"""Attributes that repeat what weights say, where they are not required."""
_IDLE = frozenset({"consumed_inputs", "output_sequence", "softmax_precision"})
"""Attributes that hint at memory, repeat which outputs are asked for, or ask for a precision that may be exceeded."""
_TYPELESS = {"SequenceEmpty": "dtype"}
"""Attributes that give a type to nothing: a sequence without items."""
_RANDOM = frozenset(
    {"Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)


@dataclass(frozen=True)
class Alteration:
    """``text``: what is ignored. ``attributes`` and ``operands`` change a node's attributes and what a kernel is called with."""

    text: str
    attributes: Callable[[Attributes], Attributes] = dict
    operands: Callable[[Operands], Operands] = list


def alterations(op_type: str) -> list[Alteration]:
    """The alterations of an operator of ai.onnx that its structures leave a difference to."""
    known = structures().get(("", op_type), ())
    schema = defs.get_schema(op_type)
    given: dict[str, list[Any]] = {}
    for structure in known:
        for name, proto in structure.attributes.items():
            given.setdefault(name, []).append(helper.get_attribute_value(proto))
    found = [
        a
        for name, values in given.items()
        if not _changes_nothing(op_type, name, schema)
        for a in _of_attribute(op_type, name, values)
    ]
    for i, formal in enumerate(schema.inputs):
        values = [s.inputs[i] for s in known if i < len(s.inputs) and s.inputs[i] is not None]
        if values and formal.option == defs.OpSchema.FormalParameterOption.Optional:
            found.append(Alteration(f"{formal.name} is left out", operands=functools.partial(_without, i)))
        if any(isinstance(v, np.ndarray) and v.dtype == np.int64 and v.size and v.min() < 0 for v in values):
            found.append(Alteration(f"the sign of {formal.name} is ignored", operands=functools.partial(_absolute, i)))
    return found


def _changes_nothing(op_type: str, name: str, schema: Any) -> bool:
    repeated = name in _REPEATED and name in schema.attributes and not schema.attributes[name].required
    return repeated or name in _IDLE or _TYPELESS.get(op_type) == name


def survivors(op_type: str, seed: int = 1) -> tuple[int, list[str]]:
    """How many mutants of an operator there are, and what those ignore that pass every trial of its kernels."""
    if op_type in _RANDOM:
        return 0, []
    tried = alterations(op_type)
    return len(tried), [a.text for a in tried if _survives(op_type, a, seed)]


def operators() -> list[str]:
    """The operators of ai.onnx that the kit has structures of and onnx a schema, which it has no more of those that were experiments."""
    return sorted(name for domain, name in structures() if not domain and defs.has(name))


class _Changed:
    """A node with other attributes."""

    def __init__(self, node: NodeView, attributes: Mapping[str, Any]) -> None:
        self._node, self.attributes = node, attributes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)


def _survives(op_type: str, alteration: Alteration, seed: int) -> bool:
    def create(definition: KernelDef, node: NodeView) -> Callable[..., Any]:
        changed: Any = _Changed(node, alteration.attributes(dict(node.attributes)))
        kernel: Any = definition.create(changed)
        return lambda *inputs: kernel(*alteration.operands(list(inputs)))

    mutant = _of_one_operator(op_type, create)
    mutant.announce()
    return judge(mutant, "kernels", (op_type,), seed) is None


def _of_one_operator(op_type: str, create: Callable[[KernelDef, NodeView], Any]) -> Subject:
    """A provider of one operator: the CPU provider's kernels of it, made by ``create``. The reference has not all that there are to try."""
    cpu = registry.record(CPU, load=True)
    if cpu is None or not cpu.usable:
        raise ValueError(f"systematic mutants are made of {CPU}'s kernels: install onnxplug-ep-cpu")
    with Subject(registry.spec(CPU)).instance() as instance:
        known = [d for d in instance.call("get_kernel_registry") or () if d.op_type == op_type]

    class Mutated(ExecutionProvider):
        def get_kernel_registry(self) -> KernelRegistry:
            return KernelRegistry(
                dataclasses.replace(d, create=functools.partial(create, d), alias={}, inplace={}) for d in known
            )

    return Subject(ProviderSpec(NAME, CONTRACT_VERSION, lambda options, context: Mutated(), vendor="mutants"), {})


def _of_attribute(op_type: str, name: str, values: Sequence[Any]) -> Iterator[Alteration]:
    usual = _defaults(op_type, name)
    if any(value not in usual for value in values):
        yield Alteration(f"{name} is left out", functools.partial(_less, name, None))
    words = {value.decode() for value in values if isinstance(value, bytes) and value and value not in usual}
    for word in sorted(words) if len(words) > 1 else ():
        yield Alteration(f"{name}={word} is left out", functools.partial(_less, name, word))
    if any(isinstance(value, int) and value < 0 for value in values):
        yield Alteration(f"the sign of {name} is ignored", lambda a: {**a, name: abs(a[name])} if name in a else a)
    if any(isinstance(value, list) and value and isinstance(value[0], int) and len(set(value)) > 1 for value in values):
        yield Alteration(f"the first of {name} counts for all", lambda a: _changed(a, name, lambda v: [v[0]] * len(v)))
        if op_type not in _ORDERLESS and not op_type.startswith("Reduce"):
            yield Alteration(f"{name} is read backwards", lambda a: _changed(a, name, lambda v: v[::-1]))


@functools.cache
def _defaults(op_type: str, name: str) -> Sequence[Any]:
    """An attribute's defaults in the operator's versions: what it says by default has had several names."""
    schemas = [s for s in defs.get_all_schemas_with_history() if not s.domain and s.name == op_type]
    given = [s.attributes[name].default_value for s in schemas if name in s.attributes]
    return [helper.get_attribute_value(default) for default in given if default.name]


def _less(name: str, value: str | None, attributes: Attributes) -> Attributes:
    """Without an attribute, if it has the value (None: whatever it has)."""
    return {k: v for k, v in attributes.items() if k != name or value not in (None, v)}


def _changed(attributes: Attributes, name: str, change: Callable[[list[Any]], list[Any]]) -> Attributes:
    return {**attributes, name: change(list(attributes[name]))} if attributes.get(name) is not None else attributes


def _without(i: int, operands: Operands) -> Operands:
    return [None if j == i else x for j, x in enumerate(operands)]


def _absolute(i: int, operands: Operands) -> Operands:
    return [np.abs(x) if j == i and x is not None else x for j, x in enumerate(operands)]
