"""The comparison of two commits' prompts: what it writes from replies, and its table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import paired
import pytest
from paired import Arm, Outcome, report, situations

from stark.core.errors import UsageError
from stark.recorded import read_recording


def arm(number: int, folder: Path, name: str = "new") -> Arm:
    return Arm(situations()[number - 1], name, folder, paired.ROOT / "src")


def reply(given: Arm, role: str, text: str | None = None) -> None:
    """Write a reply beside its prompt: this one, or the recorded one."""
    if text is None:
        calls = read_recording(paired.ROOT / given.situation.recording).calls
        asked = (given.situation.attempt, role)
        text = [call.reply.text for call in calls if (call.attempt, call.role) == asked][-1]
    (given.folder / f"{given.stem}-{role}.reply.md").write_text(text, "utf-8")


def test_there_are_enough_situations_of_each_kind() -> None:
    chosen = situations()
    recordings = {each.recording: read_recording(paired.ROOT / each.recording) for each in chosen}
    selections = [recordings[each.recording].selections[each.attempt] for each in chosen]

    assert len(chosen) >= 20
    assert 3 <= sum(selection.action == "debug" for selection in selections)
    assert 5 <= sum(selection.parent == 0 for selection in selections) <= len(chosen) / 2
    assert {"cpp"} == {recording.run.config.language for recording in recordings.values()}


@pytest.mark.slow
def test_prompts_are_written_as_replies_make_them_possible(tmp_path: Path) -> None:
    asked = arm(3, tmp_path)
    reply(asked, "code")

    waiting = asked.advance(lambda source: None)
    reply(asked, "plan")
    reply(asked, "code2", (tmp_path / "003-new-code.reply.md").read_text("utf-8"))
    done = asked.advance(lambda source: "x.cpp:1: error: expected ';'")

    assert "plan" == waiting["role"]
    written = {path.name for path in tmp_path.glob("*.md") if ".reply" not in path.name}
    assert {"003-new-plan.md", "003-new-code.md", "003-new-code2.md"} == written
    assert "class ModelNew" in done["source"]
    assert 3 == len(done["sizes"])
    assert "expected ';'" in (tmp_path / "003-new-code2.md").read_text("utf-8")


@pytest.mark.slow
def test_prompts_of_other_sources_are_not_mixed(tmp_path: Path) -> None:
    (tmp_path / "020-new-debug.md").write_text("an older prompt", "utf-8")

    with pytest.raises(UsageError, match="use a new folder"):
        arm(20, tmp_path).advance(lambda source: "")


def outcome(number: int, name: str, **found: Any) -> Outcome:
    return Outcome(arm(number, Path(), name), **({"waiting": ""} | found))


def test_the_table_compares_what_has_ended() -> None:
    pairs = [
        [
            outcome(number, "old", given=9_000, answered=1_000, status="correct", speedup=2.0),
            outcome(number, "new", given=5_000, answered=1_000, status="correct", speedup=speedup),
        ]
        for number, speedup in ((1, 2.0), (2, 8.0))
    ]
    pairs += [
        [
            outcome(3, "old", given=9_000, answered=1_000, status="correct", speedup=2.0),
            outcome(3, "new", given=5_000, answered=1_000, status="crashed"),
        ],
        [
            outcome(4, "old", given=9_000, answered=1_000, status="correct", speedup=2.0),
            outcome(4, "new", given=0, answered=0, waiting="plan"),
        ],
    ]

    lines = report(pairs)

    row = "| 003 depthwise-hardswish-stark 4 | 9,000 | 5,000 | 1,000 | 1,000 | 2.00x | crashed |  |"
    assert row in lines
    assert "3 of 4 situations have ended." in lines
    assert "Waiting: 004-new-plan" in lines
    assert "Tokens per attempt: 10,000 before, 6,000 now; ratio 0.600 [0.600, 0.600]" in lines
    assert "Correct: 3 before, 2 now, of 3." in lines
    assert lines[-1].startswith(
        "Speedup, geometric mean of 2 pairs that both work: ratio 2.000 [1."
    )


@pytest.mark.parametrize("second", ["fault", "source"])
def test_candidates_are_judged_once_no_arm_waits_for_a_reply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: str
) -> None:
    states = {"old": {"source": "x = 1"}, "new": {second: "y = 2"}}
    monkeypatch.setattr(
        Arm, "advance", lambda self, errors: {"sizes": [(300, 30)], **states[self.name]}
    )
    judged = paired.Judged(tmp_path, None)
    asked = []

    def verdict(given: Arm, source: str, rounds: int = 1) -> dict[str, Any]:
        asked.append((given.name, rounds))
        return {"status": "correct", "errors": "", "speedups": [1.0, 9.0, 3.0][:rounds]}

    monkeypatch.setattr(judged, "verdict", verdict)

    old, new = paired.advanced([arm(1, tmp_path, name) for name in paired.ARMS], judged, 3)

    assert ("", 100, 10, 3.0) == (old.waiting, old.given, old.answered, old.speedup)
    if second == "fault":
        assert ("", "unusable", None) == (new.waiting, new.status, new.speedup)
        assert [("old", 1), ("old", 2), ("old", 3)] == asked
    else:
        assert [(name, rounds) for rounds in (1, 2, 3) for name in paired.ARMS] == asked


def test_without_a_judge_nothing_is_judged(tmp_path: Path) -> None:
    assert paired.Judged(tmp_path, None).verdict(arm(1, tmp_path), "x = 1") is None
