"""Reading a model: what may be given, what is refused, and with which error."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxplug.contract.errors import Fail, InvalidArgument, InvalidProtobuf, NoSuchFile
from onnxplug.contract.errors import NotImplemented as OrtNotImplemented


@dataclass(frozen=True, slots=True)
class Model:
    """A parsed model, nothing checked beyond its frame. ``folder`` is where external data is looked for, ``path`` None
    for bytes."""

    proto: Any
    folder: Path
    path: Path | None

    @property
    def opsets(self) -> dict[str, int]:
        """Imported operator-set versions; the default domain is ""."""
        return opset_imports(self.proto)


def load_model(source: str | os.PathLike[str] | bytes, external_folder: str = "") -> Model:
    """Read a model from a path or from serialized bytes.

    ``external_folder`` overrides where the external data of a bytes model lies (default: the working directory). Raises
    NoSuchFile, InvalidProtobuf, InvalidArgument (no graph inside), Fail (IR or opset newer than onnx knows),
    NotImplemented (.ort files).
    """
    from onnx import ModelProto

    if isinstance(source, bytes):
        path, data, place = None, source, "bytes"
    else:
        path = Path(source)
        data, place = _read(path), f"{os.fspath(source)}"
    proto = ModelProto()
    try:
        proto.ParseFromString(data)
    except Exception as error:  # protobuf's DecodeError lives in a private module of whichever implementation is in use
        raise InvalidProtobuf(f"Load model from {place} failed:Protobuf parsing failed. ({error})") from None
    if not proto.HasField("graph"):
        if path is not None:
            raise InvalidProtobuf(f"Load model from {place} failed:Protobuf parsing failed. (no graph in the file)")
        raise InvalidArgument("No graph was found in the protobuf.")
    _check_versions(proto, place)
    return Model(proto, path.parent if path else Path(external_folder or "."), path)


def opset_imports(proto: Any) -> dict[str, int]:
    """{domain: version} of a ModelProto or FunctionProto, the default domain spelled ""."""
    return {normal_domain(o.domain): o.version for o in proto.opset_import}


def normal_domain(domain: str) -> str:
    """ "ai.onnx" and "" are the same domain."""
    return "" if domain == "ai.onnx" else domain


def _read(path: Path) -> bytes:
    if path.suffix == ".ort":
        raise OrtNotImplemented(f"{path}: .ort files are onnxruntime's own format; save the model as .onnx")
    try:
        return path.read_bytes()
    except (FileNotFoundError, ValueError):  # ValueError: a NUL in the path, which no file has
        raise NoSuchFile(f"Load model from {path} failed:Load model {path} failed. File doesn't exist") from None
    except IsADirectoryError:
        raise InvalidProtobuf(f"Load model from {path} failed:Protobuf parsing failed. (it is a directory)") from None
    except OSError as error:
        raise Fail(f"Load model from {path} failed:{error.strerror or error}") from None


def _check_versions(proto: Any, place: str) -> None:
    import onnx

    if not proto.HasField("ir_version"):
        raise Fail(f"Load model from {place} failed:Missing model IR version.")
    if not proto.opset_import:
        raise Fail(f"Load model from {place} failed:Missing opset in the model: it must import at least one")
    if proto.ir_version > onnx.IR_VERSION:
        raise Fail(
            f"Load model from {place} failed:Unsupported model IR version: {proto.ir_version}, max supported IR version: {onnx.IR_VERSION}"
        )
    newest = {"": onnx.defs.onnx_opset_version(), "ai.onnx.ml": _newest("ai.onnx.ml")}
    for domain, version in opset_imports(proto).items():
        if domain in newest and version > newest[domain]:
            raise Fail(
                f"Load model from {place} failed:Opset {version} of domain {domain or 'ai.onnx'} is newer than the installed onnx knows "
                f"(up to {newest[domain]}); upgrade the onnx package or export the model with an older opset"
            )


def _newest(domain: str) -> int:
    from onnx.helper import OP_SET_ID_VERSION_MAP

    return max((v for (d, v) in OP_SET_ID_VERSION_MAP if d == domain), default=1)


def metadata(proto: Any) -> Mapping[str, Any]:
    """What ``get_modelmeta()`` shows."""
    return {
        "custom_metadata_map": {p.key: p.value for p in proto.metadata_props},
        "description": proto.doc_string,
        "domain": proto.domain,
        "graph_description": proto.graph.doc_string,
        "graph_name": proto.graph.name,
        "producer_name": proto.producer_name,
        "version": proto.model_version if proto.HasField("model_version") else 2**63 - 1,
    }
