"""``dataclasses.dataclass`` for a runtime of many small classes: a class behaves the same, but what the standard decorator makes of it is
made when somebody asks.

That decorator compiles six methods a class, some 0.3 ms, and looks at each field several times; for the hundred classes of a session it
would take longer than most models. A record's methods are closures; its ``__init__`` is compiled when a dozen objects of the class have
been made, which few classes of a session see. What ``dataclasses.fields``, ``replace`` and a dataclass derived from a record ask for is
had from a class with the same fields that the standard decorator makes then. Nothing here depends on how that one works inside.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, FrozenInstanceError
from operator import attrgetter
from reprlib import recursive_repr
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

__all__ = ["record"]

FEW = 12
"""Objects of a class that are made without compiling its ``__init__``, which takes as long as to make dozens."""

Fields = Mapping[str, tuple[Any, Any]]
"""Name -> annotation; and default, ``dataclasses.field(...)`` or ``MISSING``."""

if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:

    def record(cls=None, /, *, frozen=False, slots=False, eq=True, repr=True):
        """As ``dataclass(cls, frozen=..., slots=..., eq=..., repr=...)``."""

        def made(cls):
            return _made(cls, frozen, slots, eq, repr)

        return made if cls is None else made(cls)


def _made(cls: type, frozen: bool, slots: bool, eq: bool, repr_: bool) -> type:
    own = frozenset(vars(cls))
    hashed = "__hash__" in own and not (cls.__hash__ is None and "__eq__" in own)  # Python enters None beside __eq__
    fields = _fields(cls)
    made: Any = _slotted(cls, fields) if slots else cls
    made.__record_fields__ = fields
    made.__dataclass_fields__ = _Later("__dataclass_fields__", {})
    made.__dataclass_params__ = _Later("__dataclass_params__", {"frozen": frozen, "eq": eq})
    methods: dict[str, Any] = {
        "__match_args__": _names(fields, "init"),
        "__init__": _first_init(made, fields, frozen),
        "__replace__": _replace,
    }
    if repr_:
        methods["__repr__"] = _repr(_names(fields, "repr"))
    if eq:
        methods |= _equality(_names(fields, "compare"))
    if frozen:
        methods |= _frozen(made, tuple(fields), slots)
    for name, method in methods.items():
        if not (hashed if name == "__hash__" else name in own):
            setattr(made, name, method)
    if eq and not frozen and not hashed:
        made.__hash__ = None
    return made  # type: ignore[no-any-return]


def _names(fields: Fields, use: str) -> tuple[str, ...]:
    """The fields that are part of ``init``, ``repr`` or ``compare``."""
    return tuple(name for name, (_, f) in fields.items() if not isinstance(f, Field) or getattr(f, use))


def _fields(cls: Any) -> Fields:
    """The fields of a class behind those it inherits; its own attributes become their defaults."""
    fields: dict[str, tuple[Any, Any]] = {}
    for base in reversed(cls.__mro__[1:]):
        fields.update(vars(base).get("__record_fields__", ()))
    for name, annotation in cls.__annotations__.items():
        if str(annotation).startswith(("ClassVar", "typing.ClassVar")):
            continue
        if str(annotation).startswith(("InitVar", "dataclasses.InitVar", "KW_ONLY", "dataclasses.KW_ONLY")):
            raise TypeError(f"a record has no {annotation} (class {cls.__name__}, {name})")
        default = getattr(cls, name, MISSING)
        if isinstance(default, MemberDescriptorType):  # a slot of a base
            default = MISSING
        fields[name] = annotation, default
        if not isinstance(default, Field):
            if type(default) in (list, dict, set):
                raise ValueError(
                    f"mutable default {type(default)} for field {name} is not allowed: use default_factory"
                )
        elif default.default is MISSING:
            delattr(cls, name)
        else:
            setattr(cls, name, default.default)
    return fields


def _slotted(cls: Any, fields: Fields) -> Any:
    """The class once more, with a slot for each field that no base has one for."""
    taken: set[str] = set()
    for base in cls.__mro__[1:-1]:
        slots = vars(base).get("__slots__", ())
        taken.update([slots] if isinstance(slots, str) else slots)
    content = {key: value for key, value in vars(cls).items() if key not in fields}
    content.pop("__dict__", None)
    content.pop("__weakref__", None)
    content["__slots__"] = tuple(name for name in fields if name not in taken)
    made = type(cls)(cls.__name__, cls.__bases__, content)
    made.__qualname__ = cls.__qualname__
    return made


def _standard(cls: Any, frozen: bool = False, eq: bool = False) -> Any:
    """A dataclass with the fields of a record, to whose classes it is not related."""
    given = [(name, kind) if f is MISSING else (name, kind, f) for name, (kind, f) in cls.__record_fields__.items()]
    own = {"__doc__": cls.__doc__ or cls.__name__}  # else a signature is made for one
    return dataclasses.make_dataclass(cls.__name__, given, namespace=own, init=False, repr=False, eq=eq, frozen=frozen)


class _Later:
    """An attribute of a class that the standard decorator would enter, had from a class it has made."""

    def __init__(self, name: str, flags: dict[str, bool]) -> None:
        self._name, self._flags = name, flags

    def __get__(self, instance: Any, owner: Any) -> Any:
        cls = next(base for base in owner.__mro__ if vars(base).get(self._name) is self)
        found = getattr(_standard(cls, **self._flags), self._name)
        setattr(cls, self._name, found)
        return found


def _first_init(cls: Any, fields: Fields, frozen: bool) -> Callable[..., None]:
    """The ``__init__`` of the first few objects. Then, or when it is called wrongly, it puts the real one in its place and calls it."""
    left = FEW
    enter = object.__setattr__ if frozen else setattr
    after = hasattr(cls, "__post_init__")

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal left
        left -= 1
        values = _given(fields, args, kwargs) if left >= 0 else None
        if values is None:
            real = _init(cls, fields, frozen)
            if vars(cls).get("__init__") is init:
                cls.__init__ = real
            real(self, *args, **kwargs)
            return
        for name, value in values.items():
            enter(self, name, value)
        if after:
            self.__post_init__()

    return init


def _given(fields: Fields, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """The fields' values for the arguments of ``__init__``; None where they do not fit."""
    values, count, left = {}, 0, len(kwargs)
    for name, (_, f) in fields.items():
        explicit = isinstance(f, Field)
        if not explicit or f.init:
            if count < len(args):
                values[name] = args[count]
                count += 1
                continue
            if name in kwargs:
                values[name] = kwargs[name]
                left -= 1
                continue
        if explicit:
            f = f.default if f.default_factory is MISSING else f.default_factory()
        if f is not MISSING:
            values[name] = f
        elif not explicit or fields[name][1].init:
            return None
    return values if count == len(args) and not left else None


def _init(cls: type, fields: Fields, frozen: bool) -> Callable[..., None]:
    """``__init__`` as a class's author would write it, but that ``MISSING`` stands for what a factory makes."""
    names: dict[str, Any] = {"_set": object.__setattr__, "MISSING": MISSING}
    parameters, lines = ["self"], []
    for number, (name, (_, f)) in enumerate(fields.items()):
        explicit = isinstance(f, Field)
        factory = f.default_factory if explicit else MISSING
        default = names[f"_{number}"] = f.default if explicit else f
        value = name
        if factory is not MISSING:
            names[f"_{number}"], default = factory, MISSING
            value = f"_{number}() if {name} is MISSING else {name}"
        if not explicit or f.init:
            given = "MISSING" if factory is not MISSING else f"_{number}"
            parameters.append(name if factory is default is MISSING else f"{name}={given}")
        elif factory is default is MISSING:
            continue
        else:
            value = f"_{number}" + "()" * (factory is not MISSING)
        lines.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(lines or ["pass"]), names)
    made: Callable[..., None] = names["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _replace(self: Any, /, **changes: Any) -> Any:
    """``copy.replace`` of Python 3.13."""
    return dataclasses.replace(self, **changes)


def _repr(names: tuple[str, ...]) -> Callable[..., str]:
    def text(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return recursive_repr()(text)


def _equality(names: tuple[str, ...]) -> dict[str, Callable[..., Any]]:
    get = _values(names)

    def eq(self: Any, other: object) -> bool:
        return get(self) == get(other) if other.__class__ is self.__class__ else NotImplemented

    def hash_(self: Any) -> int:
        return hash(get(self))

    return {"__eq__": eq, "__hash__": hash_}


def _values(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """What gives the fields of an object as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


def _frozen(cls: Any, names: tuple[str, ...], slots: bool) -> dict[str, Callable[..., Any]]:
    def set_(self: Any, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def delete(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    def state(self: Any) -> list[Any]:
        return [getattr(self, name) for name in names]

    def restore(self: Any, values: list[Any]) -> None:
        for name, value in zip(names, values, strict=True):
            object.__setattr__(self, name, value)

    accessors: dict[str, Callable[..., Any]] = {"__setattr__": set_, "__delattr__": delete}
    return accessors | ({"__getstate__": state, "__setstate__": restore} if slots else {})
