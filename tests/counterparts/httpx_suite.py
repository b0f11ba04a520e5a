"""httpx: HTTP/1.1 and HTTP/2, streams up and down, many at a time, clients that leave."""

import asyncio
import hashlib
import ssl
import time

import httpx
from suite import CA, base, case, certificate, check, equal, pattern, run

MIB = 1024 * 1024
WAYS = {
    "h1": (False, "http", "HTTP/1.1"),
    "h2c": (True, "http", "HTTP/2"),
    "h1 TLS": (False, "https", "HTTP/1.1"),
    "h2 TLS": (True, "https", "HTTP/2"),
}
ORIGINS = ["http1", "tls1", "h2c", "tls2"]


def client(way, context=None):
    http2, _, _ = WAYS[way]
    context = context or ssl.create_default_context(cafile=CA)
    limits = httpx.Limits(max_connections=100)
    return httpx.AsyncClient(http1=not http2, http2=http2, verify=context, timeout=15,
                             trust_env=False, limits=limits)  # fmt: skip


def url(way, path, listener=None):
    return base(WAYS[way][1], listener) + path


async def basics(way, origin):
    async with client(way) as session:
        for _ in range(3):
            answer = await session.get(url(way, f"/{origin}/hello"))
            equal((answer.status_code, answer.content), (200, b"hello\n"), "the answer")
            equal(answer.http_version, WAYS[way][2], "the version")


async def streams(way, origin):
    body = pattern(3 * MIB)

    async def pieces():
        for start in range(0, len(body), 50000):
            yield body[start : start + 50000]

    async with client(way) as session:
        told = (await session.post(url(way, f"/{origin}/count"), content=pieces())).json()
        wanted = (len(body), hashlib.sha256(body).hexdigest())
        equal((told["bytes"], told["sha256"]), wanted, "the upload")
        digest = hashlib.sha256()
        async with session.stream("GET", url(way, f"/{origin}/chunks/{len(body)}")) as answer:
            async for piece in answer.aiter_bytes():
                digest.update(piece)
        equal(digest.hexdigest(), wanted[1], "the download's digest")


async def at_once(way, origin):
    async with client(way) as session:
        sizes = [n * 1000 for n in range(80)]
        asked = (session.get(url(way, f"/{origin}/bytes/{size}")) for size in sizes)
        answers = await asyncio.gather(*asked)
        equal([len(answer.content) for answer in answers], sizes, "the sizes")


async def leaving(way, origin):
    """A client that leaves in the middle of an answer takes the origin's part with it."""
    async with client(way) as session:
        before = aborted()
        async with session.stream("GET", url(way, f"/{origin}/endless")) as answer:
            async for _ in answer.aiter_bytes():
                break
    # Over HTTP/2, httpx resets no stream, but ends the connection.
    end = time.monotonic() + 3
    while aborted() == before:
        check(time.monotonic() < end, "the origin goes on")
        await asyncio.sleep(0.05)


def aborted():
    return httpx.get(f"{base()}/http1/state", trust_env=False).json()["aborted"]


CASES = {"three requests": basics, "3 MiB up and down": streams, "eighty at a time": at_once,
         "a client that leaves": leaving}  # fmt: skip
for _way in WAYS:
    for _origin in ORIGINS:
        for _name, _function in CASES.items():
            case(f"{_way} to {_origin}: {_name}")(
                lambda f=_function, w=_way, o=_origin: asyncio.run(f(w, o))
            )


@case("a client certificate on many connections, with and without")
def certificates():
    async def ask(context):
        async with client("h2 TLS", context) as session:
            answer = await session.get(url("h2 TLS", "/http1/head", "optional"))
            return answer.text

    with_one = ssl.create_default_context(cafile=CA)
    with_one.load_cert_chain(certificate("alice.pem"), certificate("alice.key"))
    without = ssl.create_default_context(cafile=CA)
    for _ in range(5):
        check("alice" in asyncio.run(ask(with_one)), "alice is not told")
        check("alice" not in asyncio.run(ask(without)), "alice without a certificate")


run()
