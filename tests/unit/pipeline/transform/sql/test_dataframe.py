"""What a function that is named as a transform may be, and what is refused of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from mm2py.model.transform import Transform
from mm2py.pipeline.transform.sql.dataframe import TransformRefusedError, transformed


def _refusal(module: str) -> str:
    transform = Transform("transform.orders.function", function=f"{module}:mask")
    with pytest.raises(TransformRefusedError) as refused:
        transformed(cast("Any", None), transform, cast("Any", None))
    return str(refused.value).removeprefix(f"transform.orders.function: {module}:mask ")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import nowhere", "cannot be imported: ModuleNotFoundError: No module named 'nowhere'"),
        ("def mask(:", "cannot be imported: SyntaxError: invalid syntax"),
        ("import os\nKEY = os.environ['MASK_KEY']", "cannot be imported: KeyError: 'MASK_KEY'"),
        ("import sys\nsys.exit('usage: shop')", "cannot be imported: SystemExit: usage: shop"),
        ("def masc(records): return records", "cannot be imported: AttributeError: module"),
        ("mask = 1", "is no function"),
        ("def mask(records): raise ValueError(records)", "raised ValueError: None"),
        ("def mask(records): raise SystemExit(1)", "raised SystemExit: 1"),
        ("def mask(records): pass", "gave NoneType, not a DataFrame of Spark"),
    ],
)  # fmt: skip
def test_whatever_a_function_s_module_does_its_topics_alone_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, reason: str
) -> None:
    """An error of any other kind would end the copying of all topics of the flow, again and again."""
    module = f"shop_{abs(hash(code))}"
    (tmp_path / f"{module}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)

    assert _refusal(module).startswith(reason)
