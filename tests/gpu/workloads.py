#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One piece of real work on a real GPU; prints its result and its time. tests/gpu/parts.py runs it
without and with Cistern. Exit status 77 where the framework is not installed."""

import hashlib
import sys
import time

AUTO_GROWTH = ("FLAGS_allocator_strategy=auto_growth",)
# The settings are those of the run with Cistern; a workload sets what it needs of its own.
NAMES = {"torch": (), "torch_uncached": (), "torch_uncached_growth": AUTO_GROWTH,
         "torch_expandable": (), "cupy": (), "cupy_uncached": (), "cupy_async": (), "jax": (),
         "jax_uncached": (), "numba": ()}
STEPS = 60


def digest(array):
    return hashlib.sha256(array.tobytes()).hexdigest()[:16]


def timed(step, wait):
    """Results of all steps, and the milliseconds of one after the first twenty."""
    results = []
    for i in range(STEPS):
        if i == 20:
            wait()
            start = time.perf_counter()
        results.append(step(i))
    wait()
    return results, 1000 * (time.perf_counter() - start) / (STEPS - 20)


def train(config):
    """A small transformer, trained on sequences whose length changes with each step."""
    import os
    os.environ.update(config)
    import torch
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.enable_flash_sdp(False)  # their backward passes add in any order
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)
    layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, dropout=0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 4).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step(i):
        words = torch.randn(16, 64 + 32 * (i * 7 % 13), 512).cuda()
        loss = model(words).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item() if i % 25 == 24 else 0

    losses, ms = timed(step, torch.cuda.synchronize)
    return [f"{loss:.9g}" for loss in losses if loss], ms


def torch():
    return train({"CUBLAS_WORKSPACE_CONFIG": ":4096:8"})


def torch_uncached():
    return train({"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"})


torch_uncached_growth = torch_uncached


def torch_expandable():
    return train({"CUBLAS_WORKSPACE_CONFIG": ":4096:8",
                  "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})


def arrays(allocator):
    """`allocator`: CuPy's own pool, none, or the driver's pool, whose memory goes back in each synchronisation."""
    import cupy
    if allocator != "own":
        cupy.cuda.set_allocator(cupy.cuda.malloc_async if allocator == "driver" else None)
        cupy.cuda.set_pinned_memory_allocator(None)

    def step(i):
        if allocator == "driver":
            cupy.cuda.Device().synchronize()
        size = 1000 + 977 * (i * 7 % 13)
        a = cupy.arange(size * 64, dtype=cupy.float32).reshape(size, 64)
        b = cupy.sqrt(a[:, ::-1] + i) @ cupy.ones((64, 8), dtype=cupy.float32)
        return float(cupy.asnumpy(b.sum(axis=0)).sum()) if i % 25 == 24 else 0

    sums, ms = timed(step, cupy.cuda.Device().synchronize)
    return [f"{value:.9g}" for value in sums if value], ms


def cupy():
    return arrays("own")


def cupy_uncached():
    return arrays("none")


def cupy_async():
    return arrays("driver")


def compiled(config):
    """Functions that XLA compiles, of three shapes in turn."""
    import os
    os.environ.update(config)
    import jax
    from jax import numpy

    @jax.jit
    def layers(words, weights):
        for _ in range(8):
            words = numpy.tanh(words @ weights)
        return words, (words * words).sum(axis=1)

    weights = jax.random.normal(jax.random.key(1), (512, 512)) / 16

    def step(i):
        words = numpy.ones((256 + 512 * (i * 7 % 3), 512)) * (1 + i)
        words, sums = layers(words, weights)
        return float(sums[0]) + float(words[-1, -1]) if i % 25 == 24 else 0

    sums, ms = timed(step, lambda: layers(weights, weights)[0].block_until_ready())
    return [f"{value:.9g}" for value in sums if value], ms


def jax():
    return compiled({})


def jax_uncached():
    return compiled({"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"})


def numba():
    import numpy
    from numba import cuda

    @cuda.jit
    def scale(source, target, factor):
        i = cuda.grid(1)
        if i < source.size:
            target[i] = source[i] * factor

    def step(i):
        data = numpy.arange(100_000 + 1000 * (i % 13), dtype=numpy.float32)
        source = cuda.to_device(data)
        target = cuda.device_array_like(source)
        scale[(data.size + 255) // 256, 256](source, target, i)
        return digest(target.copy_to_host()) if i % 25 == 24 else 0

    digests, ms = timed(step, cuda.synchronize)
    return [value for value in digests if value], ms


if __name__ == "__main__":
    try:
        answer, step_ms = globals()[sys.argv[1]]()
    except (ImportError, AttributeError) as missing:  # numba asks numpy for what it has no more
        print(missing)
        sys.exit(77)
    print(f"{step_ms:.3f} ms a step; {' '.join(answer)}")
