"""The result of `stark verify` for CI systems: as a JUnit report, and as a comment in Markdown."""

from __future__ import annotations

from xml.etree import ElementTree

from stark.deploy.verify import Verification
from stark.explain.evaluation import accuracy_text, speedup_text
from stark.report.junit import xml_text


def verification_junit(found: Verification) -> str:
    """A report with one test case. A refused claim is a failure, a measurement without a verdict an error."""
    suite = ElementTree.Element("testsuite", name="stark verify", tests="1")
    seconds = 0.0 if found.evaluation is None else sum(found.evaluation.seconds.values())
    case = ElementTree.SubElement(
        suite,
        "testcase",
        classname="stark verify",
        name=xml_text(found.package),
        time=f"{seconds:.3f}",
    )
    whole = xml_text(str(found))
    if found.confirmed:
        ElementTree.SubElement(case, "system-out").text = whole
    else:
        kind = "failure" if found.outcome == "refused" else "error"
        message = xml_text("; ".join(found.reasons))
        ElementTree.SubElement(case, kind, type=found.outcome, message=message).text = whole
    for kind in ("failure", "error"):
        suite.set(f"{kind}s", str(len(suite.findall(f"*/{kind}"))))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def verification_markdown(found: Verification) -> str:
    """A comment for a pull request."""
    lines = [f"### `{found.package}`: {found.outcome}", "", *(f"- {why}" for why in found.reasons)]
    if found.reasons:
        lines.append("")
    lines += ["| reference | claimed speedup | measured now |", "|---|---|---|"]
    for name, claim in found.claimed.items():
        new = found.measured.get(name)
        now = "not measured" if new is None else speedup_text(new, named=False)
        lines.append(f"| {name} | {speedup_text(claim, named=False)} | {now} |")
    if found.evaluation is not None and found.evaluation.status == "correct":
        lines += ["", f"Accuracy: {accuracy_text(found.evaluation.accuracy)}"]
    lines += [f"\nNote: {note}" for note in found.notes]
    return "\n".join(lines) + "\n"
