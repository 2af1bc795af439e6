"""A JUnit XML report of judged files, one test case per file, for CI systems."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree

from stark.core.evaluation import Correct
from stark.core.problem import Problem
from stark.evaluating import Judged
from stark.explain.evaluation import checked, explain

_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot express even escaped, such as the escape character of terminal colors."""


def junit_xml(problem: Problem, judged: Sequence[Judged], missed: Mapping[str, str]) -> str:
    """The report. `missed` has a message for each file whose candidate is correct but misses the required speedup."""
    suite = ElementTree.Element("testsuite", name=xml_text(problem.name), tests=str(len(judged)))
    for each in judged:
        seconds = sum(each.evaluation.seconds.values())
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=xml_text(problem.name),
            name=xml_text(each.file),
            time=f"{seconds:.3f}",
        )
        whole = xml_text(explain(each.evaluation))
        correct = isinstance(each.evaluation, Correct)
        message = missed.get(each.file) if correct else checked(each.evaluation)
        if message is None:
            ElementTree.SubElement(case, "system-out").text = whole
            continue
        kind = "too_slow" if correct else each.evaluation.status
        ElementTree.SubElement(case, "failure", type=kind, message=xml_text(message)).text = whole
    suite.set("failures", str(len(suite.findall("*/failure"))))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def xml_text(text: str) -> str:
    """The text without characters that XML cannot express."""
    return _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)
