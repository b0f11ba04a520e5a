"""What the trials of perf/faults share: configurations, gateways on fixed ports, how a case is run.

Origins, load and configurations are those of tests/faults.
"""

import asyncio
import collections
import contextlib
import sys

import harness
from harness import HOST, ROOT

sys.path.insert(0, str(ROOT / "tests" / "faults"))

# Found by the line above.
import settings
from load import Load, drive
from origins import BODY, TICKS_PER_SECOND
from processes import Gateway
from settings import Times

PINNED = ("taskset", "-c", f"{harness.PROXY_CORE},{harness.LOAD_CORE}")
# Those that fail, and as many that never do.
ORIGIN_PORTS, CALM_PORTS = list(range(19100, 19106)), list(range(19110, 19115))
# Between the first request and the fault: pools fill, and every endpoint has been checked.
WARM_SECONDS = 1.0
# Short: a case takes seconds.
TIMES = Times(connect=0.1, response=0.25, body=0.15, per_try=0.1, interval=0.2, check=0.1,
              slow_start=2.0, window=2.0, open=1.0, trickle=1.0, requests_min=10, consecutive=5)
ALL = tuple(settings.mechanisms(TIMES))
# A gateway of its own beside the one that is judged, on endpoints that never fail: what the same
# seconds of the same machine are without the fault.
CONTROL = "control"

# What was asked of one trial, and whether it held.
Verdict = collections.namedtuple("Verdict", "trial passed text")


def local(ports):
    """Their addresses."""
    return [f"{HOST}:{port}" for port in ports]


def five(addresses, mechanisms):
    """The upstreams of a gateway: one of these endpoints, with these mechanisms."""
    return [settings.upstream("main", addresses, TIMES, mechanisms)]


class Bench:
    """Runs cases one after the other; every case begins with whole origins and fresh gateways."""

    def __init__(self, origins, seconds, driver, configs=None):
        self.origins, self.seconds, self.driver = origins, seconds, driver
        # {what it is: configuration}, for the report.
        self.configs = {} if configs is None else configs

    def run(self, gateways, loads, seconds, events=(), mend=None):
        """`gateways` is {name: upstreams}, `loads` [(gateway, path, per second)].

        Events are [(seconds, function of the running gateways by name)]; `mend` undoes them."""
        self.origins.reset()
        with contextlib.ExitStack() as stack:
            running = {name: stack.enter_context(self.gateway(name, place, upstreams))
                       for place, (name, upstreams) in enumerate(gateways.items())}
            for name, gateway in running.items():
                self.configs.setdefault(name, gateway.text)
            driven = [Load(running[name].port, path, per_second, BODY)
                      for name, path, per_second in loads]
            bound = [(after, lambda event=event: event(running)) for after, event in events]
            begin, happened = asyncio.run(drive(driven, seconds, bound))
            # All events have happened. The error of one that failed is told, and not another one of
            # what undoes it: with that error the hosts of the trial are gone.
            if mend:
                mend()
            counts, tries = self.origins.counts(), self.origins.tries()
            cpu = {name: harness.cpu_seconds(it.process.pid) for name, it in running.items()}
            # Requests that hang are cut here, so that no gateway drains for them.
            self.origins.reset()
        return Ran(driven, begin, happened, counts, tries, cpu)

    def gateway(self, name, place, upstreams):
        ports = harness.PORTS["proxy"] + place, harness.PORTS["admin"] + place
        return Gateway(f"perf-{name}", harness.binary("ringway"), ports, self.driver, upstreams,
                       PINNED)


class Ran(collections.namedtuple("Ran", "loads begin happened counts tries cpu")):
    """What came of a case: its loads, its begin, when events had happened, requests by port, all
    tries, and CPU seconds by gateway."""

    def seen(self, load, after, until):
        return self.loads[load].between(self.begin + after, self.begin + until)

    def rate(self, ports, begin, end):
        """Requests a second that these endpoints got between two times of the monotonic clock."""
        first, last = int(begin * TICKS_PER_SECOND), int(end * TICKS_PER_SECOND)
        got = sum(count for port in ports for at, count in self.counts[port].items()
                  if first <= at < last)
        return got * TICKS_PER_SECOND / max(1, last - first)
