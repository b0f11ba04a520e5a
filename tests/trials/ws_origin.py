"""A WebSocket origin that echoes: messages up to 32 MiB, permessage-deflate."""

import asyncio
import contextlib
import os
import sys

os.environ["WEBSOCKETS_MAX_FRAGMENTS"] = "1000000"  # Cases 9.3 and 9.4 send 65,536.

from websockets.asyncio.server import serve  # noqa: E402
from websockets.exceptions import ConnectionClosed  # noqa: E402

MESSAGE_BYTES_MAX = 32 * 1024 * 1024


async def echo(connection):
    with contextlib.suppress(ConnectionClosed):
        async for message in connection:
            await connection.send(message)


async def main(port):
    options = {"max_size": MESSAGE_BYTES_MAX, "ping_interval": None, "open_timeout": 60}
    async with serve(echo, "127.0.0.1", port, **options) as server:
        print("ready", flush=True)
        await server.serve_forever()


asyncio.run(main(int(sys.argv[1])))
