"""Clients that reset while they wait: the upstream is let go within 250 ms."""

import http.client
import json
import random
import socket
import struct
import time

from harness import Proxy, check, origin

CLIENTS = 200
BOUND_MS = 250
LINGER_0 = struct.pack("ii", 1, 0)


def trial(driver):
    with origin() as origin_port, Proxy(driver, origin_port) as proxy:
        clients = [socket.create_connection(("127.0.0.1", proxy.port)) for _ in range(CLIENTS)]
        for number, client in enumerate(clients):
            client.sendall(b"GET /hang/%d HTTP/1.1\r\nHost: a\r\n\r\n" % number)
        await_that(lambda: hanging(origin_port)["waiting"] == CLIENTS, "not all reached the origin")
        check(not hanging(origin_port)["lost"], "an upstream was let go too early")
        resets = []
        for client in clients:
            # Spread over several sweeps, so that every phase of one is met.
            time.sleep(random.uniform(0, 0.005))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_0)
            resets.append(time.monotonic())
            client.close()
        await_that(lambda: len(hanging(origin_port)["lost"]) == CLIENTS, "upstreams stay open")
        lost = hanging(origin_port)["lost"]
        waits_ms = [
            (lost[f"/hang/{number}"] - reset) * 1000 for number, reset in enumerate(resets)
        ]
        status = proxy.status()
        check(max(waits_ms) <= BOUND_MS, f"an upstream was let go after {max(waits_ms):.0f} ms")
        check(status["client_aborts"] == CLIENTS, f"{status['client_aborts']} aborts are counted")
        check(status["pool"]["connections"] == 0, f"pool: {status['pool']}")
        check(status["connections"] == 0 and status["panics"] == 0, f"status: {status}")
        return f"{CLIENTS} upstreams let go after at most {max(waits_ms):.0f} ms"


def hanging(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/lost")
    body = connection.getresponse().read()
    connection.close()
    return json.loads(body)


def await_that(holds, finding):
    end = time.monotonic() + 10
    while not holds():
        check(time.monotonic() < end, finding)
        time.sleep(0.02)
