"""The processes of a trial: scripted origins, and the real binary before them."""

import contextlib
import ctypes
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

import settings
from origins import ANY, HOST

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
PLACE = TARGET / "faults"
START_SECONDS = 20
# Below those that the kernel gives to clients: one that an endpoint has left stays its own.
PORTS = range(20000, 32000)


class FaultsError(Exception):
    """A trial that cannot be held; the text says why."""


def free_ports(count):
    """So many in a row."""
    begin = PORTS[os.getpid() * 64 % len(PORTS)]
    for offset in range(0, len(PORTS), count):
        first = PORTS.start + (begin - PORTS.start + offset) % (len(PORTS) - count)
        ports = range(first, first + count)
        if all(free(port) for port in ports):
            return list(ports)
    raise FaultsError(f"no {count} free ports in a row")


def free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((ANY, port))
        except OSError:
            return False
    return True


class Origins:
    """The scripted origins, told over a pipe: whatever becomes of the network, they hear it."""

    def __init__(self, ports, launcher=()):
        self.ports, self.launcher = list(ports), list(launcher)

    def __enter__(self):
        argv = [*self.launcher, sys.executable, HERE / "origins.py", *self.ports]
        self.process = subprocess.Popen(
            list(map(str, argv)), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.read()
        return self

    def __exit__(self, *_):
        # The end of its input ends it.
        self.process.stdin.close()
        try:
            self.process.wait(2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def ask(self, **command):
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        self.process.stdin.flush()
        return self.read()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise FaultsError("the origins are gone")
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

    def asked(self):
        """{port: {first part of the path: requests}}: few, however many requests there were."""
        return {int(port): names for port, names in self.ask(asked=True).items()}

    def tries(self):
        """[[monotonic time, port, path, mode]] of all requests but checks, in order.

        Tens of thousands: to be asked for once the load is over."""
        return self.ask(tries=True)


class Gateway:
    """The real binary with two workers, on the ports (public, admin)."""

    def __init__(self, name, binary, ports, driver, upstreams, launcher=(), fixed=()):
        self.name, self.driver = name, driver
        self.port, self.admin_port = ports
        self.text = settings.config(f"{HOST}:{self.port}", f"{HOST}:{self.admin_port}", driver,
                                    upstreams, fixed)
        PLACE.mkdir(parents=True, exist_ok=True)
        self.config = PLACE / f"{name}-{os.getpid()}.toml"
        self.log_path = self.config.with_suffix(".log")
        self.argv = list(map(str, [*launcher, binary, "run", "--config", self.config]))
        self.process = None

    def __enter__(self):
        self.config.write_text(self.text)
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=subprocess.STDOUT, preexec_fn=end_with_us)
        try:
            self.await_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for how in (signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is None:
                self.process.send_signal(how)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    # Short: nobody waits for a drain here.
                    self.process.wait(2)
        self.config.unlink(missing_ok=True)

    def await_ready(self):
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise FaultsError(f"{self.name} ended with {self.process.returncode}: {self.said()}")
            with contextlib.suppress(OSError):
                if self.admin("/v1/ready")[0] == 200:
                    return self.await_driver()
            time.sleep(0.02)
        raise FaultsError(f"{self.name} is not ready after {START_SECONDS} s: {self.said()}")

    def await_driver(self):
        drivers = {worker["driver"] for worker in self.status()["workers"]}
        if drivers != {self.driver}:
            raise FaultsError(f"{self.name} runs on {drivers}, not on {self.driver}")

    def admin(self, path):
        connection = http.client.HTTPConnection(HOST, self.admin_port, timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def status(self):
        return json.loads(self.admin("/v1/status")[1])

    def events(self):
        """(how many there were in all, those that are kept)."""
        answer = json.loads(self.admin("/v1/events")[1])
        return answer["total"], answer["events"]

    def metrics(self):
        """[(family, labels as they are written, value)]."""
        status, body = self.admin("/metrics")
        if status != 200:
            raise FaultsError(f"/metrics answers {status}")
        return [(name, labels, float(value))
                for name, labels, value in SAMPLE.findall(body.decode())]

    def metric(self, name, *labels):
        """The sum of a family's samples that have all of these labels."""
        return sum(value for family, has, value in self.metrics()
                   if family == name and all(label in has for label in labels))

    def said(self):
        lines = self.log_path.read_text(errors="replace").strip().splitlines()
        return " | ".join(lines[-3:]) or "it said nothing"


def end_with_us():
    """The gateway is killed with its runner, should that be killed."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


libc = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1
# A line of the text format: a family, its labels if there are any, a value.
SAMPLE = re.compile(r"^([a-z0-9_]+)(?:\{(.*)\})? (\S+)$", re.M)
