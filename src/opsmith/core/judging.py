"""Where kernels are judged, none may be enabled: a kernel's answer would be compared with its own."""

from __future__ import annotations

import os
import sys

from opsmith.errors import EnabledWhileJudging

#: Set in every process that judges; what such a process starts inherits it.
JUDGING_VARIABLE = "OPSMITH_JUDGING"
#: What Python's audit hooks are told first: a worker, which has not that variable, refuses by such a hook.
ENABLING_EVENT = "opsmith.enable"


def refuse_while_judging() -> None:
    """Raise where kernels are being judged.

    It stops a mistake, such as a kernel's file that enables the directory that it is in. What a kernel does
    to the dispatch tables on purpose is the business of :mod:`opsmith.evaluation.integrity`.

    Raises:
        EnabledWhileJudging: this process judges, or was started by one that does.
    """
    sys.audit(ENABLING_EVENT)
    if JUDGING_VARIABLE in os.environ:
        raise EnabledWhileJudging
