"""A drain under load, two workers: no request on an accepted connection is lost."""

import asyncio
import collections
import contextlib
import http.client
import random
import time

from client import Connection, Ended
from harness import Proxy, check, origin

ROUNDS = 5
BUSY = 64
# Clients that think: the drain closes them when they have been idle for a second, and a request
# of theirs may cross that close on the wire (RFC 9112 section 9.5).
THINKING = 64
FRESH = 16
LOAD_S = 1.0
BOUND_S = 10


def trial(driver):
    total = collections.Counter()
    slowest_s = 0.0
    with origin() as origin_port:
        for _ in range(ROUNDS):
            options = {"workers": 2, "drain": f"{BOUND_S}s"}
            with Proxy(driver, origin_port, **options) as proxy:
                counts, ended_s = asyncio.run(round_of(proxy))
            total += counts
            slowest_s = max(slowest_s, ended_s)
    detail = ", ".join(f"{count} {name}" for name, count in sorted(total.items()))
    check(total["lost"] == 0 and total["crossed"] == 0, detail)
    check(total["answered"] > 1000 and total["told to close"] > 0, f"no load: {detail}")
    check(slowest_s <= BOUND_S, f"a drain took {slowest_s:.1f} s; {detail}")
    return f"{detail}; drained in {slowest_s:.1f} s"


async def round_of(proxy):
    counts = collections.Counter()
    stop = asyncio.Event()
    clients = [asyncio.create_task(busy(proxy.port, counts)) for _ in range(BUSY)]
    clients += [asyncio.create_task(thinking(proxy.port, counts)) for _ in range(THINKING)]
    clients += [asyncio.create_task(fresh(proxy.port, counts, stop)) for _ in range(FRESH)]
    await asyncio.sleep(LOAD_S)
    before = counts["answered"]
    check(before > 0 and not any(client.done() for client in clients), "the load did not start")
    began = time.monotonic()
    proxy.terminate()
    accepted = asyncio.create_task(asyncio.to_thread(last_accepted, proxy))
    code = await asyncio.to_thread(proxy.wait, BOUND_S + 5)
    ended_s = time.monotonic() - began
    stop.set()
    await asyncio.wait_for(asyncio.gather(*clients), 10)
    check(code == 0, f"exit code {code}: {proxy.log()}")
    # A connection that was reset without an answer is nobody's loss only if the proxy never had it.
    counts["lost"] += max(0, await accepted - counts["served connections"])
    return counts, ended_s


def last_accepted(proxy):
    """Connections accepted, as of the last word of the proxy; it goes on answering while it drains."""
    accepted = 0
    while proxy.process.poll() is None:
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            accepted = proxy.status()["connections_accepted"]
        time.sleep(0.05)
    return accepted


async def busy(port, counts):
    """One request after the other."""
    await requests(await Connection.to(port), counts, lambda: 0)


async def thinking(port, counts):
    """Pauses round the time after which the drain closes idle connections."""
    await requests(await Connection.to(port), counts, around_a_second)


def around_a_second():
    low, high = random.choice([(0.0, 2.0), (0.95, 1.15)])
    return random.uniform(low, high)


async def fresh(port, counts, stop):
    """A new connection for every few requests, until nobody listens."""
    while not stop.is_set():
        try:
            connection = await Connection.to(port)
        except OSError:
            return
        await requests(connection, counts, lambda: 0, limit=3)


async def requests(connection, counts, pause, limit=None):
    """Requests until the proxy ends the connection, and what became of each."""
    answered = 0
    while limit is None or answered < limit:
        seconds = pause() if answered else 0
        if seconds:
            await asyncio.sleep(seconds)
        if answered and not connection.alive():
            counts["closed when idle"] += 1
            return
        try:
            status, _ = await connection.get()
        except Ended as end:
            if end.begun or not seconds and answered:
                counts["lost"] += 1
            elif answered:
                counts["crossed"] += 1
            else:
                # Whether the proxy had accepted it cannot be told from here: closing a listener
                # resets what the kernel has queued.
                counts["never accepted"] += 1
            return
        answered += 1
        counts["served connections"] += answered == 1
        counts["answered" if status == 200 else "failed"] += 1
        if connection.closes:
            counts["told to close"] += 1
            break
    connection.close()
