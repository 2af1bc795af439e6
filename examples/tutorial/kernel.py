"""x + GELU(LayerNorm(x)), by tanh(a) = 2 sigmoid(2 a) - 1, in C++: each row is read once and stays in the cache until its result is written."""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cmath>
#include <cstdint>

using tvm::ffi::TensorView;
extern "C" __attribute__((simd("notinbranch"), const)) float expf(float) noexcept;

const float* floats(TensorView tensor) {
  TVM_FFI_ICHECK(tensor.dtype() == (DLDataType{kDLFloat, 32, 1}) && tensor.IsContiguous()) << "must be dense float32";
  return static_cast<const float*>(tensor.data_ptr());
}

void norm_gelu_add(TensorView x, TensorView weight, TensorView bias, TensorView out, double eps) {
  const int64_t columns = x.size(-1), rows = columns ? x.numel() / columns : 0;
  const float *xs = floats(x), *weights = floats(weight), *biases = floats(bias);
  float* results = const_cast<float*>(floats(out));
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < rows; ++row) {
    const float* __restrict from = xs + row * columns;
    float* __restrict to = results + row * columns;
    float total = 0.0f, squares = 0.0f;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < columns; ++i) total += from[i];
    const float mean = total / columns;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < columns; ++i) squares += (from[i] - mean) * (from[i] - mean);
    const float scale = 1.0f / std::sqrt(squares / columns + static_cast<float>(eps));
#pragma omp simd
    for (int64_t i = 0; i < columns; ++i) {
      const float value = (from[i] - mean) * scale * weights[i] + biases[i];
      const float inner = 0.7978845608f * (value + 0.044715f * value * value * value);
      to[i] = from[i] + value / (1.0f + expf(-2.0f * inner));
    }
  }
}
"""

kernels = tvm_ffi.cpp.load_inline(
    "norm_gelu_add",
    cpp_sources=SOURCE,
    functions=["norm_gelu_add"],
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


class ModelNew(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(1024)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, norm = x.contiguous(), self.norm
        out = torch.empty_like(x)
        kernels.norm_gelu_add(x, norm.weight, norm.bias, out, norm.eps)
        return out
