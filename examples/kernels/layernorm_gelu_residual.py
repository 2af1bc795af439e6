"""LayerNorm(GELU(x) + residual) in C++: each row is read once and stays in the cache until it is normalized."""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cmath>
#include <cstdint>

using tvm::ffi::TensorView;
extern "C" __attribute__((simd("notinbranch"), const)) float erff(float) noexcept;

const float* floats(TensorView tensor) {
  TVM_FFI_ICHECK(tensor.dtype() == (DLDataType{kDLFloat, 32, 1}) && tensor.IsContiguous()) << "must be dense float32";
  return static_cast<const float*>(tensor.data_ptr());
}

void layernorm_gelu_residual(TensorView x, TensorView residual, TensorView weight, TensorView bias, TensorView out, double eps) {
  const int64_t columns = x.size(-1), rows = columns ? x.numel() / columns : 0;
  const float *xs = floats(x), *residuals = floats(residual), *weights = floats(weight), *biases = floats(bias);
  float* results = const_cast<float*>(floats(out));
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < rows; ++row) {
    const float* __restrict from = xs + row * columns;
    const float* __restrict added = residuals + row * columns;
    float* __restrict to = results + row * columns;
    float total = 0.0f, squares = 0.0f;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < columns; ++i) {
      const float value = 0.5f * from[i] * (1.0f + erff(from[i] * 0.70710678f)) + added[i];
      to[i] = value;
      total += value;
    }
    const float mean = total / columns;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < columns; ++i) squares += (to[i] - mean) * (to[i] - mean);
    const float scale = 1.0f / std::sqrt(squares / columns + static_cast<float>(eps));
#pragma omp simd
    for (int64_t i = 0; i < columns; ++i) to[i] = (to[i] - mean) * scale * weights[i] + biases[i];
  }
}
"""

kernels = tvm_ffi.cpp.load_inline(
    "layernorm_gelu_residual",
    cpp_sources=SOURCE,
    functions=["layernorm_gelu_residual"],
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        x, residual, norm = x.contiguous(), residual.contiguous(), self.norm
        out = torch.empty_like(x)
        kernels.layernorm_gelu_residual(x, residual, norm.weight, norm.bias, out, norm.eps)
        return out
