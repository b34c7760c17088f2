"""L0 and L4: what a provider must leave as it is, the process around it and the code that judges it."""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import decimal
import functools
import gc
import io
import locale
import logging
import os
import random
import signal
import socket
import sys
import tempfile
import threading
import time
import types
import warnings
from collections.abc import Callable, Iterator
from typing import IO, Any

import numpy as np

from onnxplug_testkit.check import Unsupported, check
from onnxplug_testkit.checks import lasting
from onnxplug_testkit.checks.robust import impossible
from onnxplug_testkit.models import chain, open_session
from onnxplug_testkit.subject import Subject

_JUDGES = ("onnxplug", "onnxplug_testkit", "numpy", "onnx", "pytest", "_pytest", "builtins", "math", "json", "hashlib")
"""Packages whose functions and classes decide what the kit says."""
_LATER = frozenset({"onnxplug_testkit.mutants"})
_OWN_HOOKS = frozenset({"pytest", "_pytest"})
"""Packages that put what is theirs into other modules of theirs while they run tests."""
_TALK = frozenset({"builtins:input", "builtins:print", "builtins:breakpoint"})
"""What many replace, tests and terminals, and no verdict depends on."""
_UNSEEN = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)
"""Warnings that Python does not show."""
CODE = "contract.code_is_left_alone"
TRIES = 3
"""So often a session has to have changed a thing, which did not change without one for as long."""


@check("robust.process_is_left_alone")
def process_is_left_alone(subject: Subject, seed: int) -> None:
    """Making, running, failing and closing prints nothing, warns of nothing, leaves no file and the process's settings as they are."""
    made = chain(subject)
    x = np.random.default_rng(seed).standard_normal((3, 16)).astype(np.float32)

    def act() -> None:
        with open_session(subject, made) as session:
            session.run(None, {"x": x})
            session.run(None, {"x": x[:1]})
        with contextlib.suppress(Unsupported):
            for failing, bad, _ in impossible(subject):
                with open_session(subject, failing) as session, contextlib.suppress(Exception):
                    session.run(None, bad)

    start = time.monotonic()
    found = _doings(act)
    stayed = lasting.changed()
    assert not stayed, f"a session changes {', '.join(stayed)}"
    for _ in range(TRIES - 1):
        if not found:
            return
        idle = time.monotonic() - start
        others = _doings(functools.partial(time.sleep, idle))  # other threads go on meanwhile
        start = time.monotonic()
        again = _doings(act)
        found = {name: text for name, text in again.items() if name in found and name not in others}
    assert not found, f"a session {', '.join(found.values())}"


def _doings(act: Callable[[], object]) -> dict[str, str]:
    """What of the process is not as it was when ``act`` is done, and a text on it. All of it is restored."""
    printed = io.StringIO()
    with tempfile.TemporaryFile() as written:
        with (
            _unusual() as folder,
            _descriptors(written),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
            warnings.catch_warnings(record=True) as warned,
        ):
            before = _settings()
            act()
            after = _settings()
            files = os.listdir(folder)
        written.seek(0)
        text = printed.getvalue() + written.read().decode(errors="replace")
    found = {name: f"changes {name}" for name in before if name in after and before[name] != after[name]}
    if files:
        found["files"] = f"leaves {', '.join(sorted(files)[:5])} in the working directory"
    if told := [str(each.message) for each in warned if not issubclass(each.category, _UNSEEN)]:
        found["warnings"] = f"warns: {told[0][:100]!r}"
    if text:
        found["output"] = f"prints {text[:100]!r}"
    return found


@contextlib.contextmanager
def _descriptors(file: IO[bytes]) -> Iterator[None]:
    """What libraries write past Python, to the output and error streams of the process, goes into a file."""
    kept = {}
    for number in (1, 2):
        with contextlib.suppress(OSError):  # a process without the stream
            kept[number] = os.dup(number)
    for number in kept:
        os.dup2(file.fileno(), number)
    try:
        yield
    finally:
        for number, copy in kept.items():
            os.dup2(copy, number)
            os.close(copy)


@check(CODE)
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
def _unusual() -> Iterator[str]:
    """Settings that nobody would choose, so that a provider's own are seen though it made them long ago; restored afterwards. The working
    directory, which is empty."""
    hook, level, interval = sys.excepthook, logging.root.level, sys.getswitchinterval()
    states, depth = (random.getstate(), np.random.get_state()), sys.getrecursionlimit()
    handled = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    mine = threading.current_thread() is threading.main_thread()
    environment = dict(os.environ)
    collecting, thresholds = gc.isenabled(), gc.get_threshold()
    excepting, waiting, digits, size = (
        threading.excepthook, socket.getdefaulttimeout(), sys.get_int_max_str_digits(), np.getbufsize(),
    )  # fmt: skip
    mask, watching, spoken = os.umask(0o037), (sys.gettrace(), sys.getprofile()), locale.setlocale(locale.LC_NUMERIC)
    everywhere = locale.setlocale(locale.LC_ALL)
    with (
        _arithmetic(),
        decimal.localcontext(prec=31),
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        np.errstate(call=lambda kind, flag: None, over="call", under="call", divide="call", invalid="call"),
        np.printoptions(precision=3),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("always")
        warnings.filterwarnings("error", message="no warning has this text")
        sys.excepthook = lambda *given: hook(*given)
        logging.root.setLevel(logging.ERROR + 1)
        sys.setswitchinterval(interval * 2)
        sys.setrecursionlimit(depth + 1)
        threading.excepthook = lambda *given: excepting(*given)
        socket.setdefaulttimeout(4321.0)
        sys.set_int_max_str_digits(digits + 1 if digits else 0)
        np.setbufsize(size + 16)
        if watching == (None, None):  # debuggers and measures of coverage go on
            sys.settrace(_watch)
            sys.setprofile(_watch)
        for name in ("C.UTF-8", "C"):  # where numbers look the same
            if name != spoken:
                with contextlib.suppress(locale.Error):
                    locale.setlocale(locale.LC_NUMERIC, name)
                    break
        gc.enable()
        gc.set_threshold(thresholds[0] + 1, *thresholds[1:])
        for number in handled if mine else ():
            signal.signal(number, lambda *given: None)
        random.seed(76543)
        np.random.seed(76543)
        try:
            yield folder
        finally:
            for number, handler in handled.items() if mine else ():
                signal.signal(number, handler)
            for name in {*os.environ, *environment}:
                if name not in environment:
                    del os.environ[name]
                elif os.environ.get(name) != environment[name]:
                    os.environ[name] = environment[name]
            sys.settrace(watching[0])
            sys.setprofile(watching[1])
            os.umask(mask)
            locale.setlocale(locale.LC_ALL, everywhere)
            gc.set_threshold(*thresholds)
            (gc.enable if collecting else gc.disable)()
            sys.excepthook = hook
            logging.root.setLevel(level)
            sys.setswitchinterval(interval)
            sys.setrecursionlimit(depth)
            threading.excepthook = excepting
            socket.setdefaulttimeout(waiting)
            sys.set_int_max_str_digits(digits)
            np.setbufsize(size)
            random.setstate(states[0])
            np.random.set_state(states[1])


def _environment_of_floats() -> tuple[ctypes.CDLL, Any] | None:
    """The C library and how it has floats computed now."""
    try:
        c, kept = ctypes.CDLL(None), ctypes.create_string_buffer(256)
        c.fegetenv(kept)
    except (OSError, TypeError, AttributeError):  # there is none, or it is spelt otherwise
        return None
    return c, kept


_FLOATS = _environment_of_floats()


def _watch(*given: object) -> None:
    """A trace function that looks at nothing."""


@contextlib.contextmanager
def _arithmetic() -> Iterator[None]:
    """Floats are rounded as they were when the kit was imported, before and afterwards, where the C library can set that."""
    if _FLOATS is None:
        yield
        return
    c, kept = _FLOATS
    c.fesetenv(kept)
    try:
        yield
    finally:
        c.fesetenv(kept)


def _rounded() -> list[float]:
    """What shows how floats are rounded: up, down or to the nearest, and whether the smallest count."""
    tiny, normal, subnormal = 1e-20, 2.0**-1022, 5e-324
    return [1 + tiny, 1 - tiny, -1 - tiny, normal * 0.5, subnormal * 1.0]


def _umask() -> int:
    mask = os.umask(0o037)
    os.umask(mask)
    return mask


def _timers() -> list[bool]:
    """Which of those that count processor time run."""
    if not hasattr(signal, "getitimer"):  # Windows
        return []
    return [signal.getitimer(timer) != (0, 0) for timer in (signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)]


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
        "how floats are rounded": _rounded(),
        "the mask of files": _umask(),
        "trace functions": (sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile()),
        "the recursion limit": sys.getrecursionlimit(),
        "handling of signals": signals,
        "NumPy's error state": np.geterr(),
        "NumPy's print options": np.get_printoptions(),
        "NumPy's random state": repr(np.random.get_state()),
        "Python's random state": random.getstate(),
        "hooks of the interpreter": (sys.excepthook, sys.displayhook, sys.unraisablehook),
        "the switch interval": sys.getswitchinterval(),
        "the decimal context": (decimal.getcontext().prec, decimal.getcontext().rounding),
        "the garbage collector": (gc.isenabled(), gc.get_threshold()),
        "the streams": (sys.stdout, sys.stderr),
        "what threads do with exceptions": threading.excepthook,
        "the timeout of sockets": socket.getdefaulttimeout(),
        "how many digits numbers may have": sys.get_int_max_str_digits(),
        "NumPy's buffer size": np.getbufsize(),
        "timers": _timers(),
        "the names of Python": sorted(set(vars(builtins)) - {"_"}),
        **lasting.lasting(),
    }


def replacements() -> list[str]:
    """What of the code that judges is not what it was when it was noted last."""
    return [name for name, value in _found.items() if not _is(name, value)]


def remember() -> None:
    """Note the code that is loaded now, and what of the process lasts, as they are now."""
    lasting.note()
    _found.clear()
    _found.update(_code())


def _is(name: str, value: Any) -> bool:
    module, _, path = name.partition(":")
    holder: Any = sys.modules.get(module)
    for part in path.split("."):
        holder = vars(holder).get(part) if holder is not None else None
    return holder is value


def _code() -> Iterator[tuple[str, Any]]:
    for name, module in list(sys.modules.items()):
        package = name.partition(".")[0]
        if package not in _JUDGES or any(name.startswith(later) for later in _LATER):
            continue
        for attribute, value in list(getattr(module, "__dict__", {}).items()):
            home = getattr(value, "__module__", None) if callable(value) else None
            if not isinstance(home, str) or f"{name}:{attribute}" in _TALK:
                continue
            if home == name or (package not in _OWN_HOOKS and home.partition(".")[0] == package):
                yield f"{name}:{attribute}", value
            if isinstance(value, type) and value.__module__ == name and name.startswith("onnxplug"):
                for inner, method in list(vars(value).items()):
                    # Special methods of records are made when first used.
                    if isinstance(method, types.FunctionType) and not inner.startswith("__"):
                        yield f"{name}:{attribute}.{inner}", method


_found: dict[str, Any] = {}
