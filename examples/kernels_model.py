"""A model without a model, for `exec:`: it answers with the hand-written kernel for the problem in the prompt.

It reports 10,000 output tokens for each reply, as a model might that thinks before it answers.
"""

import json
import os
import re
import sys
from pathlib import Path

PLAN = """ACTION: rewrite
TITLE: One fused pass
STRATEGY:
Fuse all operations into one pass over memory, so that no temporary tensor is written and read again.
"""

prompt = sys.stdin.read()
named = re.search(r"^# The problem: (\w+)", prompt, re.MULTILINE)
assert named is not None
kernel = Path(__file__).parent / "kernels" / f"{named[1]}.py"
usage = {"input_tokens": len(prompt) // 4, "output_tokens": 10_000}
Path(os.environ["STARK_USAGE_FILE"]).write_text(json.dumps(usage))
print(PLAN if "# Your role: plan" in prompt else f"```python\n{kernel.read_text()}```")
