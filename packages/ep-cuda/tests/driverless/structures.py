"""Nodes of the operators that ONNX does not define, com.microsoft's above all: the conformance kit's structures, in each type."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx

from onnxplug_ep_cpu.schemas import op_schemas
from onnxplug_ep_cuda.codegen.table import ON_DEVICE
from onnxplug_ep_cuda.refusals import DEVICE_TYPES
from onnxplug_ep_cuda.registry import claimable
from onnxplug_kernels.catalogue import find
from onnxplug_testkit.kernels.cells import Claimed, parameters, schemas
from onnxplug_testkit.kernels.retarget import Target, retarget
from onnxplug_testkit.kernels.structures import structures
from onnxplug_testkit.kernels.values import fresh


@functools.cache
def examples() -> Mapping[str, Target]:
    """The kit's structures of every such operator that is claimed, in their own types, and one of them in each further type."""
    return {f"{op_type} {target.structure.name} {_spelt(target)}": target for op_type, target in _targets()}


def feeds(target: Target, seed: int = 0) -> dict[str, Any]:
    """Inputs of its model."""
    rng, op_type = np.random.default_rng(seed), target.key[1]
    return {
        f"x{number}": fresh(rng, op_type, operand.formal, operand.like, operand.type)
        for number, operand in enumerate(target.inputs)
        if operand.like is not None
    }


def recordable(target: Target) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Its model and inputs, those constant that kernels want on the host."""
    entry, given = find(*target.key), feeds(target)
    hosted = set(entry.host_inputs) - ON_DEVICE.get(target.key[:2], frozenset()) if entry is not None else ()
    constants = {n: x for n in hosted if isinstance(x := given.get(f"x{n}"), np.ndarray)}
    return target.model(constants), {name: x for name, x in given.items() if int(name[1:]) not in constants}


def _targets() -> Iterator[tuple[str, Target]]:
    lent = {(s.domain, s.name, s.since_version): s for s in op_schemas()}
    for entry, since, _, types in claimable():
        key = entry.domain, entry.op_type, since
        schema = None if key in schemas() else lent.get(key)
        if schema is None:
            continue
        held = {n: texts & types.get(n, texts) & DEVICE_TYPES for n, texts in parameters(schema).items()}
        claimed = Claimed(key, held)
        known = structures().get(key[:2], ())
        found = [made for each in known if (made := retarget(each, claimed, {}, schema)) is not None]
        proven = {cell for made in found for cell in made.cells}
        for cell in claimed.cells:
            wanted = {cell.parameter: cell.type}
            if cell not in proven and cell.parameter:
                made = next((m for each in known if (m := retarget(each, claimed, wanted, schema)) is not None), None)
                found += [] if made is None else [made]
        yield from ((entry.op_type, made) for made in found if not _widened(made))


def _widened(target: Target) -> bool:
    """Whether results are wider than some operands, which they are no more exact than."""
    types = set(target.binding.values())
    return "tensor(double)" in types and bool(types & {"tensor(float)", "tensor(float16)", "tensor(bfloat16)"})


def _spelt(target: Target) -> str:
    return " ".join(text.removeprefix("tensor") for text in target.binding.values())
