"""The loop: the policy selects a node, the team writes a candidate, the executor judges it, the store keeps it.

Whatever is paid for is stored before it is used, so a run that was killed goes on where it stood:
attempts that had begun are finished first, with the replies they already got.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Protocol

from stark.agents.fitting import least_tokens
from stark.agents.team import Assignment, Draft
from stark.core.call import Call, Fit, Message, Reply
from stark.core.candidate import Candidate
from stark.core.errors import (
    CompilerRefused,
    ModelRefused,
    ProblemError,
    PromptRefused,
    UsageError,
)
from stark.core.evaluation import Correct, Evaluation, Unusable
from stark.core.node import COMPILER, ROOT, Node, Selection
from stark.core.reference import Reference
from stark.core.run import Run
from stark.core.usage import Usage
from stark.evaluator.executors import Executor
from stark.explain.evaluation import evidence
from stark.languages import language
from stark.promotion import Watcher, as_checked, promote
from stark.replies import Replies
from stark.search.policies.base import Policy
from stark.search.tree import Tree
from stark.stopping import enough
from stark.store import Store
from stark.strategies import policy_of, team_of

MOST_REFUSED = 3
"""Conversations that are refused before a first one is answered; then the run stops, rather than fail in all its attempts."""


class Watch(Watcher, Protocol):
    """Sees a run happen; the live display is one."""

    def started(self, run: Run, reference: Reference, tree: Tree, usage: Usage) -> None:
        """The reference is measured and the tree is as far as an earlier session came."""

    def began(self, attempt: int, selection: Selection) -> None:
        """An attempt set out from its node."""

    def stepped(self, attempt: int, step: str) -> None:
        """An attempt is now with this role, or with the judge (`judge`)."""

    def paid(self, usage: Usage) -> None:
        """A model answered."""

    def finished(self, node: Node) -> None:
        """An attempt became a node."""


async def optimize(
    run: Run,
    store: Store,
    executor: Executor,
    replies: Replies,
    watch: Watch,
    shared_limit: Callable[[], str | None] = lambda: None,
    policy: Policy | None = None,
) -> tuple[Tree, str]:
    """Work on a run until its budget is used, then check the leaders; returns the tree and which limit ended it.

    `shared_limit` tells the limit that several runs have reached together. It keeps new attempts
    from beginning, and a run that it stops has not ended: it waits to be resumed. A new run is stored
    once nothing refuses it any more, so that none is left that could never go on.
    """
    check_compiler(run)
    _check_length(run)
    with store.exclusive(run.id):
        reference = store.reference(run.id)
        if reference is None:
            reference = await executor.describe(run.problem)
            _check_device(run, reference)
            if not store.holds(run.id):
                store.create_run(run)
            store.set_reference(run.id, reference)
        store.reopen_run(run.id)
        session = _Session(
            run,
            policy or policy_of(run.config.strategy),
            store,
            executor,
            replies,
            watch,
            reference,
            shared_limit,
        )
        reason = await session.work()
        if session.own_limit() or not shared_limit():
            await promote(run.id, run.problem, session.tree, store, executor, watch)
            store.end_run(run.id, reason)
        return session.tree, reason


def check_compiler(run: Run) -> None:
    """Refuse a run that is to begin with what the compiler cannot write."""
    if run.config.start == "compiler" and not language(run.config.language).has_compiler:
        raise UsageError(
            f"torch.compile writes no {run.config.language} kernels; leave out --start compiler, or choose the language "
            "triton for a GPU or cpp for the CPU"
        )


def _check_length(run: Run) -> None:
    """Refuse a problem that no prompt could hold."""
    least = least_tokens(run.problem, language(run.config.language))
    if least > run.config.window_tokens:
        raise ProblemError(
            f"the problem and the guide to {run.config.language} alone are about {least:,} tokens of a prompt, which may have "
            f"{run.config.window_tokens:,}; begin with a larger --window-tokens, if the models take it, or shorten the problem"
        )


def _check_device(run: Run, reference: Reference) -> None:
    """Refuse before anything is paid what could never work."""
    kind, fitting = reference.device.kind, language(run.config.language).device_kinds
    if kind not in fitting:
        raise UsageError(
            f"{run.config.language} kernels do not run on the judge's {reference.device.name} ({kind}); choose "
            f"another --language, or an --executor with {' or '.join(fitting)}"
        )


class _Session:
    """One process's work on one run."""

    def __init__(
        self,
        run: Run,
        policy: Policy,
        store: Store,
        executor: Executor,
        replies: Replies,
        watch: Watch,
        reference: Reference,
        shared_limit: Callable[[], str | None],
    ) -> None:
        self.run, self.policy, self.store, self.executor = run, policy, store, executor
        self.team = team_of(run.config.strategy)
        self.replies, self.watch, self.reference = replies, watch, reference
        self._shared_limit = shared_limit
        nodes = store.nodes(run.id)
        self.tree = Tree.replay(reference.eager.latency_ms, nodes)
        paid = [call.reply.usage for call in store.calls(run.id)]
        self.usage = sum(paid, Usage())
        self.told = sum((usage.told for usage in paid), Usage())
        self._refused = 0
        self._earlier_s = store.elapsed_s(run.id)
        self._begin_s = time.monotonic()
        if (
            self.own_limit() is None
        ):  # else only its final check may not be through, of the leaders that it began with
            believed = as_checked(nodes, store.promotions(run.id))
            self.tree = Tree.replay(reference.eager.latency_ms, believed)

    async def work(self) -> str:
        """Keep `parallel` attempts in flight until a limit is reached; returns that limit."""
        unfinished = self.store.unfinished(self.run.id)
        for attempt, selection in unfinished.items():
            self.tree.begin(attempt, selection)
        self.watch.started(self.run, self.reference, self.tree, self.usage)
        waiting = iter(unfinished.items())
        running: set[asyncio.Task[Node]] = set()
        try:
            while True:
                for attempt, selection in self._next(
                    waiting, self.run.config.parallel - len(running)
                ):
                    self.watch.began(attempt, selection)
                    running.add(asyncio.create_task(self._attempt(attempt, selection)))
                if not running:
                    return self._limit() or "nothing is left to try"
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                running -= done
                await self._tell(done)
                for task in done:
                    task.result()  # raises what kept an attempt from becoming a node
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await self._tell(running)

    def _next(
        self, waiting: Iterator[tuple[int, Selection]], room: int
    ) -> Iterator[tuple[int, Selection]]:
        """Ask: attempts that an earlier session began, then what the policy selects."""
        for _ in range(room):
            if begun := next(waiting, None):
                yield begun
                continue
            if self._limit():
                return
            attempt = self.tree.next_attempt
            selection = self._select(attempt)
            if selection is None:
                return
            self.store.begin_attempt(self.run.id, attempt, selection)
            self.tree.begin(attempt, selection)
            yield attempt, selection

    def _is_compilers(self, attempt: int) -> bool:
        """Whether an attempt is the one that PyTorch's compiler writes: the first, in a run that starts so."""
        return self.run.config.start == "compiler" and attempt == 1

    def _select(self, attempt: int) -> Selection | None:
        if self._is_compilers(attempt):
            return Selection(parent=ROOT, action="improve")
        return self.policy.select(self.tree, self._chance(attempt, "policy"))

    async def _attempt(self, attempt: int, selection: Selection) -> Node:
        """Work: write a candidate and have it judged."""
        await self.store.settled()  # that it began; nothing is paid for before
        if self._is_compilers(attempt):
            return await self._compilers_attempt(attempt, selection)
        work = Assignment(
            problem=self.run.problem,
            language=language(self.run.config.language),
            reference=self.reference,
            tree=self.tree,
            selection=selection,
            rng=self._chance(attempt, "window"),
            window_tokens=self.run.config.window_tokens,
        )
        letters = _Correspondence(self, attempt)
        draft = await self.team.write(work, letters.ask)
        make = partial(self._node, attempt, selection, draft, letters.usage)
        if draft.source is None:
            return make(None, Unusable(reason=draft.fault))
        candidate = Candidate(language=self.run.config.language, source=draft.source)
        self.watch.stepped(attempt, "judge")
        return make(candidate, await self.executor.evaluate(self.run.problem, candidate))

    async def _compilers_attempt(self, attempt: int, selection: Selection) -> Node:
        """What PyTorch's compiler makes of the problem. Where it is of no use, nothing is left to start from or repair."""
        make = partial(self._node, attempt, selection, Draft(role=COMPILER), Usage())
        self.watch.stepped(attempt, COMPILER)
        try:
            candidate = await self.executor.compiled(self.run.problem, self.run.config.language)
        except CompilerRefused as refusal:
            return make(None, Unusable(reason=str(refusal)))
        self.watch.stepped(attempt, "judge")
        evaluation = await self.executor.evaluate(self.run.problem, candidate)
        if isinstance(evaluation, Correct):
            return make(candidate, evaluation)
        reason = (
            f"what torch.compile generates is no start: {evaluation.status}: {evidence(evaluation)}"
        )
        return make(None, Unusable(reason=reason))

    async def _tell(self, ended: Iterable[asyncio.Task[Node]]) -> None:
        """Tell: of each attempt that became a node, store it first, then believe it."""
        nodes = [task.result() for task in ended if not task.cancelled() and not task.exception()]
        nodes.sort(key=lambda node: node.id)
        for node in nodes:
            self.store.add_node(self.run.id, node, self._elapsed_s())
        await self.store.settled()
        for node in nodes:
            self.tree.add(node)
            self.watch.finished(node)

    @staticmethod
    def _node(
        attempt: int,
        selection: Selection,
        draft: Draft,
        usage: Usage,
        candidate: Candidate | None,
        evaluation: Evaluation,
    ) -> Node:
        return Node(
            id=attempt,
            parent=selection.parent,
            action=selection.action,
            role=draft.role,
            plan=draft.plan,
            edits=draft.edits,
            candidate=candidate,
            evaluation=evaluation,
            usage=usage,
        )

    def count_refused(self, refusal: PromptRefused) -> None:
        """Raises ModelRefused where no conversation of the run gets an answer: it is not about the one."""
        self._refused += 1
        if self._refused >= MOST_REFUSED and not self.usage.calls:
            raise ModelRefused(str(refusal)) from refusal

    def _limit(self) -> str | None:
        return self.own_limit() or self._shared_limit()

    def own_limit(self) -> str | None:
        """The limit of this run's own budget that is reached, or why it need not be used up."""
        attempts = len(self.tree.nodes) + len(self.tree.pending)
        used_up = self.run.config.budget.exhausted_by(attempts, self.told, self._elapsed_s() / 60)
        return used_up or (enough(self.tree) if self.run.config.stop == "auto" else None)

    def _elapsed_s(self) -> float:
        return self._earlier_s + time.monotonic() - self._begin_s

    def _chance(self, attempt: int, use: str) -> random.Random:
        """Random numbers that depend on the run's seed and the attempt alone, so that a resumed run draws the same."""
        return random.Random(f"{self.run.config.seed}/{attempt}/{use}")


class _Correspondence:
    """The questions and answers of one attempt: stored ones first, then new ones, each stored on arrival."""

    def __init__(self, session: _Session, attempt: int) -> None:
        self._session, self._attempt = session, attempt
        self._stored = {call.turn: call for call in session.store.calls(session.run.id, attempt)}
        self._turn = 0
        self.usage = Usage()

    async def ask(self, role: str, messages: tuple[Message, ...], fit: Fit) -> Reply:
        """The reply to this attempt's next question."""
        session, turn = self._session, self._turn
        self._turn += 1
        session.watch.stepped(self._attempt, role)
        if turn in self._stored:
            reply = self._stored[turn].reply
        else:
            try:
                reply = await session.replies.reply(self._attempt, turn, role, messages)
            except PromptRefused as refusal:
                session.count_refused(refusal)
                raise
            call = Call(
                attempt=self._attempt,
                turn=turn,
                role=role,
                messages=messages,
                reply=reply,
                fit=fit,
            )
            session.store.add_call(session.run.id, call)
            await session.store.settled()
            session.usage += reply.usage
            session.told += reply.usage.told
            session.watch.paid(session.usage)
        self.usage += reply.usage
        return reply
