"""What the trials of perf/faults share: origins, configurations, gateways, and how a case is run."""

import asyncio
import collections
import contextlib
import json
import re
import socket
import sys

import fault_load
import harness
from fault_load import Load
from fault_origins import BODY, CHECK_PATH, TICKS_PER_SECOND
from harness import HOST, PERF, PerfError

CORES = f"{harness.PROXY_CORE},{harness.LOAD_CORE}"
CONTROL_PORT = 19099
ORIGIN_PORTS = range(19100, 19106)
WINDOW_SECONDS, OPEN_SECONDS, SLOW_START_SECONDS = 2, 1, 3
# Between the first request and the fault: pools fill, and every endpoint has been checked.
WARM_SECONDS = 1.0

# What was asked of one trial, and whether it held.
Verdict = collections.namedtuple("Verdict", "trial passed text")

# Short: a case takes seconds. They hold with and without every mechanism.
TIMEOUTS = 'timeouts = { connect = "100ms", response = "250ms", body = "150ms" }'
BREAKER = (f'window = "{WINDOW_SECONDS}s", requests_min = 10, open = "{OPEN_SECONDS}s", '
           f'trickle = "1s"')
# Each mechanism: its keys, and what switches it off where it is on by default.
MECHANISMS = {
    "least_request": ('balance = "least_request"', 'balance = "round_robin"'),
    "checks": (f'health = {{ path = "{CHECK_PATH}", interval = "200ms", timeout = "100ms", '
               f'rise = 2, fall = 2, body = "{BODY[-4:].decode().strip()}" }}\n'
               'slow_start = "2s"', ""),
    "breaker": (f"breaker = {{ {BREAKER}, endpoint = {{ consecutive = 5, error_percent = 30 }} }}",
                "breaker = { endpoint = false }"),
    "retries": ('retry = { on = ["connect", "stale", "refused_stream", "reset", "timeout", "503"], '
                'tries = 3, per_try_timeout = "100ms", budget_percent = 20 }',
                "retry = { budget_percent = 0 }"),
}
ALL = tuple(MECHANISMS)


def upstream(name, ports, mechanisms, zones=None, **words):
    """The table of an upstream that has these mechanisms and no other; `words` go before them."""
    lines = [f"[upstream.{name}]", "endpoints = ["]
    for port in ports:
        zone = f', zone = "{zones[port]}"' if zones else ""
        lines.append(f'  {{ address = "{HOST}:{port}"{zone} }},')
    chosen = {key: on if key in mechanisms else off for key, (on, off) in MECHANISMS.items()}
    chosen = {**chosen, "timeouts": TIMEOUTS, **words}
    return "\n".join([*lines, "]", *filter(None, chosen.values())])


def config(port, admin, *upstreams):
    """A whole file: each upstream has the paths under its name."""
    names = [re.match(r"\[upstream\.([a-z]+)\]", text)[1] for text in upstreams]
    routes = [f'[[route]]\nid = "{name}"\nprefix = "/{name}"\nupstream = "{name}"' for name in names]
    head = (f'[runtime]\nworkers = 2\n\n[admin]\nlisten = "{HOST}:{admin}"\n\n'
            f'[listener.public]\naddress = "{HOST}:{port}"')
    return "\n\n".join([head, *upstreams, *routes]) + "\n"


class Origins:
    """The scripted origins, told over their control port."""

    def __init__(self):
        argv = [sys.executable, PERF / "fault_origins.py", CONTROL_PORT, *ORIGIN_PORTS]
        self.process = harness.Process("fault-origins", argv, CORES, CONTROL_PORT)

    def __enter__(self):
        self.process.__enter__()
        self.stream = socket.create_connection((HOST, CONTROL_PORT), timeout=10)
        self.file = self.stream.makefile("rb")
        return self

    def __exit__(self, *_):
        self.stream.close()
        self.process.stop()

    def ask(self, **command):
        self.stream.sendall(json.dumps(command).encode() + b"\n")
        line = self.file.readline()
        if not line:
            raise PerfError(f"the origins are gone: {self.process.said()}")
        return json.loads(line)

    def tell(self, ports, mode, **terms):
        for port in ports:
            self.ask(port=port, mode=mode, **terms)

    def reset(self):
        self.ask(reset=True)

    def counts(self):
        """{port: {tenth of a second of the monotonic clock: requests}}."""
        counts = self.ask(counts=True)
        return {int(port): {int(at): count for at, count in tenths.items()}
                for port, tenths in counts.items()}


class Gateway:
    """The real binary with two workers, on ports of its own."""

    def __init__(self, name, text_of, place=0):
        self.port, self.admin = harness.PORTS["proxy"] + place, harness.PORTS["admin"] + place
        self.text = text_of(self.port, self.admin)
        harness.SCRATCH.mkdir(parents=True, exist_ok=True)
        path = harness.SCRATCH / f"faults-{name}.toml"
        path.write_text(self.text)
        argv = [harness.binary("ringway"), "run", "--config", path]
        self.process = harness.Process(f"faults-{name}", argv, CORES, self.port)

    def __enter__(self):
        self.process.__enter__()
        return self

    def __exit__(self, *_):
        self.process.stop()

    def metric(self, name, *labels):
        """The sum of a family's samples that have all of these labels."""
        status, body, _ = harness.fetch(self.admin, "/metrics")
        if status != 200:
            raise PerfError(f"/metrics answers {status}")
        lines = [line for line in body.decode().splitlines() if re.match(rf"{name}[ {{]", line)]
        return sum(float(line.rpartition(" ")[2]) for line in lines
                   if all(label in line for label in labels))


class Bench:
    """Runs cases one after the other; every case begins with whole origins and fresh gateways."""

    def __init__(self, origins, seconds):
        self.origins, self.seconds = origins, seconds
        # {what it is: configuration}, for the report.
        self.configs = {}

    def run(self, gateways, loads, seconds, events=()):
        """`gateways` is {name: text_of(port, admin)}, `loads` [(gateway, path, per second)].

        Events are [(seconds, function of the running gateways by name)]."""
        self.origins.reset()
        with contextlib.ExitStack() as stack:
            running = {}
            for place, (name, text_of) in enumerate(gateways.items()):
                running[name] = stack.enter_context(Gateway(name, text_of, place))
                self.configs.setdefault(name, running[name].text)
            driven = [Load(running[name].port, path, per_second, BODY)
                      for name, path, per_second in loads]
            bound = [(after, lambda event=event: event(running)) for after, event in events]
            begin, happened = asyncio.run(fault_load.drive(driven, seconds, bound))
            counts = self.origins.counts()
            # Requests that hang are cut here, so that no gateway drains for them.
            self.origins.reset()
        return Ran(driven, begin, happened, counts)


class Ran(collections.namedtuple("Ran", "loads begin happened counts")):
    """What came of a case: its loads, its begin, when events had happened, requests by port."""

    def seen(self, load, after, until):
        return self.loads[load].between(self.begin + after, self.begin + until)

    def rate(self, ports, begin, end):
        """Requests a second that these endpoints got between two times of the monotonic clock."""
        first, last = int(begin * TICKS_PER_SECOND), int(end * TICKS_PER_SECOND)
        got = sum(count for port in ports for at, count in self.counts[port].items()
                  if first <= at < last)
        return got * TICKS_PER_SECOND / max(1, last - first)
