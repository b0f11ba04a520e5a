"""A bounded open-loop load: requests at a constant rate, whatever becomes of those before."""

import asyncio
import collections
import contextlib
import itertools
import math
import re

from origins import HOST

# Opened before the first request, and used in turn: every worker gets its part.
CONNECTIONS = 32
# A request beyond so many in flight fails unsent: the client is no queue without end.
IN_FLIGHT_MAX = 1500
# After which a client has left.
PATIENCE_SECONDS = 3.0
SWEEP_SECONDS = 0.05

LENGTH = re.compile(rb"^content-length:\s*(\d+)", re.M | re.I)
CLOSES = re.compile(rb"^connection:\s*close", re.M | re.I)

# When it was due and how long it took from then, in seconds; status 0 is no whole answer.
Sample = collections.namedtuple("Sample", "due took status ok")


class Seen(collections.namedtuple("Seen", "requests success p50_ms p99_ms statuses")):
    """What users saw: the share of requests that got a whole 200, and times of all of them."""

    def say(self):
        return f"{self.success:.2%}, p50 {self.p50_ms:.1f} ms, p99 {self.p99_ms:.1f} ms"

    def cell(self):
        return f"{self.success:.2%}, {self.p99_ms:.1f} ms"

    def failures(self):
        """Statuses of what failed; 0 had no whole answer."""
        failed = {status: count for status, count in self.statuses.items() if status != 200}
        return ", ".join(f"{count} x {status}" for status, count in sorted(failed.items())) or "none"


def seen(samples):
    took = sorted(sample.took * 1000 for sample in samples)
    if not took:
        return Seen(0, 0.0, 0.0, 0.0, {})
    success = sum(sample.ok for sample in samples) / len(samples)
    return Seen(len(took), success, quantile(took, 0.5), quantile(took, 0.99),
                collections.Counter(sample.status for sample in samples))


def quantile(ordered, part):
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


class Connection(asyncio.Protocol):
    """One kept-alive connection, one request at a time."""

    def __init__(self, load):
        self.load, self.due, self.buffer, self.transport = load, None, bytearray(), None

    def connection_made(self, transport):
        self.transport = transport

    def ask(self, due):
        self.due = due
        self.load.busy.add(self)
        self.transport.write(self.load.request())

    def data_received(self, data):
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self.buffer[:end])
        length = LENGTH.search(head)
        if self.due is None or not length:
            self.transport.abort()
            return
        if len(self.buffer) < end + 4 + int(length[1]):
            return
        status, body = int(head[9:12]), bytes(self.buffer[end + 4:])
        self.buffer.clear()
        self.end(status, status == 200 and body == self.load.body)
        if CLOSES.search(head):
            self.transport.abort()
        else:
            self.load.idle.append(self)

    def connection_lost(self, _):
        if self.due is not None:
            self.end(0, False)
        with contextlib.suppress(ValueError):
            self.load.idle.remove(self)

    def end(self, status, ok):
        self.load.took(self.due, status, ok)
        self.load.busy.discard(self)
        self.due = None


class Load:
    """`per_second` GETs below `path`, each with a number of its own, and each to get `body`."""

    def __init__(self, port, path, per_second, body, connections=CONNECTIONS):
        self.port, self.per_second, self.body = port, per_second, body
        self.path, self.sent, self.connections = path, 0, connections
        self.stopped = False
        self.idle, self.busy, self.opening = collections.deque(), set(), set()
        self.samples, self.in_flight_most = [], 0

    async def open(self):
        """Connects as many clients as there are before the load begins."""
        for _ in range(self.connections):
            self.idle.append(await self.connect())

    def request(self):
        self.sent += 1
        return f"GET {self.path}/{self.sent} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()

    async def connect(self):
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: Connection(self), HOST, self.port)
        return connection

    async def run(self, seconds=math.inf, phase=0.0):
        """All requests of so many seconds, or until it is stopped, and the answers to the last.

        `phase` is a part of the time between two requests that the first one waits."""
        loop = asyncio.get_running_loop()
        sweeper = asyncio.create_task(self.sweep())
        begin = loop.time() + phase / self.per_second
        for number in itertools.count():
            if self.stopped or number >= seconds * self.per_second:
                break
            due = begin + number / self.per_second
            if (wait := due - loop.time()) > 0:
                await asyncio.sleep(wait)
            self.fire(due)
        while self.busy or self.opening:
            await asyncio.sleep(SWEEP_SECONDS)
        sweeper.cancel()

    def fire(self, due):
        in_flight = len(self.busy) + len(self.opening)
        self.in_flight_most = max(self.in_flight_most, in_flight + 1)
        while self.idle:
            connection = self.idle.popleft()
            if not connection.transport.is_closing():
                connection.ask(due)
                return
        if in_flight >= IN_FLIGHT_MAX:
            self.took(due, 0, False)
            return
        task = asyncio.create_task(self.ask_anew(due))
        self.opening.add(task)
        task.add_done_callback(self.opening.discard)

    async def ask_anew(self, due):
        try:
            connection = await asyncio.wait_for(self.connect(), PATIENCE_SECONDS)
        except (OSError, asyncio.TimeoutError):
            self.took(due, 0, False)
        else:
            connection.ask(due)

    async def sweep(self):
        """Clients that have waited for too long leave."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = asyncio.get_running_loop().time()
            for connection in [it for it in self.busy if now - it.due > PATIENCE_SECONDS]:
                connection.end(0, False)
                connection.transport.abort()

    def took(self, due, status, ok):
        now = asyncio.get_running_loop().time()
        self.samples.append(Sample(due, now - due, status, ok))

    def due(self, begin, end):
        """Samples of requests that were due in [begin, end)."""
        return [sample for sample in self.samples if begin <= sample.due < end]

    def between(self, begin, end):
        """What became of them."""
        return seen(self.due(begin, end))

    def stop(self):
        """No more requests; those that wait for an answer get it."""
        self.stopped = True

    def close(self):
        for connection in [*self.idle, *self.busy]:
            connection.transport.abort()


def phases(loads):
    """With each load a phase of its own, so that they do not ask all at once."""
    return [(load, number / len(loads)) for number, load in enumerate(loads)]


async def drive(loads, seconds, events=()):
    """Runs all loads at once; events are [(seconds from the begin, function)].

    When it began, and when events had happened."""
    for load in loads:
        await load.open()
    loop = asyncio.get_running_loop()
    begin, happened = loop.time(), []
    running = asyncio.gather(*(load.run(seconds, phase) for load, phase in phases(loads)))
    for after, event in events:
        await asyncio.sleep(max(0.0, begin + after - loop.time()))
        # In a thread of its own: it waits for an answer, and the load must not.
        await asyncio.to_thread(event)
        happened.append(loop.time())
    await running
    # Before the proxy is told to stop, which then has nobody to wait for.
    for load in loads:
        load.close()
    await asyncio.sleep(SWEEP_SECONDS)
    return begin, happened
