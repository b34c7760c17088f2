"""L4: mutants that change how the process around them works, one setting each."""

from __future__ import annotations

import contextlib
import ctypes
import locale
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from onnxplug_ep_reference.provider import ReferenceProvider
from onnxplug_testkit.mutants import mutant
from onnxplug_testkit.mutants.base import subject
from onnxplug_testkit.subject import Subject

_UPWARD = (0x800, 0x400000)
"""What fesetround() takes for it, on x86 and on ARM: each refuses the other's."""
_PLACES = ((28, 0x8040), (0, 1 << 24))
"""Where fenv_t has the bits that make small numbers zero, and which, on x86 and on ARM."""


def _each_run(act: Callable[[], object]) -> Subject:
    """The reference, which does ``act()`` when a run starts."""

    class Acting(ReferenceProvider):
        def on_run_start(self, options: Any) -> None:
            act()

    return subject(Acting)


@contextlib.contextmanager
def _kept(made: Subject) -> Iterator[Subject]:
    """The subject, and floats computed as before when it is gone."""
    c, before = ctypes.CDLL(None), ctypes.create_string_buffer(256)
    c.fegetenv(before)
    made.announce()
    try:
        yield made
    finally:
        c.fesetenv(before)


@mutant("robust.process_is_left_alone")
def rounds_up() -> contextlib.AbstractContextManager[Subject]:
    """Has floats rounded up from its first run on."""
    c = ctypes.CDLL(None)
    return _kept(_each_run(lambda: [c.fesetround(number) for number in _UPWARD]))


@mutant("robust.process_is_left_alone")
def flushes_to_zero() -> contextlib.AbstractContextManager[Subject]:
    """Has the processor take the smallest floats for zero, which makes sums faster."""
    c, (place, bits) = ctypes.CDLL(None), _PLACES[os.uname().machine not in ("x86_64", "i686")]

    def flush() -> None:
        state = ctypes.create_string_buffer(256)
        c.fegetenv(state)
        ctypes.c_uint32.from_buffer(state, place).value |= bits
        c.fesetenv(state)

    return _kept(_each_run(flush))


def _traced(*given: object) -> None:
    """Counts nothing."""


@contextlib.contextmanager
def _restored(act: Callable[[], object], get: Callable[[], Any], put: Callable[[Any], object]) -> Iterator[Subject]:
    """The subject that does ``act()`` when a run starts, and what ``get`` gives put back when it is gone."""
    before, made = get(), _each_run(act)
    made.announce()
    try:
        yield made
    finally:
        put(before)


@mutant("robust.process_is_left_alone")
def traces_itself() -> contextlib.AbstractContextManager[Subject]:
    """Installs a trace function and leaves it there."""
    return _restored(lambda: sys.settrace(_traced), sys.gettrace, sys.settrace)


@mutant("robust.process_is_left_alone")
def ends_a_profile() -> contextlib.AbstractContextManager[Subject]:
    """Takes away whatever profile function there is."""
    return _restored(lambda: sys.setprofile(None), sys.getprofile, sys.setprofile)


@mutant("robust.process_is_left_alone")
@contextlib.contextmanager
def silences_warnings() -> Iterator[Subject]:
    """Filters its library's warnings away, for everybody."""
    with warnings.catch_warnings():
        made = _each_run(lambda: warnings.filterwarnings("ignore", category=RuntimeWarning))
        made.announce()
        yield made


@mutant("robust.process_is_left_alone")
@contextlib.contextmanager
def sets_numbers_of_threads() -> Iterator[Subject]:
    """Tells other libraries by an environment variable how many threads to use."""
    before = dict(os.environ)
    made = _each_run(lambda: os.environ.update(OMP_NUM_THREADS="1"))
    made.announce()
    try:
        yield made
    finally:
        os.environ.clear()
        os.environ.update(before)


@mutant("robust.process_is_left_alone")
@contextlib.contextmanager
def goes_elsewhere() -> Iterator[Subject]:
    """Changes the working directory, where its compiler writes."""
    made = _each_run(lambda: os.chdir(os.sep))
    made.announce()
    with contextlib.chdir(os.getcwd()):
        yield made


@mutant("robust.process_is_left_alone")
@contextlib.contextmanager
def speaks_another_language() -> Iterator[Subject]:
    """Sets the locale to that in which its compiler reads numbers."""
    before = locale.setlocale(locale.LC_ALL)
    made = _each_run(lambda: locale.setlocale(locale.LC_ALL, "C"))
    made.announce()
    try:
        yield made
    finally:
        locale.setlocale(locale.LC_ALL, before)


@mutant("robust.process_is_left_alone")
@contextlib.contextmanager
def hides_its_files() -> Iterator[Subject]:
    """Sets the mask of new files, so that nobody else reads its cache."""
    before = os.umask(0)
    os.umask(before)
    made = _each_run(lambda: os.umask(0o077))
    made.announce()
    try:
        yield made
    finally:
        os.umask(before)


@mutant("robust.process_is_left_alone")
@contextlib.contextmanager
def writes_where_it_is() -> Iterator[Subject]:
    """Leaves what it compiled in the working directory."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        made = _each_run(lambda: Path("kernel.bin").touch())
        made.announce()
        yield made


@mutant("robust.process_is_left_alone")
def warns_each_time() -> Subject:
    """Warns in every run that it is not finished."""
    return _each_run(lambda: warnings.warn("some operators are slow", RuntimeWarning, stacklevel=1))


@mutant("robust.process_is_left_alone")
@contextlib.contextmanager
def shares_its_names() -> Iterator[Subject]:
    """Has libraries that are loaded from its first run on see each other's names."""
    before = sys.getdlopenflags()
    made = _each_run(lambda: sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL))
    made.announce()
    try:
        yield made
    finally:
        sys.setdlopenflags(before)
