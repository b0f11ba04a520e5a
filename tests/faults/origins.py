#!/usr/bin/env python3
"""Origins that fail as they are told: `origins.py PORT...`, one process, an endpoint on each port.

Commands are lines of JSON on standard input, each answered by one on standard output. The first line
there comes unasked, once every endpoint listens; with the end of the input the process ends.
  {"port": 19100, "mode": "slow", "seconds": 0.4}    from now on this endpoint does so
  {"port": 19100, ..., "checked": true}              and answers checks as if nothing were amiss
  {"counts": true}                                   {port: {tenth of a second: requests}}
  {"asked": true}                                    {port: {first part of the path: requests}}
  {"tries": true}                                    [[time, port, path, mode]] of requests, in order
  {"reset": true}                                    all answer at once again, and count from nothing
"""

import asyncio
import collections
import contextlib
import json
import socket
import struct
import sys
import time

# Endpoints are told apart by their ports: the host that a port stands for is a matter of the network.
ANY, HOST = "0.0.0.0", "127.0.0.1"
# A check that looks for its end reads the whole of it.
BODY = b"x" * 1020 + b"end\n"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY)
# Requests for it are no load: they are answered as all others and not counted.
CHECK_PATH = "/healthz"
# Counts are kept by tenths of a second of the machine's monotonic clock, which every process shares.
TICKS_PER_SECOND = 10
TRICKLE_PIECES = 10
# Connections that fill a backlog of none: one more than Linux lets in, and some to be sure.
FILLERS = 4
BACKLOG = 512


class Connection(asyncio.Protocol):
    """One connection of the gateway: whole heads of requests go to the endpoint."""

    def __init__(self, endpoint):
        self.endpoint, self.buffer, self.waiting = endpoint, bytearray(), False
        self.transport = None

    def connection_made(self, transport):
        self.transport = transport
        self.endpoint.connections.add(self)

    def connection_lost(self, _):
        self.endpoint.connections.discard(self)

    def data_received(self, data):
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            path = bytes(self.buffer).split(b" ", 2)[1].decode("latin-1")
            del self.buffer[:end + 4]
            self.endpoint.on_request(self, path)

    def send(self, data):
        if not self.transport.is_closing():
            self.transport.write(data)

    def reset(self):
        """Ends it by RST, whatever is still unread."""
        with contextlib.suppress(OSError, AttributeError):
            self.transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()


class Endpoint:
    """One port, and what it does with those who come."""

    def __init__(self, port, tries):
        self.port, self.connections = port, set()
        self.counts, self.asked = collections.Counter(), collections.Counter()
        # Those of all endpoints, in the order in which they came.
        self.tries = tries
        self.listener, self.flapping, self.fillers = None, None, []
        self.mode, self.terms, self.since = "answer", {}, 0.0

    async def set(self, mode, **terms):
        """From now on this. What hung before is cut: such an endpoint was restarted."""
        if self.flapping:
            self.flapping.cancel()
            self.flapping = None
        await self.enter(mode, terms)
        if mode == "flap":
            self.flapping = asyncio.create_task(self.flap(terms["seconds"]))

    async def enter(self, mode, terms):
        left = self.mode
        self.mode, self.terms, self.since = mode, terms, time.monotonic()
        if mode == "refuse":
            self.close()
            self.cut(self.connections)
        elif mode == "hang-accept":
            self.close()
            self.fill()
        else:
            if left in ("hang", "hang-accept"):
                self.cut([it for it in self.connections if it.waiting])
            await self.listen()

    async def listen(self):
        """Accepts connections, if it does not already."""
        self.unfill()
        if not self.listener:
            loop = asyncio.get_running_loop()
            self.listener = await loop.create_server(
                lambda: Connection(self), sock=bound(self.port, BACKLOG))

    def close(self):
        """Nobody listens any more; connections stay."""
        self.unfill()
        if self.listener:
            self.listener.close()
            self.listener = None

    def fill(self):
        """Somebody listens and never accepts: the backlog is full, and SYNs are dropped."""
        self.fillers = [bound(self.port, 0)]
        for _ in range(FILLERS):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex((HOST, self.port))
            self.fillers.append(filler)

    def unfill(self):
        for it in self.fillers:
            it.close()
        self.fillers = []

    @staticmethod
    def cut(connections):
        for it in list(connections):
            it.reset()

    async def flap(self, seconds):
        """Down first."""
        while True:
            for mode in ("refuse", "answer"):
                await self.enter(mode, {})
                await asyncio.sleep(seconds)

    def on_request(self, connection, path):
        now, mode = time.monotonic(), self.mode
        if mode == "burst":
            on, off = self.terms["on"], self.terms["off"]
            mode = "fail" if (now - self.since) % (on + off) < on else "answer"
        if path != CHECK_PATH:
            self.counts[int(now * TICKS_PER_SECOND)] += 1
            # The load on an upstream asks for paths under its name.
            self.asked[path.lstrip("/").partition("/")[0]] += 1
            self.tries.append((now, self.port, path, mode))
        if path == CHECK_PATH and self.terms.get("checked"):
            mode = "answer"
        if mode in ("hang", "hang-accept"):
            connection.waiting = True
        elif mode == "fail":
            connection.send(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
        elif mode == "slow":
            later(self.terms["seconds"], connection.send, HEAD + BODY)
        elif mode == "trickle":
            trickle(connection, self.terms["seconds"])
        elif mode == "cut":
            connection.send(HEAD + BODY[:len(BODY) // 2])
            connection.transport.close()
        elif mode == "reset":
            connection.reset()
        else:
            connection.send(HEAD + BODY)


def trickle(connection, seconds):
    """The head at once, the body piece by piece."""
    connection.send(HEAD)
    size = -(-len(BODY) // TRICKLE_PIECES)
    for number in range(TRICKLE_PIECES):
        piece = BODY[number * size:(number + 1) * size]
        later(seconds * (number + 1) / TRICKLE_PIECES, connection.send, piece)


def later(seconds, call, *args):
    asyncio.get_running_loop().call_later(seconds, call, *args)


def bound(port, backlog):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((ANY, port))
    listener.listen(backlog)
    listener.setblocking(False)
    return listener


async def obey(endpoints, tries, command):
    """Does what one line says; the answer."""
    if command.get("reset"):
        for endpoint in endpoints.values():
            await endpoint.set("answer")
            endpoint.counts.clear()
            endpoint.asked.clear()
        tries.clear()
    elif command.get("counts"):
        return {port: endpoint.counts for port, endpoint in endpoints.items()}
    elif command.get("asked"):
        return {port: endpoint.asked for port, endpoint in endpoints.items()}
    elif command.get("tries"):
        return tries
    else:
        terms = {key: value for key, value in command.items() if key not in ("port", "mode")}
        await endpoints[command["port"]].set(command["mode"], **terms)
    return {}


async def serve(ports):
    tries = []
    endpoints = {port: Endpoint(port, tries) for port in ports}
    for endpoint in endpoints.values():
        await endpoint.listen()
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    say({})
    while line := await commands.readline():
        say(await obey(endpoints, tries, json.loads(line)))


def say(answer):
    # Who asks waits for it: this blocks for as long as a pipe takes.
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve([int(port) for port in sys.argv[1:]]))
