"""Values of session config entries that onnxruntime refuses, whatever model comes with them.

Most of these entries change nothing here. A value that cannot be meant is refused all the same: who mistypes one hears of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from onnxplug.contract.errors import Fail, InvalidArgument, RuntimeException
from onnxplug.session import environment
from onnxplug.session.options import SessionOptions
from onnxplug.session.selection import thread_count

AFFINITIES = "session.intra_op_thread_affinities"
_LIMIT = (
    r"()0*([0-9]{1,20})|(0[xX])0*([0-9a-fA-F]{1,16})",
    InvalidArgument,
    "Invalid positive integer value '{value}' for session configuration '{key}'.",
)
_STOI = r"\s*([+-]?)0*([0-9]{1,20}).*"
"""What C++'s std::stoi reads a number from."""
_SWITCH = "[01]"
_RULES: Mapping[str, tuple[str, type[Exception], str]] = {
    "ep.cuda.gqa_workspace_max_total_sequence_length": (
        "-0+|()0*([0-9]{1,19})", InvalidArgument, "{key} must be a nonnegative decimal int64 value, but got: '{value}'",
    ),
    "optimization.minimal_build_optimizations": ("|apply", InvalidArgument, "Invalid value for {key}: {value}"),
    "session.dynamic_block_base": (_STOI, ValueError, "{key}: '{value}' is no number"),
    "session.enable_moe_expert_counting": (_SWITCH, Fail, '{key} must be "0" or "1".'),
    "session.enable_moe_expert_statistics": (
        _SWITCH, InvalidArgument, '{key} must be set to either "0" or "1". Received: "{value}".',
    ),
    "session.function_expansion_byte_limit": _LIMIT,
    "session.function_expansion_node_limit": _LIMIT,
    "session.gqa_value_layout": (
        "BNSH|BNHS", InvalidArgument, "Invalid value for session option '{key}': '{value}'. Expected 'BNSH' or 'BNHS'.",
    ),
    "session.graph_optimizations_loop_level": (
        _STOI, RuntimeException, "Exception during initialization: {key}: '{value}' is no number",
    ),
    "session.qdq_matmulnbits_accuracy_level": (
        "-0+|0*[0-4]", Fail, "Exception during initialization: {key}: MatMulNBits accuracy level must be between 0 and 4, not '{value}'",
    ),
    "session.qdq_matmulnbits_block_size": (
        "(-?)0*([0-9]{1,19})", Fail, "Exception during initialization: {key}: Failed to parse value: \"{value}\"",
    ),
    "session.resource_cuda_partitioning_settings": (
        "|[^,]*,[^,]*", InvalidArgument, "Invalid format for: {key} : expecting comma separated fields",
    ),
}  # fmt: skip
"""Patterns, whose groups are a number's sign or base and its digits, exceptions and what they say."""
_INT32, _INT64 = range(-(2**31), 2**31), range(-(2**63), 2**63)
_RANGES: Mapping[str, tuple[range, type[Exception]]] = {
    "ep.cuda.gqa_workspace_max_total_sequence_length": (_INT64, InvalidArgument),
    "session.dynamic_block_base": (_INT32, IndexError),
    "session.function_expansion_byte_limit": (range(1, 2**64), InvalidArgument),
    "session.function_expansion_node_limit": (range(1, 2**64), InvalidArgument),
    "session.graph_optimizations_loop_level": (_INT32, RuntimeException),
    "session.qdq_matmulnbits_block_size": (_INT64, Fail),
}
_LAYERS = ("session.layer_assignment_settings", "session.name_based_layer_assignment")


def check_entries(options: SessionOptions) -> None:
    """Raise what onnxruntime raises for a value that it cannot read. Entries that nothing here knows have no rules."""
    for key, value in options._config_entries.items():
        if key in _RULES:
            pattern, refusal, text = _RULES[key]
            found = re.fullmatch(pattern, value, re.DOTALL | re.ASCII)
            if found and key in _RANGES and any(found.groups()):
                base, digits = filter(lambda part: part is not None, found.groups())
                allowed, refusal = _RANGES[key]
                found = found if int(base + digits, 16 if "x" in base.lower() else 10) in allowed else None
            if not found:
                raise refusal(text.format(key=key, value=value))
        elif key in _LAYERS:
            _check_layers(value)
        elif key == AFFINITIES:
            _check_affinities(value, options)


def _check_layers(value: str) -> None:
    """``device(pattern,...);device(...)``"""
    for entry in filter(str.strip, value.split(";")):
        device, opened, rest = entry.partition("(")
        missing = "Missing '('" if not opened else "Missing ')'" if ")" not in rest else ""
        if missing or not device.strip():
            raise InvalidArgument(f"Invalid layering config: {missing or 'Empty device name'} in entry: {entry}")


def _check_affinities(value: str, options: SessionOptions) -> None:
    """``1,2;3-4``: processors, from 1, of each thread but the first, as a list or an interval."""
    if not value:
        raise RuntimeError("Affinity string must not be empty")
    threads = thread_count(environment.requested_threads(options))
    if threads == 1 or not options.use_per_session_threads:
        return  # there is no pool to which they could apply
    groups = [group for group in value.split(";") if group]
    for group in groups:
        interval = re.fullmatch("([0-9]+)-([0-9]+)", group)
        numbers = interval.groups() if interval else [number for number in group.split(",") if number]
        if any(not re.fullmatch("[0-9]+", number) for number in numbers):
            raise RuntimeError(f"Processor id must consist of only digits: {group}")
        if any(int(number) > 2**31 - 1 for number in numbers):
            raise RuntimeError(f"Failed to read affinities from affinity string: {group}")
        if any(int(number) < 1 for number in numbers):
            raise RuntimeError(f"Processor id must start from 1: {group}")
        if interval and int(numbers[0]) > int(numbers[1]):
            raise RuntimeError(f"Invalid processor interval: {group}")
    if len(groups) != threads - 1:
        raise RuntimeError(
            f"Number of affinities does not equal to thread_pool_size minus one, affinities: {len(groups)}, "
            f"thread_pool_size: {threads}"
        )
