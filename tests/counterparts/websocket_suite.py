"""`websockets` over HTTP/1.1 and TLS, to origins in clear text and over TLS."""

import asyncio
import ssl

import httpx
from suite import CA, base, case, check, equal, pattern, run
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosedError, InvalidStatus

MIB = 1024 * 1024
WAIT_S = 10
VERIFYING = ssl.create_default_context(cafile=CA)
WAYS = {"clear": "http", "TLS": "https"}


def socket(way, path, **options):
    scheme = WAYS[way]
    more = {"ssl": VERIFYING} if scheme == "https" else {}
    url = base(scheme).replace("http", "ws", 1) + path
    return connect(url, max_size=4 * MIB, ping_interval=None, proxy=None, **more, **options)


def closed():
    """How the origin saw its last connection end."""
    return httpx.get(f"{base()}/ws/closed").text


async def echo(way, origin):
    async with socket(way, f"/{origin}/echo") as ws:
        for message in ("hello", "größer", "", b"\0\xff" * 100, b"", "x" * 125, "x" * 126, b"x" * 65536):
            await ws.send(message)
            equal(await ws.recv(), message, "the echo")


async def pings(way, origin):
    async with socket(way, f"/{origin}/ping/payload") as ws:
        equal(await ws.recv(), "ponged", "what the origin says of its ping")
        for payload in (b"", b"p" * 125):
            await asyncio.wait_for(await ws.ping(payload), WAIT_S)


async def fragments(way, origin):
    async with socket(way, f"/{origin}/fragments/50") as ws:
        equal(await ws.recv(), "piece " * 50, "a message in fragments")
        await ws.send(["a", "b", "", "c"] * 100)
        equal(await ws.recv(), "abc" * 100, "the echo of fragments")


async def large(way, origin):
    body = pattern(MIB)
    for compression in (None, "deflate"):
        async with socket(way, f"/{origin}/echo", compression=compression) as ws:
            for _ in range(3):
                await ws.send(body)
                check(await ws.recv() == body, "1 MiB differs")


async def many(way, origin):
    async with socket(way, f"/{origin}/many/1000") as ws:
        equal([await ws.recv() for _ in range(1000)], [str(n) for n in range(1000)], "messages")
        for number in range(300):
            await ws.send(str(number))
        equal([await ws.recv() for _ in range(300)], [str(n) for n in range(300)], "echoes")


async def closes(way, origin):
    for code in (1000, 1001, 4000, 4999):
        async with socket(way, f"/{origin}/close/{code}") as ws:
            await ws.wait_closed()
            equal((ws.close_code, ws.close_reason), (code, "as asked"), "closed by the origin")
    if origin == "ws":
        ws = await socket(way, "/ws/echo")
        await ws.close(4321, "done here")
        equal(ws.close_code, 4321, "the answer to our close")
        await asyncio.sleep(0.1)
        equal(await asyncio.to_thread(closed), "4321 done here", "closed by the client")


async def aborts(way, origin):
    async with socket(way, f"/{origin}/abort") as ws:
        equal(await ws.recv(), "before", "the message before")
        try:
            await asyncio.wait_for(ws.recv(), WAIT_S)
            check(False, "a message after the abort")
        except ConnectionClosedError:
            equal(ws.close_code, 1006, "the code of an origin that is gone")
    if origin == "ws":
        ws = await socket(way, "/ws/echo")
        await ws.send("x")
        await ws.recv()
        ws.transport.abort()
        await asyncio.sleep(0.5)
        equal(await asyncio.to_thread(closed), "1006 ", "the code of a client that is gone")


async def handshakes(way, origin):
    async with socket(way, f"/{origin}/echo", subprotocols=["chat.v3", "chat.v1"]) as ws:
        equal(ws.subprotocol, "chat.v1", "the subprotocol")
    async with socket(way, f"/{origin}/headers", additional_headers={"X-Token": "t"}) as ws:
        fields = (await ws.recv()).lower()
        check("x-token: t" in fields, "X-Token is missing at the origin")
        check(f"x-forwarded-proto: {WAYS[way]}" in fields, f"X-Forwarded-Proto: {fields}")
    for path, status in ((f"/{origin}/forbidden", {403}), ("/nowhere/echo", {404}),
                         ("/down/echo", {502, 503})):  # fmt: skip
        try:
            async with socket(way, path):
                check(False, f"{path} is a WebSocket")
        except InvalidStatus as refusal:
            check(refusal.response.status_code in status, f"{path}: {refusal}")


async def at_once(way, origin):
    async def one(number):
        async with socket(way, f"/{origin}/echo") as ws:
            for turn in range(5):
                await ws.send(f"{number} {turn}")
                equal(await ws.recv(), f"{number} {turn}", "the echo")

    await asyncio.gather(*(one(number) for number in range(40)))


CASES = {
    "echoes": echo, "pings both ways": pings, "fragments": fragments, "messages of 1 MiB": large,
    "many messages": many, "close codes both ways": closes, "connections that break": aborts,
    "subprotocols, fields, refusals": handshakes, "forty at a time": at_once,
}  # fmt: skip
for _way in WAYS:
    for _origin in ("ws", "wss"):
        for _name, _function in CASES.items():
            _at = f"{_way} to {'TLS' if _origin == 'wss' else 'clear'}"
            case(f"{_at}: {_name}")(lambda f=_function, w=_way, o=_origin: asyncio.run(f(w, o)))


run()
