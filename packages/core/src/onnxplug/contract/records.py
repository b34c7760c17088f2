"""``dataclasses.dataclass`` for a runtime of many small classes: what it makes of a class is the same, but the methods are
closures, and ``__init__`` is compiled for classes of more than a few objects.

The standard decorator compiles six methods a class, some 0.3 ms; a session's hundred classes took longer than most models. What else it
does for a class, searching annotations written as text above all, still took a tenth of a small model's session.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from copy import copy
from dataclasses import MISSING, Field, FrozenInstanceError
from operator import attrgetter
from reprlib import recursive_repr
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

__all__ = ["record"]

FEW = 4
"""Objects of a class that are made without compiling its ``__init__``: most classes of a session have no more, and compiling takes as
long as making dozens."""

if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:

    def record(cls=None, /, *, frozen=False, slots=False, eq=True, repr=True):
        """As ``dataclass(cls, frozen=..., slots=..., eq=..., repr=...)``."""

        def made(cls):
            return _made(cls, frozen, slots, eq, repr)

        return made if cls is None else made(cls)


def _made(cls: type, frozen: bool, slots: bool, eq: bool, repr_: bool) -> type:
    own = {"__eq__", "__hash__"} & vars(cls).keys()
    bases: list[Any] = [base for base in cls.__mro__[1:] if "__dataclass_fields__" in vars(base)]
    inherited = any(base.__dataclass_params__.frozen for base in bases)
    fields = _fields(cls, bases)
    params = copy(_Template.__dataclass_params__)  # type: ignore[attr-defined]
    params.eq, params.frozen = eq, frozen or inherited
    made: Any = _slotted(cls, tuple(fields)) if slots else cls
    facts = {"__dataclass_fields__": fields, "__dataclass_params__": params}
    if "__match_args__" not in vars(made):
        facts["__match_args__"] = tuple(name for name, f in fields.items() if f.init)
    if "__replace__" in vars(_Template):  # Python 3.13
        facts["__replace__"] = vars(_Template)["__replace__"]
    for name, fact in facts.items():
        setattr(made, name, fact)
    methods: dict[str, Callable[..., Any]] = {"__init__": _first_init(made, fields)}
    if repr_:
        methods["__repr__"] = _repr([f.name for f in fields.values() if f.repr])
    if eq:
        methods |= _equality([f.name for f in fields.values() if f.compare], frozen, own)
    if frozen:
        methods |= _frozen(made, frozenset(fields), slots)
    for name, method in methods.items():
        if name not in vars(made) or (inherited and frozen and name in ("__setattr__", "__delattr__")):
            _enter(made, name, method)
    if eq and not frozen and "__hash__" not in own:
        made.__hash__ = None
    return made  # type: ignore[no-any-return]


@dataclasses.dataclass(init=False, repr=False, eq=False)
class _Template:
    """What the standard decorator enters in any class, as of this Python."""

    field: int


def _fields(cls: Any, bases: list[Any]) -> dict[str, Field[Any]]:
    """The fields of a class behind those it inherits; its own attributes become their defaults."""
    fields: dict[str, Field[Any]] = {}
    for base in reversed(bases):
        fields.update(base.__dataclass_fields__)
    kind = _Template.__dataclass_fields__["field"]._field_type  # type: ignore[attr-defined]
    for name, annotation in cls.__annotations__.items():
        if str(annotation).startswith(("ClassVar", "typing.ClassVar")):
            continue
        if str(annotation).startswith(("InitVar", "dataclasses.InitVar", "KW_ONLY", "dataclasses.KW_ONLY")):
            raise TypeError(f"a record has no {annotation} (class {cls.__name__}, {name})")
        default = getattr(cls, name, MISSING)
        if isinstance(default, MemberDescriptorType):  # a slot of a base
            default = MISSING
        made: Any = default if isinstance(default, Field) else dataclasses.field(default=default)
        if type(made.default) in (list, dict, set):
            raise ValueError(
                f"mutable default {type(made.default)} for field {name} is not allowed: use default_factory"
            )
        made.name, made.type, made._field_type, made.kw_only = name, annotation, kind, False
        fields[name] = made
        if isinstance(default, Field) and made.default is MISSING:
            delattr(cls, name)
        elif isinstance(default, Field):
            setattr(cls, name, made.default)
    return fields


def _slotted(cls: Any, names: tuple[str, ...]) -> Any:
    """The class once more, with a slot for each field that no base has one for."""
    taken: set[str] = set()
    for base in cls.__mro__[1:-1]:
        slots = vars(base).get("__slots__", ())
        taken.update([slots] if isinstance(slots, str) else slots)
    content = {key: value for key, value in vars(cls).items() if key not in (*names, "__dict__", "__weakref__")}
    content["__slots__"] = tuple(name for name in names if name not in taken)
    made = type(cls)(cls.__name__, cls.__bases__, content)
    made.__qualname__ = cls.__qualname__
    return made


def _enter(cls: type, name: str, method: Callable[..., Any]) -> None:
    method.__name__, method.__qualname__ = name, f"{cls.__qualname__}.{name}"
    setattr(cls, name, method)


def _first_init(cls: Any, fields: dict[str, Field[Any]]) -> Callable[..., None]:
    """The ``__init__`` of the first few objects. Then, or when it is called wrongly, it puts the real one in its place and calls it."""
    left = FEW

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal left
        left -= 1
        values = _given(fields, args, kwargs) if left >= 0 else None
        if values is None:
            real = _init(cls, fields)
            if vars(cls).get("__init__") is init:
                _enter(cls, "__init__", real)
            real(self, *args, **kwargs)
            return
        enter = object.__setattr__ if cls.__dataclass_params__.frozen else setattr
        for name, value in values.items():
            enter(self, name, value)
        if hasattr(cls, "__post_init__"):
            self.__post_init__()

    return init


def _given(fields: dict[str, Field[Any]], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """The fields' values for the arguments of ``__init__``; None where they do not fit."""
    parameters = [name for name, f in fields.items() if f.init]
    given = dict(zip(parameters, args, strict=False))
    if len(args) > len(parameters) or not kwargs.keys() <= set(parameters[len(args) :]):
        return None
    given |= kwargs
    values = {}
    for name, f in fields.items():
        if name in given:
            values[name] = given[name]
        elif f.default_factory is not MISSING:
            values[name] = f.default_factory()
        elif f.default is not MISSING:
            values[name] = f.default
        elif f.init:
            return None
    return values


def _init(cls: Any, fields: dict[str, Field[Any]]) -> Callable[..., None]:
    names: dict[str, Any] = {"_set": object.__setattr__, "_missing": MISSING}
    parameters, lines = ["self"], []
    for number, (name, f) in enumerate(fields.items()):
        value = name
        if f.default_factory is not MISSING:
            names[f"_d{number}"] = f.default_factory
            value = f"_d{number}() if {name} is _missing else {name}" if f.init else f"_d{number}()"
            parameters += [f"{name}=_missing"] if f.init else []
        elif f.default is not MISSING:
            names[f"_d{number}"] = f.default
            value = name if f.init else f"_d{number}"
            parameters += [f"{name}=_d{number}"] if f.init else []
        elif f.init:
            parameters.append(name)
        else:
            continue
        frozen = cls.__dataclass_params__.frozen
        lines.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(lines or ["pass"]), names)
    made: Callable[..., None] = names["__init__"]
    return made


def _repr(names: list[str]) -> Callable[..., str]:
    @recursive_repr()
    def text(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return text


def _equality(names: list[str], frozen: bool, own: set[str]) -> dict[str, Callable[..., Any]]:
    get = _values(names)

    def eq(self: Any, other: object) -> bool:
        return get(self) == get(other) if other.__class__ is self.__class__ else NotImplemented

    def hash_(self: Any) -> int:
        return hash(get(self))

    return {"__eq__": eq} | ({"__hash__": hash_} if frozen and "__hash__" not in own else {})


def _values(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """What gives the fields of an object as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


def _frozen(cls: Any, names: frozenset[str], slots: bool) -> dict[str, Callable[..., Any]]:
    def set_(self: Any, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def delete(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    def state(self: Any) -> list[Any]:
        return [getattr(self, name) for name in ordered]

    def restore(self: Any, values: list[Any]) -> None:
        for name, value in zip(ordered, values, strict=True):
            object.__setattr__(self, name, value)

    ordered = [f.name for f in dataclasses.fields(cls)]
    accessors: dict[str, Callable[..., Any]] = {"__setattr__": set_, "__delattr__": delete}
    return accessors | ({"__getstate__": state, "__setstate__": restore} if slots else {})
