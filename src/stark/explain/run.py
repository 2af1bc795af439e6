"""A run in English: its attempts, models, budget, reference and spending, each in one line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from stark.core.measurement import Speedup
from stark.core.node import Node
from stark.core.plan import first_sentence, short_name
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.core.run import RECORDED, Run
from stark.core.standing import Standing
from stark.core.tuning import Change, Tuning
from stark.core.usage import Budget, Estimate, Spent
from stark.explain.evaluation import bound_text, objective_text, why_unknown
from stark.explain.numbers import counted, listed, milliseconds

STEP_WORDS = {
    "waiting": "waiting",
    "plan": "planning",
    "code": "coding",
    "debug": "repairing",
    "solo": "writing",
    "judge": "judging",
    "tune": "tuning",
    "check": "final check",
}
"""What happens in each step of an attempt."""


LONGEST_IDEA = 120
"""The most characters of an idea that is the first sentence of a reply."""

MOST_NAMED = 9
"""The most attempts with one mark, or too noisy to rank, that are named one by one."""


def idea(node: Node, reply: str = "") -> str:
    """What an attempt is, in one line: the plan it implements, or the attempt it repairs, tunes or repeats.

    Without a plan, it is the first sentence of the reply that wrote the candidate.
    """
    if node.duplicate_of is not None:
        return f"same source as attempt {node.duplicate_of}"
    if node.changes:
        return f"tuned from {node.parent}: {changes_text(node.changes)}"
    name = node.plan.name if node.plan else ""
    if not name and not reply.lstrip().startswith("```"):
        name = short_name(first_sentence(reply), LONGEST_IDEA)
    repair = f"repair of {node.parent}" if node.action == "debug" else ""
    return ": ".join(filter(None, (repair, name)))


def changes_text(changes: Iterable[Change]) -> str:
    """`BLOCK 128 (was 64), UNROLL 4 (was 1)`."""
    return ", ".join(f"{each.name} {each.new} (was {each.old})" for each in changes)


def tuning_text(tuning: Tuning) -> str:
    """What a race of an attempt's variants found, and what it took."""
    if not tuning.raced:
        return f"none of {counted(tuning.variants, 'variant')} raced within the seconds for tuning"
    raced = f"{tuning.raced} of {counted(tuning.variants, 'variant')} raced in {tuning.seconds:.3g} s of the device"
    if not tuning.changes or tuning.gain is None:
        return f"{raced}; none is measurably faster"
    gain = f"{tuning.gain.ratio:.2f}x [{tuning.gain.low:.2f}, {tuning.gain.high:.2f}]"
    return f"{raced}; {changes_text(tuning.changes)} is {gain} as fast"


def standing_lines(standing: Standing, speedups: Mapping[int, Speedup | None]) -> Iterator[str]:
    """Which attempt is the fastest, marked by a star, and which attempts cannot be told apart from it.

    `speedups` are those that the ranking is by: the final check's or the search's. A star that is too noisy or slower
    than the reference is said to be.
    """
    best, group = standing.best, standing.group
    if best is None:
        return
    found = {id: each for id in standing.ranking if (each := speedups.get(id)) is not None}
    lead = found.get(best)
    noisy = [id for id, each in found.items() if each.too_noisy and id not in group]
    if len(standing.ranking) == 1:
        rank = (
            "the only one that passed the final check"
            if standing.confirmed
            else "the only correct one"
        )
    else:
        rank = f"fastest {'in the final check' if standing.confirmed else 'by measured speedup'}"
        rank += " of those that are not too noisy" if noisy else ""
    doubt = ""
    if lead is not None and lead.too_noisy:
        where = "final check" if standing.confirmed else "search"
        if len(standing.ranking) > 1:
            rank = f"first by the {where}'s figures, all of them too noisy to rank by"
        rank = f"correct, {rank}"
        doubt = (
            f"; its speedup in the {where}, {lead.ratio:.2f}x, is not known well enough to report"
        )
    elif lead is not None and lead.high < 1:
        doubt = f", but slower than the reference ({lead.ratio:.2f}x)"
    yield f"★ {best}: {rank}{doubt}"
    if others := group[1:]:
        yield f"= {listed(others)} cannot be told apart from it: their 95 % intervals overlap"
    if level := standing.level:
        yield f"≈ {_named(level)} cannot be told apart from it by the search's figures, and had no final check"
    if lead is not None and (close := [id for id in noisy if found[id].overlaps(lead)]):
        yield f"{_named(close)} may be faster or slower: too noisy to rank"


def _named(attempts: Sequence[int]) -> str:
    """The attempts' numbers, or how many they are."""
    return listed(attempts) if len(attempts) <= MOST_NAMED else counted(len(attempts), "attempt")


def choice_lines(
    standing: Standing, search: Mapping[int, Speedup], checks: Mapping[int, Speedup | None]
) -> Iterator[str]:
    """Why the best attempt leads although others looked faster in the search or had a final check; nothing if none did.

    `checks` maps the attempts of the final check to their speedups; None for one that failed.
    """
    best = standing.best
    if best is None or best not in search:
        return
    passed = {id: found for id, found in checks.items() if found is not None}
    if not standing.confirmed:
        for id, found in passed.items():
            why = "too noisy to rank" if found.too_noisy else "slower"
            yield f"{id}: its final check was {why} ({found.ratio:.2f}x); {best} had none"
        return
    own, lead = search[best], passed.get(best)
    faster = [id for id, found in search.items() if found.ratio > own.ratio and id != best]
    others = [id for id in faster if id not in checks]
    noisy = [id for id in others if search[id].too_noisy and not own.too_noisy]
    again = [id for id in faster if id in passed]
    doubtful = [id for id in again if passed[id].too_noisy or (lead and lead.too_noisy)]
    level = [id for id in again if id not in doubtful and lead and passed[id].overlaps(lead)]
    reasons: dict[str, list[int]] = {
        "too noisy to rank, so the final check took others first": noisy,
        "failed the final check": [id for id in faster if id in checks and checks[id] is None],
        "too noisy to compare in the final check": doubtful,
        "cannot be told apart from it in the final check": level,
        "slower in the final check": [id for id in again if id not in (*doubtful, *level)],
    }
    for reason, ids in reasons.items():
        if ids:
            yield f"{listed(ids)} looked faster in the search: {reason}"


def models_line(run: Run) -> str:
    """Every model with its roles."""
    roles: dict[str, list[str]] = {}
    for role, entry in run.config.models.items():
        roles.setdefault(entry.model, []).append(role)
    return "; ".join(f"{model} ({', '.join(names)})" for model, names in roles.items())


def replay_line(run: Run) -> str:
    """Which parts of a replay are recorded, and which are live."""
    models = dict.fromkeys(each.model.removeprefix(RECORDED) for each in run.config.models.values())
    return f"replies are recorded, from {', '.join(models)}; builds, checks and timings are live"


def mode_line(problem: Problem) -> str | None:
    """What it means that a module was captured in training mode; None for one in evaluation mode, and for other problems."""
    try:
        stated = problem.declared
    except (SyntaxError, ValueError):  # the judge refuses the file
        return None
    if stated.original is None or not stated.original.training:
        return None
    also = "" if stated.backward else ", as it does where gradients are needed"
    return (
        f"train(): kernels are verified for that mode only, and in eval() the original runs{also}"
    )


def budget_line(budget: Budget) -> str:
    """The limits of a run."""
    tokens = None if budget.tokens is None else f"{budget.tokens:,} tokens"
    dollars = None if budget.dollars is None else f"${budget.dollars:.2f}"
    minutes = None if budget.minutes is None else f"{budget.minutes:g} minutes"
    return ", ".join(filter(None, (counted(budget.attempts, "attempt"), tokens, dollars, minutes)))


def reference_line(reference: Reference) -> str:
    """The reference's time and its roofline; with several cases, those of each."""
    if reference.weighing is not None:
        cases = (f"{case}: {reference_line(each)}" for case, each in reference.cases.items())
        eager = f"{milliseconds(reference.latency_ms)} in eager mode (geometric mean)"
        return f"{eager}; {'; '.join(cases)}; objective: {objective_text(reference.weighing)}"
    roof, latency_ms = reference.roofline, reference.eager.latency_ms
    timed = ", forward with backward" if reference.backward else ""
    eager = f"{milliseconds(latency_ms)} in eager mode{timed}"
    if not roof.is_known(latency_ms):
        return f"{eager}; roofline unknown: {why_unknown(roof, 'eager mode')}"
    return f"{eager}; roofline estimate {milliseconds(roof.floor_ms)} ({bound_text(roof)})"


def dollars(spent: Spent) -> str:
    """The price; `+ ?` if the price of some calls is unknown."""
    if spent.unpriced_calls and not spent.dollars:
        return "unknown"
    return f"${spent.dollars:,.2f}{' + ?' if spent.unpriced_calls else ''}"


def price(spent: Spent) -> str:
    """The price, worded for use in a sentence."""
    found = dollars(spent)
    return "price unknown" if found == "unknown" else found


def token_count(count: int, spent: Spent) -> str:
    """A number of tokens; `~` marks a number that contains estimates."""
    return f"{'~' if spent.estimated_calls else ''}{count:,}"


def tokens(spent: Spent) -> str:
    """Input and output tokens together."""
    return f"{token_count(spent.tokens, spent)} tokens"


def estimate_line(expected: Estimate, budget: Budget) -> str:
    """What a run may cost and how long it may take, as estimated before its start."""
    cost = "price unknown" if expected.dollars is None else f"${expected.dollars:.2f}"
    limits = budget_line(budget)
    return (
        f"estimate for {counted(expected.attempts, 'attempt')}: {counted(expected.calls, 'model call')}, "
        f"{expected.tokens / 1e6:.2g} M tokens (thinking excluded), {cost}, {counted(round(expected.minutes), 'minute')}; limits: {limits}"
    )
