"""What all trials share: the proxy and origins as processes, and what they say of themselves."""

import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
PLACE = TARGET / "trials"
RINGWAY = os.environ.get("RINGWAY", str(TARGET / "release" / "ringway"))
START_S = 20
# Set where the end of a proxy has to be an orderly one, as for its coverage.
GENTLE = "TRIALS_GENTLE" in os.environ
# Set on a quiet machine: then ratios of latencies are judged, not only shown.
TIMED = "TRIALS_TIMED" in os.environ


class Failed(Exception):
    """A trial's finding."""


class Skipped(Exception):
    """Why a trial cannot run here."""


def check(holds, finding):
    if not holds:
        raise Failed(finding)


def tool(name):
    """Where a Debian tool is."""
    path = shutil.which(name)
    if path is None:
        raise Failed(f"{name} is not installed")
    return path


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def origin(script="origin.py", python=sys.executable, launcher=()):
    """An origin on a port of its own."""
    port = free_port()
    command = [*launcher, str(python), str(HERE / script), str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        check(process.stdout.readline() == "ready\n", f"{script} did not start")
        yield port
    finally:
        process.kill()
        process.wait()


class Proxy:
    """A running proxy in front of one origin; killed at the end of a `with` block."""

    def __init__(self, driver, origin_port, workers=1, timeouts="", drain="30s",
                 launcher=(), attacked_port=None, more=""):
        self.driver = driver
        self.launcher = list(launcher)
        self.port, self.admin_port = free_port(), free_port()
        PLACE.mkdir(parents=True, exist_ok=True)
        self.config = PLACE / f"{os.getpid()}-{self.port}.toml"
        self.log_path = self.config.with_suffix(".log")
        text = (
            f'[runtime]\nworkers = {workers}\ndriver = "{driver}"\ndrain = "{drain}"\n'
            f'[admin]\nlisten = "127.0.0.1:{self.admin_port}"\n'
            f'[listener.public]\naddress = "127.0.0.1:{self.port}"\ntimeouts = {{ {timeouts} }}\n'
            f'[upstream.main]\nendpoints = [{{ address = "127.0.0.1:{origin_port}" }}]\n'
            'timeouts = { response = "60s" }\n'
            '[[route]]\nid = "all"\nprefix = "/"\nupstream = "main"\n'
        )
        if attacked_port is not None:
            text += (
                f'[upstream.attacked]\nendpoints = [{{ address = "127.0.0.1:{attacked_port}" }}]\n'
                '[[route]]\nid = "attacked"\nprefix = "/attacked/"\nskip_segments = 1\n'
                'upstream = "attacked"\n'
            )
        self.config.write_text(text + more)
        self.process = None

    def start(self):
        command = [*self.launcher, RINGWAY, "run", "--config", str(self.config)]
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        return self

    def __enter__(self):
        self.start()
        try:
            self.await_ready()
            if self.driver != "auto":
                drivers = {worker["driver"] for worker in self.status()["workers"]}
                check(drivers == {self.driver}, f"runs on {drivers}, not on {self.driver}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if GENTLE and self.process.poll() is None:
            # The first asks for a drain, the second to leave at once: its counters are written.
            self.terminate()
            time.sleep(0.2)
            self.terminate()
            self.wait(10)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.config.unlink(missing_ok=True)

    def await_ready(self):
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            check(self.process.poll() is None, f"ended at once: {self.log()}")
            with contextlib.suppress(OSError):
                if self.admin("/v1/ready")[0] == 200:
                    return
            time.sleep(0.02)
        raise Failed(f"not ready after {START_S} s: {self.log()}")

    def admin(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.admin_port, timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def status(self):
        return json.loads(self.admin("/v1/status")[1])

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def reload(self):
        """Has the configuration read again; returns when every worker has taken it over."""
        command = [RINGWAY, "reload", "--admin", f"127.0.0.1:{self.admin_port}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
        check(done.returncode == 0, f"reload: {done.stdout}{done.stderr}")
        return done.stdout

    def anonymous_mib(self):
        with open(f"/proc/{self.process.pid}/status") as lines:
            for line in lines:
                if line.startswith("RssAnon:"):
                    return int(line.split()[1]) / 1024
        raise Failed("no RssAnon")

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def wait(self, seconds):
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failed(f"still there after {seconds} s: {self.log()}") from None

    def log(self):
        return self.log_path.read_text()[-2000:]
