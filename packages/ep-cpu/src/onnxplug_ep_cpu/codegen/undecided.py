"""Arrays that shapes decide, in a lowering whose sizes are followed: whoever looks at one ties the program to its contents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

import numpy as np

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.program import Buffer


@record(frozen=True, slots=True)
class Open:
    """What another bind of a program may have otherwise. ``arrays``: by the value's name, as they are in this one;
    ``numbers``: elements of small arrays of integers, sizes among them; ``relied``: names of those whose contents the program
    took into account."""

    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    numbers: Mapping[str, list[Any]] = field(default_factory=dict)
    relied: set[str] = field(default_factory=set)

    def look(self, name: str) -> None:
        """The program depends on the contents."""
        if name in self.arrays:
            self.relied.add(name)


class Undecided(Buffer):
    """A constant that is found when the program is filled in."""

    __slots__ = ("_open",)

    def __init__(self, open_: Open, name: str) -> None:
        self.kind, self.nbytes, self.number, self.known = "constant", open_.arrays[name].nbytes, 0, name
        self.recipe = None
        self._open = open_

    @property
    def array(self) -> np.ndarray:  # type: ignore[override]
        """The contents in this bind, on which the program then depends."""
        self._open.look(self.known)
        return self._open.arrays[self.known]
