"""A run as JUnit XML, which CI systems read: a test suite for the run, a test case for each op."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree as ET

from opsmith.core.counts import counted
from opsmith.core.run import OpSummary
from opsmith.report.outcome import NO_KERNEL, outcome
from opsmith.report.results import FailingCase, Results

#: Failing cases that one test case quotes.
MOST_QUOTED = 5
#: What XML 1.0 cannot hold, not even escaped.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(results: Results, slower: Mapping[str, str]) -> bytes:
    """The document, in UTF-8.

    Args:
        results: of the run.
        slower: op -> what is said of its speed, of those that count as failed because they are slow.
    """
    of_op: dict[str, list[FailingCase]] = {}
    for failing in results.failing(MOST_QUOTED * max(1, len(results.plan.ops)), each_once=True):
        of_op.setdefault(failing.op, []).append(failing)
    summary = results.summary
    wrong = {name for name, op in summary.per_op.items() if not op.accepted}
    failures = len(wrong | set(slower))
    counts = {"tests": str(len(summary.per_op)), "failures": str(failures), "errors": "0", "skipped": "0"}
    time_s = f"{results.manifest.wall_s or 0.0:.3f}"
    root = ET.Element("testsuites", counts | {"name": "opsmith", "time": time_s})
    name = _text(f"{summary.suite}.{summary.backend}")
    suite = ET.SubElement(root, "testsuite", {"name": name, "time": time_s} | counts)
    for op_name, op in summary.per_op.items():
        case = ET.SubElement(suite, "testcase", {"name": _text(op_name), "classname": name, "time": "0"})
        if op_name in wrong:
            _add_failure(case, outcome(op), _message(op), of_op.get(op_name, ()))
        elif op_name in slower:
            _add_failure(case, "SLOWER", slower[op_name], ())
    ET.indent(root)
    document: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _message(op: OpSummary) -> str:
    if outcome(op) == NO_KERNEL:
        return "there is no kernel"
    return f"{op.passed:,} of {counted(op.cases, 'case')} passed"


def _add_failure(case: ET.Element, kind: str, message: str, quoted: Sequence[FailingCase]) -> None:
    failure = ET.SubElement(case, "failure", {"type": str(kind), "message": _text(message)})
    lines = [f"{one.status} {one.inputs}\n  {one.detail}\n  {one.repro}" for one in quoted[:MOST_QUOTED]]
    failure.text = _text("\n".join(lines))


def _text(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
