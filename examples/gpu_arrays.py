"""Arrays of a GPU between two processes, from CuPy or PyTorch; without either, arrays of NumPy.

    python3 gpu_arrays.py              prints its address, serves one client, and ends
    python3 gpu_arrays.py ADDRESS      sends an array, and gets it back doubled

The arrays are handed to the library as they are: it takes them by DLPack or by
__cuda_array_interface__, waits for the stream that wrote them, and copies from GPU to GPU where
both processes are on one host. The two sides may use different packages.
"""
import asyncio
import sys

import weft

COUNT = 1 << 20


def numbers_of(package):
    """How a package makes the numbers 0 to COUNT - 1, and an array without content."""
    if package == "torch":
        import torch
        if not torch.cuda.is_available():
            raise ImportError("this PyTorch has no GPU")
        return lambda: torch.arange(COUNT, dtype=torch.float32, device="cuda"), torch.empty_like
    if package == "cupy":
        import cupy
        if not cupy.is_available():
            raise ImportError("CuPy finds no GPU")
        return lambda: cupy.arange(COUNT, dtype=cupy.float32), cupy.empty_like
    import numpy
    return lambda: numpy.arange(COUNT, dtype=numpy.float32), numpy.empty_like


def find_package():
    for package in ("cupy", "torch", "numpy"):
        try:
            return (package, *numbers_of(package))
        except ImportError:
            continue
    raise SystemExit("needs CuPy, PyTorch or NumPy")


async def serve(numbers, empty_like):
    async with weft.Worker() as worker:
        listener = worker.listen()
        print(listener.uri, flush=True)
        ep = await listener.accept()
        got = empty_like(numbers())
        await ep.recv(got)
        got *= 2  # on the GPU's stream; the send waits for it
        await ep.send(got)
        await ep.recv(bytearray(1))  # the client has it
        await ep.close()


async def ask(address, numbers, empty_like):
    async with weft.Worker() as worker:
        ep = await worker.connect(address, deadline=10)
        sent = numbers()
        back = empty_like(sent)
        await ep.send(sent)
        await ep.recv(back)
        await ep.send(b"k")
        await ep.close()
        return bool((back == sent * 2).all())


def main():
    package, numbers, empty_like = find_package()
    if len(sys.argv) < 2:
        asyncio.run(serve(numbers, empty_like))
        return 0
    good = asyncio.run(ask(sys.argv[1], numbers, empty_like))
    print(f"{package}: {COUNT} numbers came back {'doubled' if good else 'WRONG'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
