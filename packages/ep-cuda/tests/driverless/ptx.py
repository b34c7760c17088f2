"""PTX, as NVRTC writes it, translated to C (``ptx.h`` has what the instructions do), so that kernels are run where there is no GPU.

Each thread of a block is a call of the kernel's function, which returns at a barrier and where a warp exchanges values, and is called again
where it was. What is not known is refused by name: nothing is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from driverless.arithmetic import WIDTH, Untranslated, Variable, split
from driverless.instructions import Instructions, label

PRELUDE = (Path(__file__).parent / "ptx.h").read_text()
_LABEL = re.compile(r"\s*(\$?[\w$]+):(?!:)")


@dataclass
class Kernel:
    """An entry: offsets and sizes of its parameters, the memory its blocks and threads have."""

    name: str
    params: list[tuple[int, int]]
    shared: int
    local: int


@dataclass
class Module:
    """A translated module."""

    text: str
    kernels: dict[str, Kernel]


def translated(source: str) -> Module:
    """The C text of a module. ``Untranslated`` for what is not known."""
    return _Module(re.sub(r"/\*.*?\*/", "", re.sub(r"//[^\n]*", "", source), flags=re.DOTALL)).module()


_FUNCTION = re.compile(
    r"(?:\.(?:visible|weak|extern|common)\s+)*\.(?P<kind>entry|func)\s*(?P<returned>\([^()]*\))?\s*(?P<name>[\w$]+)\s*"
    r"(?P<taken>\([^()]*\))?(?P<directives>[^;{]*)(?P<end>[;{])"
)
_DECLARED = re.compile(
    r"\.(?P<space>global|const|shared|local|param|reg)\s+(?:\.align\s+(?P<align>\d+)\s+)?(?:\.align\s+\d+\s+)?\.(?P<type>\w+)\s+"
    r"(?:\.ptr\S*\s+(?:\.\w+\s+\d*\s*)*)?(?P<name>[\w$%]+)(?P<size>\[\d*\])?(?:<(?P<count>\d+)>)?(?:\s*=\s*(?P<value>.*))?$",
    re.DOTALL,
)


class _Module:
    def __init__(self, source: str) -> None:
        self._source = source
        self.variables: dict[str, Variable] = {}
        self._bytes: bytearray = bytearray()
        self.shared = 0

    def module(self) -> Module:
        bodies, outside, at = [], [], 0
        while (found := _FUNCTION.search(self._source, at)) is not None:
            outside.append(self._source[at : found.start()])
            at = found.end()
            if found["end"] == "{":
                end = _closing(self._source, at)
                bodies.append((found, self._source[at:end]))
                at = end + 1
        outside.append(self._source[at:])
        for statement in "".join(outside).split(";"):
            words = re.sub(r"^\s*\.(version|target|address_size)[^\n]*$", "", statement, flags=re.MULTILINE)
            words = re.sub(r"\.(visible|weak|extern|common)\b", "", words).strip()
            if words:
                self.declare(words)
        functions = [_Function(self, found, body) for found, body in bodies]
        texts = [f.text() for f in functions]
        data = ",".join(map(str, self._bytes)) or "0"
        kernels = {f.name: Kernel(f.name, f.placed, f.shared, f.local) for f in functions if f.is_entry}
        head = [f"static u8 variables[] __attribute__((aligned(16))) = {{{data}}};"]
        head += [f.declaration() for f in functions if not f.is_entry]
        return Module("\n".join([PRELUDE, *head, *texts]), kernels)

    def declare(self, words: str) -> None:
        """A variable of the module."""
        found = _DECLARED.match(words)
        if found is None:
            raise Untranslated(words)
        width, count = WIDTH[found["type"]] // 8, _count(found["size"])
        align, size = int(found["align"] or width), width * count
        if found["space"] == "shared":
            self.shared = -(-self.shared // align) * align
            self.variables[found["name"]] = Variable("shared", self.shared, size)
            self.shared += size
            return
        at = -(-len(self._bytes) // 16) * 16
        values = [int(v, 0) for v in re.findall(r"-?\w+", found["value"] or "")]
        data = b"".join((v % (1 << 8 * width)).to_bytes(width, "little") for v in values)
        self._bytes[len(self._bytes) :] = bytes(at - len(self._bytes)) + data + bytes(max(size - len(data), 1))
        self.variables[found["name"]] = Variable("global", at, size)


@dataclass
class _Function(Instructions):
    """A function that is being translated."""

    module: _Module
    found: re.Match[str]
    body: str
    registers: dict[str, int] = field(default_factory=dict)
    names: list[dict[str, str]] = field(default_factory=lambda: [{}])
    variables: dict[str, Variable] = field(default_factory=dict)
    placed: list[tuple[int, int]] = field(default_factory=list)
    arrays: dict[str, int] = field(default_factory=dict)
    local: int = 0
    scopes: int = 0

    def __post_init__(self) -> None:
        self.name, self.is_entry = self.found["name"], self.found["kind"] == "entry"
        self.shared, self.module_variables = self.module.shared, self.module.variables
        self.tables: dict[str, list[str]] = {}
        self.yields = self.is_entry and bool(re.search(r"\b(bar|barrier|shfl|vote|match|redux)\.", self.body))
        self.taken = self._parameters(self.found["taken"])
        self.returned = self._parameters(self.found["returned"])
        offset = 0
        for name, width, align, count in self.taken:
            if self.is_entry:
                offset = -(-offset // align) * align
                self.variables[name] = Variable("param", offset, width * count)
                self.placed.append((offset, width * count))
                offset += width * count
            else:
                self.names[0][name] = name

    @staticmethod
    def _parameters(words: str | None) -> list[tuple[str, int, int, int]]:
        made = []
        for each in filter(None, (w.strip() for w in (words or "()").strip()[1:-1].split(","))):
            found = _DECLARED.match(each)
            if found is None:
                raise Untranslated(each)
            width = WIDTH[found["type"]] // 8
            made.append((found["name"], width, int(found["align"] or width), _count(found["size"])))
        return made

    def declaration(self) -> str:
        """Of a function that is called."""
        return f"static void {self.name}(Launch *l, Thread *t{''.join(f', u8 *{n}' for n, *_ in (*self.returned, *self.taken))});"

    def text(self) -> str:
        """The function in C."""
        lines = [self._statement(s) for s in self._statements()]
        kinds = "".join(f" u{width} {name};" for name, width in self.registers.items())
        arrays = "".join(f" u8 {name}[{size}] __attribute__((aligned(8)));" for name, size in self.arrays.items())
        inside = "\n  ".join(lines)
        if not self.is_entry:
            for name, width, _, count in self.returned:
                arrays += f" (void){name};" if width * count else ""
            return f"{self.declaration()[:-1]} {{{kinds}{arrays}\n  {inside}\n}}"
        n = self.name
        sizes = f"const u64 {n}_shared = {self.shared}, {n}_local = {self.local};"
        entry = f"int {n}_run(Launch *l, Thread *threads, u8 *registers, int order) {{ l->low = (u64)variables; "
        entry += "l->high = l->low + sizeof variables; "
        if not self.yields:
            body = f"static int {n}_body(Launch *l, Thread *t) {{{kinds}{arrays}\n  {inside}\n  return DONE;\n}}"
            return (
                f"{body}\n{sizes} const u64 {n}_step = 0;\n{entry}return run_plain(l, {n}_body, registers, order); }}"
            )
        struct = f"typedef struct {{{kinds} u64 last; }} {n}_R;"
        body = (
            f"static int {n}_body(Launch *l, Thread *t) {{ {n}_R *r = ({n}_R *)t->registers;{arrays}\n  switch (t->pc) {{ case 0:;\n  "
            f"{inside}\n  }}\n  return DONE;\n}}"
        )
        entry += f"return run(l, {n}_body, threads, registers, {n}_step, order); }}"
        return f"{struct}\n{body}\n{sizes} const u64 {n}_step = sizeof({n}_R);\n{entry}"

    # ---- statements

    def _statements(self) -> Iterator[str]:
        """Statements without their ends; scopes and labels by themselves."""
        for part in self.body.split(";"):
            rest = part
            while True:
                rest = rest.lstrip()
                if rest[:1] in ("{", "}"):
                    yield rest[0]
                    rest = rest[1:]
                elif (found := _LABEL.match(rest)) is not None:
                    yield found[0].strip()
                    rest = rest[found.end() :]
                else:
                    break
            if rest.strip():
                yield " ".join(rest.split())

    def _statement(self, words: str) -> str:
        if words == "{":
            self.names.append({})
            return "{"
        if words == "}":
            self.names.pop()
            return "}"
        if words.endswith(":"):
            self._last_label = label(words[:-1])
            return f"{self._last_label}:;"
        if words.startswith("."):
            return self._directive(words)
        found = re.match(r"(?:@(!?)(%?[\w$]+)\s+)?([a-z][\w.:]*)\s*(.*)$", words, re.DOTALL)
        if found is None:
            raise Untranslated(words)
        denied, guard, opcode, operands = found.groups()
        try:
            made = self.instruction(opcode, split(operands))
        except (KeyError, ValueError, IndexError) as error:
            raise Untranslated(f"{words} ({type(error).__name__}: {error})") from error
        return made if guard is None else f"if ({denied and '!'}{self.register(guard)}) {{ {made} }}"

    def _directive(self, words: str) -> str:
        if words.startswith((".pragma", ".loc ", ".maxntid", ".minnctapersm", ".reqntid")):
            return ""
        if words.startswith(".branchtargets"):
            self.tables[self._last_label] = [label(w) for w in split(words.removeprefix(".branchtargets"))]
            return ""
        kind, *_ = words.split()
        if kind == ".reg":
            type_, names = re.match(r"\.reg\s+\.(\w+)\s+(.*)", words, re.DOTALL).groups()  # type: ignore[union-attr]
            for each in split(names):
                name, _, count = each.partition("<")
                for n in range(int(count[:-1])) if count else [None]:
                    plain = name.lstrip("%") + ("" if n is None else str(n))
                    self._declare(name + ("" if n is None else str(n)), plain, WIDTH[type_])
            return ""
        found = _DECLARED.match(words)
        if found is None:
            raise Untranslated(words)
        width, count = WIDTH[found["type"]] // 8, _count(found["size"])
        align = int(found["align"] or width)
        if kind == ".param":
            name = self._unique(found["name"])
            self.arrays[name] = width * count
        elif kind == ".local":
            self.local = -(-self.local // align) * align
            self.variables[found["name"]] = Variable("local", self.local, width * count)
            self.local += width * count
        elif kind == ".shared":
            self.shared = -(-self.shared // align) * align
            self.variables[found["name"]] = Variable("shared", self.shared, width * count)
            self.shared += width * count
        else:
            raise Untranslated(words)
        return ""

    def _declare(self, name: str, plain: str, width: int) -> None:
        unique = f"R_{plain.replace('$', '_')}" + (f"_{self.scopes}" if len(self.names) > 1 else "")
        self.names[-1][name], self.registers[unique] = unique, width
        if len(self.names) > 1:
            self.scopes += 1

    def _unique(self, name: str) -> str:
        self.scopes += 1
        self.names[-1][name] = made = f"P_{name.replace('$', '_')}_{self.scopes}"
        return made


def _count(size: str | None) -> int:
    return 1 if size is None else int(size[1:-1] or "0")


def _closing(text: str, at: int) -> int:
    """Where the brace closes that was opened before ``at``."""
    depth = 1
    for found in re.finditer(r"[{}]", text[at:]):
        depth += 1 if found[0] == "{" else -1
        if not depth:
            return at + found.start()
    raise Untranslated("a brace that does not close")
