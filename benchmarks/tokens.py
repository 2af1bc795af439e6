"""Measures bytes per token in the recorded prompts and replies, the basis of `BYTES_PER_TOKEN`.

    python benchmarks/tokens.py [--claude claude.json]

Needs tiktoken, which fetches its vocabularies. `--claude` adds the tokenizer of Claude 2 that Anthropic
published (`claude.json` in anthropics/anthropic-tokenizer-typescript); later ones are not public.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
from pathlib import Path
from statistics import median

import tiktoken

from stark.core.usage import BYTES_PER_TOKEN
from stark.recorded import read_recording

_ROOT = Path(__file__).parents[1]
RECORDINGS = (
    *sorted((_ROOT / "src" / "stark" / "demo").glob("*.json.gz")),
    *sorted((_ROOT / "examples" / "recordings").glob("*.json")),
)
NO_MODEL = ("scripted", "planted bugs")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--claude", type=Path)
    asked = parser.parse_args()
    encodings = {name: tiktoken.get_encoding(name) for name in ("o200k_base", "cl100k_base")}
    if asked.claude:
        encodings["claude 2"] = _claude(asked.claude)
    texts = _texts()
    for name, encoding in encodings.items():
        for kind, some in texts.items():
            sizes = [len(text.encode()) for text in some]
            counts = [len(encoding.encode(text, disallowed_special=())) for text in some]
            each = [size / count for size, count in zip(sizes, counts, strict=True)]
            print(
                f"{name:12} {len(some):3} {kind:8} {sum(sizes) / sum(counts):.2f} bytes per token overall, "
                f"{min(each):.2f} to {max(each):.2f}, median {median(each):.2f}"
            )
    longest = max(len(text.encode()) for text in texts["prompts"])
    print(f"longest prompt: {longest / BYTES_PER_TOKEN:,.0f} tokens by the estimate")
    return 0


def _texts() -> dict[str, list[str]]:
    calls = [call for path in RECORDINGS for call in read_recording(path).calls]
    return {
        "prompts": ["".join(message.text for message in call.messages) for call in calls],
        "replies": [call.reply.text for call in calls if call.reply.model not in NO_MODEL],
    }


def _claude(path: Path) -> tiktoken.Encoding:
    """Read the tokenizer. Each line has a mark, the first rank, and tokens in base64."""
    known = json.loads(path.read_text("utf-8"))
    ranks: dict[bytes, int] = {}
    for line in known["bpe_ranks"].split("\n"):
        _, first, *tokens = line.split(" ")
        ranks |= {base64.b64decode(token): int(first) + n for n, token in enumerate(tokens)}
    return tiktoken.Encoding(
        "claude",
        pat_str=known["pat_str"],
        mergeable_ranks=ranks,
        special_tokens=known["special_tokens"],
    )


if __name__ == "__main__":
    sys.exit(main())
