"""Module attributes that are imported when first asked for (PEP 562), so that importing a front costs nothing."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from onnxplug._uncollected import uncollected


def lazy_names(
    namespace: dict[str, Any], homes: Mapping[str, Iterable[str]], submodules: Iterable[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """(``__getattr__``, ``__dir__``, names) for the module with these globals. ``homes`` maps a module to the names it
    provides, ``submodules`` are the module's own. "NAME as ALIAS" gives a name under another one.
    """
    module = namespace["__name__"]
    origin = {text.split(" as ")[-1]: (home, text.split(" as ")[0]) for home, names in homes.items() for text in names}
    names = sorted({*origin, *submodules})

    def get(name: str) -> Any:
        if name in submodules:
            return importlib.import_module(f"{module}.{name}")
        if name not in origin:
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        home, original = origin[name]
        with uncollected():
            found = importlib.import_module(home)
        namespace[name] = value = getattr(found, original)
        return value

    def listing() -> list[str]:
        return sorted({*namespace, *names})

    return get, listing, names
