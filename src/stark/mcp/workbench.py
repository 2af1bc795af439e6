"""What the tools do: one judge for the whole session, and the store in which every evaluation is kept."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, Self

from stark.agent_runs import Kept, agent_run, find_agent_run, keep, starting_point
from stark.api import aoptimize, aresume
from stark.configuration import asked_for, open_judge
from stark.core.errors import MachineError, UsageError
from stark.core.evaluation import Correct, Effort
from stark.core.node import ROOT
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.core.standing import is_noisy
from stark.evaluating import (
    Judged,
    Written,
    check_candidates,
    evaluate_candidates,
    read_candidate,
    written_as,
)
from stark.explain.device import reference_text
from stark.explain.evaluation import explain, profiles, speedup_text
from stark.languages import language
from stark.mcp.answers import Attempt, Attempts, Best, Evaluated, Examined, Measured, Profiled
from stark.mcp.jobs import Jobs
from stark.options import RunOptions
from stark.regions.asking import is_object, load_or_capture
from stark.report.agent_documents import (
    CheckedDocument,
    checked_document,
    problem_document,
)
from stark.report.attempt_document import node_document
from stark.report.document import run_document
from stark.report.node import node_of
from stark.report.one_roofline import on_one_roofline
from stark.report.view import RunView
from stark.results import Result
from stark.store import STORE, Store


class Workbench:
    """A session's judge, jobs and store. Entering and leaving it bounds their life."""

    def __init__(
        self,
        asked: RunOptions,
        store: str = STORE,
        kernelbench: Path | None = None,
        jobs: Jobs | None = None,
    ) -> None:
        self.asked, self.store, self.kernelbench = asked, store, kernelbench
        self.jobs = jobs or Jobs()
        self.judge = open_judge(asked, self._on_notice)
        self._references: dict[str, Reference] = {}
        self._captured: dict[tuple[str, str | None], Problem] = {}
        """By the module's and its inputs' names: capturing takes seconds."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.jobs.close()
        await self.judge.close()

    async def measure(self, problem: str, inputs: str | None, guide: str | None) -> Measured:
        """The problem's reference; with the guide of a language, if one is named."""
        self._captured.pop((problem, inputs), None)
        loaded = await self._problem(problem, inputs)
        if guide is not None:
            language(guide)
        document = problem_document(loaded, await self._reference(loaded), guide)
        return Measured(
            problem=document.problem,
            summary=document.summary,
            languages=document.languages,
            guide=document.guide,
        )

    async def check(self, problem: str, candidate: str, inputs: str | None) -> CheckedDocument:
        """Whether a candidate builds and is correct."""
        written = [self._written(candidate)]
        loaded = await self._problem(problem, inputs)
        [found] = await check_candidates(loaded, written, self.judge)
        return checked_document(found)

    async def evaluate(
        self,
        problem: str,
        candidate: str,
        inputs: str | None,
        effort: Effort,
        parent: int,
        idea: str,
    ) -> Evaluated:
        """Judge a candidate and store it as an attempt of the agent's run."""
        loaded = await self._problem(problem, inputs)
        reference = await self._reference(loaded)
        with Store.open(self.store, create=False) as store:
            starting_point(store, find_agent_run(store, loaded, self.asked, reference), parent)
        judged = await self._judged(loaded, candidate, effort)
        run, kept = await self._kept(loaded, judged, effort, parent, idea)
        found = judged.evaluation if kept is None else kept.evaluation
        own = reference
        if run is not None:
            with Store.open(self.store, create=False) as store:
                own = store.reference(run) or reference
        correct = found if isinstance(found, Correct) else None
        return Evaluated(
            run=run,
            attempt=kept and kept.attempt,
            repeated=kept is not None and kept.repeated,
            status=found.status,
            speedup=correct and speedup_text(correct.speedup_vs()),
            reportable=correct is not None and correct.effort == "promote" and not is_noisy(found),
            evidence=explain(found, on_roofline=on_one_roofline(found, own)),
        )

    async def optimize(
        self,
        problem: str | None,
        inputs: str | None,
        run: str | None,
        budget: dict[str, Any],
        model: str | None,
    ) -> Best:
        """Search with STARK's own agents: a new run of a problem, or the continuation of a run."""
        options: dict[str, Any] = {k: value for k, value in budget.items() if value is not None}
        if not options:
            raise UsageError("name a budget: attempts, tokens, dollars or minutes")
        if (problem is None) == (run is None):
            raise UsageError("name a problem to search anew, or a run to continue")
        models = {"model": named} if (named := model or self.asked.model) else {}
        if run is not None:
            options = self._beyond(run, options) | models
            result = await aresume(
                run, store=self.store, judge=self.judge, on_event=_quiet, **options
            )
        else:
            assert problem is not None
            result = await aoptimize(
                await self._problem(problem, inputs),
                store=self.store,
                judge=self.judge,
                on_event=_quiet,
                **(self.asked.model_dump(exclude_unset=True) | options | models),
            )
        return self.best(result.run_id, source=False)

    def profile(self, run: str, attempt: int) -> Profiled:
        """Where an attempt's time goes, or the reference's if `attempt` is 0."""
        view = self._view(run)
        if attempt == ROOT:
            text = "" if view.reference is None else reference_text(view.reference)
        else:
            node = node_of(view, attempt)
            found = view.promotions.get(node.original, node.evaluation)
            if not isinstance(found, Correct):
                raise UsageError(f"attempt {attempt} is {found.status}, so it has no profile")
            text = "\n".join(profiles(found))
        return Profiled(run=view.run.id, attempt=attempt, text=text or "no profile was taken")

    def best(self, run: str, source: bool) -> Best:
        """The best kernel of a run."""
        with Store.open(self.store, create=False) as store:
            result = Result.of_store(store, run)
        document, kernel = run_document(result), result.kernel
        speedup = 0.0 if kernel is None else kernel.speedup.ratio
        faster = [
            each.attempt
            for each in document.attempts
            if each.works
            and each.duplicate_of is None
            and each.attempt not in result.promotions
            and each.speedups["eager"].ratio >= speedup
        ]
        return Best(
            run=document.run.id,
            sentence=document.headline.sentence,
            attempt=document.best,
            reportable=kernel is not None and kernel.confirmed and not kernel.speedup.too_noisy,
            claims=tuple(claim.text for claim in document.headline.claims),
            unchecked=tuple(faster),
            source=kernel.source if source and kernel else None,
        )

    def attempts(self, run: str, last: int) -> Attempts:
        """The latest attempts of a run."""
        document = run_document(self._view(run))
        return Attempts(
            run=document.run.id,
            total=len(document.attempts),
            attempts=tuple(
                Attempt(
                    attempt=each.attempt,
                    parent=each.parent,
                    status=each.status,
                    speedup=each.figures and each.figures.speedups.get("eager"),
                    idea=each.idea,
                    reason=each.reason,
                )
                for each in document.attempts[-last:]
            ),
        )

    def attempt_json(self, run: str, attempt: int) -> str:
        """Everything that is stored of an attempt, as JSON."""
        view = self._view(run)
        document = node_document(view, node_of(view, attempt))
        return document.model_dump_json(indent=1)

    async def examine(self) -> Examined:
        """What `stark doctor` finds."""
        command = (sys.executable, "-m", "stark", "doctor", "--json", "--store", self.store)
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
        )
        try:
            out, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        try:
            found = json.loads(out)
        except ValueError as error:
            raise MachineError("`stark doctor` failed; run it in a terminal") from error
        wrong = (each for each in found["findings"] if each["mark"] != "ok")
        return Examined(
            ready=found["ready"],
            languages=tuple(found["usable"]),
            models=tuple(found["models"]),
            problems=tuple(f"{each['name']}: {each['detail']}" for each in wrong),
        )

    async def _problem(self, spec: str, inputs: str | None) -> Problem:
        """A file's problem as it is now, or a module's as it was when `problem` last captured it."""
        if (spec, inputs) in self._captured:
            return self._captured[spec, inputs]
        found = await load_or_capture(spec, inputs, self.kernelbench, bool(self.asked.backward))
        if is_object(spec):
            self._captured[spec, inputs] = asked_for(found, self.asked)
        return asked_for(found, self.asked)

    async def _reference(self, problem: Problem) -> Reference:
        """The reference, measured once in this session."""
        if problem.digest not in self._references:
            self._references[problem.digest] = await self.judge.describe(problem)
        return self._references[problem.digest]

    async def _judged(self, problem: Problem, candidate: str, effort: Effort) -> Judged:
        written = self._written(candidate)
        device = (await self._reference(problem)).device
        [judged] = await evaluate_candidates(problem, [written], self.judge, effort, device)
        return judged

    def _written(self, candidate: str) -> Written:
        """A candidate from its file's path, or from its source if that is given instead."""
        if "\n" in candidate:
            return written_as("the source", candidate, self.asked.language)
        return read_candidate(Path(candidate), self.asked.language)

    async def _kept(
        self, problem: Problem, judged: Judged, effort: Effort, parent: int, idea: str
    ) -> tuple[str | None, Kept | None]:
        """The run and the attempt under which an evaluation is stored."""
        if judged.candidate is None:
            return None, None
        reference = await self._reference(problem)
        with Store.open(self.store) as store:
            run = agent_run(store, problem, self.asked, judged.candidate.language, reference)
            start = starting_point(store, run, parent)
            kept = keep(store, run, judged.candidate, judged.evaluation, effort, start, idea)
        return run.id, kept

    def _beyond(self, run: str, budget: dict[str, Any]) -> dict[str, Any]:
        """A budget on top of what a run has used, since a run's limits count from its beginning."""
        view = self._view(run)
        used = {
            "attempts": sum(each.counts for each in view.nodes)
            + sum(each.counts for each in view.begun.values()),
            "tokens": view.spent.tokens,
            "dollars": view.spent.dollars,
            "minutes": (view.elapsed_s or 0.0) / 60,
        }
        return {name: used[name] + value for name, value in budget.items()}

    def _view(self, run: str) -> RunView:
        with Store.open(self.store, create=False) as store:
            return RunView.of_store(store, run)

    def _on_notice(self, text: str) -> None:
        self.jobs.notice = text


def _quiet(_: object) -> None:
    """No event is shown; a callback keeps warnings about the problem off the screen."""
