"""L0 and L4: what a provider must leave as it is, the process around it and the code that judges it."""

from __future__ import annotations

import contextlib
import io
import locale
import logging
import os
import random
import signal
import sys
import tempfile
import threading
import types
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from onnxplug_testkit.check import check
from onnxplug_testkit.models import chain, open_session
from onnxplug_testkit.subject import Subject

_JUDGES = ("onnxplug", "onnxplug_testkit", "numpy", "onnx", "pytest", "_pytest", "builtins", "math", "json", "hashlib")
"""Packages whose functions and classes decide what the kit says."""
_LATER = frozenset({"onnxplug_testkit.mutants"})


_SHARED = (
    "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PATH", "PYTHONPATH", "TZ",
)  # fmt: skip
"""Environment variables that other libraries, and child processes, go by."""
_environment = dict(os.environ)


@check("robust.process_is_left_alone")
def process_is_left_alone(subject: Subject, seed: int) -> None:
    """Making, running and closing a session prints nothing and leaves the settings of the process as they are."""
    made = chain(subject)
    x = np.random.default_rng(seed).standard_normal((3, 16)).astype(np.float32)
    printed = io.StringIO()
    with _unusual(), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        before = _settings()
        with open_session(subject, made) as session:
            session.run(None, {"x": x})
            session.run(None, {"x": x[:1]})
        after = _settings()
    changed = [name for name in before if before[name] != after[name]]
    changed += [name for name in _SHARED if os.environ.get(name) != _environment.get(name)]
    assert not changed, f"a session changes {', '.join(changed)}"
    assert not printed.getvalue(), f"a session prints {printed.getvalue()[:100]!r}"


@check("contract.code_is_left_alone")
def code_is_left_alone(subject: Subject, seed: int) -> None:
    """No function or class of Python, NumPy, onnx, onnxplug, pytest or the kit is replaced by another."""
    with subject.instance() as instance:
        instance.call("get_kernel_registry")
    # What goes wrong in a session is for other checks to say.
    with contextlib.suppress(Exception), open_session(subject, chain(subject)) as session:
        session.run(None, {"x": np.ones((2, 16), np.float32)})
    replaced = replacements()
    assert not replaced, f"replaced: {', '.join(replaced[:5])}"


@contextlib.contextmanager
def _unusual() -> Iterator[None]:
    """Settings that nobody would choose, so that a provider's own are seen though it made them long ago; restored afterwards."""
    hook, level, interval = sys.excepthook, logging.root.level, sys.getswitchinterval()
    states, depth = (random.getstate(), np.random.get_state()), sys.getrecursionlimit()
    handled = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    mine = threading.current_thread() is threading.main_thread()
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        np.errstate(over="print", under="print", divide="print", invalid="print"),
        np.printoptions(precision=3),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("error", message="no warning has this text")
        sys.excepthook = lambda *given: hook(*given)
        logging.root.setLevel(logging.ERROR + 1)
        sys.setswitchinterval(interval * 2)
        sys.setrecursionlimit(depth + 1)
        for number in handled if mine else ():
            signal.signal(number, lambda *given: None)
        random.seed(76543)
        np.random.seed(76543)
        try:
            yield
        finally:
            for number, handler in handled.items() if mine else ():
                signal.signal(number, handler)
            sys.excepthook = hook
            logging.root.setLevel(level)
            sys.setswitchinterval(interval)
            sys.setrecursionlimit(depth)
            random.setstate(states[0])
            np.random.set_state(states[1])


def _settings() -> dict[str, Any]:
    signals = {s: signal.getsignal(s) for s in signal.valid_signals()}
    return {
        "environment variables": dict(os.environ),
        "the working directory": os.getcwd(),
        "warning filters": list(warnings.filters),
        "the root logger": (
            list(logging.root.handlers),
            logging.root.level,
            logging.root.disabled,
            logging.root.manager.disable,
        ),
        "the locale": locale.setlocale(locale.LC_ALL),
        "sys.path": list(sys.path),
        "the recursion limit": sys.getrecursionlimit(),
        "handling of signals": signals,
        "NumPy's error state": np.geterr(),
        "NumPy's print options": np.get_printoptions(),
        "NumPy's random state": repr(np.random.get_state()),
        "Python's random state": random.getstate(),
        "hooks of the interpreter": (sys.excepthook, sys.displayhook, sys.unraisablehook),
        "the switch interval": sys.getswitchinterval(),
        "the streams": (sys.stdout, sys.stderr),
    }


def replacements() -> list[str]:
    """What of the code that judges is not what it was when the kit was loaded."""
    return [name for name, value in _found.items() if not _is(name, value)]


def remember() -> None:
    """Note the code that is loaded now; what is noted already stays."""
    for name, value in _code():
        _found.setdefault(name, value)


def _is(name: str, value: Any) -> bool:
    module, _, path = name.partition(":")
    holder: Any = sys.modules.get(module)
    for part in path.split("."):
        holder = vars(holder).get(part) if holder is not None else None
    return holder is value


def _code() -> Iterator[tuple[str, Any]]:
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] not in _JUDGES or any(name.startswith(later) for later in _LATER):
            continue
        for attribute, value in list(getattr(module, "__dict__", {}).items()):
            if callable(value):
                yield f"{name}:{attribute}", value
            if isinstance(value, type) and value.__module__ == name and name.startswith("onnxplug"):
                for inner, method in list(vars(value).items()):
                    # Special methods of records are made when first used.
                    if isinstance(method, types.FunctionType) and not inner.startswith("__"):
                        yield f"{name}:{attribute}.{inner}", method


_found: dict[str, Any] = {}
remember()
