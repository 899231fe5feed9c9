"""CUDA sources: headers are inlined once, signatures are read, and calls are checked before a launch."""

from __future__ import annotations

import numpy as np
import pytest

from everypair.gpu.backend import Backend
from everypair.gpu.sources import FOLDER, source


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.cu")))
def test_sources_have_kernels_and_each_header_once(name: str) -> None:
    found = source(name)
    assert found.kernels
    assert "#include" not in found.text
    assert found.text.count("constexpr int PANEL") == 1


def test_macros_are_part_of_the_name() -> None:
    assert source("rows", WEIGHTED=1).name == "rows_weighted1"
    assert source("rows", WEIGHTED=1).text.startswith("#define WEIGHTED 1\n")


def test_wrong_arguments_are_found_before_the_launch(backend: Backend) -> None:
    weights = backend.kernels("rows").explicit_weights
    floats, ints = backend.upload(np.ones(4, np.float32)), backend.upload(np.zeros(4, np.int32))
    numbers = (floats, 0, floats, 0, floats, 0, 0.5)
    weights(1, 256, 4, ints, *numbers, floats)
    with pytest.raises(TypeError, match="takes 10 arguments, got 9"):
        weights(1, 256, 4, ints, *numbers)
    with pytest.raises(TypeError, match="items must be"):
        weights(1, 256, 4, floats, *numbers, floats)
    with pytest.raises(TypeError, match="a is not contiguous"):
        weights(1, 256, 4, ints, *numbers, floats[::2])
    with pytest.raises(AttributeError, match="rows has no kernel nothing"):
        _ = backend.kernels("rows").nothing
