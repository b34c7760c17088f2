"""docs/contract.md: the hooks and all other words of ``onnxplug.contract``, from its source text.

Read from the syntax tree, so that annotations are shown as they were written, in every version of Python.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable, Iterator
from importlib import import_module

from onnxplug import contract

Definition = ast.ClassDef | ast.FunctionDef

CHAPTERS = (
    ("provider", "Announcing a provider"),
    ("options", "Options"),
    ("hooks", "Hooks"),
    ("graph", "The graph a provider is shown"),
    ("types", "Types of values"),
    ("claims", "Claims and regions"),
    ("kernels", "Kernels"),
    ("fits", "Shapes that go together"),
    ("versions", "Versions of operators"),
    ("memory", "Memory and copies"),
    ("arena", "The arena"),
    ("staging", "Copies that nobody waits for"),
    ("storage", "Planning memory of one's own"),
    ("grouping", "Helpers for `get_capability`"),
    ("model", "Nodes as an ONNX model"),
    ("cache", "A cache on disk"),
    ("errors", "Errors"),
)
APART = frozenset({"DiskCache", "user_cache", "Staging", "boundary", "onnx_model"})
"""Words that are imported from their module: what they need is not loaded along with a provider that keeps nothing."""
_RECORDS = frozenset({"dataclass", "record"})
"""Decorators of classes whose fields are their arguments."""
SPECIFICATIONS = {"ProviderHooks": "Hooks of a provider", "PluginHooks": "Hooks of a plugin module"}


def contract_page() -> str:
    """The page. SystemExit where a public name has no chapter or no documentation."""
    major, minor = contract.CONTRACT_VERSION
    parts = [
        "# The contract\n",
        prose(inspect.getdoc(contract), "onnxplug.contract"),
        f"This is version {major}.{minor}. [Writing a provider](write-an-ep.md) leads through it, and every name below is imported from "
        "`onnxplug.contract`.\n",
    ]
    shown: set[str] = set()
    for module, title in CHAPTERS:
        tree = ast.parse(inspect.getsource(import_module(f"onnxplug.contract.{module}")))
        parts += [f"## {title}\n", prose(ast.get_docstring(tree), module)]
        for name, text in _entries(tree):
            shown.add(name)
            parts.append(text)
    if missing := sorted(set(contract.__all__) - shown - {"HOST", "ValueType", "hookimpl"}):
        raise SystemExit(f"docs/contract.md has no chapter for {', '.join(missing)}")
    return "\n".join(parts)


def _entries(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(name, text) of the public definitions of a module."""
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        name = ast.unparse(node.targets[0]) if isinstance(node, ast.Assign) else getattr(node, "name", "")
        if name in SPECIFICATIONS and isinstance(node, ast.ClassDef):
            yield name, _specification(node)
        elif name not in contract.__all__ and name not in APART:
            continue
        elif isinstance(node, ast.ClassDef):
            yield name, _class(node)
        elif isinstance(node, ast.FunctionDef):
            yield name, f"### `{name}`\n\n{_block(_signature(node))}\n{_doc(node, name)}"
        elif text := _literal(after):
            yield name, f"### `{name}`\n\n{_block(ast.unparse(node))}\n{prose(text, name)}"


def _specification(node: ast.ClassDef) -> str:
    parts = [f"### {SPECIFICATIONS[node.name]}\n", _doc(node, node.name)]
    for hook in _methods(node):
        parts += [f"#### `{hook.name}`\n", _block(_signature(hook)), _doc(hook, f"{node.name}.{hook.name}")]
    return "\n".join(parts)


def _class(node: ast.ClassDef) -> str:
    fields = [member for member in node.body if isinstance(member, ast.AnnAssign)]
    parts = [f"### `{node.name}`\n"]
    if _RECORDS & _decorators(node):
        parts.append(_block(_call(node.name, map(_field, fields))))
    elif initializer := next((m for m in _methods(node) if m.name == "__init__"), None):
        parts.append(_block(_call(node.name, _arguments(initializer))))
    parts.append(_doc(node, node.name))
    members = list(_members(node))
    return "\n".join([*parts, "\n".join(members) + "\n"] if members else parts)


def _members(node: ast.ClassDef) -> Iterator[str]:
    """A line for each documented field, property and method; and each plain field; of a protocol each property."""
    plain = not _RECORDS & _decorators(node) and not node.name.endswith(("Fail", "Exception"))
    protocol = any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)
    for member, after in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(member, ast.AnnAssign):
            text = _literal(after)
            if text or (plain and not ast.unparse(member.annotation).startswith("ClassVar")):
                yield f"* `{_field(member)}`" + (f": {_line(text)}" if text else "")
        if isinstance(member, ast.FunctionDef) and (member.name == "__call__" or not member.name.startswith("_")):
            text = ast.get_docstring(member)
            shown = _line(_signature(member))
            if "property" in _decorators(member):
                shown = f"{member.name}: {ast.unparse(member.returns)}" if member.returns else member.name
            if text or protocol:
                yield f"* `{shown}`" + (f": {_line(text)}" if text else "")


def _methods(node: ast.ClassDef) -> list[ast.FunctionDef]:
    return [member for member in node.body if isinstance(member, ast.FunctionDef)]


def _decorators(node: Definition) -> set[str]:
    return {ast.unparse(d.func if isinstance(d, ast.Call) else d) for d in node.decorator_list}


def _field(node: ast.AnnAssign) -> str:
    default = "" if node.value is None else f" = {ast.unparse(node.value)}"
    default = re.sub(r"field\(default_factory=(\w+)\)", r"\1()", default)
    return f"{ast.unparse(node.target)}: {ast.unparse(node.annotation)}{default}"


def _signature(node: ast.FunctionDef) -> str:
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    return _call(node.name, _arguments(node), returns)


def _arguments(node: ast.FunctionDef) -> list[str]:
    """Each argument as it was written, without self."""
    given = node.args
    defaults = [None] * (len(given.args) - len(given.defaults)) + [ast.unparse(d) for d in given.defaults]
    shown = [_argument(a, d) for a, d in zip(given.args, defaults, strict=True) if a.arg != "self"]
    if given.vararg is not None:
        shown.append(f"*{_argument(given.vararg)}")
    elif given.kwonlyargs:
        shown.append("*")
    for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        shown.append(_argument(argument, None if default is None else ast.unparse(default)))
    return [*shown, f"**{_argument(given.kwarg)}"] if given.kwarg is not None else shown


def _argument(node: ast.arg, default: str | None = None) -> str:
    text = node.arg if node.annotation is None else f"{node.arg}: {ast.unparse(node.annotation)}"
    return text if default is None else f"{text} = {default}"


def _call(name: str, arguments: Iterable[str], returns: str = "") -> str:
    """``name(...)``, an argument a line where it is long."""
    shown = list(arguments)
    text = f"{name}({', '.join(shown)}){returns}"
    if len(text) <= 120:
        return text
    return f"{name}(\n" + "".join(f"    {argument},\n" for argument in shown) + f"){returns}"


def _doc(node: Definition, name: str) -> str:
    return prose(ast.get_docstring(node), name)


def _literal(node: ast.stmt | None) -> str | None:
    """The text of a string that stands behind what it documents."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return inspect.cleandoc(node.value.value)
    return None


def _line(text: str) -> str:
    return " ".join(text.replace("``", "`").split())


def _block(text: str) -> str:
    return f"```text\n{text}\n```\n"


def prose(text: str | None, name: str) -> str:
    """A docstring as Markdown: literals in single backticks, literal blocks fenced. SystemExit where there is none."""
    if not text:
        raise SystemExit(f"{name} has no documentation")
    text = re.sub(r"^::\n\n((?:    .*\n?|\n)+)", _fenced, text, flags=re.MULTILINE)
    return text.replace("``", "`").replace("\x00", "```") + "\n"


def _fenced(found: re.Match[str]) -> str:
    return f"\x00text\n{inspect.cleandoc(found[1])}\n\x00"
