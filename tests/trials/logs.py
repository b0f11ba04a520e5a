"""Access logs on a full disk and in a FIFO that nobody reads: no request waits, what is lost is counted."""

import contextlib
import os
import re
import subprocess
import time

from changes import finish, load, p99_ms
from harness import PLACE, TIMED, Proxy, Skipped, check, origin

LOAD_S = 5
WORKERS = 2
# Two runs of the same load differ by about this much on a busy machine.
P99_RATIO_MAX = 1.5
# What waits for the disk waits for seconds.
STALL_MS = 500


def full_disk(driver):
    with small_disk(driver) as disk:
        return stalled(driver, disk / "access.log")


def unread_fifo(driver):
    fifo = PLACE / f"{os.getpid()}-{driver}.fifo"
    fifo.unlink(missing_ok=True)
    os.mkfifo(fifo)
    try:
        return stalled(driver, fifo)
    finally:
        fifo.unlink()


def stalled(driver, path):
    good = PLACE / f"{os.getpid()}-{driver}.log"
    with origin() as origin_port:
        healthy_ms, healthy = run(driver, origin_port, good)
        lines = sum(1 for _ in good.open("rb"))
        good.unlink()
        check(healthy["dropped"] == 0, f"{healthy} with a healthy disk")
        check(lines == healthy["requests"], f"{lines} lines, {healthy}")
        stalled_ms, counted = run(driver, origin_port, path)
    check(counted["dropped"] > 0, f"{counted}: it did not stall")
    check(sum_of(counted) == counted["requests"], f"{counted}")
    ratio = stalled_ms / healthy_ms
    bound_ms = healthy_ms * P99_RATIO_MAX if TIMED else STALL_MS
    check(stalled_ms <= bound_ms, f"p99 {stalled_ms:.2f} ms, {healthy_ms:.2f} with a healthy disk")
    return (
        f"{counted['requests']} requests, {counted['dropped']} lines dropped and counted, "
        f"p99 {stalled_ms:.2f} ms, {healthy_ms:.2f} ms with a healthy disk ({ratio:.2f})"
    )


def run(driver, origin_port, path):
    """The load's p99 and what the metrics say of the log, once nothing is on its way any more."""
    log = f'[access_log]\npath = "{path}"\nformat = "json"\n'
    with Proxy(driver, origin_port, workers=WORKERS, more=log) as proxy:
        said = finish(load(f"http://127.0.0.1:{proxy.port}/small", LOAD_S))
        check("Socket errors" not in said and "Non-2xx" not in said, said)
        for _ in range(100):
            counted = counts(proxy)
            if sum_of(counted) == counted["requests"]:
                break
            time.sleep(0.05)
        proxy.terminate()
        check(proxy.wait(10) == 0, "it ends in time")
        return p99_ms(said), counted


def sum_of(counted):
    """Every request is written, dropped or on its way; none is forgotten."""
    return counted["written"] + counted["dropped"] + counted["waiting"]


def counts(proxy):
    text = proxy.admin("/metrics")[1].decode()

    def total(name):
        lines = re.findall(rf"^{name}(?:{{[^}}]*}})? (\d+)", text, re.M)
        return sum(int(value) for value in lines)

    return {
        "requests": total("ringway_requests_total"),
        "written": total("ringway_access_log_records_total"),
        "dropped": total("ringway_access_log_dropped_total"),
        "waiting": total("ringway_access_log_waiting_records"),
    }


@contextlib.contextmanager
def small_disk(driver):
    if os.geteuid() != 0:
        raise Skipped("mounting a small disk needs root")
    disk = PLACE / f"{os.getpid()}-{driver}-disk"
    disk.mkdir(parents=True)
    options = ["-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    mounted = subprocess.run(["mount", *options], capture_output=True, text=True)
    if mounted.returncode != 0:
        disk.rmdir()
        raise Skipped(f"no small disk can be mounted: {mounted.stderr.strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)
        disk.rmdir()
