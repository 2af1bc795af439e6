"""Lessons of earlier runs in English."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stark.core.lesson import Lesson, Repair
from stark.explain.evaluation import speedup_text
from stark.explain.numbers import counted


def lesson_text(lesson: Lesson) -> str:
    """A lesson in one line: the idea, where it was tried, and its result."""
    where = f"{', '.join(lesson.operators)}; {lesson.dtype}; {lesson.language}, {lesson.device}"
    return f"{lesson.idea} ({where}): {_result(lesson)}"


def _result(lesson: Lesson) -> str:
    found = lesson.result
    if isinstance(found, Repair):
        cause = f"; the cause: {found.cause}" if found.cause else ""
        return f"works, but failed at first: {found.failure}{cause}"
    text = speedup_text(found.speedup)
    return text.replace("vs parent", "vs the kernel that it changed")


def lessons_line(lessons: Sequence[Lesson]) -> str:
    """How many lessons a run used, and of which runs."""
    return f"{counted(len(lessons), 'lesson')} of {runs_of(lessons)}"


def runs_of(lessons: Iterable[Lesson]) -> str:
    """The runs that lessons come from, with their problems."""
    return ", ".join(dict.fromkeys(f"{lesson.run} ({lesson.problem})" for lesson in lessons))
