"""RMSNorm of a sum in C++: one kernel for both cases, with one thread where there are few rows."""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cmath>
#include <cstdint>

using tvm::ffi::TensorView;

const float* floats(TensorView tensor) {
  TVM_FFI_ICHECK(tensor.dtype() == (DLDataType{kDLFloat, 32, 1}) && tensor.IsContiguous()) << "must be dense float32";
  return static_cast<const float*>(tensor.data_ptr());
}

void residual_rmsnorm(TensorView x, TensorView residual, TensorView weight, TensorView out, TensorView total, double epsilon) {
  const int64_t columns = x.size(-1), rows = columns ? x.numel() / columns : 0;
  const float *xs = floats(x), *residuals = floats(residual), *weights = floats(weight);
  float *results = const_cast<float*>(floats(out)), *totals = const_cast<float*>(floats(total));
#pragma omp parallel for schedule(static) if (rows * columns > 65536)
  for (int64_t row = 0; row < rows; ++row) {
    const float* __restrict from = xs + row * columns;
    const float* __restrict added = residuals + row * columns;
    float* __restrict sum = totals + row * columns;
    float* __restrict to = results + row * columns;
    float squares = 0.0f;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < columns; ++i) {
      sum[i] = from[i] + added[i];
      squares += sum[i] * sum[i];
    }
    const float scale = 1.0f / std::sqrt(squares / columns + static_cast<float>(epsilon));
#pragma omp simd
    for (int64_t i = 0; i < columns; ++i) to[i] = sum[i] * scale * weights[i];
  }
}
"""

kernels = tvm_ffi.cpp.load_inline(
    "residual_rmsnorm",
    cpp_sources=SOURCE,
    functions=["residual_rmsnorm"],
    extra_cflags=["-O3", "-march=native", "-ffast-math", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


class ModelNew(nn.Module):
    def __init__(self, features: int, epsilon: float) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, residual = x.contiguous(), residual.contiguous()
        out, total = torch.empty_like(x), torch.empty_like(x)
        kernels.residual_rmsnorm(x, residual, self.weight, out, total, self.epsilon)
        return out, total
