"""Mutants that nobody wrote down: of every operator, a provider for each attribute, value of an attribute and operand that it ignores, each
axis of an operand along which it takes the first for all, and each axis of a result along which only the first is right.

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
from onnxplug_testkit.kernels.values import PARAMETERS
from onnxplug_testkit.models import CPU
from onnxplug_testkit.mutants import Broken, judge
from onnxplug_testkit.mutants.base import NAME
from onnxplug_testkit.subject import Subject

Attributes = dict[str, Any]
Operands = list[Any]

_ORDERLESS = frozenset({"Squeeze", "Unsqueeze", "CenterCropPad"})
_REPEATED = frozenset(
    {
        "kernel_shape", "hidden_size", "qkv_hidden_sizes", "beam_width", "embedding_size", "conv_window_size", "char_embedding_size",
    }
)  # fmt: skip
"""Attributes that repeat what weights say, where they are not required."""
_IDLE = frozenset(
    {
        "consumed_inputs",  # "legacy optimization attribute"
        "output_sequence",  # of RNN-1, GRU-1, LSTM-1: "The sequence output for the hidden is optional if 0"
        "softmax_precision",  # "The floating-point precision used in softmax computation": a greater one is as good
        "nodes_hitrates",  # "Popularity of each node, used for performance and may be omitted"
        "nodes_hitrates_as_tensor",  # the same
        "chunk_size",  # of LinearAttention: "Tuning hint; does not affect output correctness", of GatedDeltaNet: "Tuning hint"
        "accuracy_level",  # "The minimum accuracy level of input A": a greater one is as good
        "mask_index_type",  # "The mask index tensor type for shape inference"
        # No text says so of these: that results of onnxruntime's, the only oracle there is, do not depend on them was seen, not read.
        "multi_class",  # "Indicates whether to do OvR or multinomial"
        "round_activation",
        "is_packed_batching",  # "ragged batch inputs or not"
    }
)
"""Attributes that hint at memory, at how to compute or at how a model was made, repeat which outputs are asked for, or ask for a precision
that may be exceeded, each with what onnx's or onnxruntime's schema says of it."""
_TYPELESS = {"SequenceEmpty": "dtype"}
"""Attributes that give a type to nothing: a sequence without items."""
_SAME = frozenset({("auto_pad", "VALID")})
"""Words that mean what holds where the attribute is left out and nothing else is said."""
_OF_NO_ACCOUNT = frozenset(
    {
        ("QLinearSoftmax", "x_zero_point"),  # exp(s (x - z)) / sum(exp(s (x - z))): the factor exp(-s z) cancels out
        ("MatMulBnb4", "training_mode"),  # "Indicate if the ops run in training_mode"
        ("BiasDropout", "training_mode"),  # true has random results, which nobody judges
        ("BiasDropout", "ratio"),  # of training_mode: "If it is false, ratio is ignored"
        ("BiasDropout", "seed"),  # "Seed to the random generator", which draws nothing without training_mode
        ("SkipSimplifiedLayerNormalization", "mean"),  # "Saved mean used during training"
        # No text says so of these: that results of onnxruntime's on a processor do not depend on them was seen, not read.
        ("RotaryEmbedding", "scale"),  # "Custom scale will be used if specified"
        ("DecoderMaskedMultiHeadAttention", "output_qk"),  # "Need output the cross attention MatMul(Q, K)"
        ("CausalConvWithState", "state_update"),
    }
)
"""Operands, results and attributes of operators that change no result which is judged, each with what its schema says of it."""
_INEXACT = frozenset(
    {
        "Pow", "ReduceL2", "ReduceMean",  # onnxruntime computes them of doubles, whatever the type
        "GridSample", "Resize", "Upsample", "Shrink", "Binarizer", "Imputer",  # weights, bias, threshold and what is imputed are floats
        "LinearClassifier", "SVMClassifier", "TreeEnsembleClassifier",  # so are coefficients and thresholds
        "QGemm", "QLinearConv", "QuantizeLinear",  # results of eight bits, by way of a float scale
        "GroupQueryAttention", "NGramHashMapping", "RemovePadding", "VarlenNGramHashMapping",  # lengths, and numbers of words
    }
)  # fmt: skip
"""Operators that may make floats of integers, or whose integers are small."""
_BLIND = frozenset({"EyeLike", "NonZero", "OptionalHasElement", "Shape", "Size", "ConstantOfShape"})
"""Operators whose results large numbers do not change."""
_RESULTS = 9
"""More than any operator has, but for those with any number, of which so many are looked at."""
_RANDOM = frozenset(
    {"Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)


@dataclass(frozen=True)
class Alteration:
    """``text``: what is ignored. ``attributes``, ``operands`` and ``results`` change a node's attributes, what a kernel is called with and
    what it gives."""

    text: str
    attributes: Callable[[Attributes], Attributes] = dict
    operands: Callable[[Operands], Operands] = list
    results: Callable[[Any], Any] = lambda results: results


def alterations(operator: str) -> list[Alteration]:
    """The alterations of an operator that its structures leave a difference to."""
    domain, op_type = _key(operator)
    known = structures().get((domain, op_type), ())
    schema = _schemas()[domain, op_type]
    given: dict[str, list[Any]] = {}
    for structure in known:
        for name, proto in structure.attributes.items():
            given.setdefault(name, []).append(helper.get_attribute_value(proto))
    found = [
        a
        for name, values in given.items()
        if not _changes_nothing(op_type, name, schema)
        for a in _of_attribute(domain, op_type, name, values)
    ]
    for i, formal in enumerate(schema.inputs):
        values = [s.inputs[i] for s in known if i < len(s.inputs) and s.inputs[i] is not None]
        optional = formal.option == defs.OpSchema.FormalParameterOption.Optional
        if values and optional and formal.name not in _REPEATED and (op_type, formal.name) not in _OF_NO_ACCOUNT:
            found.append(Alteration(f"{formal.name} is left out", operands=functools.partial(_without, i)))
        if any(isinstance(v, np.ndarray) and v.dtype == np.int64 and v.size and v.min() < 0 for v in values):
            found.append(Alteration(f"the sign of {formal.name} is ignored", operands=functools.partial(_absolute, i)))
        ranks = [v.ndim for v in values if isinstance(v, np.ndarray)]
        for axis in range(max(ranks, default=0)) if formal.name not in PARAMETERS and domain else ():
            if any(v.shape[axis] > 1 for v in values if isinstance(v, np.ndarray) and v.ndim > axis):
                text = f"{formal.name} is the same along axis {axis}"
                found.append(Alteration(text, operands=functools.partial(_first_for_all, i, axis)))
    found += _of_widths(op_type, schema)
    for i, formal in enumerate(schema.outputs[:_RESULTS]) if domain else ():
        if (op_type, formal.name) in _OF_NO_ACCOUNT:
            continue
        found.append(Alteration(f"{formal.name} is wrong", results=functools.partial(_spoilt, i, None)))
        for axis in sorted(_long_axes(operator)[i]):
            text = f"{formal.name} is wrong behind the first along axis {axis}"
            found.append(Alteration(text, results=functools.partial(_spoilt, i, axis)))
    return found


def _of_widths(op_type: str, schema: Any) -> Iterator[Alteration]:
    """Integers that are floats of as many bits for a while, which do not tell the large ones apart."""
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    results = {text for formal in schema.outputs for text in allowed.get(formal.type_str, [formal.type_str])}
    if op_type in _INEXACT or op_type in _BLIND or not any("int" in text or "bool" in text for text in results):
        return
    data = {formal.type_str for formal in schema.inputs if formal.name not in PARAMETERS}
    for bits, kind in ((64, np.float64), (32, np.float32)):
        if any(f"tensor(int{bits})" in allowed.get(name, ()) for name in data):
            change = functools.partial(_as_floats, kind, bits // 8)
            yield Alteration(
                f"integers of {bits} bits are floats for a while",
                operands=lambda operands, change=change: [change(x) for x in operands],  # type: ignore[misc]
                results=lambda given, change=change: (
                    tuple(map(change, given)) if isinstance(given, tuple) else change(given)
                ),  # type: ignore[misc]
            )


def _changes_nothing(op_type: str, name: str, schema: Any) -> bool:
    repeated = name in _REPEATED and name in schema.attributes and not schema.attributes[name].required
    return repeated or name in _IDLE or _TYPELESS.get(op_type) == name or (op_type, name) in _OF_NO_ACCOUNT


def survivors(operator: str, seed: int = 1) -> tuple[int, list[str]]:
    """How many mutants of an operator there are, and what those ignore that pass every trial of its kernels."""
    key = _key(operator)
    if key[1] in _RANDOM:
        return 0, []
    tried = alterations(operator)
    return len(tried), [a.text for a in tried if _survives(key, a, seed)]


def operators() -> list[str]:
    """The operators that the kit has structures of and that have a schema, which those that were experiments have no more: ``Add``, and
    with their domain those that are not of ai.onnx."""
    return sorted(".".join(filter(None, key)) for key in structures() if key in _schemas())


def _key(operator: str) -> tuple[str, str]:
    domain, _, name = operator.rpartition(".")
    return domain, name


@functools.cache
def _schemas() -> Mapping[tuple[str, str], Any]:
    """The newest schema of each operator that onnx or the CPU provider knows and that the latter has kernels of, or that is of ai.onnx."""
    with _cpu().instance() as instance:
        own = instance.call("get_op_schemas") or ()
        claimed = {(d.domain, d.op_type) for d in instance.call("get_kernel_registry") or ()}
    known = sorted(
        ((s.domain, s.name, s.since_version, s) for s in (*defs.get_all_schemas(), *own)), key=lambda k: k[:3]
    )
    return {key[:2]: key[3] for key in known if (key[:2] in claimed if key[0] else defs.has(key[1]))}


def _cpu() -> Subject:
    cpu = registry.record(CPU, load=True)
    if cpu is None or not cpu.usable:
        raise ValueError(f"systematic mutants are made of {CPU}'s kernels: install onnxplug-ep-cpu")
    return Subject(registry.spec(CPU))


@functools.cache
def _long_axes(operator: str) -> Sequence[set[int]]:
    """The axes along which each result has several elements in some trial of an operator."""
    found: list[set[int]] = [set() for _ in range(_RESULTS)]

    def create(definition: KernelDef, node: NodeView) -> Callable[..., Any]:
        kernel: Any = definition.create(node)

        def call(*inputs: Any) -> Any:
            results = kernel(*inputs)
            for i, result in enumerate(results[:_RESULTS] if isinstance(results, tuple) else (results,)):
                found[i].update(axis for axis, side in enumerate(getattr(result, "shape", ())) if side > 1)
            return results

        return call

    watched = _of_one_operator(_key(operator), create)
    watched.announce()
    judge(watched, "kernels", (_key(operator)[1],))
    return found


class _Changed:
    """A node with other attributes."""

    def __init__(self, node: NodeView, attributes: Mapping[str, Any]) -> None:
        self._node, self.attributes = node, attributes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)


def _survives(key: tuple[str, str], alteration: Alteration, seed: int) -> bool:
    def create(definition: KernelDef, node: NodeView) -> Callable[..., Any]:
        changed: Any = _Changed(node, alteration.attributes(dict(node.attributes)))
        kernel: Any = definition.create(changed)
        return lambda *inputs: alteration.results(kernel(*alteration.operands(list(inputs))))

    mutant = _of_one_operator(key, create)
    mutant.announce()
    try:
        return judge(mutant, "kernels", (key[1],), seed) is None
    except Broken:  # a kernel that stumbles over what is missing is no worse seen than one that ignores it
        return False


def _of_one_operator(key: tuple[str, str], create: Callable[[KernelDef, NodeView], Any]) -> Subject:
    """A provider of one operator: the CPU provider's kernels of it, made by ``create``. The reference has not all that there are to try."""
    with _cpu().instance() as instance:
        known = [d for d in instance.call("get_kernel_registry") or () if (d.domain, d.op_type) == key]

    class Mutated(ExecutionProvider):
        def get_kernel_registry(self) -> KernelRegistry:
            return KernelRegistry(
                dataclasses.replace(d, create=functools.partial(create, d), alias={}, inplace={}) for d in known
            )

    return Subject(ProviderSpec(NAME, CONTRACT_VERSION, lambda options, context: Mutated(), vendor="mutants"), {})


def _of_attribute(domain: str, op_type: str, name: str, values: Sequence[Any]) -> Iterator[Alteration]:
    usual = _defaults(domain, op_type, name)
    if any(value not in usual for value in values):
        yield Alteration(f"{name} is left out", functools.partial(_less, name, None))
    words = {value.decode() for value in values if isinstance(value, bytes) and value and value not in usual}
    for word in sorted(words - {word for given, word in _SAME if given == name}) if len(words) > 1 else ():
        yield Alteration(f"{name}={word} is left out", functools.partial(_less, name, word))
    if any(isinstance(value, int) and value < 0 for value in values):
        yield Alteration(f"the sign of {name} is ignored", lambda a: {**a, name: abs(a[name])} if name in a else a)
    if any(isinstance(value, list) and value and isinstance(value[0], int) and len(set(value)) > 1 for value in values):
        yield Alteration(f"the first of {name} counts for all", lambda a: _changed(a, name, lambda v: [v[0]] * len(v)))
        if op_type not in _ORDERLESS and not op_type.startswith("Reduce"):
            yield Alteration(f"{name} is read backwards", lambda a: _changed(a, name, lambda v: v[::-1]))


@functools.cache
def _defaults(domain: str, op_type: str, name: str) -> Sequence[Any]:
    """An attribute's defaults in the operator's versions: what it says by default has had several names."""
    schemas = [s for s in defs.get_all_schemas_with_history() if (s.domain, s.name) == (domain, op_type)]
    schemas = schemas or [_schemas()[domain, op_type]]
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


def _first_for_all(i: int, axis: int, operands: Operands) -> Operands:
    """With an operand whose elements along an axis are those of its first."""
    return [
        _constant(x, axis) if j == i and isinstance(x, np.ndarray) and x.ndim > axis else x
        for j, x in enumerate(operands)
    ]


def _constant(x: np.ndarray, axis: int) -> np.ndarray:
    return np.ascontiguousarray(np.broadcast_to(x.take(range(min(1, x.shape[axis])), axis), x.shape))


def _as_floats(kind: Any, nbytes: int, x: Any) -> Any:
    if not isinstance(x, np.ndarray) or x.dtype.kind not in "iu" or x.dtype.itemsize != nbytes:
        return x
    with np.errstate(invalid="ignore"):
        return x.astype(kind).astype(x.dtype)


def _spoilt(i: int, axis: int | None, results: Any) -> Any:
    """With a result that is wrong, everywhere or behind the first along an axis."""
    several = list(results) if isinstance(results, tuple) else [results]
    if i < len(several) and isinstance(several[i], np.ndarray) and (axis is None or several[i].ndim > axis):
        changed = several[i].copy()
        part = changed[(slice(None),) * axis + (slice(1, None),)] if axis is not None else changed[...]
        part[...] = _otherwise(part)
        several[i] = changed
    return tuple(several) if isinstance(results, tuple) else several[0]


def _otherwise(x: np.ndarray) -> Any:
    """Values of the type that are not those."""
    if x.dtype.hasobject:
        return "spoilt"
    return ~x if x.dtype == bool else (x * 0 + 1 if not x.any() else x * 0)
