"""Module attributes that are imported when first asked for (PEP 562), so that importing a front costs nothing."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def lazy_names(
    namespace: dict[str, Any], homes: Mapping[str, Iterable[str]], submodules: Iterable[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """(``__getattr__``, ``__dir__``, names) for the module with these globals. ``homes`` maps a module to the names it
    provides, ``submodules`` are the module's own.
    """
    module = namespace["__name__"]
    origin = {name: home for home, names in homes.items() for name in names}
    names = sorted({*origin, *submodules})

    def get(name: str) -> Any:
        if name in submodules:
            return importlib.import_module(f"{module}.{name}")
        if name not in origin:
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        namespace[name] = value = getattr(importlib.import_module(origin[name]), name)
        return value

    def listing() -> list[str]:
        return sorted({*namespace, *names})

    return get, listing, names
