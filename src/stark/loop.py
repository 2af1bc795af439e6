"""The loop: the policy selects a node, the team writes a candidate, the judge evaluates it, the store keeps it.

Everything that is paid for is stored before it is used, so a run whose process was killed can be resumed where it
stopped: attempts that had begun are finished first, and their stored replies are not asked for again.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from typing import Any

from stark.agents.fitting import least_tokens
from stark.agents.team import Assignment, Draft
from stark.core.call import Call
from stark.core.candidate import Candidate
from stark.core.errors import ProblemError, TryAgain, UsageError
from stark.core.evaluation import BuildFailed, Evaluation, Unusable
from stark.core.node import ROOT, TUNER, Node, Selection
from stark.core.reference import Reference
from stark.core.run import Ended, Run
from stark.core.tuning import Tuning
from stark.correspondence import Correspondence, Desk, Replies
from stark.elsewhere import check_elsewhere, describe_elsewhere
from stark.evaluator.executors import Executor
from stark.events import AttemptBegan, AttemptFinished, Notice, OnEvent, Started, Stepped, ignore
from stark.explain.evaluation import evidence
from stark.final_check import check_leaders, demote_refuted
from stark.languages import AUTO, Language, language, offered
from stark.ledger import Ledger, LimitReached
from stark.lessons import with_lessons
from stark.problems import check_visible
from stark.recorded import RecordedReplies
from stark.search.policies.base import Policy
from stark.search.policies.recorded import Recorded
from stark.search.tree import Tree
from stark.stopping import enough
from stark.store import Store
from stark.strategies import policy_of, team_of
from stark.tuning import is_due, next_tuned, race, tuned


async def work_on(
    run: Run,
    store: Store,
    executor: Executor,
    replies: Replies,
    emit: OnEvent = ignore,
    shared: Ledger | None = None,
    policy: Policy | None = None,
) -> Ended:
    """Work on a run until it ends, then run the final check of its fastest attempts; returns why the work stopped.

    If the run names other kinds of machines, the leaders are judged there too (see `stark.elsewhere`).

    `shared` is the ledger of a budget that several runs share. If that budget stops the run, the run has not ended: it
    gets no final check and can be resumed. `policy` replaces the strategy's policy, for a replay. A new run is stored
    only after it has passed all checks that can refuse it. Raises Held if another process is working on the
    run, and the errors of the judge, the models and the store.
    """
    if run.config.language != AUTO:
        _check_length(run, language(run.config.language))
    store.on_wait(lambda text: emit(Notice(text)))
    with ExitStack() as held:
        await store.retried(lambda: held.enter_context(store.exclusive(run.id)))
        if run.config.device_class is not None:
            executor = executor.on(run.config.device_class)
        reference = await store.retried(store.reference, run.id)
        if reference is None:
            check_visible(run.problem)
            reference = await executor.describe(run.problem)
            elsewhere = await describe_elsewhere(run, reference, executor)
            for each in (reference, *elsewhere.values()):
                _check_device(run, each)
            run = await store.retried(with_lessons, run, store, reference)
            await store.retried(_begin, run, store, reference, elsewhere)
        executor = executor.on(reference.device_class)
        await store.retried(store.reopen_run, run.id)
        ledger = await store.retried(_ledger, run, store, shared)
        desk = Desk(run.id, store, ledger, replies, emit)
        by = policy or policy_of(run.config.strategy)
        session = await store.retried(Session, run, reference, executor, desk, by)
        try:
            ended = await session.work()
            if not session.waits_for_shared_budget():
                await check_leaders(run.id, run.problem, session.tree, store, executor, emit)
                await check_elsewhere(run, store, executor, emit)
                await store.retried(store.end_run, run.id, ended)
        finally:
            with suppress(TryAgain):  # each attempt and reply notes it, too
                store.note_elapsed(run.id, ledger.elapsed_s)
        return ended


def _begin(
    run: Run, store: Store, reference: Reference, elsewhere: Mapping[str, Reference]
) -> None:
    """Store the run with its lessons, and its references."""
    (store.reconfigure if store.holds(run.id) else store.create_run)(run)
    store.set_reference(run.id, reference, elsewhere)


def _check_length(run: Run, written_in: Language) -> None:
    """Raise ProblemError if the problem is too long for any prompt."""
    least = least_tokens(run.problem, written_in)
    if least > run.config.window_tokens:
        raise ProblemError(
            f"the problem and the {written_in.name} guide alone are about {least:,} tokens, but a prompt is limited to "
            f"{run.config.window_tokens:,}; start a run with a larger window_tokens if the models accept it, or shorten "
            "the problem"
        )


def _check_device(run: Run, reference: Reference) -> None:
    """Raise UsageError if a judge's device cannot run the run's language, before anything is paid for.

    Also raises ProblemError if the planner chooses the language and the problem is too long for one of those.
    """
    if run.config.language == AUTO:
        if not offered(reference):
            raise UsageError(
                f"the judge of {reference.device.name} has the tools of no language; `stark doctor` there says what "
                "to install"
            )
        for each in offered(reference):
            _check_length(run, each)
        return
    kind, fitting = reference.device.kind, language(run.config.language).device_kinds
    if kind not in fitting:
        raise UsageError(
            f"{run.config.language} kernels do not run on the judge's {reference.device.name} ({kind}); choose "
            f"another language, or an executor with {' or '.join(fitting)}"
        )


def _ledger(run: Run, store: Store, shared: Ledger | None) -> Ledger:
    """The run's ledger as earlier sessions left it."""
    ledger = Ledger(
        run.config.budget,
        shared,
        attempts=store.attempts(run.id),
        spent=store.spent(run.id).get(run.id),
        elapsed_s=store.elapsed_s(run.id),
    )
    for call in store.calls(run.id):
        ledger.learn(call.role, call.spent.cost)
    return ledger


class Session:
    """One process's work on one run."""

    def __init__(
        self, run: Run, reference: Reference, executor: Executor, desk: Desk, policy: Policy
    ) -> None:
        self.run, self.reference, self.executor = run, reference, executor
        self.desk, self.policy = desk, policy
        self.team = team_of(run.config.strategy)
        self._judged: dict[str, asyncio.Future[Evaluation]] = {}
        """The evaluations of this session, by the candidate's digest."""

        self._cut_off = False  # whether a shared limit stopped an attempt that had begun
        nodes, self._unfinished = desk.store.nodes(run.id), desk.store.unfinished(run.id)
        self._replies: defaultdict[int, list[Call]] = defaultdict(list)
        """The calls of unfinished attempts that were answered in an earlier session."""

        for attempt in self._unfinished:
            self._replies[attempt] = desk.store.calls(run.id, attempt)
        if desk.ledger.own_limit() is None:
            # If the search continues, attempts that failed the final check count as failures. A run at its limit only
            # continues its final check, which needs the search's ranking.
            nodes = demote_refuted(nodes, desk.store.promotions(run.id))
        self.tree = Tree.replay(reference.latency_ms, nodes)
        self._known: dict[str, Evaluation] = {}
        """The evaluations of earlier sessions, by the candidate's digest."""

        self._first: dict[str, int] = {}
        """The first attempt with each candidate, by the candidate's digest."""

        for node in nodes:
            if node.candidate is not None:
                self._known.setdefault(node.candidate.digest, node.evaluation)
                self._first.setdefault(node.candidate.digest, node.original)

    async def work(self) -> Ended:
        """Keep up to `parallel` attempts in flight until no more may start; returns why the work stopped."""
        for attempt, selection in self._unfinished.items():
            self.tree.begin(attempt, selection)
        self.desk.emit(Started(self.run, self.reference, self.tree, self.desk.ledger))
        waiting = iter(self._unfinished.items())
        running: set[asyncio.Task[Node]] = set()
        limit: Ended | None = None
        try:
            while True:
                room = self.run.config.parallel - len(running)
                beginning = dict(self._next(waiting, room))
                await self._store_begun(beginning)
                for attempt, selection in beginning.items():
                    self.desk.emit(AttemptBegan(attempt, selection))
                    running.add(asyncio.create_task(self._attempt(attempt, selection)))
                if not running:
                    nothing = Ended(kind="exhausted", detail="nothing is left to try")
                    return limit or self._end() or nothing
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                running -= done
                await self._add_finished(done)
                for task in done:
                    if isinstance(stopped := task.exception(), LimitReached):
                        limit = stopped.ended
                        self._cut_off |= stopped.shared
                    else:
                        task.result()  # raises the error that ended the attempt
        finally:
            pending: list[asyncio.Future[Any]] = [*running, *self._judged.values()]
            for each in pending:
                each.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
            await self._add_finished(running)

    def _next(
        self, waiting: Iterator[tuple[int, Selection]], room: int
    ) -> Iterator[tuple[int, Selection]]:
        """Yield up to `room` attempts: those that an earlier session began, then new ones that the policy selects."""
        for _ in range(room):
            if begun := next(waiting, None):
                yield begun
                continue
            attempt = self.tree.next_attempt
            selection = self._next_tuned(attempt)
            if selection is None:
                if self._end():
                    return
                selection = self.policy.select(self.tree, self._random(attempt, "policy"))
                if selection is None:
                    return
            if selection.counts:
                self.desk.ledger.begin_attempt()
            self.tree.begin(attempt, selection)
            yield attempt, selection

    def _next_tuned(self, attempt: int) -> Selection | None:
        """The selection of an attempt that a race has written already: the next one in a recording, else any."""
        if isinstance(self.policy, Recorded):
            selection = self.policy.selections.get(attempt)
            return None if selection is None or selection.counts else selection
        return next_tuned(self.tree) if self.run.config.tune_seconds else None

    async def _store_begun(self, beginning: Mapping[int, Selection]) -> None:
        """Store the attempts that no earlier session began."""
        store, new = self.desk.store, beginning.keys() - self._unfinished.keys()

        def write() -> None:
            for attempt in sorted(new):
                store.begin_attempt(self.run.id, attempt, beginning[attempt])

        if new:
            await store.retried(write)

    async def _attempt(self, attempt: int, selection: Selection) -> Node:
        """Write a candidate and have it evaluated."""
        work = self._assignment(attempt, selection)
        draft = await self._draft(work)
        candidate: Candidate | None = None
        first = attempt
        evaluation: Evaluation = Unusable(reason=draft.fault)
        if draft.source is not None:
            language = draft.language or work.language.name
            candidate = Candidate(language=language, source=draft.source)
            first = self._first.setdefault(candidate.digest, attempt)
            evaluation = await self._evaluation(attempt, candidate)
        node = Node(
            id=attempt,
            parent=selection.parent,
            action=selection.action,
            role=draft.role,
            plan=draft.plan,
            edits=draft.edits,
            candidate=candidate,
            evaluation=evaluation,
            duplicate_of=None if first == attempt else first,
            changes=draft.changes,
        )
        return node.model_copy(update={"tuning": await self._raced(node)})

    async def _raced(self, node: Node) -> Tuning | None:
        """Race the variants of a finished attempt if it is among the fastest; None if there is no race."""
        if isinstance(self.desk.replies, RecordedReplies):
            return self.desk.replies.tuning(node.id)
        ended, seconds = self._end(), self.run.config.tune_seconds
        late = ended is not None and ended.kind == "minutes"
        if late or not seconds or node.candidate is None or not is_due(node, self.tree):
            return None
        self.desk.emit(Stepped(node.id, TUNER))
        chance, device = self._random(node.id, TUNER), self.reference.device
        problem, executor = self.run.problem, self.executor
        return await race(problem, node.candidate, executor, device, seconds, chance)

    async def _draft(self, work: Assignment) -> Draft:
        """What the team writes, or what a race of the parent has found."""
        if not work.selection.counts:
            return tuned(self.tree.node(work.selection.parent))
        asking = Correspondence(self.desk, work.attempt, self._replies[work.attempt])

        async def build_errors(candidate: Candidate) -> str:
            if asking.sent_back is not None:
                return "known to an earlier session" if asking.sent_back else ""
            evaluation = await self._evaluation(work.attempt, candidate)
            failed = isinstance(evaluation, BuildFailed) and self.desk.ledger.may_ask
            return evidence(evaluation) if failed else ""

        return await self.team.write(work, asking.ask, build_errors)

    def _assignment(self, attempt: int, selection: Selection) -> Assignment:
        """What the team has to do, in the language of the selected node: an agent's run may have several, too."""
        config = self.run.config
        choices = offered(self.reference) if config.language == AUTO else ()
        start = None if selection.parent == ROOT else self.tree.node(selection.parent).candidate
        name = config.language if start is None else start.language
        return Assignment(
            problem=self.run.problem,
            language=choices[0] if name == AUTO else language(name),
            choices=choices,
            reference=self.reference,
            tree=self.tree,
            selection=selection,
            attempt=attempt,
            lessons=config.lessons or (),
            rng=self._random(attempt, "window"),
            window_tokens=config.window_tokens,
            tunes=config.tune_seconds > 0,
        )

    async def _evaluation(self, attempt: int, candidate: Candidate) -> Evaluation:
        """The judge's verdict. Identical candidates are judged once."""
        if known := self._known.get(candidate.digest):
            return known
        if candidate.digest not in self._judged:
            self.desk.emit(Stepped(attempt, "judge"))
            asking = self.executor.evaluate(self.run.problem, candidate)
            self._judged[candidate.digest] = asyncio.ensure_future(asking)
        return await asyncio.shield(self._judged[candidate.digest])

    async def _add_finished(self, ended: Iterable[asyncio.Task[Node]]) -> None:
        """Store each attempt that became a node, then add it to the tree."""
        nodes = [task.result() for task in ended if not task.cancelled() and not task.exception()]
        nodes.sort(key=lambda node: node.id)

        def write() -> None:
            for node in nodes:
                self.desk.store.add_node(self.run.id, node, self.desk.ledger.elapsed_s)

        await self.desk.store.retried(write)
        for node in nodes:
            self.tree.add(node)
            self.desk.emit(AttemptFinished(node))

    def _end(self) -> Ended | None:
        return self.own_end() or self.desk.ledger.shared_limit()

    def own_end(self) -> Ended | None:
        """Why the run ends: a limit of its own budget or, if `stop` is `auto`, the reason to stop before a limit."""
        limit = self.desk.ledger.own_limit()
        return limit or (enough(self.tree) if self.run.config.stop == "auto" else None)

    def waits_for_shared_budget(self) -> bool:
        """Whether the run stopped because of the budget that it shares with other runs, not because of its own."""
        shared = self.desk.ledger.shared_limit()
        return shared is not None and (self._cut_off or self.own_end() is None)

    def _random(self, attempt: int, use: str) -> random.Random:
        """Random numbers that depend on the run's seed and the attempt alone, so that a resumed run draws the same."""
        return random.Random(f"{self.run.config.seed}/{attempt}/{use}")
