# SPDX-License-Identifier: Apache-2.0
"""What the programs share. No kernel runs on the simulated device: values are made and compared on the
host, and the device's memory is filled by copies and by the runtime's own cudaMemset."""

import ctypes
import re

import torch

KB, MB = 1 << 10, 1 << 20
SIZES = (1 * KB, 3 * KB + 7, 64 * KB, 700 * KB, 1 * MB, 5 * MB + 512, 12 * MB, 40 * MB)

runtime = ctypes.CDLL("libcudart.so.13")  # torch has loaded it


def pattern(size, seed):
    """Bytes that are the host's own, another list for each seed."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (size,), dtype=torch.uint8, generator=generator)


def empty(size, device="cuda"):
    return torch.empty(size, dtype=torch.uint8, device=device)


def memset(tensor, byte, stream=None):
    """On the current stream."""
    stream = stream or torch.cuda.current_stream()
    bytes_ = tensor.numel() * tensor.element_size()
    code = runtime.cudaMemsetAsync(ctypes.c_void_p(tensor.data_ptr()), byte, ctypes.c_size_t(bytes_),
                                    ctypes.c_void_p(stream.cuda_stream))
    if code != 0:
        raise RuntimeError(f"cudaMemsetAsync: {code}")


def same(device_tensor, host_tensor):
    return torch.equal(device_tensor.cpu(), host_tensor)


def error_of(work):
    """The type of what it raises and its first line, without sizes of what is free or in use at the time."""
    try:
        work()
    except Exception as error:  # pylint: disable=broad-except
        line = str(error).partition("\n")[0].partition("GPU 0 has")[0].strip()
        return f"{type(error).__name__}: {re.sub(r'0x[0-9a-f]+', 'ADDRESS', line)}"
    return "no error"
