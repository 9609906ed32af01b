"""A proxy on loopback that delays what clients send: delay.py ADDRESS:PORT MILLISECONDS. Ends with its standard input."""

import asyncio
import os
import sys

host, port = sys.argv[1].rsplit(":", 1)
delay = float(sys.argv[2]) / 1000


async def copy(reader, writer, pause):
    """Passes bytes on in order, each chunk this much later than it came."""
    chunks = asyncio.Queue()

    async def send():
        while chunk := await chunks.get():
            due, data = chunk
            await asyncio.sleep(max(0, due - asyncio.get_running_loop().time()))
            writer.write(data)
            await writer.drain()
        writer.close()

    sender = asyncio.create_task(send())
    try:
        while data := await reader.read(65536):
            chunks.put_nowait((asyncio.get_running_loop().time() + pause, data))
    finally:
        chunks.put_nowait(None)
        await sender


async def serve(reader, writer):
    upstream = await asyncio.open_connection(host, int(port))
    await asyncio.gather(copy(reader, upstream[1], delay), copy(upstream[0], writer, 0), return_exceptions=True)


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    # Open connections end with the process.
    os._exit(0)


asyncio.run(main())
