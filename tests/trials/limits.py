"""Accuracy of node-wide limits from outside: two workers, ten seconds, 1.2 times the limit.

The load is controlled in its rate: every few milliseconds what is due by the clock is sent, in
pipelined lots over many connections. The bucket is emptied before the measurement begins, so that
the burst (a fifth of a second of the rate) does not blur it. Routes answer by themselves.
"""

import multiprocessing
import socket
import time

from harness import Proxy, check, origin

RATES = [100, 1_000, 20_000]
MEASURED_S = 10
# What the load is above the rate empties the bucket in a second.
WARM_UP_S = 2
OVERLOAD = 1.2
LOADED = 1.1
TOLERANCE = 0.02
CLIENTS = 16
LOADERS = 2
TICK_S = 0.004
LOT_MAX = 500
REQUEST = b"GET /limited/%d HTTP/1.1\r\nHost: a.test\r\n\r\n"
STATUS = b"HTTP/1.1 "


def trial(driver):
    with origin() as origin_port:
        proxy = Proxy(driver, origin_port, workers=2)
        text = proxy.config.read_text()
        for rate in RATES:
            text += (
                f'[filter.limit-{rate}]\nkind = "rate_limit"\nkey = "route"\n'
                f'rate = "{rate}/s"\nburst = {rate // 5}\nheaders = false\n'
                f'[[route]]\nid = "limited-{rate}"\npath = "/limited/{rate}"\n'
                f'respond = {{ status = 200, body = "ok" }}\nfilters = ["limit-{rate}"]\n'
            )
        proxy.config.write_text(text)
        with proxy:
            return ", ".join(accurate(proxy.port, rate) for rate in RATES)


def accurate(port, rate):
    passed, limited = measure(port, rate)
    wanted = rate * MEASURED_S
    share, offered = passed / wanted, (passed + limited) / wanted
    said = f"{rate}/s: {passed} of {wanted} passed ({share:.4f}), {offered:.3f} times were sent"
    check(offered >= LOADED, f"this machine is too busy for the load: {said}")
    check(abs(share - 1) <= TOLERANCE, said)
    return said


def measure(port, rate):
    begin = time.monotonic() + WARM_UP_S
    each = (port, rate, rate * OVERLOAD / LOADERS, begin, begin + MEASURED_S)
    with multiprocessing.Pool(LOADERS) as pool:
        counts = pool.map(load, [each] * LOADERS)
    return tuple(map(sum, zip(*counts)))


def load(job):
    """Sends so many requests a second; how many of those after `begin` passed, and how many not."""
    port, rate, per_s, begin, end = job
    pipes = [socket.create_connection(("127.0.0.1", port)) for _ in range(CLIENTS // LOADERS)]
    for pipe in pipes:
        pipe.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pipe.settimeout(5)
    request, start, sent, turn = REQUEST % rate, time.monotonic(), 0, 0
    counts = [0, 0]
    while (now := time.monotonic()) < end:
        due = min(int((now - start) * per_s) - sent, LOT_MAX)
        lots = [0] * len(pipes)
        for _ in range(due):
            turn = (turn + 1) % len(pipes)
            lots[turn] += 1
        for pipe, lot in zip(pipes, lots):
            if lot:
                pipe.sendall(request * lot)
        for pipe, lot in zip(pipes, lots):
            passed = receive(pipe, lot)
            if now >= begin:
                counts[0] += passed
                counts[1] += lot - passed
        sent += due
        time.sleep(max(0, TICK_S - (time.monotonic() - now)))
    for pipe in pipes:
        pipe.close()
    return counts


def receive(pipe, lot):
    """Reads so many answers; how many are 200."""
    if not lot:
        return 0
    data = b""
    while data.count(STATUS) < lot or not ended(data):
        got = pipe.recv(1 << 18)
        check(got, "the connection ended")
        data += got
    statuses = data.count(STATUS + b"200 "), data.count(STATUS + b"429 ")
    check(sum(statuses) == lot, f"{lot} asked, {statuses} came: {data[:200]}")
    return statuses[0]


def ended(data):
    """Whether the last answer is whole."""
    head, _, body = data[data.rfind(STATUS):].partition(b"\r\n\r\n")
    _, _, length = head.lower().partition(b"content-length: ")
    return bool(length) and len(body) >= int(length.split(b"\r\n")[0])
