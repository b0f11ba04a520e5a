"""A WebSocket origin: what it does is in the path; in clear text and over TLS."""

import asyncio
import contextlib
import http
import ssl
import sys

from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

PROTOCOLS = ["chat.v2", "chat.v1"]
MESSAGE_BYTES_MAX = 32 * 1024 * 1024

closed = {"code": None, "reason": None}


async def converse(connection):
    _, name, *rest = connection.request.path.split("/")
    with contextlib.suppress(ConnectionClosed):
        await ACTS[name](connection, rest)
    await connection.wait_closed()
    closed.update(code=connection.close_code, reason=connection.close_reason)


async def echo(connection, _):
    async for message in connection:
        await connection.send(message)


async def ping(connection, rest):
    """Pings, and says when the pong is there."""
    waiter = await connection.ping(rest[0].encode())
    await asyncio.wait_for(waiter, 5)
    await connection.send("ponged")
    await echo(connection, rest)


async def close(connection, rest):
    await connection.close(int(rest[0]), "as asked")


async def abort(connection, _):
    await connection.send("before")
    connection.transport.abort()


async def fragments(connection, rest):
    await connection.send(["piece "] * int(rest[0]))
    await echo(connection, rest)


async def many(connection, rest):
    for number in range(int(rest[0])):
        await connection.send(str(number))
    await echo(connection, rest)


async def headers(connection, _):
    await connection.send("\n".join(f"{k}: {v}" for k, v in connection.request.headers.raw_items()))


ACTS = {"echo": echo, "ping": ping, "close": close, "abort": abort, "fragments": fragments,
        "many": many, "headers": headers}  # fmt: skip


def chosen(_, offered):
    return next((name for name in PROTOCOLS if name in offered), None)


def before(connection, request):
    """Plain answers: how the last connection was closed, and refusals."""
    if request.path == "/closed":
        return connection.respond(http.HTTPStatus.OK, f"{closed['code']} {closed['reason']}")
    if request.path.split("/")[1] not in ACTS:
        return connection.respond(http.HTTPStatus.FORBIDDEN, "no\n")
    return None


async def main(port, tls_port, certificate, key):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    options = {"max_size": MESSAGE_BYTES_MAX, "process_request": before, "ping_interval": None,
               "select_subprotocol": chosen}  # fmt: skip
    async with (
        serve(converse, "127.0.0.1", port, **options) as server,
        serve(converse, "127.0.0.1", tls_port, ssl=context, **options),
    ):
        print("ready", flush=True)
        await server.serve_forever()


asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]))
