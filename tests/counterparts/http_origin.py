"""An HTTP/1.1 origin by hand, so that it shows what came and sends what libraries would not."""

import asyncio
import contextlib
import hashlib
import json
import sys

import page

HEAD_BYTES_MAX = 256 * 1024
PIECE = 16 * 1024
LINGER_S = 1
HINT = "</page/style.css>; rel=preload; as=style"

state = {"aborted": 0, "reports": []}


class Request:
    """One request: its head, and its body piece by piece."""

    def __init__(self, head, reader, writer):
        lines = head.decode("latin-1").split("\r\n")
        self.method, self.target, self.version = lines[0].split(" ")
        self.path = self.target.partition("?")[0]
        self.fields = [line.split(": ", 1) if ": " in line else line.split(":", 1)
                       for line in lines[1:] if line]  # fmt: skip
        self.reader, self.writer = reader, writer
        self.trailers = []
        self.chunked = self.field("transfer-encoding") == "chunked"
        self.length = int(self.field("content-length") or 0)
        self.read_out = False

    def field(self, name):
        return next((value for key, value in self.fields if key.lower() == name), None)

    def framing(self):
        if self.chunked:
            return "chunked"
        return "none" if self.field("content-length") is None else "length"

    async def body(self):
        if self.field("expect") == "100-continue":
            self.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if not self.chunked:
            left = self.length
            while left:
                piece = await self.reader.read(min(left, PIECE))
                if not piece:
                    raise ConnectionError("the body ends early")
                left -= len(piece)
                yield piece
        while self.chunked:
            size = int((await self.reader.readuntil(b"\r\n")).split(b";")[0], 16)
            if size == 0:
                break
            yield await self.reader.readexactly(size)
            await self.reader.readexactly(2)
        while self.chunked and (line := await self.reader.readuntil(b"\r\n")) != b"\r\n":
            name, _, value = line.decode("latin-1").strip().partition(":")
            self.trailers.append([name, value.strip()])
        self.read_out = True


async def converse(reader, writer):
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, TimeoutError):
        while True:
            request = Request((await reader.readuntil(b"\r\n\r\n"))[:-4], reader, writer)
            await answer(request, writer)
            if not request.read_out:
                async for _ in request.body():
                    pass
            if request.field("connection") == "close":
                break
    writer.close()


async def answer(request, writer):
    _, name, *rest = request.path.split("/")
    handler = HANDLERS.get(name)
    if handler is None:
        await whole(writer, b"no such thing\n", status="404 Not Found")
    else:
        await handler(request, writer, rest)
    await writer.drain()


async def whole(writer, body, status="200 OK", content="text/plain", more="", method="GET"):
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    writer.write(head.encode("latin-1") + (b"" if method == "HEAD" else body))
    await writer.drain()


async def shown(writer, value):
    await whole(writer, json.dumps(value).encode(), content="application/json")


def chunk(piece):
    return b"%x\r\n%s\r\n" % (len(piece), piece)


def chunked_head(more=""):
    return f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n{more}\r\n".encode()


async def hello(request, writer, _):
    await whole(writer, b"hello\n", more="X-Origin: by hand\r\n", method=request.method)


async def head(request, writer, _):
    facts = {"method": request.method, "target": request.target, "version": request.version}
    await shown(writer, facts | {"fields": request.fields})


async def count(request, writer, _):
    digest, size = hashlib.sha256(), 0
    async for piece in request.body():
        digest.update(piece)
        size += len(piece)
    facts = {"method": request.method, "bytes": size, "sha256": digest.hexdigest()}
    facts |= {"trailers": request.trailers, "framing": request.framing()}
    await shown(writer, facts | {"fields": request.fields})


async def echo(request, writer, _):
    started = False
    async for piece in request.body():
        if not started:
            writer.write(chunked_head())
            started = True
        writer.write(chunk(piece))
        await writer.drain()
    writer.write((b"" if started else chunked_head()) + b"0\r\n\r\n")


async def send_bytes(request, writer, rest):
    body = page.pattern(int(rest[0]))
    await whole(writer, body, content="application/octet-stream", method=request.method)


async def chunks(_, writer, rest):
    writer.write(chunked_head("Content-Type: application/octet-stream\r\n"))
    body = page.pattern(int(rest[0]))
    for start in range(0, len(body), PIECE):
        writer.write(chunk(body[start : start + PIECE]))
        await writer.drain()
    writer.write(b"0\r\n\r\n")


async def trailers(_, writer, __):
    writer.write(chunked_head("Trailer: X-Checksum\r\n") + chunk(b"body\n"))
    writer.write(b"0\r\nX-Checksum: 230d8358\r\n\r\n")


async def status(_, writer, rest):
    code = int(rest[0])
    if code in (204, 304):
        writer.write(f'HTTP/1.1 {code} As asked\r\nETag: "x"\r\n\r\n'.encode())
    else:
        await whole(writer, b"as asked\n", status=f"{code} As asked")


async def slow(_, writer, rest):
    await asyncio.sleep(int(rest[0]) / 1000)
    await whole(writer, b"late\n")


async def endless(request, writer, _):
    """Sends until it is let go, and remembers that it was."""
    writer.write(chunked_head())
    try:
        while not request.reader.at_eof():
            writer.write(chunk(page.pattern(PIECE)))
            await writer.drain()
            await asyncio.sleep(0.01)
    finally:
        state["aborted"] += 1
    raise ConnectionError("let go")


async def cut(_, writer, rest):
    kind = rest[0]
    writer.write(chunked_head() + chunk(b"first\n") if kind == "chunked" else
                 b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nfirst\n")  # fmt: skip
    await writer.drain()
    await asyncio.sleep(0.1)
    raise ConnectionError("as asked")


async def hints(_, writer, __):
    writer.write(f"HTTP/1.1 103 Early Hints\r\nLink: {HINT}\r\n\r\n".encode())
    await writer.drain()
    await asyncio.sleep(0.05)
    await whole(writer, b"after the hint\n")


async def refuse(request, writer, _):
    """Answers without asking for the body, and throws away what comes of it for a while."""
    await whole(writer, b"too much\n", "413 Content Too Large", more="Connection: close\r\n")
    writer.write_eof()
    end = asyncio.get_running_loop().time() + LINGER_S
    with contextlib.suppress(TimeoutError):
        while (left := end - asyncio.get_running_loop().time()) > 0:
            if not await asyncio.wait_for(request.reader.read(PIECE), left):
                break
    raise ConnectionError("answered")


async def events(_, writer, __):
    writer.write(chunked_head("Content-Type: text/event-stream\r\nCache-Control: no-cache\r\n"))
    for number in range(3):
        writer.write(chunk(b"data: %d\n\n" % number))
        await writer.drain()
        await asyncio.sleep(0.1)
    writer.write(b"0\r\n\r\n")


async def fields(_, writer, rest):
    """Answers with so many fields of so many bytes."""
    number, size = int(rest[0]), int(rest[1])
    await whole(writer, b"many\n", more="".join(f"X-{n}: {'v' * size}\r\n" for n in range(number)))


async def pages(_, writer, rest):
    content, body = page.find("/".join(rest))
    await whole(writer, body, content=content, more="Cache-Control: no-store\r\n")


async def report(request, writer, _):
    state["reports"].append(json.loads(b"".join([piece async for piece in request.body()])))
    await whole(writer, b"thanks\n")


async def show_state(_, writer, __):
    await shown(writer, state)


async def forget(_, writer, __):
    state.update(aborted=0, reports=[])
    await whole(writer, b"forgotten\n")


HANDLERS = {
    "hello": hello, "head": head, "count": count, "echo": echo, "bytes": send_bytes,
    "chunks": chunks, "trailers": trailers, "status": status, "slow": slow, "endless": endless,
    "cut": cut, "hints": hints, "refuse": refuse, "events": events, "fields": fields,
    "page": pages, "report": report, "state": show_state, "forget": forget,
}  # fmt: skip


async def main(port):
    server = await asyncio.start_server(converse, "127.0.0.1", port, limit=HEAD_BYTES_MAX)
    async with server:
        print("ready", flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
