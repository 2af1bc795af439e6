"""What each command prints with `--json`, as published in `docs/schema.json`. `python -m stark.cli.schema` prints it."""

from __future__ import annotations

import json
import sys
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from stark.cli.benching import BenchDocument, BenchesDocument
from stark.cli.doctor import DoctorDocument
from stark.cli.improving import ImprovedDocument
from stark.cli.running import SearchedDocument
from stark.deploy.verify import Verification
from stark.regions.results import Hotspots
from stark.report.agent_documents import CheckDocument, EvaluateDocument, ProblemDocument
from stark.report.attempt_document import NodeDocument
from stark.report.document import RunDocument
from stark.report.runs_document import RunsDocument

DOCUMENTS: dict[str, tuple[type[BaseModel], ...]] = {
    "optimize": (SearchedDocument,),
    "resume": (SearchedDocument,),
    "demo": (SearchedDocument,),
    "problem": (ProblemDocument,),
    "check": (CheckDocument,),
    "evaluate": (EvaluateDocument,),
    "hotspots": (Hotspots, ImprovedDocument),
    "runs": (RunsDocument,),
    "show": (RunDocument, NodeDocument),
    "verify": (Verification,),
    "doctor": (DoctorDocument,),
    "bench run": (BenchDocument,),
    "bench resume": (BenchDocument,),
    "bench report": (BenchDocument,),
    "bench list": (BenchesDocument,),
}
"""The documents of each command that has `--json`."""


def schema() -> dict[str, Any]:
    """One schema for all documents; `commands` has that of each command."""
    models = dict.fromkeys(model for each in DOCUMENTS.values() for model in each)
    refs, whole = models_json_schema(
        [(model, "serialization") for model in models], title="STARK documents, version 1"
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "anyOf": [refs[model, "serialization"] for model in models],
        "commands": {
            f"stark {command}": {"anyOf": [refs[model, "serialization"] for model in documents]}
            for command, documents in DOCUMENTS.items()
        },
        **whole,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(schema(), indent=1, ensure_ascii=False) + "\n")
