from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from jsonschema import Draft202012Validator

from stark.cli.schema import schema
from stark.core.candidate import Candidate
from stark.core.evaluation import Evaluation
from stark.core.measurement import Speedup
from stark.languages import language
from stark.regions.results import Comparison, Hotspots
from support.examples import guide_example
from support.executor import invented
from support.nodes import correct, failure
from support.regions import region

PLAN = "ACTION: rewrite\\nSTRATEGY:\\nFuse everything into one pass over memory.\\n"

MODEL = f"""#!/bin/sh
# Plans, and answers every other question with the next of the files reply-1.md, reply-2.md, …
question=$(cat)
case "$question" in
  *"Your role: plan"*) printf '{PLAN}'; exit ;;
esac
count=$(cat count 2>/dev/null || echo 0)
count=$((count + 1))
echo "$count" > count
cat "reply-$count.md"
"""

GOOD, BROKEN, BETTER = "good", "broken", "better"


class Ended(NamedTuple):
    """What a command printed and returned."""

    code: int
    out: str
    err: str
    command: str

    @property
    def document(self) -> Any:
        """The JSON that was printed, which follows the command's schema."""
        found = json.loads(self.out)
        _validator(self.command).validate(found)
        return found


@cache
def _validator(command: str) -> Draft202012Validator:
    published = schema()
    return Draft202012Validator(published | published["commands"][f"stark {command}"])


Stark = Callable[..., Ended]


def candidate_source(mark: str) -> str:
    return f"{guide_example(language('cpp')).candidate.source}\n# {mark}\n"


def verdict(candidate: Candidate) -> Evaluation:
    """By the mark in the last line of the source."""
    mark = candidate.source.rstrip().rpartition("# ")[2]
    by_mark = {GOOD: correct(0.5), BETTER: correct(0.25), BROKEN: failure("incorrect")}
    return by_mark.get(mark) or invented(candidate)


OPTIMIZE = (
    "optimize problem.py --language cpp --strategy stark:latest --seed 1 "
    "--model exec[scripted]:sh@model.sh"
).split()
OPTIMIZE = [word.replace("@", " ") for word in OPTIMIZE]
"""A run whose first attempt fails, whose second repairs it and whose third is the best."""

FOUND = Hotspots(
    model="users:Model",
    device="a CPU",
    run_ms=12,
    runs=10,
    module_calls=4,
    watching_us=1,
    bandwidth_gb_s=10,
    peak_tflop_s={"fp32": 0.1},
    regions=(region("mlp", 4), region("hooked", 2), region("norm", 1)),
)
COMPARISON = Comparison(
    before_ms=12,
    after_ms=8,
    speedup=Speedup(reference="the model as it was", ratio=1.5, low=1.45, high=1.55),
    reports=("users:Mlp: 1 module, 2 calls by the kernel",),
)
