"""Optimize a problem from Python, judge a kernel of your own, and load the run again.

Run it in a checkout with `python examples/python_api.py`. It needs no key: a recording gives the models' replies.
Builds, checks and timings are live, on the CPU.
"""

import stark

RECORDING = "examples/recordings/layernorm_gelu_residual.cpp.json"
PROBLEM = "examples/layernorm_gelu_residual.py"

result = stark.optimize(replay=RECORDING, attempts=2, executor="local:cpu")
print(result.kernel)
print(f"{result.speedup:.2f}x faster than eager")

[judged] = stark.evaluate(PROBLEM, "examples/kernels/layernorm_gelu_residual.py", effort="search")
print(judged.evaluation.status, judged.evaluation.speedup_vs("eager"))
print(stark.load_run(result.run_id))
