"""Reloads that change routes, endpoints and filters, two workers: every change is seen, nothing is lost.

`changes` has the load of wrk and compares it with an undisturbed run; `survivors` has a tunnel and a
slow download that live through all of it.
"""

import contextlib
import http.client
import json
import re
import socket
import subprocess
import threading
import time
import urllib.request

from harness import TIMED, Proxy, check, origin, tool

RELOADS = 200
LOAD_S = 25
CLIENTS = 64
WORKERS = 2
GROWTH_MIB_MAX = 8
P99_RATIO_MAX = 1.3
BURST = 5


class Changing:
    """The configuration of a proxy, of which each version is another one."""

    def __init__(self, proxy, staying_port, ports):
        self.proxy, self.staying_port, self.ports = proxy, staying_port, ports
        self.number = 0
        self.write()

    def write(self):
        proxy, number = self.proxy, self.number
        moving = self.ports[number % len(self.ports)]
        proxy.config.write_text(
            f'[runtime]\nworkers = {WORKERS}\ndriver = "{proxy.driver}"\n'
            f'[admin]\nlisten = "127.0.0.1:{proxy.admin_port}"\n'
            f'[listener.public]\naddress = "127.0.0.1:{proxy.port}"\n'
            f'[upstream.main]\nendpoints = [{{ address = "127.0.0.1:{self.staying_port}" }}]\n'
            'timeouts = { body = "600s", tunnel = "600s" }\n'
            f'[upstream.moving]\nendpoints = [{{ address = "127.0.0.1:{moving}" }}]\n'
            f'[filter.version]\nkind = "headers"\nresponse = {{ set = {{ x-version = "{number}" }} }}\n'
            f'[filter.bucket]\nkind = "rate_limit"\nkey = "route"\nrate = "1/h"\nburst = {BURST}\n'
            '[[route]]\nid = "all"\nprefix = "/"\nupstream = "main"\nfilters = ["version"]\n'
            '[[route]]\nid = "moving"\npath = "/moving"\nupstream = "moving"\n'
            '[[route]]\nid = "limited"\npath = "/limited"\nupstream = "main"\nfilters = ["bucket"]\n'
            f'[[route]]\nid = "marker-{number % 10}"\npath = "/marker-{number}"\n'
            f'respond = {{ status = 200, body = "{number}" }}\n'
        )

    def next(self):
        """Writes the next version, has it taken over by every worker, and looks at all of it."""
        self.number += 1
        self.write()
        said = self.proxy.reload()
        check(f"on {WORKERS} workers" in said, said)
        status, body = self.proxy.get(f"/marker-{self.number}")
        check((status, body) == (200, str(self.number).encode()), f"route: {status} {body}")
        status, _ = self.proxy.get(f"/marker-{self.number - 1}")
        check(status == 200, "what is gone falls to the prefix")
        with contextlib.closing(self.connection()) as connection:
            connection.request("GET", "/small")
            answer = connection.getresponse()
            answer.read()
            version = answer.getheader("x-version")
            check(version == str(self.number), f"filter: {version}, not {self.number}")
            connection.request("GET", "/limited")
            answer = connection.getresponse()
            answer.read()
            check(answer.status == 429, f"the bucket was refilled by reload {self.number}")
        check(self.proxy.get("/moving")[0] == 200, "endpoint")

    def connection(self):
        return http.client.HTTPConnection("127.0.0.1", self.proxy.port, timeout=10)

    def empty_bucket(self):
        statuses = [self.proxy.get("/limited")[0] for _ in range(BURST + 1)]
        check(statuses == [200] * BURST + [429], f"a bucket of {BURST}: {statuses}")


def load(url, seconds):
    command = [tool("wrk"), "-t1", f"-c{CLIENTS}", f"-d{seconds}s", "--latency", url]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def p99_ms(said):
    number, unit = re.search(r"99%\s+([\d.]+)(us|ms|s)", said).groups()
    return float(number) * {"us": 0.001, "ms": 1, "s": 1000}[unit]


def accepted(port):
    """Connections that an origin has taken, this question's own included."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/accepted") as answer:
        return json.load(answer)["connections"]


@contextlib.contextmanager
def changing(driver):
    with origin() as staying, origin() as one, origin() as two:
        with Proxy(driver, staying, workers=WORKERS) as proxy:
            change = Changing(proxy, staying, [one, two])
            proxy.reload()
            change.empty_bucket()
            yield change


def changes(driver):
    with changing(driver) as change:
        proxy = change.proxy
        url = f"http://127.0.0.1:{proxy.port}/small"
        undisturbed = finish(load(url, 10))
        busy = load(url, LOAD_S + 2)
        try:
            time.sleep(1)
            before, memory, began = proxy.status(), [], time.monotonic()
            made_before = accepted(change.staying_port)
            for number in range(RELOADS):
                change.next()
                if number % 20 == 19:
                    memory.append(proxy.anonymous_mib())
                due = began + (number + 1) * LOAD_S / RELOADS
                time.sleep(max(0, due - time.monotonic()))
            took, after = time.monotonic() - began, proxy.status()
            made = accepted(change.staying_port) - made_before - 1
            said = finish(busy)
        finally:
            busy.kill()
        check("Socket errors" not in said and "Non-2xx" not in said, said)
        applied = after["config"]["version"] - before["config"]["version"]
        check(applied == RELOADS, f"{applied} of {RELOADS} reloads took force")
        check(after["panics"] == 0 and after["requests"]["5xx"] == 0, f"{after}")
        # Each change asks thrice beside the load: at most that many more at a time on a worker.
        check(made <= 2 * WORKERS, f"{made} connections were made anew to the endpoint that stays")
        growth = memory[-1] - memory[1]
        check(growth <= GROWTH_MIB_MAX, f"memory grew: {[round(mib, 1) for mib in memory]} MiB")
        requests = int(re.search(r"(\d+) requests in", said).group(1))
        calm_ms, busy_ms = p99_ms(undisturbed), p99_ms(said)
        check(
            not TIMED or busy_ms <= calm_ms * P99_RATIO_MAX,
            f"p99 {busy_ms:.2f} ms during reloads, {calm_ms:.2f} ms undisturbed",
        )
        return (
            f"{applied} reloads in {took:.1f} s, {requests} requests, 0 failed, {made} connections "
            f"anew, bucket kept, p99 {calm_ms:.2f} ms undisturbed, {busy_ms:.2f} ms during them "
            f"({busy_ms / calm_ms:.2f}), RssAnon {memory[1]:.1f} to {memory[-1]:.1f} MiB"
        )


def survivors(driver):
    with changing(driver) as change:
        proxy = change.proxy
        with tunnel(proxy.port) as echo, Download(proxy.port) as download:
            memory = []
            for number in range(RELOADS):
                change.next()
                echo.sendall(b"%08d" % number)
                check(read_exactly(echo, 8) == b"%08d" % number, "the tunnel echoes")
                if number % 20 == 19:
                    memory.append(proxy.anonymous_mib())
            check(download.bytes > 0 and not download.failed, "the download goes on")
            version = download.wait()
            check(download.bytes == 4 * 1024 * 1024, f"{download.bytes} bytes, {download.failed}")
            check(version == "0", f"the answer was that of version {version}")
            alive = settled(proxy)
            check(alive == 1, f"{alive} snapshots are alive while a tunnel is open")
        growth = memory[-1] - memory[1]
        check(growth <= GROWTH_MIB_MAX, f"memory grew: {[round(mib, 1) for mib in memory]} MiB")
        return (
            f"a tunnel and a download of 4 MiB lived through {RELOADS} reloads, 1 snapshot alive, "
            f"RssAnon {memory[1]:.1f} to {memory[-1]:.1f} MiB"
        )


def finish(process):
    said = process.communicate(timeout=60)[0]
    check(process.returncode == 0, said)
    return said


def settled(proxy):
    """Snapshots alive once the helper has looked, at most three seconds later."""
    end = time.monotonic() + 3
    while True:
        metrics = proxy.admin("/metrics")[1].decode()
        alive = int(re.search(r"^ringway_config_snapshots_alive (\d+)", metrics, re.M).group(1))
        if alive == 1 or time.monotonic() > end:
            return alive
        time.sleep(0.05)


def tunnel(port):
    client = socket.create_connection(("127.0.0.1", port), timeout=10)
    client.sendall(
        b"GET /echo HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
    )
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += client.recv(1)
    check(head.startswith(b"HTTP/1.1 101 "), head)
    return client


def read_exactly(client, count):
    data = b""
    while len(data) < count:
        piece = client.recv(count - len(data))
        check(piece, "the tunnel ended")
        data += piece
    return data


class Download(threading.Thread):
    """A slow answer, read in a thread of its own."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        self.bytes, self.failed, self.version = 0, "", None

    def run(self):
        try:
            self.connection.request("GET", "/slow")
            answer = self.connection.getresponse()
            self.version = answer.getheader("x-version")
            while piece := answer.read1(65536):
                self.bytes += len(piece)
        except (OSError, http.client.HTTPException) as error:
            self.failed = repr(error)

    def wait(self):
        self.join(60)
        return self.version

    def __enter__(self):
        self.start()
        while self.version is None and not self.failed:
            time.sleep(0.01)
        return self

    def __exit__(self, *_):
        self.connection.close()
