"""The JSON schema of the documents, as published in `docs/schema.json`. `python -m stark.report.schema` prints it."""

from __future__ import annotations

import json
import sys
from typing import Any

from pydantic.json_schema import models_json_schema

from stark.report.agent_documents import CheckDocument, EvaluateDocument, ProblemDocument
from stark.report.attempt_document import NodeDocument
from stark.report.document import RunDocument
from stark.report.runs_document import RunsDocument

DOCUMENTS = (
    RunsDocument,
    RunDocument,
    NodeDocument,
    ProblemDocument,
    CheckDocument,
    EvaluateDocument,
)


def schema() -> dict[str, Any]:
    """One schema: a document is any of `DOCUMENTS`."""
    refs, whole = models_json_schema(
        [(model, "serialization") for model in DOCUMENTS], title="STARK documents, version 1"
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "anyOf": [refs[model, "serialization"] for model in DOCUMENTS],
        **whole,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(schema(), indent=1, ensure_ascii=False) + "\n")
