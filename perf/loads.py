"""Load generators that say when their measured window begins and ends: h2load and our own."""

import collections
import re
import subprocess
import threading

import harness
from harness import HOST, LOAD_CORE, PORTS, SERVER_NAME, PerfError

# One suite and one group for everybody: what a server prefers is not what is measured.
CIPHER, GROUP = "TLS_AES_128_GCM_SHA256", "X25519"
TLS_FACTS = f"TLS 1.3, {CIPHER}, {GROUP}, certificate ECDSA P-256, server name sent"
# A load that outlives its window by this much is ended.
PATIENCE_SECONDS = 40

# What a load counted in its window; `mean_us` is the mean time of one.
Counted = collections.namedtuple("Counted", "done us mean_us")


def run(load, warm_up, seconds, read):
    """(Counted, what `read` gave at the window's begin and at its end).

    `read` is called with the load's pid while the load is on."""
    argv = ["taskset", "-c", LOAD_CORE, *map(str, load.argv(warm_up, seconds))]
    child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True)
    guard = threading.Timer(warm_up + seconds + PATIENCE_SECONDS, child.kill)
    guard.start()
    edges, lines = [], []
    try:
        for line in child.stdout:
            lines.append(line)
            if line.startswith((load.begin, load.end)):
                edges.append(read(child.pid))
    finally:
        guard.cancel()
        child.kill()
        child.wait()
    if len(edges) != 2:
        raise PerfError(f"{load.program} did not measure: {''.join(lines).strip()[-300:]}")
    return load.parse("".join(lines)), *edges


class H2load(collections.namedtuple("H2load", "protocol path connections streams")):
    """Kept-alive TLS connections with `streams` requests at once on each; h1 or h2."""

    program = "h2load"
    begin = "Main benchmark duration is started"
    end = "Main benchmark duration is over"
    unit = "request"
    # What h2o's configuration needs beside; here all handshakes belong to the warm-up.
    words = {"RESUMPTION": "ticket"}

    def argv(self, warm_up, seconds):
        return ["h2load", "-t1", f"-c{self.connections}", f"-m{self.streams}",
                *(["--h1"] if self.protocol == "h1" else []),
                f"-D{seconds}", f"--warm-up-time={warm_up}", f"--tls13-ciphers={CIPHER}",
                f"--groups={GROUP}", f"--connect-to={HOST}:{PORTS['proxy']}", url(self.path)]

    def parse(self, text):
        """Every answer a success, and as many bytes at least as so many answers have."""
        spoken = re.findall(r"^(?:TLS Protocol|Cipher|Application protocol): (\S+)", text, re.M)
        wanted = ["TLSv1.3", CIPHER, {"h1": "http/1.1", "h2": "h2"}[self.protocol]]
        if spoken != wanted:
            raise PerfError(f"h2load spoke {spoken}, not {wanted}")
        counts = {name: int(number) for number, name in re.findall(
            r"(\d+) (done|succeeded|failed|errored|timeout|2xx|3xx|4xx|5xx)\b", text)}
        done = counts.get("done")
        bad = {name: counts.get(name) for name in
               ("failed", "errored", "timeout", "3xx", "4xx", "5xx") if counts.get(name) != 0}
        # A status counts when its head comes, a request when its body has ended: at the window's
        # edges they differ by what is under way.
        under_way = self.connections * self.streams
        if bad or not done or abs(counts.get("2xx", 0) - done) > under_way:
            raise PerfError(f"h2load counted {done} requests and {bad or counts}")
        data = re.search(r"\((\d+)\) data$", text, re.M)
        mean = re.search(r"^time for request:\s+\S+\s+\S+\s+([\d.]+)(us|ms|s)\b", text, re.M)
        took = re.search(r"Timing-based test with .* and (\d+)s of main duration", text)
        if not (data and mean and took):
            raise PerfError("h2load's report is not understood")
        # Answers of the warm-up are among the bytes.
        if int(data[1]) < done * BODY_BYTES[self.path]:
            raise PerfError(f"{data[1]} bytes of bodies for {done} answers")
        mean_us = float(mean[1]) * {"us": 1, "ms": 1e3, "s": 1e6}[mean[2]]
        return Counted(done, int(took[1]) * 1e6, mean_us)

    def origin(self):
        return harness.origin()

    def check(self):
        """One exchange through the proxy, whose bytes are the origin's; their number."""
        return check_https(self.path, {"h1": "1.1", "h2": "2"}[self.protocol])


class Handshakes(collections.namedtuple("Handshakes", "mode at_once")):
    """Connections with one request each: new sessions (full) or tickets (resumed)."""

    program = "handshakes"
    begin, end = "begin", "end"
    unit = "connection"
    path = "/1k"

    @property
    def words(self):
        # h2o gives a resumed connection no new ticket unless it keeps its sessions itself.
        return {"RESUMPTION": "cache" if self.mode == "resumed" else "ticket"}

    def argv(self, warm_up, seconds):
        return [harness.binary("handshakes"), "--connect", f"{HOST}:{PORTS['proxy']}",
                "--name", SERVER_NAME, "--path", self.path, "--mode", self.mode,
                "--cert", harness.certificate()["CERT"], "--at-once", self.at_once,
                "--warm-up-ms", warm_up * 1000, "--ms", seconds * 1000]

    def parse(self, text):
        counted = own_counts(text)
        done = counted["done"]
        if counted["resumed"] != (done if self.mode == "resumed" else 0):
            raise PerfError(f"{counted['resumed']} of {done} connections were resumed")
        if counted["bytes"] < done * BODY_BYTES[self.path]:
            raise PerfError(f"{counted['bytes']} bytes for {done} answers")
        return Counted(done, counted["us"], counted["mean"])

    def origin(self):
        return harness.origin()

    def check(self):
        return check_https(self.path, "1.1")


class Grpc(collections.namedtuple("Grpc", "connections calls messages message_bytes")):
    """Calls that ask for a number of messages, in clear text; every byte is checked."""

    program = "grpc-load"
    begin, end = "begin", "end"
    path = "a call"
    words = {}

    @property
    def unit(self):
        return "call" if self.messages == 1 else "message"

    def argv(self, warm_up, seconds):
        return [harness.binary("grpc-load"), "--connect", f"{HOST}:{PORTS['proxy']}",
                "--connections", self.connections, "--calls", self.calls,
                "--messages", self.messages, "--message-bytes", self.message_bytes,
                "--warm-up-ms", warm_up * 1000, "--ms", seconds * 1000]

    def parse(self, text):
        counted = own_counts(text)
        if self.messages == 1:
            return Counted(counted["done"], counted["us"], counted["mean"])
        # Mean time of a call, over its messages.
        return Counted(counted["messages"], counted["us"], counted["mean"] / self.messages)

    def origin(self):
        return harness.grpc_origin()

    def check(self):
        """The load checks every answer itself."""
        return self.messages * self.message_bytes


BODY_BYTES = {"/1k": 1 << 10, "/64k": 64 << 10, "/1m": 1 << 20}


def url(path):
    return f"https://{SERVER_NAME}:{PORTS['proxy']}{path}"


def own_counts(text):
    """The numbers that one of our own generators counted, without an error."""
    line = re.search(r"^counted (.*)$", text, re.M)
    counted = {name: int(value) for name, value in
               (pair.split("=") for pair in line[1].split())} if line else {}
    if not counted.get("done") or counted["errors"]:
        raise PerfError(f"counted {counted}: {text.strip()[:300]}")
    return counted


def check_https(path, version):
    """One request through the proxy by curl: TLS 1.3, the HTTP version, the origin's body."""
    status, body, head_bytes = harness.fetch(PORTS["origin"], path)
    if status != 200:
        raise PerfError(f"the origin answers {status}")
    argv = ["curl", "-sS", "--tlsv1.3", f"--http{version}", "--max-time", "10",
            "--cacert", str(harness.certificate()["CERT"]),
            "--resolve", f"{SERVER_NAME}:{PORTS['proxy']}:{HOST}",
            "-w", "%{stderr}%{http_version} %{http_code}", url(path)]
    done = subprocess.run(argv, capture_output=True)
    said = done.stderr.decode(errors="replace").strip()
    if done.returncode != 0 or said != f"{version} 200" or done.stdout != body:
        raise PerfError(f"answers {said!r} with {len(done.stdout)} bytes, which is not "
                        f"HTTP/{version} with the origin's {len(body)}")
    return head_bytes + len(body)
