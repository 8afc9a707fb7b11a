"""Kernels that share a worker: nothing that one of them does is held against the next."""

from __future__ import annotations

from pathlib import Path

from opsmith.core.run import Options
from opsmith.core.verdict import Status
from opsmith.session import Judged, Session

HEAD = "import torch\n\ndef relu__default_kernel_impl(self):\n"
RIGHT = "    return torch.where(self < 0, torch.zeros_like(self), self)"
TAMPERS = "    torch.allclose = lambda *args, **kwargs: True\n" + RIGHT
WRONG = "    return self + 1"


def test_a_right_kernel_is_accepted_whoever_was_in_the_worker_before(tmp_path: Path) -> None:
    """A kernel that failed takes its worker along; a right one leaves it to the next."""
    options = Options(
        suite="smoke",
        backend="shared",
        device="cpu",
        dtypes=("f32",),
        ops=("relu.default",),
        policy="any",
        timing="off",
        isolation="backend",
    )
    with Session(options, tmp_path / "judged") as session:

        def judge(name: str, body: str) -> Judged:
            source = tmp_path / f"{name}.py"
            source.write_text(HEAD + body + f"  # {name}\n")
            return session.judge("relu.default", source)

        assert judge("first", RIGHT).accepted
        tampered = judge("tampers", TAMPERS)
        assert {Status.DISHONEST} & {verdict.status for verdict in tampered.verdicts}
        assert judge("second", RIGHT).accepted
        assert not judge("wrong", WRONG).accepted
        found = [judge(f"later_{n}", RIGHT) for n in range(6)]
        assert all(one.accepted for one in found)
        # Each further kernel of a worker once took twice as long as the one before.
        assert max(one.device_s for one in found) < 5
