"""``onnxplug new NAME``: write the package of an execution provider, ready to be installed and judged.

The package is written from the files of ``template``: each ends in ``.in``, and words between at signs are filled in.
"""

from __future__ import annotations

import argparse
import keyword
import re
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath

from onnxplug import __version__
from onnxplug.cli.failure import FAILED, USAGE, CliError
from onnxplug.cli.output import Output
from onnxplug.contract.provider import CONTRACT_VERSION
from onnxplug.plugins import registry
from onnxplug.plugins.names import DISTRIBUTIONS, ONNXRUNTIME_NAMES
from onnxplug.plugins.switches import short

LONGEST = 30
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_FIELD = re.compile(r"@([A-Za-z_]+)@")
_ENDINGS = ("-execution-provider", "-executionprovider", "executionprovider", "-ep")
_PARTS = frozenset({"ep", "core", "kernels", "kernel-text", "testkit"})
"""What names of onnxplug's own distributions are made of."""
_RENAMED = {"github": ".github", "gitignore": ".gitignore"}
"""Names that would mean something to git while they are part of this repository."""


def execute(args: argparse.Namespace, out: Output) -> int:
    """Write the package and say what to do next."""
    fields = fields_of(args.name)
    folder = Path(args.dir if args.dir is not None else fields["distribution"])
    _refuse_taken(folder)
    files = dict(sorted(_rendered(fields)))
    try:
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        text = f"{error.filename or folder}: {error.strerror or error}"
        raise CliError(FAILED, type(error).__name__, text, "check the folder and its permissions") from error
    if out.as_json:
        out.json({"provider": fields["provider"], "folder": str(folder), "files": list(files)})
        return 0
    out.line((fields["provider"], "bold"), f" in {folder}")
    for name in files:
        out.line(f"  {name}")
    out.heading("next")
    for command in _next_steps(folder, fields["short"]):
        out.line(f"  {command}")
    return 0


def fields_of(name: str) -> Mapping[str, str]:
    """What the template is filled with for the short name ``my-npu``; CliError for a name that cannot be used."""
    if not _NAME.fullmatch(name) or len(name) > LONGEST:
        text = f"'{name}' cannot name a provider: lower-case letters, digits and single hyphens, {LONGEST} at most, a letter first"
        plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
        guess = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-0123456789")[:LONGEST].rstrip("-")
        raise CliError(USAGE, "UsageError", text, f"onnxplug new {_proposal(guess) or 'acme'}")
    if (reason := _reserved(name)) is not None:
        text = f"'{name}' cannot name a provider: {reason}"
        raise CliError(USAGE, "UsageError", text, f"onnxplug new {_proposal(name) or 'acme'}")
    provider = f"{''.join(part.capitalize() for part in name.split('-'))}ExecutionProvider"
    for taken in (*DISTRIBUTIONS, *(r.provider for r in registry.records())):
        if short(taken) == short(provider):
            text = f"'{name}' is taken: {taken} is installed here or a package of onnxplug's own"
            raise CliError(USAGE, "UsageError", text, "choose another name; 'onnxplug providers' lists those installed")
    # what programs call a provider that onnxruntime has
    provider = next((known for known in ONNXRUNTIME_NAMES if short(known) == short(provider)), provider)
    return {
        "name": name,
        "Name": provider.removesuffix("ExecutionProvider"),
        "package": f"onnxplug_ep_{name.replace('-', '_')}",
        "distribution": f"onnxplug-ep-{name}",
        "provider": provider,
        "short": short(provider),
        "contract": repr(CONTRACT_VERSION),
        "contract_text": ".".join(map(str, CONTRACT_VERSION)),
        "version": __version__,
    }


def _reserved(name: str) -> str | None:
    """What else the name means, to Python or here; None where it is free."""
    if keyword.iskeyword(name) or keyword.issoftkeyword(name):
        return "it is a keyword of Python"
    if name.replace("-", "_") in sys.stdlib_module_names:
        return "a module of Python's library has that name"
    if name.startswith("onnxplug") or name in _PARTS:
        return "packages of onnxplug's own have that name"
    if name.endswith(_ENDINGS):
        return "what is written calls it an execution provider by itself"
    return None


def _proposal(name: str) -> str:
    """A name like ``name`` that is free; empty where little of it is left."""
    short_of = re.sub("^(onnxplug-?)?(ep-)?", "", name)
    for ending in _ENDINGS:
        short_of = short_of.removesuffix(ending)
    short_of = short_of.strip("-0123456789")
    if not short_of or short_of in _PARTS:
        return ""
    return short_of if _reserved(short_of) is None else f"{short_of}-npu"[:LONGEST]


def _refuse_taken(folder: Path) -> None:
    if not folder.exists():
        return
    what = "is not empty" if folder.is_dir() else "is a file"
    if not folder.is_dir() or any(folder.iterdir()):
        raise CliError(USAGE, "UsageError", f"{folder} {what}", "give another folder with --dir, or remove it first")


def _rendered(fields: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(path within the package, text) of every file."""
    for path, file in _walk(resources.files("onnxplug.cli").joinpath("template"), PurePosixPath()):
        parts = [fields["package"] if p == "package" else _RENAMED.get(p, p) for p in path.with_suffix("").parts]
        yield "/".join(parts), _FIELD.sub(lambda found: fields[found[1]], file.read_text(encoding="utf-8"))


def _walk(folder: Traversable, path: PurePosixPath) -> Iterator[tuple[PurePosixPath, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry, path / entry.name)
        elif entry.name.endswith(".in"):
            yield path / entry.name, entry


def _next_steps(folder: Path, ep: str) -> tuple[str, ...]:
    return f"cd {folder}", 'pip install -e ".[test]"', "pytest", f"pytest --pyargs onnxplug_testkit --ep {ep}"
