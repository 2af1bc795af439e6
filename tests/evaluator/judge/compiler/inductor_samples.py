"""Files in the form of those that PyTorch's compiler generates, made up for the tests."""

from __future__ import annotations

HEAD = """# AOT ID: ['0_inference']
import torch
import math
from torch._inductor.codegen.memory_planning import _align as align
from torch import device, empty_strided
from torch._inductor.async_compile import AsyncCompile

aten = torch.ops.aten
assert_size_stride = torch._C._dynamo.guards.assert_size_stride
async_compile = AsyncCompile()

"""

TAIL = """
runner = Runner(partitions=[])
call = runner.call
recursively_apply_fns = runner.recursively_apply_fns


def get_args():
    return [torch.rand(4)]


if __name__ == "__main__":
    call(get_args())
"""


def generated_file(kernels: str, body: str) -> str:
    """A whole file around the kernels and the lines of the function."""
    lines = "".join(f"        {line}\n" for line in body.strip().split("\n"))
    return f"""{HEAD}{kernels}

async_compile.wait(globals())
del async_compile

class Runner:
    def __init__(self, partitions):
        self.partitions = partitions

    def recursively_apply_fns(self, fns):
        self.partitions = [fn(c) for fn, c in zip(fns, self.partitions)]

    def call(self, args):
{lines}{TAIL}"""


CPP = generated_file(
    "cpp_fused_mul_0 = async_compile.cpp_pybinding(['float*', 'const float*'], r'''\n"
    'extern "C" void kernel(float* out, const float* in) { /* call device */ }\n'
    "''')\n",
    "arg0_1, = args\nargs.clear()\nassert_size_stride(arg0_1, (4, ), (1, ), 'input')\n"
    "cpp_fused_mul_0(arg0_1, arg0_1)\nreturn (arg0_1, )",
)


def triton_kernel(name: str, helper: str = "    return a + b") -> str:
    """A kernel's text, as such a file has it."""
    return f"""# kernel path: /tmp/{name}.py
{name} = async_compile.triton('{name}', '''
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.hints import DeviceProperties
triton_helpers.set_driver_to_gpu()

@triton.jit
def _triton_helper_fn_add0(a, b):
{helper}

@triton_heuristics.pointwise(
    size_hints={{'x': 4}},
    filename=__file__,
    triton_meta={{'device': DeviceProperties(type='cuda', index=0, cc=90)}},
    inductor_meta={{'kernel_name': '{name}', 'autotune_local_cache': True}},
)
@triton.jit
def {name}(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    tl.store(out_ptr0, _triton_helper_fn_add0(tl.load(in_ptr0), 1))
''', device_str='cuda')

"""


def triton_file(*kernels: str) -> str:
    """A file whose function launches each of these kernels."""
    names = [kernel.split(" = ", 1)[0].rsplit("\n", 1)[-1] for kernel in kernels]
    launches = "\n".join(f"{name}.run(arg0_1, buf0, 4, stream=stream0)" for name in names)
    return generated_file(
        "".join(kernels),
        "arg0_1, = args\nargs.clear()\nwith torch.cuda._DeviceGuard(0):\n    stream0 = 0\n"
        f"buf0 = empty_strided((4, ), (1, ), device='cuda')\n{launches}\nreturn (buf0, )",
    )
