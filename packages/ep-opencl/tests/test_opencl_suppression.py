"""NonMaxSuppression, whose result has as many rows as the data decides, against CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from opencl_models import PROVIDER, needs_device

import onnxplug as ort
from onnxplug.contract import Fail

pytestmark = needs_device
rng = np.random.default_rng(29)
LIMITS = {"most": np.int64, "overlap": np.float32, "least": np.float32}


def model(centred: int, shape: tuple[Any, Any, Any], limits: int) -> bytes:
    """The node and one that reads its result, with the number of limits that are given."""
    images, classes, n = shape
    names = ["boxes", "scores", *list(LIMITS)[:limits]]
    nodes = [
        helper.make_node("NonMaxSuppression", names, ["rows"], center_point_box=centred),
        helper.make_node("Cast", ["rows"], ["y"], to=TensorProto.FLOAT),
    ]
    given = [
        helper.make_tensor_value_info("boxes", TensorProto.FLOAT, [images, n, 4]),
        helper.make_tensor_value_info("scores", TensorProto.FLOAT, [images, classes, n]),
        *(
            helper.make_tensor_value_info(m, helper.np_dtype_to_tensor_dtype(np.dtype(LIMITS[m])), [])
            for m in names[2:]
        ),
    ]
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    made.append(helper.make_tensor_value_info("rows", TensorProto.INT64, None))
    graph = helper.make_graph(nodes, "g", given, made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()


def feeds(images: int, classes: int, n: int, centred: int) -> dict[str, np.ndarray]:
    """Boxes on a coarse grid, so that many overlap by the same part, some without area; scores among which many are equal."""
    boxes = rng.integers(0, 6, (images, n, 4)).astype(np.float32) / (1 if centred else 2)
    return {"boxes": boxes, "scores": rng.integers(0, 9, (images, classes, n)).astype(np.float32) / 8}


@pytest.mark.parametrize("centred", [0, 1])
@pytest.mark.parametrize("shape", [(1, 1, 6), (2, 3, 150), (1, 2, 0)])
@pytest.mark.parametrize("limits", [1, 2, 3])
def test_boxes_that_remain(limits: int, shape: tuple[int, int, int], centred: int) -> None:
    data = model(centred, ("images", "classes", "n"), limits)
    ours = ort.InferenceSession(data, providers=[PROVIDER])
    assert set(ours.placement().values()) == {PROVIDER}
    theirs = ort.InferenceSession(data, providers=["CPUExecutionProvider"])
    for most, overlap, least in ((3, 0.5, 0.3), (1000, 0.0, 0.9), (0, 0.5, 0.5), (2, 1.0, 5.0), (2**63 - 1, 0.5, 0.0)):
        given = feeds(*shape, centred)
        values = (np.array(v, d) for v, d in zip((most, overlap, least), LIMITS.values(), strict=True))
        given |= dict(list(zip(LIMITS, values, strict=True))[:limits])
        for got, want in zip(ours.run(None, given), theirs.run(None, given), strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got, want)


def test_boxes_and_scores_that_do_not_belong_together() -> None:
    session = ort.InferenceSession(model(0, ("images", "classes", "n"), 0), providers=[PROVIDER])
    with pytest.raises(Exception, match="NonMaxSuppression"):
        session.run(None, {"boxes": np.zeros((1, 5, 4), np.float32), "scores": np.zeros((1, 1, 6), np.float32)})


@pytest.mark.parametrize("overlap", [1.5, -0.5, np.nan])
def test_a_share_of_an_area_that_is_none_is_refused_as_on_the_cpu(overlap: float) -> None:
    given = {**feeds(1, 1, 5, 0), "most": np.array(2), "overlap": np.array(overlap, np.float32)}
    for provider in (PROVIDER, "CPUExecutionProvider"):
        session = ort.InferenceSession(model(0, ("images", "classes", "n"), 2), providers=[provider])
        with pytest.raises(Fail, match="iou_threshold"):
            session.run(None, given)
