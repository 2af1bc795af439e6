"""Functions of the CUDA driver that torch does not offer: memory that processes share, and words that streams wait for."""

from __future__ import annotations

import ctypes

import torch

OUT_OF_MEMORY = 2
"""The driver's code CUDA_ERROR_OUT_OF_MEMORY."""


class Driver:
    """Functions that need a CUDA context. Each raises torch.OutOfMemoryError, or RuntimeError with its name."""

    class _Handle(ctypes.Structure):
        _fields_ = [("bytes", ctypes.c_char * 64)]

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")

    def allocate(self, size: int) -> int:
        """Allocate device memory, if need be once more with torch's cache empty. Returns its address."""
        pointer = ctypes.c_uint64()
        asked = "cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size)
        try:
            self._call(*asked)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            self._call(*asked)
        return pointer.value

    def free(self, pointer: int) -> None:
        """Free what `allocate` returned."""
        self._call("cuMemFree_v2", ctypes.c_uint64(pointer))

    def export(self, pointer: int) -> bytes:
        """A handle with which another process can map the allocation that starts at this address."""
        handle = self._Handle()
        self._call("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(pointer))
        return ctypes.string_at(ctypes.addressof(handle), 64)

    def import_(self, exported: bytes) -> int:
        """Map another process's allocation. Returns its address here."""
        handle = self._Handle.from_buffer_copy(exported)
        pointer = ctypes.c_uint64()
        lazily_enable_peers = ctypes.c_uint(1)
        self._call("cuIpcOpenMemHandle_v2", ctypes.byref(pointer), handle, lazily_enable_peers)
        return pointer.value

    def unmap(self, pointer: int) -> None:
        """Undo `import_`."""
        self._call("cuIpcCloseMemHandle", ctypes.c_uint64(pointer))

    def allocation_of(self, pointer: int) -> tuple[int, int]:
        """The address and the size of the allocation that an address lies in."""
        base, size = ctypes.c_uint64(), ctypes.c_size_t()
        found = ctypes.byref(base), ctypes.byref(size)
        self._call("cuMemGetAddressRange_v2", *found, ctypes.c_uint64(pointer))
        return base.value, size.value

    def wait_until(self, stream: int, address: int, value: int) -> None:
        """Let a stream's later work wait until the word at an address is at least `value`."""
        self._call("cuStreamWaitValue32_v2", *_word(stream, address, value))

    def write(self, stream: int, address: int, value: int) -> None:
        """After a stream's earlier work, write a word."""
        self._call("cuStreamWriteValue32_v2", *_word(stream, address, value))

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code == OUT_OF_MEMORY:
            raise torch.OutOfMemoryError(f"{name}: the device is out of memory")
        if code != 0:
            said = ctypes.c_char_p()
            self._cuda.cuGetErrorString(code, ctypes.byref(said))
            reason = (said.value or b"unknown").decode(errors="replace")
            raise RuntimeError(f"{name} of the CUDA driver failed with error {code}, {reason}")


def _word(stream: int, address: int, value: int) -> tuple[object, ...]:
    at_least = 0  # the wait's condition, and no flags for a write
    return (
        ctypes.c_void_p(stream),
        ctypes.c_uint64(address),
        ctypes.c_uint32(value & 0xFFFFFFFF),
        ctypes.c_uint(at_least),
    )
