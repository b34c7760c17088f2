"""Programs that are run with both packages, and what they saw compared."""

from __future__ import annotations

import importlib
import os
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

CPU = ["CPUExecutionProvider"]
ROWS = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
Example = Callable[[Any], Any]
"""A program: it gets the package and returns what it saw. Its working directory is its own."""


def told(call: Callable[[], Any]) -> Any:
    """What a call returns, or its exception: class and text, without the place in onnxruntime's source that some begin with."""
    try:
        return call()
    except Exception as error:
        return [type(error).__name__, re.sub(r"^/\S*\.(cc|h):\d+ .*? was false\. ", "", str(error)).strip()]


def shipped(ort: Any, name: str) -> str:
    """The path of a model that comes with the package."""
    return importlib.import_module(f"{ort.__name__}.datasets").get_example(name)  # type: ignore[no-any-return]


def described(arguments: Sequence[Any]) -> list[Any]:
    """Names, shapes and types of inputs or outputs."""
    return [[each.name, each.shape, each.type] for each in arguments]


def seen(package: str, program: Example, folder: Path) -> Any:
    """What a program saw with one package, in a new folder; and the texts of its warnings to users, less the providers that are there."""
    ort = pytest.importorskip(package)
    folder.mkdir()
    before = Path.cwd()
    os.chdir(folder)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = program(ort)
    finally:
        os.chdir(before)
    texts = [str(each.message) for each in caught if each.category is UserWarning]
    return result, [text.partition("Available providers")[0] for text in texts]


def agree(ours: Any, theirs: Any, where: str = "") -> None:
    """Assert the same structure, types, texts and numbers; floats but for rounding."""
    assert type(ours) is type(theirs), f"{where}: {ours!r} instead of {theirs!r}"
    if isinstance(theirs, np.ndarray):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype), where
        if theirs.dtype.kind == "f":
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6, err_msg=where)
        else:
            np.testing.assert_array_equal(ours, theirs, where)
    elif isinstance(theirs, dict):
        assert set(ours) == set(theirs), where
        for key in theirs:
            agree(ours[key], theirs[key], f"{where}[{key!r}]")
    elif isinstance(theirs, list | tuple):
        assert len(ours) == len(theirs), f"{where}: {ours!r} instead of {theirs!r}"
        for i, (mine, wanted) in enumerate(zip(ours, theirs, strict=True)):
            agree(mine, wanted, f"{where}[{i}]")
    elif isinstance(theirs, float):
        assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-6), where
    else:
        assert ours == theirs, f"{where}: {ours!r} instead of {theirs!r}"


def same_with_both(program: Example, folder: Path) -> None:
    """Run a program with both packages and compare."""
    pytest.importorskip("onnxruntime").set_default_logger_severity(4)
    agree(seen("onnxplug", program, folder / "ours"), seen("onnxruntime", program, folder / "theirs"), program.__name__)
