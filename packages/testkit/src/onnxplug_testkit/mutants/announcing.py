"""L0 and L4: mutants that announce themselves wrongly, or whose module shows in other processes what is wrong with it."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from onnxplug.contract import Available, DataTransfer, DeviceInfo, SessionContext
from onnxplug.plugins import registry
from onnxplug_ep_reference.options import ReferenceOptions
from onnxplug_ep_reference.provider import ReferenceProvider
from onnxplug_testkit.mutants import mutant
from onnxplug_testkit.mutants.base import NAME, subject
from onnxplug_testkit.mutants.doors import pointing
from onnxplug_testkit.subject import Subject

_DOORS = "onnxplug_testkit.mutants.doors"


def _behind(door: str) -> Subject:
    return dataclasses.replace(subject(), module=f"{_DOORS}.{door}")


@mutant("contract.light_import")
def heavy_import() -> Subject:
    """Imports onnx.reference at its front door."""
    return _behind("heavy")


@mutant("contract.light_import")
def loads_its_library() -> Subject:
    """Loads a shared library when it is imported."""
    return _behind("loading")


@mutant("contract.import_changes_nothing")
def looks_for_updates() -> Subject:
    """Connects to a server when it is imported."""
    return _behind("asking")


@mutant("contract.check_changes_nothing")
def notes_that_it_was_asked() -> Subject:
    """Writes into a file when its check is asked."""
    return _behind("noting")


@mutant("contract.import_changes_nothing")
def meddling_import() -> Subject:
    """Sets an environment variable when it is imported."""
    return _behind("meddling")


@mutant("contract.check_changes_nothing")
def chatty_check() -> Subject:
    """Prints when its check is asked."""
    return _behind("chatty")


@mutant("contract.entry_point")
@contextlib.contextmanager
def claimed_twice() -> Iterator[Subject]:
    """Two distributions claim its name."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("mutant-one", "mutant-two"):
            info = Path(folder, f"{name.replace('-', '_')}-1.0.dist-info")
            info.mkdir()
            Path(info, "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
            Path(info, "entry_points.txt").write_text(
                f"[onnxplug.providers]\n{NAME} = {_DOORS}.heavy\n", encoding="utf-8"
            )
        sys.path.insert(0, folder)
        with contextlib.suppress(ValueError):
            registry.unregister_provider(NAME)
        registry.refresh()
        try:
            yield dataclasses.replace(subject(), module=f"{_DOORS}.heavy", distribution="mutant-one", version="1.0")
        finally:
            sys.path.remove(folder)
            registry.refresh()


@mutant("contract.handshake")
@contextlib.contextmanager
def wrong_contract() -> Iterator[Subject]:
    """Is written for another contract version."""
    yield subject(contract=(99, 0))


@mutant("contract.check_answers")
def undecided() -> Subject:
    """Its check tells another story each time."""
    numbers = itertools.count()
    return subject(check=lambda: Available(f"free memory: {next(numbers)}"))


@mutant("contract.devices")
def twin_devices() -> Subject:
    """Lists two devices with one index."""
    return subject(devices=lambda: [DeviceInfo("GPU", 0, name="left"), DeviceInfo("GPU", 0, name="right")])


@dataclass(frozen=True)
class _Undocumented(ReferenceOptions):
    turbo: bool = False


@mutant("contract.options_are_typed")
def undocumented_option() -> Subject:
    """Has an option without documentation."""
    return subject(options=_Undocumented)


@mutant("contract.instances")
def one_for_all() -> Subject:
    """Gives the same provider object to every session."""
    made: list[ReferenceProvider] = []

    def create(options: ReferenceOptions, context: SessionContext) -> ReferenceProvider:
        if not made:
            made.append(ReferenceProvider(options, context))
        return made[0]

    return subject(create=create)


class _NoWayIn(ReferenceProvider):
    def get_data_transfer(self) -> DataTransfer | None:
        return None


@mutant("contract.memory_is_complete")
def no_transfer() -> Subject:
    """Has memory of its own and no data transfer."""
    return subject(_NoWayIn)


@mutant("robust.exit_is_quiet")
def stays_when_the_others_go() -> Subject:
    """Has a worker for whose end the interpreter waits."""
    return _behind("staying")


@mutant("robust.same_in_processes")
def goes_through_sets() -> Subject:
    """Goes through a set of names, in an order that is another in each process."""
    return _behind("sorting")


@mutant("robust.same_without_the_kit")
def poses_for_the_kit() -> Subject:
    """Computes carelessly in programs that have not imported the kit's checks."""
    return _behind("posing")


@mutant("robust.same_without_the_kit")
def exports_where_it_lies() -> Subject:
    """Exports the number that a region has in this process."""
    return dataclasses.replace(_behind("pointing"), spec=pointing.onnxplug_provider())
