"""What option classes are made of: typed properties with their checks, and free configuration entries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")
_MAX_KEY, _MAX_VALUE = 1024, 8192


def as_int(value: Any) -> int:
    """An integer that fits 32 bits; TypeError for anything else, floats and digits in a string included."""
    if (number := _number(value)) is None or not -(2**31) <= number < 2**31:
        raise TypeError(f"expected an int of 32 bits, got {value!r}")
    return number


def _number(value: Any) -> int | None:
    """What pybind11 takes for an integer, so onnxruntime does: whatever becomes one, NumPy's truth values and float32 too, but no float."""
    if not hasattr(value, "__index__") and (isinstance(value, float) or not hasattr(value, "__int__")):
        return None
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):  # several numbers, none, or no end of one
        return None


def as_long(value: Any) -> int:
    """An integer that fits 64 bits; TypeError for anything else."""
    if (number := _number(value)) is None or not -(2**63) <= number < 2**63:
        raise TypeError(f"expected an int of 64 bits, got {value!r}")
    return number


def as_size(value: Any) -> int:
    """A number of bytes; TypeError for what is no integer or negative."""
    if (number := _number(value)) is None or number < 0:
        raise TypeError(f"expected a number of bytes, got {value!r}")
    return number


def as_bool(value: Any) -> bool:
    """A truth value: bool, number or None, but nothing that merely has a length."""
    if value is not None and not hasattr(value, "__bool__"):
        raise TypeError(f"expected a bool, got {value!r}")
    return bool(value)


def as_text(value: Any) -> str:
    """A string; bytes are read as UTF-8."""
    if isinstance(value, bytes):
        return value.decode()
    if not isinstance(value, str):
        raise TypeError(f"expected a str, got {value!r}")
    return value


def member(cls: type[T]) -> Callable[[Any], T]:
    """The check for values of a class."""

    def check(value: Any) -> T:
        if not isinstance(value, cls):
            raise TypeError(f"expected a {cls.__name__}, got {value!r}")
        return value

    return check


class Setting(Generic[T]):
    """One property of an options class: its default, its check, its documentation."""

    def __init__(self, default: T, check: Callable[[Any], T], doc: str) -> None:
        self.default, self.check, self.__doc__ = default, check, doc

    def __set_name__(self, owner: type, name: str) -> None:
        self.name, self.owner = name, owner.__name__

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: Options, owner: type) -> T: ...
    def __get__(self, instance: Options | None, owner: type) -> Self | T:
        if instance is None:
            return self
        return instance._values.get(self.name, self.default)  # type: ignore[no-any-return]

    def __set__(self, instance: Options, value: T) -> None:
        try:
            instance._values[self.name] = self.check(value)
        except TypeError as error:
            raise TypeError(f"{self.owner}.{self.name}: incompatible function arguments: {error}") from None


class Options:
    """Typed properties plus free configuration entries. Unknown attributes raise AttributeError. Copies and pickles hold
    all that was set.
    """

    __slots__ = ("__weakref__", "_config_entries", "_values")

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._config_entries: dict[str, str] = {}

    def _slots(self) -> list[str]:
        slots = (slot for cls in type(self).__mro__ for slot in getattr(cls, "__slots__", ()))
        return [slot for slot in slots if slot != "__weakref__"]

    def _copy(self) -> Self:
        """The session's own copy, which later changes of the original do not reach."""
        twin = object.__new__(type(self))
        for slot in self._slots():
            value = getattr(self, slot)
            setattr(twin, slot, value.copy() if isinstance(value, dict | list) else value)
        return twin

    __copy__ = _copy

    def __getstate__(self) -> dict[str, Any]:
        return {slot: getattr(self, slot) for slot in self._slots()}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        for slot, value in state.items():
            setattr(self, slot, value)

    def _add_config_entry(self, key: Any, value: Any) -> None:
        key, value = as_text(key), as_text(value)
        if not key or len(key) > _MAX_KEY:
            raise RuntimeError(f"Config key is empty or longer than maximum length {_MAX_KEY}")
        if len(value) > _MAX_VALUE:
            raise RuntimeError(f"Config value is longer than maximum length: {_MAX_VALUE}")
        if key in self._config_entries:
            from onnxplug.session.logging import process_logger

            process_logger().warning(
                "Config with key [%s] already exists with value [%s]. It will be overwritten",
                key,
                self._config_entries[key],
            )
        self._config_entries[key] = value

    def _get_config_entry(self, key: Any) -> str:
        try:
            return self._config_entries[as_text(key)]
        except KeyError:
            raise RuntimeError(f"{type(self).__name__} does not have configuration with key: {key}") from None
