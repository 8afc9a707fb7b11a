"""Columns by their names."""

from __future__ import annotations

from pathlib import Path

import pytest

from opsmith.core.columns import Column, How, parse_column
from opsmith.errors import UnknownName

BACKENDS, MODES = ("inductor", "opsmith", "aot_eager"), ("max-autotune", "reduce-overhead")


@pytest.mark.parametrize(
    ("name", "how", "what"),
    [
        ("eager", How.EAGER, ""),
        ("opsmith", How.BACKEND, "opsmith"),
        ("max-autotune", How.MODE, "max-autotune"),
        ("enabled:opsmith", How.ENABLED, "opsmith"),
        ("enabled:my.kernels:table", How.ENABLED, "my.kernels:table"),
        ("kernels/", How.ENABLED, "kernels/"),
    ],
)
def test_a_name_says_what_is_done_to_a_model(name: str, how: How, what: str) -> None:
    """A backend's name means the compiler's backend; kernels are enabled by a prefix or a path."""
    assert Column(name, how, what) == parse_column(name, backends=BACKENDS, modes=MODES)


def test_a_folder_needs_no_slash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As everywhere else where kernels are named."""
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    assert How.ENABLED is parse_column("mine", backends=BACKENDS, modes=MODES).how


def test_a_name_of_nothing_suggests_the_nearest() -> None:
    """A typing error costs a second."""
    with pytest.raises(UnknownName, match="did you mean max-autotune"):
        parse_column("max-autotun", backends=BACKENDS, modes=MODES)
