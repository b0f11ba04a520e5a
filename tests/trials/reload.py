"""Reloads under load, two workers: no request fails, no connection upstream is made anew."""

import re
import signal
import subprocess
import time

from harness import Proxy, check, origin, tool

RELOADS = 200
LOAD_S = 25
CLIENTS = 64
GROWTH_MIB_MAX = 8


def trial(driver):
    with origin() as origin_port, Proxy(driver, origin_port, workers=2) as proxy:
        url = f"http://127.0.0.1:{proxy.port}/small"
        command = [tool("wrk"), "-t1", f"-c{CLIENTS}", f"-d{LOAD_S + 3}s", url]
        load = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            time.sleep(1.5)
            before, memory = proxy.status(), []
            for number in range(RELOADS):
                proxy.process.send_signal(signal.SIGHUP)
                time.sleep(LOAD_S / RELOADS * 0.95)
                if number % 20 == 19:
                    memory.append(proxy.anonymous_mib())
            after = proxy.status()
            said = load.communicate(timeout=30)[0]
        finally:
            load.kill()
        requests = int(re.search(r"(\d+) requests in", said).group(1))
        check("Socket errors" not in said and "Non-2xx" not in said, said)
        applied = after["config"]["version"] - before["config"]["version"]
        # Signals that come while a reload goes on are one signal.
        check(RELOADS * 0.9 <= applied <= RELOADS, f"{applied} of {RELOADS} reloads took force")
        made = after["pool"]["misses"] - before["pool"]["misses"]
        pools = f"{before['pool']} before, {after['pool']} after"
        check(made == 0, f"{made} connections upstream were made anew: {pools}")
        check(after["pool"]["connections"] == before["pool"]["connections"], pools)
        check(after["panics"] == 0 and after["requests"]["5xx"] == 0, f"{after}")
        # The first samples warm the pools of buffers up.
        growth = memory[-1] - memory[1]
        check(growth <= GROWTH_MIB_MAX, f"memory grew: {[round(mib, 1) for mib in memory]} MiB")
        return (
            f"{applied} reloads, {requests} requests, 0 failed, 0 new upstream connections, "
            f"RssAnon {memory[1]:.1f} to {memory[-1]:.1f} MiB"
        )
