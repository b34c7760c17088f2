"""The public surface of a module as a flat table: what a program can name, call and read."""

from __future__ import annotations
import __future__

import importlib
import inspect
import re
import types
from collections.abc import Iterator, Mapping
from typing import Any

MODULES = (
    "",
    ".backend",
    ".capi.build_and_package_info",
    ".capi.convert_npz_to_onnx_adapter",
    ".capi.onnxruntime_collect_build_info",
    ".capi.onnxruntime_inference_collection",
    ".capi.onnxruntime_pybind11_state",
    ".capi.onnxruntime_pybind11_state.opkernel",
    ".capi.onnxruntime_pybind11_state.schemadef",
    ".capi.onnxruntime_validation",
    ".datasets",
)
MADE: Mapping[str, tuple[Any, ...]] = {
    "AdapterFormat": (),
    "OrtArenaCfg": ({},),
    "RunOptions": (),
    "SessionOptions": (),
}
"""Classes whose objects show the defaults of their properties, with the arguments that make one."""

Table = dict[str, str]


def surface(package: str) -> Table:
    """{dotted path below the package: what is there}, in words that are equal where a program sees no difference."""
    table: Table = {}
    for suffix in MODULES:
        try:
            module = importlib.import_module(package + suffix)
        except ImportError:
            table[suffix.lstrip(".")] = "no such module"
            continue
        for name in public(module):
            value = getattr(module, name)
            foreign = isinstance(value, type) and not value.__module__.startswith(package)
            if isinstance(value, types.ModuleType | __future__._Feature) or foreign:
                continue
            path = f"{suffix}.{name}".lstrip(".")
            table.update(describe(path, name, value, package))
    return table


def public(thing: Any) -> list[str]:
    """The names without a leading underscore."""
    return [name for name in dir(thing) if not name.startswith("_")]


def describe(path: str, name: str, value: Any, package: str) -> Iterator[tuple[str, str]]:
    """Lines of one module-level name; a class has one for itself and one for each member."""
    if isinstance(value, type) and issubclass(value, BaseException):
        yield path, f"exception, bases {[base.__name__ for base in value.__bases__]}"
    elif isinstance(value, type):
        members = getattr(value, "__members__", None)
        if members is not None:
            yield path, f"enumeration {sorted((each, int(member)) for each, member in members.items())}"
            return
        yield path, "class"
        made = value(*MADE[name]) if name in MADE else None
        for member in public(value):
            yield f"{path}.{member}", _member(value, made, member)
        yield f"{path}()", signature(value.__init__)
    elif callable(value):
        yield path, signature(value)
    elif isinstance(value, str | int | float | bool):
        yield path, f"value {value!r}".replace(package, "<package>")
    else:
        yield path, "value"


def _member(cls: type, made: Any, name: str) -> str:
    found = inspect.getattr_static(cls, name)
    if callable(getattr(cls, name)) and not isinstance(found, property):
        return signature(getattr(cls, name))
    if made is None:
        return "property"
    default = getattr(made, name)
    return f"property, {int(default) if hasattr(default, '__index__') else default!r}"


def signature(function: Any) -> str:
    """The parameters: names, kinds and defaults. Those that an extension module leaves without a name are only counted."""
    try:
        parameters = [p for p in inspect.signature(function).parameters.values() if p.name not in ("self", "cls")]
    except (ValueError, TypeError):
        return _documented(function)
    return f"({', '.join(map(_parameter, parameters))})"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    kind = {inspect.Parameter.KEYWORD_ONLY: "keyword ", inspect.Parameter.POSITIONAL_ONLY: "positional "}
    default = "" if parameter.default is parameter.empty else f"={_plain(parameter.default)}"
    return f"{kind.get(parameter.kind, '')}{stars}{parameter.name}{default}"


def _plain(default: Any) -> str:
    return str(int(default)) if hasattr(type(default), "__members__") else repr(default)


def _documented(function: Any) -> str:
    """What pybind11's docstring says of the parameters."""
    first = (function.__doc__ or "").strip().split("\n")[0]
    inner = re.fullmatch(r"\w+\((.*)\) -> .*", first)
    if inner is None or "*args" in first:
        return "function of several forms" if "*args" in first else "no signature"
    parts = [part.strip() for part in _split(inner.group(1)) if part.strip()]
    names = [re.split(r"[:=]", part)[0].strip() for part in parts]
    defaults = [f"={part.rsplit('=', 1)[1].strip()}" if "=" in part else "" for part in parts]
    shown = [n + d for n, d in zip(names, defaults, strict=True) if n != "self"]
    return f"({len(shown)} unnamed)" if any(re.match(r"arg\d", each) for each in shown) else f"({', '.join(shown)})"


def _split(text: str) -> list[str]:
    """Split at the commas that are in no bracket."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char in "[(<") - (char in "])>")
        if char == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


def differences(theirs: Table, ours: Table) -> Table:
    """{path: how ours differs}; what ours has beyond theirs does not count."""
    found = {}
    for path, text in theirs.items():
        parent = path.rpartition(".")[0]
        if path.endswith("()") and path[:-2] not in ours:
            continue
        if path not in ours:
            if parent in theirs and parent not in ours and theirs[parent] == "class":
                continue
            found[path] = f"missing (theirs: {text})"
        elif not compatible(text, ours[path]):
            found[path] = f"theirs {text}; ours {ours[path]}"
    return found


def compatible(theirs: str, ours: str) -> bool:
    """Whether every use of the one is a use of the other, as far as the tables tell."""
    if theirs in (ours, "no signature", "function of several forms", "(*args, **kwargs)"):
        return True
    counted = re.fullmatch(r"\((\d+) unnamed\)", theirs)
    if counted and ours.startswith("("):
        parts = [p for p in _split(ours[1:-1]) if p.strip()]
        plain = [p for p in parts if not p.strip().startswith(("keyword", "*"))]
        return len(plain) == int(counted.group(1)) or any(p.strip().startswith("*") for p in parts)
    return False
