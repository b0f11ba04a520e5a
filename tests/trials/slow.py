"""slowhttptest: a thousand slow clients leave the others alone."""

import asyncio
import gc
import os
import subprocess
import threading
import time

from client import Connection
from harness import PLACE, Failed, Proxy, check, origin, tool

SLOW_CLIENTS = 1000
ATTACK_S = 14
REQUESTS = 10_000
CONNECTIONS = 16
P999_MS_MAX = 50
# A thousand exchanges of four 16 KiB buffers, the large buffers of `limits.rs`, and the process.
MEMORY_MIB_MAX = 128
TIMEOUTS = 'head = "5s", body = "5s", write = "5s"'


def headers(driver):
    return trial(driver, ["-H"], "/small")


def body(driver):
    return trial(driver, ["-B", "-s", "8192"], "/small")


def read(driver):
    return trial(driver, ["-X", "-w", "1", "-y", "512", "-n", "1", "-z", "5"], "/large")


def trial(driver, attack, path):
    """The attack has an origin of its own: it is the proxy that is measured. Work that others do on
    the machine is kept out of a second measurement, by real-time priority of the proxy and of the
    other clients and their origin."""
    for launcher in ([], ["chrt", "-r", "1"]):
        if launcher and not real_time(True):
            launcher = []
        try:
            seen = attempt(driver, attack, path, launcher)
        finally:
            real_time(False)
        detail = (
            f"{REQUESTS} others{' at real-time priority' if launcher else ''}: "
            f"p50 {seen['p50']:.1f}, p99.9 {seen['p999']:.1f} ms "
            f"(straight to an origin {seen['control']:.1f}); slow clients held: {seen['held']}, "
            f"RssAnon at most {seen['memory']:.1f} MiB"
        )
        check(seen["failed"] == 0, f"{seen['failed']} requests failed; {detail}")
        check(seen["held"] >= SLOW_CLIENTS * 0.9, f"no attack; {detail}")
        check(seen["memory"] <= MEMORY_MIB_MAX, detail)
        if seen["p999"] < P999_MS_MAX:
            return detail
    raise Failed(detail)


def real_time(on):
    """Sets or ends this process's real-time priority, not that of what it starts."""
    policy = os.SCHED_RR | os.SCHED_RESET_ON_FORK if on else os.SCHED_OTHER
    try:
        os.sched_setscheduler(0, policy, os.sched_param(1 if on else 0))
    except PermissionError:
        return False
    return True


def attempt(driver, attack, path, launcher):
    with (
        origin() as attacked,
        origin(launcher=launcher) as served,
        origin(launcher=launcher) as control,
    ):
        options = {"timeouts": TIMEOUTS, "attacked_port": attacked, "launcher": launcher}
        with Proxy(driver, served, **options) as proxy:
            return measure(proxy, attack, path, control)


def measure(proxy, attack, path, control):
    command = [
        tool("slowhttptest"), *attack, "-c", str(SLOW_CLIENTS), "-r", "500", "-i", "2",
        "-l", str(ATTACK_S), "-v", "0", "-u", f"http://127.0.0.1:{proxy.port}/attacked{path}",
    ]  # fmt: skip
    with open(PLACE / "slowhttptest.log", "w") as log:
        slow = subprocess.Popen(command, stdout=log, stderr=log)
        watch = Watch(proxy)
        try:
            time.sleep(2.5)
            seen = asyncio.run(others(proxy.port, control))
        finally:
            slow.terminate()
            slow.wait()
            watch.end()
    check(proxy.status()["panics"] == 0, "a panic was caught")
    return {**seen, "held": watch.held - CONNECTIONS, "memory": watch.memory}


class Watch(threading.Thread):
    """Looks at the proxy while it is attacked."""

    def __init__(self, proxy):
        super().__init__(daemon=True)
        self.proxy, self.held, self.memory = proxy, 0, 0.0
        self.over = threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(0.5):
            self.held = max(self.held, self.proxy.status()["connections"])
            self.memory = max(self.memory, self.proxy.anonymous_mib())

    def end(self):
        self.over.set()
        self.join()


async def others(port, control):
    """Requests spread over the time of the attack, some straight to an origin of their own."""
    pause = (ATTACK_S - 4) * CONNECTIONS / REQUESTS
    counts = REQUESTS // CONNECTIONS
    gc.disable()
    try:
        groups = await asyncio.gather(
            *(paced(port, counts, pause) for _ in range(CONNECTIONS)),
            *(paced(control, counts, pause) for _ in range(CONNECTIONS // 4)),
        )
    finally:
        gc.enable()
    proxied = sorted(took for group in groups[:CONNECTIONS] for took in group[0])
    direct = sorted(took for group in groups[CONNECTIONS:] for took in group[0])
    return {
        "failed": sum(group[1] for group in groups[:CONNECTIONS]),
        "p50": proxied[len(proxied) // 2],
        "p999": proxied[int(len(proxied) * 0.999)],
        "control": direct[int(len(direct) * 0.999)],
    }


async def paced(port, count, pause):
    """Milliseconds of each request on one connection, and how many failed."""
    connection = await Connection.to(port)
    took_ms, failed = [], 0
    due = time.perf_counter()
    for _ in range(count):
        due += pause
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        try:
            status, seconds = await asyncio.wait_for(connection.get(), 30)
        except Exception:
            failed += 1
            connection = await Connection.to(port)
            continue
        failed += status != 200
        took_ms.append(seconds * 1000)
    connection.close()
    return took_ms, failed
