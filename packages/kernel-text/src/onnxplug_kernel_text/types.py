"""Element types of kernels: ONNX's names, what they are called in kernel text, and the types arithmetic is done in."""

from __future__ import annotations

OF_ELEMENT: dict[str, str] = {
    "float": "f32", "double": "f64", "float16": "f16", "bfloat16": "bf16", "bool": "b8",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
}  # fmt: skip
"""ONNX element name -> name in kernel text."""

SIZES: dict[str, int] = {
    "f32": 4, "f64": 8, "f16": 2, "bf16": 2, "b8": 1,
    "i8": 1, "i16": 2, "i32": 4, "i64": 8, "u8": 1, "u16": 2, "u32": 4, "u64": 8,
}  # fmt: skip
VECTORS: dict[str, str] = {
    "f32": "float", "f64": "double", "i32": "int", "i64": "long", "u32": "uint", "u64": "ulong",
}  # fmt: skip
"""What OpenCL calls the types of which kernels have vectors: before their number of elements."""
APART = "#pragma OPENCL FP_CONTRACT OFF\n"
"""What a text or a block begins with whose products and sums are rounded one by one: compilers join them else, and where a result is
rounded to an integer, or an element chosen by it, another one may come of that."""
FLOATS = ("f16", "bf16", "f32", "f64")
SIGNED = ("i8", "i16", "i32", "i64")

_LOWEST = {
    "i8": "(-128)", "i16": "(-32768)", "i32": "(-2147483647 - 1)", "i64": "(-9223372036854775807L - 1)",
    "u8": "0", "u16": "0", "u32": "0u", "u64": "0UL", "b8": "0",
}  # fmt: skip
_HIGHEST = {
    "i8": "127", "i16": "32767", "i32": "2147483647", "i64": "9223372036854775807L",
    "u8": "255", "u16": "65535", "u32": "4294967295u", "u64": "18446744073709551615UL", "b8": "1",
}  # fmt: skip


def arithmetic(type_: str) -> str:
    """The type in which values of ``type_`` are held in registers: 16-bit floats are computed in float32."""
    return "f32" if type_ in ("f16", "bf16") else type_


def accumulated(type_: str) -> str:
    """The type in which products are added up whose results are stored as ``type_``: int32 for bytes."""
    return "i32" if type_ in ("i8", "u8") else arithmetic(type_)


def raw(size: int) -> str:
    """The unsigned type of ``size`` bytes, for kernels that only move bits."""
    return {1: "u8", 2: "u16", 4: "u32", 8: "u64"}[size]


def lowest(type_: str) -> str:
    """The smallest value of a type, as text: minus infinity for floats."""
    return _LOWEST.get(type_, f"(-({arithmetic(type_)})INFINITY)")


def highest(type_: str) -> str:
    """The largest value of a type, as text: infinity for floats."""
    return _HIGHEST.get(type_, f"(({arithmetic(type_)})INFINITY)")


def literal(value: float | bool, type_: str) -> str:
    """A number as text of an arithmetic type, exactly."""
    held = arithmetic(type_)
    if held not in ("f32", "f64"):
        number = int(value)
        if held == "i64" and number == -(2**63):
            return _LOWEST["i64"]
        suffix = {"i64": "L", "u64": "UL", "u32": "u"}.get(held, "")
        return f"(({held}){number}{suffix})" if -(2**31) < number < 2**31 or suffix else f"(({held}){number}L)"
    if value != value:
        return f"(({held})NAN)"
    if value in (float("inf"), float("-inf")):
        return f"(({held})({'-' if value < 0 else ''}INFINITY))"
    text = repr(float(value))
    text = text if "e" in text or "." in text else f"{text}.0"
    return f"({text}f)" if held == "f32" else f"({text})"


def marked(index: str, extent: str) -> str:
    """A statement that tells of an index beyond a table of that extent, a negative one too: ``mark`` goes into ``fault``."""
    return f"if (({index}) < 0 || ({index}) >= {extent}) fault[0] = (i32)mark;"


def wrapped(index: str, extent: str) -> str:
    """An index within a table of that extent, negative ones and those beyond it taken modulo: no kernel reads elsewhere."""
    return f"(({index}) % {extent} + {extent}) % {extent}"
