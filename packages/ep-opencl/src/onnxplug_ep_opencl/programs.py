"""The programs of one session. Compiling costs mostly by the program, not by the kernel, so that kernels that are announced wait until the
first of them runs, and become one program: those of a whole model, usually."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from typing import Any

import pyopencl as cl

from onnxplug.contract import EPFail
from onnxplug_ep_opencl.machine import Machine

Text = tuple[str, str]
"""Kernel text behind the prelude, and the kernel's name in it."""

KEPT = 1024
"""Kernels of a session that stay when others are built, those asked for last: shapes that change bring new ones for ever."""


class Programs:
    """Thread-safe."""

    def __init__(self, machine: Machine, options: tuple[str, ...], cache_dir: str) -> None:
        self._machine, self._options, self._cache_dir = machine, options, cache_dir
        self._waiting: dict[Text, None] = {}
        self._built: dict[Text, tuple[Any, str]] = {}
        self._lock = threading.Lock()

    def announce(self, text: Text) -> None:
        """A kernel that will be wanted."""
        with self._lock:
            if text not in self._built:
                self._waiting[text] = None

    def kernel(self, text: Text) -> Any:
        """A kernel object with arguments of its own."""
        with self._lock:
            if text not in self._built:
                self._build(text)
            self._built[text] = program, name = self._built.pop(text)  # behind those asked for longer ago
        return cl.Kernel(program, name)

    def _build(self, wanted: Text) -> None:
        texts = list(self._waiting | {wanted: None})
        try:
            self._together(texts)
        except EPFail as error:
            if len(texts) == 1:
                raise _of_kernel(wanted, error) from error
            try:
                self._together([wanted])  # fails, or another text does, which whoever wants that will hear
            except EPFail as own:
                raise _of_kernel(wanted, own) from own

    def _together(self, texts: Sequence[Text]) -> None:
        source, names = joined(texts)
        program = self._machine.program(source, self._options, self._cache_dir)
        while len(self._built) > KEPT:
            del self._built[next(iter(self._built))]
        for text, name in zip(texts, names, strict=True):
            self._built[text] = program, name
            self._waiting.pop(text, None)


def _of_kernel(text: Text, error: EPFail) -> EPFail:
    """What a compiler says of one kernel, with the kernel's name."""
    made: EPFail = EPFail(f"kernel {text[1]}: {error.text}")
    return made


def joined(texts: Sequence[Text]) -> tuple[str, list[str]]:
    """Texts as one, and what their kernels are called there: what a text declares starts with its kernel's name, which becomes unique."""
    names = [f"k{n}_{name}" for n, (_, name) in enumerate(texts)]
    renamed = (re.sub(rf"\b{t[1]}(?=_|\b)", name, t[0]) for t, name in zip(texts, names, strict=True))
    return "\n".join(renamed), names
