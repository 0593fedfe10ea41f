# SPDX-License-Identifier: Apache-2.0
"""Memory resources of cuda.core: stream-ordered, pinned, managed, virtual; copies, fills, order, refusals."""

import ctypes

from cuda.core import (Device, DeviceMemoryResource, DeviceMemoryResourceOptions, EventOptions,
                       LegacyPinnedMemoryResource, ManagedMemoryResource, ManagedMemoryResourceOptions,
                       PinnedMemoryResource, PinnedMemoryResourceOptions, VirtualMemoryResource,
                       VirtualMemoryResourceOptions)

SIZES = [1, 511, 4096, 70_000, 1 << 20, (1 << 20) + 1, 5 << 20, 40 << 20]


def attempt(title, call):
    try:
        print(title, call())
    except Exception as error:  # whatever it is, it has to be the same with Cistern
        print(title, type(error).__name__, error)


def contents(pinned, size):
    return ctypes.string_at(int(pinned.handle), size)


def round_trip(resource, host, stream, size):
    """Host to device, device to device, device to host; what comes back."""
    source, target = host.allocate(size, stream=stream), host.allocate(size, stream=stream)
    pattern = bytes(index * 7 % 251 for index in range(min(size, 4096)))
    ctypes.memmove(int(source.handle), pattern, len(pattern))
    first, second = resource.allocate(size, stream=stream), resource.allocate(size, stream=stream)
    first.copy_from(source, stream=stream)
    second.copy_from(first, stream=stream)
    target.copy_from(second, stream=stream)
    stream.sync()
    same = contents(target, len(pattern)) == pattern
    facts = [first.size, first.is_device_accessible, first.is_host_accessible, same]
    for buffer in (first, second, source, target):
        buffer.close(stream)
    return facts


def fills(resource, host, stream):
    buffer, back = resource.allocate(4096, stream=stream), host.allocate(4096, stream=stream)
    buffer.fill(0x5A, stream=stream)
    back.copy_from(buffer, stream=stream)
    stream.sync()
    print("filled", contents(back, 4096) == b"\x5a" * 4096)
    buffer.close(stream)
    back.close(stream)


def pools(device, stream):
    small = DeviceMemoryResource(device, DeviceMemoryResourceOptions(max_size=64 << 20))
    held = [small.allocate(size, stream=stream) for size in SIZES if size <= 5 << 20]
    used = small.attributes.used_mem_current
    print("pool", len(held), used >= sum(buffer.size for buffer in held), small.is_handle_owned)
    for buffer in held:
        buffer.close(stream)
    stream.sync()
    print("pool is empty", small.attributes.used_mem_current)
    small.close()


def order(device):
    first, second = device.create_stream(), device.create_stream()
    event = first.record(options=EventOptions(timing_enabled=True))
    second.wait(event)
    later = second.record(options=EventOptions(timing_enabled=True))
    later.sync()
    print("order", event.is_done, later.is_done, (later - event) >= 0)


def virtual(device, host, stream):
    resource = VirtualMemoryResource(device, config=VirtualMemoryResourceOptions())
    attempt("virtual", lambda: round_trip(resource, host, stream, 4 << 20))


def main():
    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    print(device.name, device.compute_capability, device.memory_resource.is_device_accessible)
    host = LegacyPinnedMemoryResource()
    kinds = {
        "default": lambda: device.memory_resource,
        "pool": lambda: DeviceMemoryResource(device, DeviceMemoryResourceOptions(max_size=256 << 20)),
        "managed": lambda: ManagedMemoryResource(ManagedMemoryResourceOptions(preferred_location=0)),
        "pinned": lambda: PinnedMemoryResource(PinnedMemoryResourceOptions()),
        "legacy pinned": lambda: host,
    }
    for name, make in kinds.items():
        for size in SIZES:
            attempt(f"{name} {size}", lambda make=make, size=size: round_trip(make(), host, stream, size))
    fills(device.memory_resource, host, stream)
    pools(device, stream)
    order(device)
    virtual(device, host, stream)
    attempt("far too large", lambda: device.allocate(1 << 50, stream=stream))
    attempt("too large", lambda: device.allocate(100 << 30, stream=stream))
    attempt("nothing", lambda: device.allocate(0, stream=stream).size)
    attempt("negative", lambda: device.allocate(-1, stream=stream))
    stream.sync()


if __name__ == "__main__":
    main()
