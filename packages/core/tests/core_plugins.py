"""Throw-away distributions on ``sys.path``, as tests of plugins install them."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from onnxplug.contract import CONTRACT_VERSION, ExecutionProvider, ProviderSpec
from onnxplug.plugins import (
    registry,
)
from onnxplug.plugins.manager import process_manager

ACME = "AcmeExecutionProvider"
PLUGIN = """
from onnxplug.contract import CONTRACT_VERSION, Available, ExecutionProvider, ProviderSpec, Unavailable, hookimpl

def spec(name="AcmeExecutionProvider", **fields):
    defaults = {"name": name, "contract": CONTRACT_VERSION, "create": lambda o, c: ExecutionProvider()}
    return ProviderSpec(**{**defaults, **fields})
"""
ODD = "class Odd(BaseException):\n    def __str__(self): return self.x\nraise Odd"
ANNOUNCE = PLUGIN + "@hookimpl\ndef onnxplug_provider():\n    return "
Install = Callable[..., None]


def write_distribution(
    folder: Path,
    name: str,
    module: str,
    code: str,
    providers: dict[str, str],
    *,
    version: str = "1.0",
    group: str = "providers",
) -> None:
    """What an installer leaves behind: one module and its dist-info."""
    (folder / f"{module}.py").write_text(textwrap.dedent(code))
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    entries = "".join(f"{key} = {value}\n" for key, value in providers.items())
    (info / "entry_points.txt").write_text(f"[onnxplug.{group}]\n{entries}")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in [n for n in os.environ if n.startswith("ONNXPLUG_")]:
        monkeypatch.delenv(name)
    monkeypatch.syspath_prepend(str(tmp_path))
    registry.refresh()
    yield tmp_path
    monkeypatch.undo()
    for _, plugin in process_manager().list_name_plugin():
        if str(getattr(plugin, "__file__", "")).startswith(str(tmp_path)):
            process_manager().unregister(plugin)
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(tmp_path)):
            sys.modules.pop(name, None)  # an import that was given up may be ending
    registry.refresh()


@pytest.fixture
def install(site: Path) -> Install:
    def write(
        code: str, providers: tuple[str, ...] = (ACME,), name: str = "acme-ep", module: str = "acme_plugin", **more: str
    ) -> None:
        write_distribution(site, name, module, code, dict.fromkeys(providers, module), **more)  # type: ignore[arg-type]
        registry.refresh()

    return write


def loaded(name: str = ACME) -> dict[str, object]:
    found = registry.record(name, load=True)
    assert found is not None
    return found.to_dict()


def make_spec(name: str = ACME, **fields: object) -> ProviderSpec:
    return ProviderSpec(
        **{"name": name, "contract": CONTRACT_VERSION, "create": lambda o, c: ExecutionProvider(), **fields}
    )  # type: ignore[arg-type]


@pytest.fixture
def registered(site: Path) -> Iterator[Callable[[ProviderSpec], None]]:
    names: list[str] = []

    def add(spec: ProviderSpec) -> None:
        registry.register_provider(spec)
        names.append(spec.name)

    yield add
    for name in names:
        registry.unregister_provider(name)
