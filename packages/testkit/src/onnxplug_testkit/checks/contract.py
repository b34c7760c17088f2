"""L0: entry point, handshake, announcement, options, and what an instance answers before it sees a model."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

from onnxplug.contract import (
    HOST,
    Allocator,
    Available,
    DataTransfer,
    Device,
    DeviceInfo,
    KernelRegistry,
    Unavailable,
    dump_options,
    parse_options,
)
from onnxplug.contract.errors import STATUS_ERRORS
from onnxplug.plugins import registry
from onnxplug.plugins.load import contract_mismatch, validate
from onnxplug_testkit.check import Unsupported, check
from onnxplug_testkit.models import CPU
from onnxplug_testkit.space import INDEX_OPTION
from onnxplug_testkit.subject import Subject

_UNKNOWN = "no_such_option"


@check("contract.entry_point")
def entry_point(subject: Subject, seed: int) -> None:
    """The entry point is named after the provider and belongs to one distribution."""
    if not subject.distribution:
        raise Unsupported("distribution")
    claims = [r for r in registry.records() if r.provider == subject.name and r.kind == "provider"]
    owners = sorted({r.distribution for r in claims if r.distribution})
    assert len(owners) <= 1, f"{subject.name} is claimed by {', '.join(owners)}"
    record = registry.record(subject.name, load=True)
    assert record is not None and record.state in ("available", "unavailable"), f"it does not load: {record}"


@check("contract.handshake")
def handshake(subject: Subject, seed: int) -> None:
    """The announcement is for this contract's version and each field is what the contract says."""
    mismatch = contract_mismatch(subject.spec, subject.distribution)
    assert mismatch is None, "; ".join(mismatch or ())
    try:
        validate(subject.spec)
    except TypeError as error:
        raise AssertionError(str(error)) from error
    assert subject.spec.name.endswith("ExecutionProvider"), (
        f"the name {subject.spec.name} does not end in ExecutionProvider"
    )


@check("contract.check_answers")
def check_answers(subject: Subject, seed: int) -> None:
    """``check()`` says Available, or Unavailable with a reason, and says it twice alike."""
    answers = [subject.spec.check() for _ in range(2)]
    for answer in answers:
        assert isinstance(answer, Available | Unavailable), f"check() returned a {type(answer).__name__}"
        assert isinstance(answer, Available) or answer.reason.strip(), "check() says Unavailable and gives no reason"
    assert answers[0] == answers[1], f"check() says {answers[0]}, then {answers[1]}"


@check("contract.devices")
def devices(subject: Subject, seed: int) -> None:
    """``devices()`` lists DeviceInfo with types CPU, GPU or NPU and distinct indices; option ``device_id`` takes memory of that one."""
    found = list(subject.spec.devices())
    for device in found:
        assert isinstance(device, DeviceInfo), f"devices() lists a {type(device).__name__}"
        assert device.type in ("CPU", "GPU", "NPU"), f"device type {device.type!r}"
    indices = [(d.type, d.id) for d in found]
    assert len(set(indices)) == len(indices), f"devices() repeats an index: {indices}"
    if INDEX_OPTION not in {f.name for f in dataclasses.fields(subject.spec.options)}:
        return
    for number in sorted({device.id for device in found}):
        with subject.instance(**{INDEX_OPTION: str(number)}) as instance:
            memories = [a.device for a in instance.call("create_allocators")]
        for memory in memories:
            assert memory.kind == HOST.kind or memory.id == number, (
                f"with {INDEX_OPTION} = {number} it has memory of {memory}"
            )


@check("contract.options_are_typed")
def options_are_typed(subject: Subject, seed: int) -> None:
    """Every option is a documented field of a frozen dataclass, and its default survives being written and read."""
    cls = subject.spec.options
    assert cls.__dataclass_params__.frozen, f"{cls.__name__} is not frozen"  # type: ignore[attr-defined]
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        assert field.metadata.get("doc"), f"option {field.name} has no documentation"
        assert field.name in hints, f"option {field.name} has no type"
    default: Any = parse_options(cls, {})
    assert parse_options(cls, dump_options(default)) == default, (
        f"{dump_options(default)} is not read back as the defaults"
    )


@check("contract.instances")
def instances(subject: Subject, seed: int) -> None:
    """An instance can be made and closed several times, also two at once, and its hooks answer with the contract's types."""
    with subject.instance() as first, subject.instance() as second:
        assert first.provider is not second.provider, "create() gives one object to two sessions"
        kernels = first.call("get_kernel_registry")
        assert kernels is None or isinstance(kernels, KernelRegistry), (
            f"get_kernel_registry() gives a {type(kernels).__name__}"
        )
        assert kernels is not None or first.supports("compile"), "there are neither kernels nor compile()"
        for allocator in first.call("create_allocators"):
            assert isinstance(allocator, Allocator), f"create_allocators() gives a {type(allocator).__name__}"
            assert isinstance(allocator.device, Device), "an allocator's device is not a Device"
        transfer = first.call("get_data_transfer")
        assert transfer is None or isinstance(transfer, DataTransfer), (
            f"get_data_transfer() gives a {type(transfer).__name__}"
        )
    with subject.instance():
        pass


@check("contract.options_are_refused")
def options_are_refused(subject: Subject, seed: int) -> None:
    """An option the provider does not know and a device it does not list are refused when a session is made, or as dynamic options."""
    lenient = getattr(subject.spec.options, "ignore_unknown", False)
    assert not lenient or subject.name == CPU, f"{subject.spec.options.__name__} drops options it does not know"
    indices = [d.id for d in subject.spec.devices()]
    wrong = [] if lenient else [{_UNKNOWN: "1"}]
    if indices and INDEX_OPTION in {f.name for f in dataclasses.fields(subject.spec.options)}:
        wrong.append({INDEX_OPTION: str(max(indices) + 1000)})
    for options in wrong:
        try:
            with subject.instance(**options):
                pass
        except (RuntimeError, *STATUS_ERRORS):
            continue
        raise AssertionError(f"options {options} are accepted")
    with subject.instance() as instance:
        if not instance.supports("set_dynamic_options"):
            return
        try:
            instance.call("set_dynamic_options", options={_UNKNOWN: "1"})
        except (RuntimeError, *STATUS_ERRORS):
            return
        raise AssertionError("a dynamic option that does not exist is accepted")


@check("contract.memory_is_complete")
def memory_is_complete(subject: Subject, seed: int) -> None:
    """Memory that is not the host's comes with a view and with a transfer that copies to and from the host."""
    with subject.instance() as instance:
        apart = [a.device for a in instance.call("create_allocators") if a.device.kind != HOST.kind]
        if not apart:
            raise Unsupported("device_memory")
        transfer = instance.call("get_data_transfer")
        assert transfer is not None, f"there is no data transfer for {apart[0]}"
        for device in apart:
            for ends in ((HOST, device), (device, HOST)):
                assert transfer.can_copy(*ends), f"the transfer does not copy from {ends[0]} to {ends[1]}"
        assert instance.supports("view"), "there is no view()"
