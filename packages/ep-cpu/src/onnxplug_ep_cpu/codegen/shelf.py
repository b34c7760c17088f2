"""What an earlier process made of a graph's regions: their programs for given shapes with the constants as
they were packed. A session that finds its own needs neither lowerings nor the descriptions of kernels, which take longer to import than
most models to compute (decision 0021).

Entries are named by the graph's identity, which stands for the model, the options, the providers and all code of theirs, and by the
processor and the number of threads.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Collection, Mapping
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from onnxplug.contract import Region, TensorSpec, element_of, numpy_dtype
from onnxplug.contract.cache import DiskCache
from onnxplug.contract.digest import blake2b
from onnxplug_ep_cpu.codegen import claimed
from onnxplug_ep_cpu.codegen.compiler import compiler
from onnxplug_ep_cpu.codegen.image import Image
from onnxplug_ep_cpu.codegen.settings import Settings
from onnxplug_ep_cpu.codegen.target import Target

LARGEST = 64 << 20
"""Bytes of constants of a program that is kept: a few larger ones would fill the folder."""
MOST = 4
"""Programs of a region that one process keeps: a model that is given new shapes all the time would fill the folder."""
_CONSTANTS = "-constants"
"""What the name of the file with a program's constants ends in."""


File = tuple[str, tuple[int, ...], int]
"""A file of arrays: its name, their sizes in bytes and its checksum."""


def varies(region: Region) -> bool:
    """Whether the model leaves shapes open of what a region reads."""
    return any(v.shape is None or not all(isinstance(n, int) for n in v.shape) for v in region.inputs)


def shelf(region: Region, target: Target, threads: int, settings: Settings) -> RegionShelf | None:
    """Where programs of a region are kept; None where they are not: of graphs that nobody knows again, and where measurements or other
    regions decide about algorithms."""
    cache, parent = claimed.cache(), region.graph.parent
    if cache is None or parent is None or not parent.identity:
        return None
    if settings.tune or settings.winograd_memory is not None:
        return None
    first = next(at for at, node in enumerate(parent.nodes) if node is region.graph.nodes[0])
    facts = parent.identity, first, region.name, target, threads, settings
    return RegionShelf(cache, region, target, facts)


class Texts(NamedTuple):
    """What a program knows of strings."""

    made: Mapping[str, TensorSpec]
    """Specs of the region's outputs: the signature's, or those that the lowering finds where some are strings."""
    lists: Mapping[str, np.ndarray]
    """In which the program computes places, for outputs that are strings."""
    numbers: Mapping[str, int]
    """By which it knows words, for inputs that are strings: from 1 on, in this order."""

    @classmethod
    def of(cls, data: Any, specs: Mapping[str, TensorSpec]) -> Texts:
        """Those of such data, of a program for ``specs``."""
        made, lists, words = data
        return cls(
            specs if made is None else {name: _spec(*spec) for name, spec in made},
            {name: np.array(spelled, object) for name, spelled in lists},
            dict(zip(words, count(1))),
        )

    def data(self, specs: Mapping[str, TensorSpec]) -> Any:
        """As ``marshal`` writes it."""
        made = None if self.made is specs else [(name, _data(spec)) for name, spec in self.made.items()]
        return made, [(name, spelled.tolist()) for name, spelled in self.lists.items()], list(self.numbers)

    @property
    def are_portable(self) -> bool:
        """Whether all can be written down."""
        return all(type(word) is str for words in (*self.lists.values(), self.numbers) for word in words)


class RegionShelf:
    """The programs of one region. Used by one thread at a time."""

    def __init__(self, cache: DiskCache, region: Region, target: Target, facts: tuple[Any, ...]) -> None:
        self._cache, self._region, self._target, self._identity = cache, region, target, facts
        self._varies = varies(region)
        self._left = MOST
        self._written: dict[tuple[int, int], tuple[np.ndarray, File, int]] = {}
        """Constants that this process has kept by where they lie in memory, each with its file and its number there."""
        self._read: dict[File, list[np.ndarray] | None] = {}
        """Files that the latest program's constants were read from, most of which the next one has as well."""
        self._expected: bytes | None = None
        self._tells = True
        """Whether the first signature of this process is still to come."""
        self.facts: Mapping[str, Any] | None = None
        """What is to be told of the program that was found last."""

    def expected(self) -> Mapping[str, TensorSpec] | None:
        """The signature that the latest process to run the region began with, where its program has too many constants to be kept and the
        model leaves shapes open."""
        self._expected = self._cache.get(claimed.entry("expected", *self._identity))
        return None if self._expected is None else {name: _spec(*data) for name, data in marshal.loads(self._expected)}

    def _expect(self, specs: Mapping[str, TensorSpec]) -> None:
        """Tell the next process with which signature this one began."""
        self._tells = False
        blob = marshal.dumps([(name, _data(spec)) for name, spec in specs.items()])
        if blob != self._expected:
            self._cache.put(claimed.entry("expected", *self._identity), blob)

    def get(self, specs: Mapping[str, TensorSpec]) -> tuple[Image, Texts] | None:
        """The program for a signature; None where it, or a kernel of it, is not kept."""
        entry = self._entry(specs)
        blob = None if entry is None else self._cache.get(entry)
        if blob is None:
            return None
        (
            words, moves, bases, functions, placed, files, places, workspace, works, threads, checked, marks, facts, texts
        ) = marshal.loads(blob)  # fmt: skip
        self._read = {file: self._read[file] if file in self._read else self._cache.get_arrays(*file) for file in files}
        addresses = compiler(self._target).reached([function for _, function in functions])
        blocks = [block for block in self._read.values() if block is not None]
        if len(blocks) < len(files) or addresses is None:
            return None
        kept = [blocks[file][number] for file, number in places]
        found = np.frombuffer(words, np.int64).copy()
        for (word, _), address in zip(functions, addresses, strict=True):
            found[word] = address
        for word, number in placed:
            found[word] += kept[number].ctypes.data
        nodes = self._region.graph.nodes
        of = [(first, tuple(nodes[at] for at in places)) for first, places in marks]
        self.facts = facts
        image = Image(
            found, np.frombuffer(moves, np.int64).reshape(-1, 2), bases, kept, workspace, np.frombuffer(works, np.float64),
            threads, checked, of,
        )  # fmt: skip
        return image, Texts.of(texts, specs)

    def put(
        self, specs: Mapping[str, TensorSpec], image: Image, texts: Texts, facts: Callable[[], Mapping[str, Any]]
    ) -> None:
        """Keep a program, and what is to be told of it, unless its constants are many."""
        self._read = {}  # from here on programs are lowered
        if image.origin is None or self._left <= 0:
            return
        arrays = {id(array): array for array in image.kept}  # several calls may read one
        constants = list(arrays.values())
        if self._tells and self._varies and texts.made is specs and _nbytes(constants) > LARGEST:
            self._expect(specs)
        origin, entry = image.origin, self._entry(specs) if _is_portable(constants) else None
        if entry is None or not texts.are_portable:
            return
        functions = [(word, compiler(self._target).function(kernel)) for word, kernel in origin.functions]
        if any(function is None for _, function in functions):
            return
        self._left -= 1
        words, order = image.words.copy(), {key: number for number, key in enumerate(arrays)}
        words[[word for word, _ in functions]] = 0
        for word, number in origin.placed:
            words[word] -= image.kept[number].ctypes.data
        files, places = self._constants(entry, constants)
        at = {id(node): number for number, node in enumerate(self._region.graph.nodes)}
        data = (
            words.tobytes(), image.moves.tobytes(), image.count, functions,
            [(word, order[id(image.kept[number])]) for word, number in origin.placed],
            files, places, int(image.workspace), image.works.tobytes(), image.threads, image.checked,
            [(first, [at[id(node)] for node in nodes]) for first, nodes in image.marks], dict(facts()),
            texts.data(specs),
        )  # fmt: skip
        self._cache.put(entry, marshal.dumps(data))

    def _constants(self, entry: str, arrays: list[np.ndarray]) -> tuple[list[File], list[tuple[int, int]]]:
        """The files with these constants, and for each which file and its number there. Those that a program for another signature has
        too, as weights are, are not written again: what is left are mostly tables made of sizes."""
        fresh = [array for array in arrays if _place(array) not in self._written]
        if fresh:
            sizes = tuple(array.nbytes for array in fresh)
            # another process may have others of this program left to write
            name = claimed.entry(entry, sizes) + _CONSTANTS
            file = name, sizes, self._cache.put_arrays(name, fresh)
            self._written.update((_place(array), (array, file, number)) for number, array in enumerate(fresh))
        found = [self._written[_place(array)] for array in arrays]
        if not self._left:
            self._written = {}  # nothing more is kept
        files = list(dict.fromkeys(file for _, file, _ in found))
        return files, [(files.index(file), number) for _, file, number in found]

    def _entry(self, specs: Mapping[str, TensorSpec]) -> str | None:
        """The name of a signature's program; None for one that depends on the contents of strings."""
        if any(spec.dtype.hasobject and spec.constant is not None for spec in specs.values()):
            return None
        signature = [
            (
                name,
                spec.dtype.str,
                spec.shape,
                None if spec.constant is None else blake2b(spec.constant.tobytes()).digest(),
            )
            for name, spec in specs.items()
        ]
        return claimed.entry("program", *self._identity, signature)


def _place(array: np.ndarray) -> tuple[int, int]:
    """The memory of a dense array."""
    return array.ctypes.data, array.nbytes


def _is_portable(arrays: Collection[np.ndarray]) -> bool:
    """Whether arrays can be written down as they lie, and are not too much."""
    return all(a.flags.c_contiguous for a in arrays) and _nbytes(arrays) <= LARGEST


def _nbytes(arrays: Collection[np.ndarray]) -> int:
    return sum(a.nbytes for a in arrays)


def _data(spec: TensorSpec) -> tuple[str, tuple[int, ...], bytes | None]:
    """A spec as ``marshal`` writes it."""
    constant = None if spec.constant is None else spec.constant.tobytes()
    return element_of(spec.dtype), tuple(map(int, spec.shape)), constant


def _spec(element: str, shape: tuple[int, ...], constant: bytes | None) -> TensorSpec:
    """The spec of such data."""
    dtype = numpy_dtype(element)
    return TensorSpec(dtype, shape, None if constant is None else np.frombuffer(constant, dtype).reshape(shape))
