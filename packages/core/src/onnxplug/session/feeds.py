"""Feeds of a run: checked and converted once per run against checks prepared once per session.

The way of ordinary feeds (a C-contiguous array of the declared type for every required input) is a short loop over
tuples. Anything else takes ``_thorough``, which converts what can be converted and reports in onnxruntime's order and
words: missing feeds, then conversion by ascending name, then name, type and shape by descending name.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxplug.contract.errors import Fail, InvalidArgument
from onnxplug.contract.records import record
from onnxplug.contract.types import MapType, OptionalType, SequenceType, TensorType, ValueType

if TYPE_CHECKING:
    from onnxplug.session.conversion import Typed
    from onnxplug.session.ortvalue import OrtValue

_READY = 0x101
"""``ndarray.flags.num``: C-contiguous and aligned."""
_OBJECT = np.dtype(object)
_TEXT: set[type] = {str}


@record(frozen=True, slots=True)
class InputSpec:
    """A declared input. ``required`` is False for overridable initializers; optional types are never required. ``read``: a node
    reads it, so that None will not do for it.
    """

    name: str
    type: ValueType
    required: bool = True
    read: bool = True


class Feeds:
    """The declared inputs of a session. Calling it with a feed dictionary gives their values in declared order: a NumPy
    array (a string tensor has dtype object and ``str`` elements), DeviceArray, SparseTensor, list, dict, or None for
    what was left out. Values made for one session are those whose scope is ``scope``.
    """

    def __init__(self, inputs: Sequence[InputSpec], scope: Any = None) -> None:
        self._scope = scope
        self._specs = {spec.name: spec for spec in inputs}
        self._required = tuple(s.name for s in inputs if s.required and not isinstance(s.type, OptionalType))
        self._read = {spec.name for spec in inputs if spec.read}.intersection(self._required)
        self._quick = _tensor_checks(inputs)
        self._others = _other_checks(inputs)
        checked = {name for _, name, *_ in (*self._quick, *self._others)}
        self._count = len(checked) if checked.issuperset(self._required) else -1
        self._absent: list[Any] = [None] * len(inputs)

    def __call__(self, feed: Mapping[str, Any]) -> list[Any]:
        """Values in declared order. ValueError, InvalidArgument, RuntimeError, TypeError or AttributeError as
        onnxruntime has them.
        """
        values = self._absent.copy()
        try:
            if len(feed) != self._count:
                return self._thorough(feed)
            for index, name, dtype, rank, shape, fixed in self._quick:
                value = feed[name]
                if type(value) is not np.ndarray:
                    value = self._held(value)
                if value is None or value.flags.num & _READY != _READY:
                    return self._thorough(feed)
                if dtype is _OBJECT:
                    value = _texts(value)
                    if value is None:
                        return self._thorough(feed)
                elif value.dtype is not dtype:
                    if value.dtype != dtype:
                        return self._thorough(feed)
                    # equal ones are two where an array was unpickled, or a result is of ``long long``
                    value = value.view(dtype)
                if shape is not None:
                    if value.shape != shape:
                        return self._thorough(feed)
                elif rank is not None:
                    if value.ndim != rank:
                        return self._thorough(feed)
                    for axis, size in fixed:
                        if value.shape[axis] != size:
                            return self._thorough(feed)
                values[index] = value
            for index, name, ready in self._others:
                made = ready(feed[name])
                if made is None:
                    return self._thorough(feed)
                values[index] = made
        except (KeyError, TypeError, IndexError):  # the last of an array, which is no dictionary
            return self._thorough(feed)
        return values

    def require(self, feed: Mapping[str, Any]) -> list[str]:
        """The names fed; ValueError where required ones are not among them."""
        given = list(feed.keys())
        missing = [name for name in self._required if name not in given]
        if missing:
            raise ValueError(f"Required inputs ({missing}) are missing from input feed ({given}).")
        return given

    def _held(self, value: Any) -> np.ndarray | None:
        """The array in an OrtValue that may be used here; None for anything else."""
        if type(value) is not _ortvalue() or (value._scope is not None and value._scope is not self._scope):
            return None
        return value._payload if type(value._payload) is np.ndarray else None

    def _thorough(self, feed: Mapping[str, Any]) -> list[Any]:
        from onnxplug.session.comparison import check
        from onnxplug.session.conversion import convert
        from onnxplug.session.ortvalue import OrtValue

        given = self.require(feed)
        if not all(isinstance(name, str) for name in given):
            raise TypeError(f"run(): incompatible function arguments: names of inputs must be str, got {given}")
        converted: dict[str, Typed] = {}
        for name in sorted(given):
            spec, value = self._specs.get(name), feed[name]
            if isinstance(value, OrtValue) and value._scope is not None and value._scope is not self._scope:
                raise ValueError("Session-scoped OrtValue must be used with the session that created it.")
            if value is not None:
                converted[name] = convert(name, spec.type if spec else None, value)
        for name in sorted(converted, reverse=True):
            if name not in self._specs:
                raise InvalidArgument(f"Invalid input name: {name}")
            check(self._specs[name], converted[name])
        return [self._value(name, converted) for name in self._specs]

    def _value(self, name: str, converted: Mapping[str, Typed]) -> Any:
        if name in converted and converted[name].value is not None:
            return converted[name].value
        if name in self._read:
            raise Fail(f"Missing Input: {name}")
        return None


@functools.cache
def _ortvalue() -> type[OrtValue]:
    """The class, imported when something other than an array is fed: an import statement takes as long each time as to check a feed."""
    from onnxplug.session.ortvalue import OrtValue

    return OrtValue


def _tensor_checks(inputs: Sequence[InputSpec]) -> tuple[Any, ...]:
    """(index, name, dtype, rank or None, whole shape or None, ((axis, size), ...)) for each tensor, or optional one, that a run
    is commonly given."""
    checks = []
    for index, spec in enumerate(inputs):
        type_ = spec.type.element if isinstance(spec.type, OptionalType) else spec.type
        if not spec.required or not isinstance(type_, TensorType):
            continue
        dims = type_.shape or None  # a declared scalar takes any rank
        fixed = tuple((axis, dim) for axis, dim in enumerate(dims or ()) if isinstance(dim, int))
        whole = type_.static_shape if dims else None
        checks.append((index, spec.name, type_.dtype, len(dims) if dims else None, whole, fixed))
    return tuple(checks)


def _other_checks(inputs: Sequence[InputSpec]) -> tuple[Any, ...]:
    """(index, name, check) for each map and sequence of tensors that needs no conversion as a rule; the check gives a copy of what
    was fed, or None."""
    checks: list[Any] = []
    for index, spec in enumerate(inputs):
        type_ = spec.type
        element = type_.value if isinstance(type_, MapType) else getattr(type_, "element", None)
        if not spec.required or not isinstance(element, TensorType):
            continue
        if isinstance(type_, MapType) and element.element in _PLAIN:
            checks.append((index, spec.name, partial(_ready_map, _PLAIN[type_.key], _PLAIN[element.element])))
        elif isinstance(type_, SequenceType):
            ready = _ready_texts if element.element == "string" else partial(_ready_sequence, element.dtype)
            checks.append((index, spec.name, ready))
    return tuple(checks)


_PLAIN: dict[str, set[type]] = {"string": _TEXT, "int64": {int}, "float": {float}}
"""Element -> the class of a map's keys or values that are it already."""


def _ready_map(keys: set[type], items: set[type], value: Any) -> dict[Any, Any] | None:
    if value.__class__ is not dict or not value:
        return None
    return value.copy() if keys.issuperset(map(type, value)) and items.issuperset(map(type, value.values())) else None


def _ready_sequence(dtype: np.dtype, value: Any) -> list[Any] | None:
    if value.__class__ is not list:
        return None
    for item in value:
        if type(item) is not np.ndarray or item.flags.num & _READY != _READY or item.dtype != dtype:
            return None
    return [item if item.dtype is dtype else item.view(dtype) for item in value]


def _ready_texts(value: Any) -> list[Any] | None:
    if value.__class__ is not list:
        return None
    made = []
    for item in value:
        made.append(_texts(item) if type(item) is np.ndarray and item.flags.num & _READY == _READY else None)
        if made[-1] is None:
            return None
    return made


def _texts(array: np.ndarray) -> np.ndarray | None:
    """A C-contiguous array as one of ``str`` objects; None where NumPy does not say so and an element is anything else, a
    subclass included."""
    dtype = array.dtype
    if dtype.char == "U":
        return array.astype(_OBJECT)
    if dtype is not _OBJECT:
        if dtype != _OBJECT:
            return None
        array = array.view(_OBJECT)
    return array if _TEXT.issuperset(map(type, array.tolist() if array.ndim == 1 else array.ravel().tolist())) else None


def check_outputs(names: Sequence[Any], declared: Sequence[str]) -> None:
    """InvalidArgument for a name that is not a graph output, as onnxruntime words it where it is not ``run`` that is asked."""
    if "" in names:
        raise InvalidArgument("output name cannot be empty")
    for name in names:
        if isinstance(name, str) and name not in declared:
            raise InvalidArgument(f"Invalid output name: {name}")


def resolve_outputs(output_names: Any, declared: Sequence[str]) -> Sequence[str]:
    """The outputs a run is asked for: all declared for None and anything empty, else the names in the order given,
    repeats included.

    TypeError for a string or what is not a sequence of strings, InvalidArgument for a name that is not a graph output.
    """
    if not output_names:
        return declared
    if isinstance(output_names, str | bytes | Mapping) or not hasattr(output_names, "__iter__"):
        raise TypeError(
            f"run(): incompatible function arguments: expected a sequence of output names, got {output_names!r}"
        )
    names = []
    for name in output_names:
        if isinstance(name, bytes):
            name = name.decode()
        if not isinstance(name, str):
            raise TypeError(f"run(): incompatible function arguments: expected output names, got {output_names!r}")
        names.append(name)
    for name in names:
        if name not in declared:
            raise InvalidArgument(f"Invalid output name:{name}")
    return names
