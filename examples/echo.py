"""An echo on asyncio.

    python3 echo.py serve [ADDRESS]      until it is killed; prints where it listens
    python3 echo.py ADDRESS TEXT…        sends each text, and prints its answer
"""
import asyncio
import sys

import weft


async def answer(ep):
    """What one client asks, until it is gone: a task for each."""
    while True:
        try:
            frames = await ep.recv_frames()
        except weft.WeftError:  # closed by the client, or lost with it
            return
        await ep.send_frames(frames)


async def serve(uri):
    async with weft.Worker() as worker:
        listener = worker.listen(answer, uri=uri)
        print(listener.uri, flush=True)
        await asyncio.Event().wait()


async def ask(address, texts):
    async with weft.Worker() as worker:
        ep = await worker.connect(address, deadline=10)
        for text in texts:
            await ep.send_frames([text.encode()])
            frames = await ep.recv_frames(deadline=10)
            print("answer:", bytes(frames[0]).decode())
        await ep.close()


def main():
    if len(sys.argv) < 3 and sys.argv[1:] != ["serve"]:
        sys.exit(__doc__)
    if sys.argv[1] == "serve":
        asyncio.run(serve(sys.argv[2] if len(sys.argv) > 2 else "tcp://127.0.0.1:0"))
    else:
        asyncio.run(ask(sys.argv[1], sys.argv[2:]))


if __name__ == "__main__":
    main()
