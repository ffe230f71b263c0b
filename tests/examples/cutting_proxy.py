#!/usr/bin/env python3
"""cutting_proxy.py PORT BYTES: forwards to that port of this host, and cuts each connection after BYTES bytes.

Prints the port at which it listens.
"""
import asyncio
import sys


async def forward(reader, writer, left):
    while left[0] > 0 and (data := await reader.read(4096)):
        left[0] -= len(data)
        writer.write(data)
        await writer.drain()


async def serve(port, limit):
    async def take(reader, writer):
        left = [limit]  # of both directions together
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", port)
        ways = [asyncio.ensure_future(forward(reader, to_writer, left)), asyncio.ensure_future(forward(to_reader, writer, left))]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        for end in (writer, to_writer):
            end.transport.abort()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2])))
