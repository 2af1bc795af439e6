from __future__ import annotations

from xml.etree import ElementTree

from stark.core.candidate import Candidate
from stark.core.evaluation import BuildFailed, Evaluation
from stark.core.problem import Problem
from stark.evaluating import Judged
from stark.report.junit import junit_xml
from support.nodes import correct


def judged(file: str, evaluation: Evaluation) -> Judged:
    candidate = Candidate(language="cpp", source="")
    return Judged(file=file, candidate=candidate, evaluation=evaluation)


def test_a_file_is_a_test_case_and_its_evidence_the_failure() -> None:
    colored = BuildFailed(
        error="a.cpp:3: \x1b[31merror: no <vector> & more", seconds={"build": 1.5}
    )
    files = [
        judged("good.py", correct(0.5)),
        judged("bad.py", colored),
        judged("slow.py", correct(2.0)),
    ]

    text = junit_xml(Problem(name="linear", source=""), files, {"slow.py": "it is too slow"})

    suite = ElementTree.fromstring(text)
    cases = {case.get("name"): case for case in suite}
    assert ("linear", "3", "2") == tuple(suite.get(key) for key in ("name", "tests", "failures"))
    assert None is cases["good.py"].find("failure")
    assert "1.500" == cases["bad.py"].get("time")
    failures = {name: case.find("failure") for name, case in cases.items()}
    bad, slow = failures["bad.py"], failures["slow.py"]
    assert bad is not None and slow is not None
    assert "build failed: a.cpp:3: \ufffd[31merror: no <vector> & more" == bad.get("message")
    assert ("build_failed", "too_slow") == (bad.get("type"), slow.get("type"))
    assert "it is too slow" == slow.get("message")
