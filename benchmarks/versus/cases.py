"""Defines the candidates: correct, slow, wrong and failing kernels for KernelBench problems, written in several ways.

They are made from the kernels in `benchmarks/kernels/` and test evaluators; they are not meant to be fast. Most
compute one elementwise step after the library's matrix product.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stark.core.candidate import Candidate
from stark.core.problem import Problem
from stark.problems import load

KERNELS = Path(__file__).parents[1] / "kernels"

_PLAIN = """

class ModelNew(nn.Module):
    def forward(self, {arguments}):
        return {value}
"""

_NETWORK = """

class ModelNew(nn.Module):
    def __init__(self, input_size, layer_sizes, output_size):
        super().__init__()
        layers, width = [], input_size
        for size in layer_sizes:
            layers += [nn.Linear(width, size), nn.ReLU()]
            width = size
        self.network = nn.Sequential(*layers, nn.Linear(width, output_size))

    def forward(self, x):
        for layer in list(self.network)[:-1]:
            if isinstance(layer, nn.Linear):
                x = activate(layer(x), 1.0, 0.0)
        return self.network[-1](x)
"""

MODELS = {
    "level1/1": _PLAIN.format(arguments="A, B", value="activate(torch.matmul(A, B), 1.0, 1.0)"),
    "level1/5": _PLAIN.format(arguments="A, s", value="activate(A, s, 1.0)"),
    "level1/19": _PLAIN.format(arguments="x", value="activate(x, 1.0, 0.0)"),
    "level1/20": _PLAIN.format(arguments="x", value="activate(x, 1.0, 0.01)"),
    "level1/88": _PLAIN.format(arguments="x", value="gelu(x)"),
    "level2/9": """

class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, subtract_value, multiply_value):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.subtract_value, self.multiply_value = subtract_value, multiply_value

    def forward(self, x):
        return activate(self.linear(x) - self.subtract_value, self.multiply_value, 0.0)
""",
    "level2/12": """

class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, multiplier, negative_slope):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.multiplier, self.negative_slope = multiplier, negative_slope

    def forward(self, x):
        return activate(self.gemm(x), self.multiplier, self.negative_slope)
""",
    "level2/63": """

class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.divisor = divisor

    def forward(self, x):
        return activate(self.linear(x), 1.0 / self.divisor, 0.0)
""",
    "level2/76": """

class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, bias_shape):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features, bias=False)
        self.bias = nn.Parameter(torch.randn(bias_shape))

    def forward(self, x):
        return activate(self.gemm(x) + self.bias, 1.0, 0.0)
""",
    "level3/1": _NETWORK,
    "level3/3": _NETWORK,
}

ROUTES = {"triton": "triton", "cuda": "cuda", "load_inline": "cuda", "cpp": "cpp"}
"""Ways to write a kernel (`cuda` is CUDA by tvm-ffi, `load_inline` CUDA by torch), and the language of each."""

STATUS = {
    "correct": "correct",
    "slow": "correct",
    "wrong": "incorrect",
    "unparsable": "build_failed",
    "unbuildable": "build_failed",
    "unlaunchable": "build_failed",
    "raising": "crashed",
    "crashing": "crashed",
}
"""The expected status of each variant."""

_EDITS = {
    ("triton", "unlaunchable"): ("tl.load(x", "tl.lode(x"),
    ("triton", "crashing"): ("tl.store(out + at,", "tl.store(out + at + (1 << 44),"),
    ("cuda", "unbuildable"): ("const int64_t step", "const int64 step"),
    ("cuda", "crashing"): ("(out)[i] =", "(out)[i + (1LL << 40)] ="),
    ("load_inline", "unbuildable"): ("const int64_t step", "const int64 step"),
    ("cpp", "unbuildable"): ("const int64_t step", "const int64 step"),
    ("cpp", "crashing"): ("to[i] =", "to[i + (1LL << 42)] ="),
}
"""The text to replace in a route's kernel, to make a variant that fails."""

_ADDITIONS = {
    "unparsable": "\nclass ModelNew(:\n    pass\n",
    "raising": """

def _give_up(*arguments):
    raise ValueError("this candidate gives up")

ModelNew.forward = _give_up
""",
}

SMALLER = {
    "level1/19": "batch_size, dim = 64, 4096",
    "level2/12": "batch_size, in_features, out_features = 64, 256, 256",
    "level3/1": "batch_size, input_size, layer_sizes, output_size = 16, 256, [256, 256], 128",
}
"""Smaller sizes, for a CPU."""


@dataclass(frozen=True)
class Case:
    """One candidate for one KernelBench problem."""

    spec: str
    """The problem, such as `level1/19`."""

    route: str
    variant: str

    def __str__(self) -> str:
        return f"{self.spec} {self.route} {self.variant}"

    @property
    def level(self) -> str:
        """`level 1` to `level 3`."""
        return f"level {self.spec[5]}"

    @property
    def expected(self) -> str:
        """The status that the judge must give."""
        return STATUS[self.variant]

    @property
    def candidate(self) -> Candidate:
        """The candidate."""
        gelu = "gelu" in MODELS[self.spec]
        kernel = (KERNELS / f"{self.route}{'_gelu' if gelu else ''}.py").read_text()
        before, after = _EDITS.get((self.route, self.variant), ("", ""))
        offered = f'"{self.variant}":' in kernel
        added = _ADDITIONS.get(self.variant, "")
        if not (offered or added or (before and before in kernel)):
            raise ValueError(f"{self}: the kernel has no such variant, and no edit makes one")
        kernel = kernel.replace(before, after) if before else kernel
        source = kernel.replace("VARIANT", self.variant if offered else "correct")
        source += MODELS[self.spec] + added
        return Candidate(language=ROUTES[self.route], source=source)

    def problem(self, checkout: Path, device: str) -> Problem:
        """The problem, at a smaller size on a CPU."""
        problem = load(self.spec, checkout)
        if device == "cpu":
            smaller = f"{problem.source}\n\n{SMALLER[self.spec]}\n"
            return problem.model_copy(update={"source": smaller})
        return problem


_ON_A_GPU = """
level1/88  triton       slow correct wrong unlaunchable unparsable
level2/12  triton       correct wrong crashing
level1/19  triton       wrong correct
level2/12  cuda         correct unbuildable
level2/12  load_inline  correct wrong
level1/1   triton       correct
level1/1   cuda         correct wrong crashing
level3/3   triton       correct wrong
level3/3   cuda         correct raising
level1/20  triton       correct
level2/63  triton       correct slow
level2/63  cuda         correct crashing
level2/76  triton       correct
level2/76  cuda         wrong
level2/76  load_inline  unbuildable
level3/1   triton       correct
level3/1   cuda         correct
level1/5   cuda         correct
level2/9   triton       raising
level2/9   cuda         correct
level1/1   load_inline  correct
level1/19  cuda         correct
"""

_ON_A_CPU = """
level1/19  cpp  correct slow wrong unparsable
level2/12  cpp  correct wrong unbuildable raising
level3/1   cpp  correct crashing
"""


def cases(device: str) -> list[Case]:
    """All candidates for a device, in the order of evaluation; every kind comes early.

    For some problems a correct candidate is not the first, so its time excludes preparing the problem.
    """
    lines = (_ON_A_CPU if device == "cpu" else _ON_A_GPU).strip().splitlines()
    return [
        Case(spec, route, variant)
        for spec, route, *variants in map(str.split, lines)
        for variant in variants
    ]
