"""Loads the object files LLVM makes for x86-64 Linux without LLVM: a kernel is code and constants that only refer to each other.

Layout after "System V Application Binary Interface, AMD64 Architecture Processor Supplement", chapter 4, and the ELF-64
specification. What is more than that is refused, and left to LLVM's own loader.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import struct
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from onnxplug.contract.records import record

GIVEN, GIVEN_BYTES = "given", 64
"""Name, with a number, and size of constants that are put in when code is loaded."""
SUPPORTED = sys.platform == "linux" and platform.machine() == "x86_64" and sys.maxsize > 1 << 32

_SECTION, _SYMBOL, _RELOCATION = struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ"), struct.Struct("<QQq")
_PROGBITS, _SYMTAB, _RELA = 1, 2, 4
_WRITE, _ALLOC = 1, 2
_PC32, _PLT32 = 2, 4
_UNDEFINED, _RESERVED = 0, 0xFF00
_LIBC = ("memcpy", "memset", "memmove", "syscall")
_JUMP = struct.Struct("<2sQ2s")
"""``mov rax, address; jmp rax``: libc lies farther away than a relative call reaches."""


class Refused(Exception):
    """An object file that has something else in it."""


class Code(Protocol):
    """Loaded code."""

    def get_function_address(self, name: str) -> int:
        """Where a function begins; 0 when there is none of that name."""


class Loaded:
    """Object files in executable memory, which is given back with this."""

    def __init__(self, blobs: Sequence[bytes], given: Sequence[Sequence[bytes]] = ()) -> None:
        """``given``: of each object the constants it leaves open, ``GIVEN_BYTES`` each. One file may come with several."""
        objects = [_Object(blob) for blob in blobs]
        at = 0
        for each in objects:
            at = each.lay_out(at)
        stubs = {name: at + number * _JUMP.size for number, name in enumerate(_LIBC)}
        at = -(-(at + _JUMP.size * len(_LIBC)) // GIVEN_BYTES) * GIVEN_BYTES
        constants = dict.fromkeys(constant for each in given for constant in each)
        places = {constant: at + GIVEN_BYTES * number for number, constant in enumerate(constants)}
        size = max(1, at + GIVEN_BYTES * len(places))
        self._memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for name, stub in stubs.items():
            _JUMP.pack_into(self._memory, stub, b"\x48\xb8", _libc_address(name), b"\xff\xe0")
        for constant, place in places.items():
            self._memory[place : place + GIVEN_BYTES] = constant
        for each, own in zip(objects, given or [()] * len(objects), strict=True):
            each.place(self._memory, stubs | {f"{GIVEN}{n}": places[constant] for n, constant in enumerate(own)})
        if _libc().mprotect(ctypes.c_void_p(base), ctypes.c_size_t(size), mmap.PROT_READ | mmap.PROT_EXEC):
            raise Refused("the system does not let memory be executed")
        self.functions = [{name: base + at for name, at in each.functions().items()} for each in objects]
        """Of each object its functions and where they begin."""

    def get_function_address(self, name: str) -> int:
        """Where a function begins; 0 when there is none of that name."""
        return next((functions[name] for functions in self.functions if name in functions), 0)


@record(slots=True)
class _Section:
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    at: int = -1
    """Where it lies in memory; -1: it is not loaded."""


class _Object:
    """One file's sections and symbols."""

    def __init__(self, blob: bytes) -> None:
        if blob[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<HH", blob, 16) != (1, 62):
            raise Refused("not a relocatable ELF object for x86-64")
        (start,) = struct.unpack_from("<Q", blob, 40)
        width, count = struct.unpack_from("<HH", blob, 58)
        self._blob = blob
        self._sections: list[_Section] = []
        for number in range(count):
            _, kind, flags, _, offset, size, link, info, alignment, _ = _SECTION.unpack_from(
                blob, start + number * width
            )
            self._sections.append(_Section(kind, flags, offset, size, link, info, max(1, alignment)))
        table = next((s for s in self._sections if s.kind == _SYMTAB), None)
        if table is None:
            raise Refused("it has no symbols")
        names = self._sections[table.link].offset
        self._symbols: list[tuple[str, int, int, int]] = []
        for at in range(table.offset, table.offset + table.size, _SYMBOL.size):
            name, info, _, section, value, _ = _SYMBOL.unpack_from(blob, at)
            begin = names + name
            self._symbols.append((blob[begin : blob.index(b"\0", begin)].decode(), info & 15, section, value))

    def lay_out(self, at: int) -> int:
        """Give code and constants their places from ``at`` on; where they end."""
        for section in self._sections:
            if section.kind == _PROGBITS and section.flags & _ALLOC and section.size:
                if section.flags & _WRITE:
                    raise Refused("it has data that are written")
                at = section.at = -(-at // section.alignment) * section.alignment
                at += section.size
        return at

    def place(self, memory: mmap.mmap, stubs: Mapping[str, int]) -> None:
        """Copy what was laid out and let it refer to where things are."""
        blob = self._blob
        for section in self._sections:
            if section.at >= 0:
                memory[section.at : section.at + section.size] = blob[section.offset : section.offset + section.size]
        for table in self._sections:
            if table.kind != _RELA or self._sections[table.info].at < 0:
                continue
            here = self._sections[table.info].at
            for at in range(table.offset, table.offset + table.size, _RELOCATION.size):
                offset, info, addend = _RELOCATION.unpack_from(blob, at)
                if info & 0xFFFFFFFF not in (_PC32, _PLT32):
                    raise Refused(f"it has relocations of type {info & 0xFFFFFFFF}")
                place = here + offset
                struct.pack_into("<i", memory, place, self._lies(info >> 32, stubs) + addend - place)

    def functions(self) -> dict[str, int]:
        """Global names, and where they lie."""
        sections = self._sections
        return {
            name: sections[section].at + value
            for name, kind, section, value in self._symbols
            if name and kind == 2 and 0 < section < _RESERVED and sections[section].at >= 0
        }

    def _lies(self, number: int, stubs: Mapping[str, int]) -> int:
        name, _, section, value = self._symbols[number]
        if section == _UNDEFINED and name in stubs:
            return stubs[name]
        if not _UNDEFINED < section < _RESERVED or self._sections[section].at < 0:
            raise Refused(f"it refers to '{name}'")
        return self._sections[section].at + value


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _libc_address(name: str) -> int:
    return ctypes.cast(getattr(_libc(), name), ctypes.c_void_p).value or 0
