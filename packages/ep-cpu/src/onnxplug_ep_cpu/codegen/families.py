"""Signatures of a region that differ only in some numbers, and the programs that serve them.

Lowering takes some 20 us a node, and a model that generates text has new shapes in each step, of which only a few sizes
differ. So the second signature is lowered with those sizes followed (see ``contract.sizes``). What comes of it is a *template*: an image
but for those sizes, and a tape that gives them for the next signature, or says that the lowering might go another way there.
The images are those that a lowering of their own would have made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from itertools import compress
from operator import is_not
from typing import Any

import numpy as np

from onnxplug.contract import TensorSpec
from onnxplug.contract.logs import Log
from onnxplug.contract.records import record
from onnxplug.contract.sizes import Tape
from onnxplug_ep_cpu.codegen.image import Image
from onnxplug_ep_cpu.codegen.program import Form
from onnxplug_ep_cpu.codegen.undecided import Open

log = Log("onnxplug.cpu")

Specs = Mapping[str, TensorSpec]
Lower = Callable[[Specs, Open], Form]

LATEST = 4
"""Images that are kept for when their signature comes again: the core binds anew for a plan what ran without one."""
FEW = 64
"""Elements of an array of integers that are followed one by one."""
TEMPLATES = 16
"""Programs kept of a family: they differ in tiles, remainders and the like."""
FAMILIES = 2
"""Of which templates are kept at once."""
FRUITLESS = 6
"""Programs in a row of which none served another signature, after which nothing is followed any more: following takes three times as long
as lowering."""
MISSES = 4
"""How many more programs than images from kept ones there may be before nothing is followed any more."""


class Images:
    """The images of a region: from a template where there is one, else from a lowering. Used by one thread at a time."""

    def __init__(self) -> None:
        self._latest: Specs | None = None
        self._kept: deque[tuple[Specs, Image]] = deque(maxlen=LATEST)
        self._families: list[Family] = []

    def image(self, specs: Specs, lower: Lower) -> Image:
        """The image for these specs; ``lower`` is the region's, which holds this."""
        for known, image in self._kept:
            others = _others(specs, known)
            if others is not None and all(_alike(specs[name], known[name]) for name in others):
                return image
        image = self._image(specs, lower)
        self._kept.append((specs, image))
        return image

    def _image(self, specs: Specs, lower: Lower) -> Image:
        latest, self._latest = self._latest, specs
        for family in self._families:
            given = family.given(specs)
            if given is not None:
                return family.image(given, specs, lower)
        found = None if latest is None else Family.of(latest, specs)
        given = None if found is None else found.given(specs)
        if found is None or given is None:
            return lower(specs, Open()).image(specs)
        self._families = [found, *self._families[: FAMILIES - 1]]
        return found.image(given, specs, lower)


@record(frozen=True, slots=True)
class Template:
    """A program with open sizes, and the arrays whose contents it took into account."""

    tape: Tape
    form: Form
    relied: Mapping[str, np.ndarray]

    def image(self, given: list[int], specs: Specs) -> Image | None:
        """The image for these sizes; None where the program might be another."""
        if not all(_equal(specs[name].constant, array) for name, array in self.relied.items()):
            return None
        values = self.tape.repeat(given)
        return None if values is None else self.form.image(specs, values)


@record(slots=True)
class Varying:
    """Values of a family that had the same two specs: what all their specs share, and where they hold which number of the
    signature."""

    fixed: list[tuple[int, int]] = field(default_factory=list)
    sizes: list[tuple[int, int]] = field(default_factory=list)
    """Dimension and which number."""
    fixed_elements: list[tuple[int, int]] = field(default_factory=list)
    elements: list[tuple[int, int]] = field(default_factory=list)
    """Element of a small array of integers and which number."""


class Family:
    """Signatures that differ from ``base`` in some numbers only. Places that held equal numbers in both of two signatures are
    taken for one number."""

    def __init__(self, base: Specs, varying: Mapping[str, Varying], count: int) -> None:
        self._base, self._varying, self._count = base, varying, count
        self._templates: list[Template] = []
        self._misses = self._fruitless = 0
        self._follows = True

    @classmethod
    def of(cls, old: Specs, new: Specs) -> Family | None:
        """The family of two signatures; None where they differ in more than numbers, or in nothing."""
        if old.keys() != new.keys():
            return None
        numbers: dict[tuple[int, int], int] = {}
        varying: dict[str, Varying] = {}
        same: dict[tuple[int, int], Varying] = {}
        for name, now in new.items():
            was = old[name]
            if _alike(was, now):
                continue
            if not _comparable(was, now):
                return None
            shared = same.get((id(was), id(now)))
            if shared is not None:
                varying[name] = shared
                continue
            found = varying[name] = same[id(was), id(now)] = Varying()
            _divide(list(zip(was.shape, now.shape, strict=True)), found.fixed, found.sizes, numbers)
            if was.constant is not None and now.constant is not None and _is_few(was, now):
                pairs = list(zip(was.constant.ravel().tolist(), now.constant.ravel().tolist(), strict=True))
                _divide(pairs, found.fixed_elements, found.elements, numbers)
        return cls(new, varying, len(numbers)) if numbers else None

    def given(self, specs: Specs) -> list[int] | None:
        """The numbers of a signature; None where it is not of the family. The next signature is compared with this one, with
        which it may share specs."""
        base, varying = self._base, self._varying
        others = _others(specs, base)
        if others is None or not all(name in varying or _alike(specs[name], base[name]) for name in others):
            return None
        numbers: list[int | None] = [None] * self._count
        filled: set[tuple[int, int]] = set()
        for name, places in varying.items():
            spec = specs[name]
            if (id(places), id(spec)) in filled:
                continue
            if not _comparable(spec, base[name]) or not _fill(spec.shape, places.fixed, places.sizes, numbers):
                return None
            if places.elements:
                if spec.constant is None or not _is_few(spec, base[name]):
                    return None
                if not _fill(spec.constant.ravel().tolist(), places.fixed_elements, places.elements, numbers):
                    return None
            filled.add((id(places), id(spec)))
        self._base = specs
        return [n for n in numbers if n is not None]

    def image(self, given: list[int], specs: Specs, lower: Lower) -> Image:
        """The image for the specs, whose numbers are given."""
        for at, template in enumerate(self._templates):
            image = template.image(given, specs)
            if image is not None:
                self._templates.insert(0, self._templates.pop(at))
                self._misses -= 1
                self._fruitless = 0
                return image
        self._misses += 1
        self._fruitless += 1
        self._follows = self._follows and self._misses < TEMPLATES + MISSES and self._fruitless <= FRUITLESS
        image = self._follow(given, specs, lower) if self._follows else None
        return lower(specs, Open()).image(specs) if image is None else image

    def _follow(self, given: list[int], specs: Specs, lower: Lower) -> Image | None:
        """Lower with the numbers followed; None where the lowering does something with them that cannot be."""
        tape = Tape(given)
        followed = dict(specs)
        arrays, elements = {}, {}
        for name, varying in self._varying.items():
            spec, shape = specs[name], list[Any](specs[name].shape)
            for at, number in varying.sizes:
                shape[at] = tape.sizes[number]
            followed[name] = TensorSpec(spec.dtype, tuple(shape), spec.constant)
            if spec.constant is None:
                continue
            arrays[name] = spec.constant
            if varying.elements:
                elements[name] = spec.constant.ravel().tolist()
                for at, number in varying.elements:
                    elements[name][at] = tape.sizes[number]
        open_ = Open(arrays, elements)
        try:
            form = lower(followed, open_)
        except Exception as reason:
            # Whatever NumPy and lowerings do with what is no plain number; a real failure comes again.
            log.debug("sizes are not followed: %s: %s", type(reason).__name__, reason)
            self._follows = False
            return None
        finally:
            tape.close()
        if not tape.serves_others:
            self._fruitless += FRUITLESS // 2
            return form.image(specs)
        self._templates.insert(0, Template(tape, form, {name: arrays[name] for name in open_.relied}))
        del self._templates[TEMPLATES:]
        return form.image(specs)


def _divide(
    pairs: list[tuple[int, int]], fixed: list[tuple[int, int]], sizes: list[tuple[int, int]],
    numbers: dict[tuple[int, int], int],
) -> None:  # fmt: skip
    """Places of equal numbers, and the others with the number they hold."""
    for at, (was, now) in enumerate(pairs):
        if was == now:
            fixed.append((at, now))
        else:
            sizes.append((at, numbers.setdefault((was, now), len(numbers))))


def _fill(
    found: tuple[int, ...] | list[int], fixed: list[tuple[int, int]], sizes: list[tuple[int, int]],
    numbers: list[int | None],
) -> bool:  # fmt: skip
    """Enter the numbers; False where they contradict what is known."""
    for at, wanted in fixed:
        if found[at] != wanted:
            return False
    for at, number in sizes:
        if numbers[number] is None:
            numbers[number] = found[at]
        elif numbers[number] != found[at]:
            return False
    return True


def _others(a: Specs, b: Specs) -> Iterable[str] | None:
    """Names whose specs may differ: they are not one object. None where the names differ."""
    names = list(a)
    if names == list(b):  # as the same region's always are: the comparison then takes a tenth of the time
        return compress(names, map(is_not, a.values(), b.values()))
    return names if a.keys() == b.keys() else None


def _comparable(a: TensorSpec, b: TensorSpec) -> bool:
    """Whether only numbers can differ."""
    return a.dtype == b.dtype and len(a.shape) == len(b.shape) and (a.constant is None) == (b.constant is None)


def _is_few(a: TensorSpec, b: TensorSpec) -> bool:
    """Whether the elements of two constants are followed one by one."""
    return a.dtype.kind in "iu" and a.shape == b.shape and a.constant is not None and 0 < a.constant.size <= FEW


def _alike(a: TensorSpec, b: TensorSpec) -> bool:
    return a is b or (a.dtype == b.dtype and a.shape == b.shape and _equal(a.constant, b.constant))


def _equal(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    if a is b:
        return True
    return a is not None and b is not None and a.shape == b.shape and a.tobytes() == b.tobytes()
