"""The public surface against an installed onnxruntime: names, signatures, defaults of properties, enumerations. What differs is
explained in surface_differences.toml."""

from __future__ import annotations

import fnmatch
import importlib
import importlib.metadata
import tomllib
from pathlib import Path
from typing import Any

import pytest
from surface import Table, compatible, differences, public, surface

REFERENCES = ("1.31", "1.32")
EXPLAINED = tomllib.loads(Path(__file__).with_name("surface_differences.toml").read_text())["difference"]


@pytest.fixture(scope="module")
def found() -> Table:
    """The differences from a release that the surface is made after."""
    pytest.importorskip("onnxruntime")
    if release() not in REFERENCES:
        pytest.skip(f"the surface is that of onnxruntime {' and '.join(REFERENCES)}, {release()} is installed")
    return differences(surface("onnxruntime"), surface("onnxplug"))


def release() -> str:
    """The installed onnxruntime's, without the patch."""
    return importlib.metadata.version("onnxruntime").rpartition(".")[0]


def explains(entry: Any, path: str) -> bool:
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in entry["paths"])


def test_every_difference_is_explained(found: Table) -> None:
    unexplained = {path: text for path, text in found.items() if not any(explains(e, path) for e in EXPLAINED)}
    assert not unexplained, "\n".join(f"{path}: {text}" for path, text in unexplained.items())


def test_every_explanation_is_needed(found: Table) -> None:
    patterns = [p for entry in EXPLAINED if release() in entry.get("releases", REFERENCES) for p in entry["paths"]]
    assert not [p for p in patterns if not any(fnmatch.fnmatchcase(path, p) for path in found)]
    assert all(len(entry["reason"].split()) > 3 for entry in EXPLAINED)


def test_the_comparison_sees_what_it_has_to() -> None:
    table = {"A": "class", "A.run": "(feed, options=None)", "A.gone": "()", "B": "enumeration [('X', 1)]"}
    ours = {"A": "class", "A.run": "(feed, options)", "B": "enumeration [('X', 2)]", "C": "class"}
    assert set(differences(table, ours)) == {"A.run", "A.gone", "B"}
    assert compatible("(2 unnamed)", "(feed, options=None)") and not compatible("(3 unnamed)", "(feed, options=None)")


def test_the_state_module_has_two_names() -> None:
    state, alias = (
        importlib.import_module(f"onnxplug.capi.{n}") for n in ("onnxruntime_pybind11_state", "_pybind_state")
    )
    assert set(public(state)) <= {*public(alias), "lazy_names", "annotations"}
    assert all(getattr(alias, name) is getattr(state, name) for name in public(alias))
