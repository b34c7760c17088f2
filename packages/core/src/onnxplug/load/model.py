"""Reading a model: what may be given, what is refused, and with which error."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxplug._onnx import defer
from onnxplug.contract.errors import Fail, InvalidArgument, InvalidProtobuf, NoSuchFile
from onnxplug.contract.records import record
from onnxplug.load.origin import BytesOrigin, FileOrigin, Origin
from onnxplug.load.ort_format import refuse_ort

if TYPE_CHECKING:
    from onnxplug.load.skim import Skimmed


@record(frozen=True, slots=True)
class Model:
    """A parsed model, nothing checked beyond its frame. ``folder`` is where external data is looked for, ``path`` None
    for bytes. ``payloads`` are the bytes of large initializers of the main graph, which ``proto`` lacks, and ``offsets`` where
    they are had again from the ``origin``."""

    proto: Any
    folder: str
    path: str | None
    payloads: dict[str, np.ndarray] = field(default_factory=dict)
    offsets: Mapping[str, int] = field(default_factory=dict)
    origin: Origin | None = None

    @property
    def opsets(self) -> dict[str, int]:
        """Imported operator-set versions; the default domain is ""."""
        return opset_imports(self.proto)

    @property
    def about(self) -> Mapping[str, Any]:
        """What ``get_modelmeta()`` shows."""
        return metadata(self.proto)


def load_model(source: str | os.PathLike[str] | bytes, external_folder: str = "", form: str = "") -> Model:
    """Read a model from a path or from serialized bytes.

    ``external_folder`` overrides where the external data of a bytes model lies (default: the working directory). ``form``: ``ONNX``,
    ``ORT``, or '' for what the file's name or the bytes say. Raises NoSuchFile, InvalidProtobuf, InvalidArgument (no graph inside), Fail
    (IR or opset newer than onnx knows), NotImplemented (onnxruntime's own format).
    """
    if form != "ONNX":
        refuse_ort(source if isinstance(source, bytes) else os.fspath(source), form)
    defer()
    from onnx import ModelProto

    path, place = (None, "bytes") if isinstance(source, bytes) else (os.fspath(source),) * 2
    if isinstance(source, bytes):
        origin: Origin = BytesOrigin(source)
        found = _skimmed(io.BytesIO(source), source)
    else:
        found, origin = _read(os.fspath(source))
    proto = ModelProto()
    try:
        proto.ParseFromString(found.rest)
    except Exception as error:  # protobuf's DecodeError lives in a private module of whichever implementation is in use
        if path is None:
            raise InvalidProtobuf(f"Failed to load model because protobuf parsing failed. ({error})") from None
        raise InvalidProtobuf(f"Load model from {place} failed:Protobuf parsing failed. ({error})") from None
    which = f"Load model from {place} failed:" if path is not None else ""
    if not proto.HasField("graph"):
        raise InvalidArgument(f"{which}No graph was found in the protobuf.")
    _check_versions(proto, which)
    folder = os.path.dirname(path) if path else external_folder
    return Model(proto, folder or ".", path, found.payloads, found.offsets, origin)


def opset_imports(proto: Any) -> dict[str, int]:
    """{domain: version} of a ModelProto or FunctionProto, the default domain spelled ""."""
    return {normal_domain(o.domain): o.version for o in proto.opset_import}


def normal_domain(domain: str) -> str:
    """ "ai.onnx" and "" are the same domain."""
    return "" if domain == "ai.onnx" else domain


def _read(path: str) -> tuple[Skimmed, FileOrigin]:
    try:
        with open(path, "rb") as file:
            return _skimmed(file), FileOrigin.of(path, file.fileno())
    except (FileNotFoundError, ValueError):  # ValueError: a NUL in the path, which no file has
        raise NoSuchFile(f"Load model from {path} failed:Load model {path} failed. File doesn't exist") from None
    except IsADirectoryError:
        raise InvalidProtobuf(f"Load model from {path} failed:Protobuf parsing failed. (it is a directory)") from None
    except OSError as error:
        raise Fail(f"Load model from {path} failed:{error.strerror or error}") from None


def _skimmed(file: io.BufferedIOBase, whole: bytes | None = None) -> Skimmed:
    """What the parser gets, and the large tensors' bytes that it does not."""
    from onnxplug.load.skim import Skimmed, skim

    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    found = skim(file, size, whole)
    if found is None:
        file.seek(0)
        return Skimmed(file.read(), {}, {})
    return found


def _check_versions(proto: Any, which: str) -> None:
    from onnx import IR_VERSION

    if not proto.HasField("ir_version"):
        raise Fail(f"{which}Missing model IR version.")
    if not proto.opset_import:
        raise Fail(
            f"{which}Missing opset in the model. All ModelProtos MUST have at least one entry that specifies which version of the "
            "ONNX OperatorSet is being imported."
        )
    if proto.ir_version > IR_VERSION:
        raise Fail(f"{which}Unsupported model IR version: {proto.ir_version}, max supported IR version: {IR_VERSION}")
    newest = newest_opsets()
    for domain, version in opset_imports(proto).items():
        if domain in newest and version > newest[domain]:
            raise Fail(
                f"{which}Opset {version} of domain {domain or 'ai.onnx'} is newer than the installed onnx knows "
                f"(up to {newest[domain]}); upgrade the onnx package or export the model with an older opset"
            )


def newest_opsets() -> dict[str, int]:
    """The newest versions of the domains that models need not import: they have these then, as in onnxruntime."""
    from onnx import defs

    return {"": defs.onnx_opset_version(), "ai.onnx.ml": defs.onnx_ml_opset_version()}


def metadata(proto: Any) -> Mapping[str, Any]:
    """A ModelProto's metadata, by the names that ``get_modelmeta()`` has for them."""
    return {
        "custom_metadata_map": {p.key: p.value for p in proto.metadata_props},
        "description": proto.doc_string,
        "domain": proto.domain,
        "graph_description": proto.graph.doc_string,
        "graph_name": proto.graph.name,
        "producer_name": proto.producer_name,
        "version": proto.model_version if proto.HasField("model_version") else 2**63 - 1,
    }
