"""L3: whether what is claimed is what is registered: nothing else is tried."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import onnx
from onnx import helper

from onnxplug.contract import Claim, KernelDef, KernelRegistry
from onnxplug.contract.errors import STATUS_ERRORS
from onnxplug_testkit.check import check
from onnxplug_testkit.kernels.cells import Cell, Claimed, claims, label, parameters, schemas
from onnxplug_testkit.kernels.retarget import Target, retarget
from onnxplug_testkit.kernels.structures import structures
from onnxplug_testkit.models import Lookup, graph_of
from onnxplug_testkit.subject import Subject

TRIED = 6
"""Structures of an operator that are looked at for one that has a type."""
DOMAIN = "org.example.other"


@check("graph.claims_are_registered")
def claims_are_registered(subject: Subject, seed: int) -> None:
    """Nodes for which the registry has no kernel, of other operators, versions, types or domains, are not claimed, as regions neither."""
    with subject.instance() as instance:
        registry = instance.call("get_kernel_registry") or KernelRegistry()
        kernels = Lookup(instance)
        for what, made in _unregistered(registry):
            try:
                graph = graph_of(made)
            except STATUS_ERRORS:  # a type that the operator has on paper only
                continue
            if isinstance(kernels.kernel_for(graph.nodes[0]), KernelDef):
                continue
            answers = instance.call("get_capability", graph=graph, kernels=kernels) or ()
            claimed = any(isinstance(answer, Claim) for answer in answers)
            assert not claimed, f"{what} is claimed, the registry has no kernel for it"


def _unregistered(registry: KernelRegistry) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Nodes that a registry does not take, so far as its definitions tell: what they are, and a model of each."""
    registered = {cell for claimed in claims(registry) for cell in claimed.cells}
    names = {(d.domain, d.op_type) for d in registry}
    newest = {key[:2]: key for key in sorted(schemas())}
    for key in sorted(schemas()):
        wholly = key[:2] not in names  # one node of the operator says it all
        if wholly and newest[key[:2]] != key:
            continue
        for target in _targets(key, registered, one=wholly):
            types = ", ".join(f"{name} = {text}" for name, text in target.binding.items())
            yield f"{label(key)}{f' of {types}' if types and not wholly else ''}", target.model()
    for operator in sorted(names):
        known = structures().get(operator, ())
        example = _target(known[0].key, {}) if known and known[0].key in schemas() else None
        if example is not None:
            yield f"{DOMAIN}.{operator[1]}, a function of the model's own,", _renamed(example)


def _targets(key: Any, registered: Collection[Cell], one: bool) -> Iterator[Target]:
    """Nodes of one version with each type that is not registered; ``one``: with the first that there is."""
    types = parameters(schemas()[key])
    wanted = [{name: text} for name, texts in types.items() for text in sorted(texts)] or [{}]
    for binding in wanted:
        cell = Cell(key[0], key[1], key[2], *next(iter(binding.items()), ("", "")))
        target = None if cell in registered else _target(key, binding)
        if target is not None:
            yield target
            if one:
                return


def _target(key: Any, wanted: Mapping[str, str]) -> Target | None:
    schema = schemas()[key]
    claimed = Claimed(key, parameters(schema))
    made = (retarget(structure, claimed, wanted, schema) for structure in structures().get(key[:2], ())[:TRIED])
    return next((target for target in made if target is not None), None)


def _renamed(target: Target) -> onnx.ModelProto:
    """The node in a domain of its own, in which the operator's name means a function that gives its inputs back."""
    made = target.model()
    node = made.graph.node[0]
    read = [name for name in node.input if name]
    body = [helper.make_node("Identity", [read[0]] if read else [], [name]) for name in node.output if name]
    del node.attribute[:]
    node.domain = DOMAIN
    imports = [helper.make_opsetid("", 17)]
    inputs, outputs = ([name for name in names if name] for names in (node.input, node.output))
    node.input[:], node.output[:] = inputs, outputs
    made.functions.append(helper.make_function(DOMAIN, node.op_type, inputs, outputs, body, imports))
    made.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return made
