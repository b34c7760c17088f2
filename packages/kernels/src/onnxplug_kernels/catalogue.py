"""The list of operators this package implements: which function computes which operator, in which versions, on which types.

A provider turns entries into its own kernel registrations; nothing here knows a provider or a device. An entry's function has
one fixed form::

    function(xp, *inputs, **attributes) -> array | tuple of arrays

``xp`` is an array namespace with NumPy's names: the Python Array API standard (https://data-apis.org/array-api/), or NumPy itself for
entries that are not ``portable``. Inputs are positional in the order of the operator's schema; an omitted optional input is ``None``
(trailing ones may be missing). Attributes are keyword-only, named and defaulted as in the schema; strings are ``str``, tensors
NumPy arrays, lists Python lists. A function never writes to its inputs. It returns one array, or a tuple in output order (trailing
optional outputs may be left out when they were not asked for). Functions that must know what was asked for declare the keyword
``n_outputs`` and are given the number of outputs of the node.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from onnxplug_kernels.index import FAMILIES

Function = TypeVar("Function", bound=Callable[..., Any])

FLOATS = ("float16", "bfloat16", "float", "double")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = SIGNED + UNSIGNED
NUMBERS = FLOATS + INTEGERS


class OpKernel(NamedTuple):
    """One function for one operator over a range of schema versions.

    ``since`` and ``until`` are schema versions, both included. ``types`` maps a type-constraint name of the schema ("T") to the element
    types taken ("float", "int64", ...); a constraint that is not named takes whatever the schema allows. ``host_inputs`` are the
    indices of inputs that must be NumPy arrays in host memory whatever ``xp`` is (shapes, axes, counts). ``portable`` says that the
    function keeps to the Array API standard; otherwise it needs NumPy itself (strings, sequences, scatter by index array).
    """

    domain: str
    op_type: str
    since: int
    until: int
    function: Callable[..., Any]
    types: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    host_inputs: tuple[int, ...] = ()
    portable: bool = True
    prepare: Callable[..., Callable[..., Any]] | None = None
    """``prepare(xp, **attributes)`` makes tables of the attributes once, and returns what each run calls with the inputs."""


_entries: list[OpKernel] = []


def op(
    op_type: str,
    since: int,
    until: int | None = None,
    *,
    domain: str = "",
    host_inputs: Iterable[int] = (),
    portable: bool = True,
    prepare: Callable[..., Callable[..., Any]] | None = None,
    **types: tuple[str, ...],
) -> Callable[[Function], Function]:
    """Enter the decorated function as the implementation of ``op_type`` for schema versions ``since``..``until`` (default: ``since``)."""

    def enter(function: Function) -> Function:
        last, hosted = until or since, tuple(host_inputs)
        _entries.append(OpKernel(domain, op_type, since, last, function, types, hosted, portable, prepare))
        return function

    return enter


def catalogue() -> tuple[OpKernel, ...]:
    """Every entry of every module of this package, modules imported on first use."""
    import pkgutil

    from onnxplug_kernels import ops

    for module in pkgutil.iter_modules(ops.__path__):
        importlib.import_module(f"{ops.__name__}.{module.name}")
    return tuple(_entries)


def entries(op_type: str) -> tuple[OpKernel, ...]:
    """The entries of one operator, of whatever domain; only its modules are imported."""
    for module in _modules().get(op_type, ()):
        importlib.import_module(f"{__package__}.ops.{module}")
    return tuple(entry for entry in _entries if entry.op_type == op_type)


def find(domain: str, op_type: str, version: int) -> OpKernel | None:
    """The entry for one schema version, or None."""
    found = (e for e in entries(op_type) if e.domain == domain and e.since <= version <= e.until)
    return next(found, None)


@functools.cache
def _modules() -> Mapping[str, list[str]]:
    """Operator -> the modules that have entries of it."""
    found: dict[str, list[str]] = {}
    for module, operators in FAMILIES.items():
        for operator in operators:
            found.setdefault(operator, []).append(module)
    return found
