"""Makes a failing model small: outputs, nodes and what leads up to them are left out as long as it fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from onnx import ModelProto, helper
from operators.model import type_proto

from fuzz.contend import CONTENDERS, Feeds
from fuzz.program import captured, typed

Fails = Callable[[ModelProto, Sequence[Feeds]], bool]


def shrink(model: ModelProto, runs: Sequence[Feeds], fails: Fails) -> tuple[ModelProto, Sequence[Feeds]]:
    """A small model that fails as ``fails`` says, with what to feed it."""
    for number in range(len(runs)):
        if len(runs) > 1 and fails(model, runs[number : number + 1]):
            runs = runs[number : number + 1]
            break
    for output in list(model.graph.output):
        small = pruned(model, [output.name])
        kept = _kept(small, runs)
        if len(model.graph.output) > 1 and fails(small, kept):
            model, runs = small, kept
            break
    changed = True
    while changed:
        changed = False
        for node in list(model.graph.node):
            found = _without(model, runs, list(node.output))
            if found is not None and fails(*found):
                model, runs = found
                changed = True
                break
    return model, runs


def pruned(model: ModelProto, outputs: Sequence[str]) -> ModelProto:
    """The model with these outputs, and only the nodes, inputs and initializers they need."""
    small = ModelProto()
    small.CopyFrom(model)
    wanted, kept = set(outputs), []
    for node in reversed(model.graph.node):
        if wanted & set(node.output):
            wanted |= set(captured([node]))
            kept.append(node)
    for field, found in (
        (small.graph.node, kept[::-1]),
        (small.graph.output, [o for o in model.graph.output if o.name in outputs]),
        (small.graph.input, [i for i in model.graph.input if i.name in wanted]),
        (small.graph.initializer, [i for i in model.graph.initializer if i.name in wanted]),
    ):
        del field[:]
        field.extend(found)
    return small


def _kept(model: ModelProto, runs: Sequence[Feeds]) -> list[dict[str, Any]]:
    names = {i.name for i in model.graph.input}
    return [{n: v for n, v in feeds.items() if n in names} for feeds in runs]


def _without(
    model: ModelProto, runs: Sequence[Feeds], made: list[str]
) -> tuple[ModelProto, list[dict[str, Any]]] | None:
    """The model with what one node makes as inputs."""
    outputs = {o.name for o in model.graph.output}
    names = [name for name in made if name and name not in outputs]
    if len(names) < len([name for name in made if name]) or not names:
        return None
    asked = ModelProto()
    asked.CopyFrom(model)
    del asked.graph.output[:]
    asked.graph.output.extend(helper.make_value_info(name, type_proto("tensor(float)")) for name in names)
    for output in asked.graph.output:
        output.ClearField("type")
    answer = CONTENDERS["numpy"](pruned_like(asked), [dict(f) for f in _kept(pruned(asked, names), runs)])
    if not answer.outputs:
        return None
    small = ModelProto()
    small.CopyFrom(model)
    for name, value in zip(names, answer.outputs[0], strict=True):
        if value is None or (isinstance(value, list) and not value):
            return None
        shape = None if isinstance(value, list) else [None] * value.ndim if len(runs) > 1 else value.shape
        small.graph.input.append(helper.make_value_info(name, type_proto(typed(value), shape)))
    nodes = [n for n in small.graph.node if not set(names) & set(n.output)]
    del small.graph.node[:]
    small.graph.node.extend(nodes)
    small = pruned(small, [o.name for o in small.graph.output])
    more = [{**f, **dict(zip(names, values, strict=True))} for f, values in zip(runs, answer.outputs, strict=True)]
    return small, _kept(small, more)


def pruned_like(model: ModelProto) -> bytes:
    """The bytes of a model that has only what its outputs need."""
    return pruned(model, [o.name for o in model.graph.output]).SerializeToString()
