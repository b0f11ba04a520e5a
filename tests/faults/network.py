"""One of three hosts is lost in ways that loopback cannot show, with and without checks."""

import asyncio
import contextlib
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time

import settings
from hosts import FAULTS, Host, inside, lay
from origins import ANY, BODY, CHECK_PATH
from processes import START_SECONDS, FaultsError, Gateway, Origins, end_with_us, free_ports
from scene import CHECKED, PASSIVE, TIMES, WAIT_SECONDS_MAX, Part, Scene, check, judged

# So long is a body under way on the line that goes down.
BODY_SECONDS = 0.6
# On a line of its own, a listener answers at once.
PROBE_SECONDS = 1.0
# Each of them was met, of documented ones.
CODES = ("connect_timeout", "connect_failed", "response_timeout", "response_body_timeout")


# Parts of each host: HTTP/1.1 with and without checks, and HTTP/2, whose requests share a connection.
KINDS = {"": CHECKED, "passive-": PASSIVE, "h2-": PASSIVE}


def trial(binary, driver):
    """[(name, finding or None, detail)]"""
    names = [name for name in FAULTS if name != "thin-line" or shutil.which("tc")]
    public, admin, good, h2, *bad = free_ports(4 + len(names))
    with contextlib.ExitStack() as stack:
        origins = stack.enter_context(Origins([good, *bad], ["unshare", "--net"]))
        pid = origins.process.pid
        lay(pid)
        hosts = [stack.enter_context(Host(number, pid)) for number in range(2 + len(names))]
        stack.enter_context(Nghttpd(h2, pid, hosts[0].address))
        parts = [part(kind, name, host, h2 if kind == "h2-" else port)
                 for name, host, port in zip(names, hosts[2:], bad) for kind in KINDS]
        fixed = [it.name for it in parts if it.port == h2]
        # The line goes down while bodies are on it.
        origins.tell([bad[names.index("line-down")]], "trickle", seconds=BODY_SECONDS, checked=True)
        gateway = stack.enter_context(
            Gateway(f"network-{driver}", binary, (public, admin), driver,
                    upstreams(parts, hosts[:2], good, h2), fixed=fixed))
        scene = Scene(gateway, origins, parts, [f"bare-{name}" for name in names])
        asyncio.run(scene.hold())
        return [*scene.verdicts(), *(judged(f"bare-{name}", lambda name=name: bare(scene, name))
                                     for name in names), judged("codes", lambda: codes(gateway))]


def part(kind, name, host, port):
    # One of the parts of a host does it.
    first = not kind
    return Part(f"{kind}{name}", f"{host.address}:{port}", port, KINDS[kind],
                fail=lambda: first and FAULTS[name].fail(host),
                mend=lambda: first and FAULTS[name].mend(host),
                steady=FAULTS[name].steady,
                body_seconds=BODY_SECONDS if name == "line-down" and kind != "h2-" else 0)


def upstreams(parts, healthy, good, h2):
    """One for each part, with two hosts beside the one that is lost; that one alone, with nothing done
    about it; and one that has nothing to do with it."""
    others = [f"{host.address}:{good}" for host in healthy]
    texts = [settings.upstream("calm", others, TIMES, CHECKED)]
    for it in parts:
        if it.port == h2:
            shared = [f"{host.address}:{h2}" for host in healthy]
            texts.append(settings.upstream(it.name, [it.address, *shared], TIMES, it.mechanisms,
                                           protocol='protocol = "http2"'))
        else:
            texts.append(settings.upstream(it.name, [it.address, *others], TIMES, it.mechanisms))
        if it.mechanisms == CHECKED:
            texts.append(settings.upstream(f"bare-{it.name}", [it.address], TIMES, ()))
    return texts


class Nghttpd:
    """Hosts that speak HTTP/2: nghttp2's server, with the body that is asked for as its only file."""

    def __init__(self, port, pid, address):
        self.port, self.pid, self.address = port, pid, address

    def __enter__(self):
        self.place = tempfile.TemporaryDirectory()
        pathlib.Path(f"{self.place.name}{CHECK_PATH}").write_bytes(BODY)
        argv = [*inside(self.pid), "nghttpd", "--no-tls", "-a", ANY, "-d", self.place.name, self.port]
        self.process = subprocess.Popen(list(map(str, argv)), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, preexec_fn=end_with_us)
        end = time.monotonic() + START_SECONDS
        while not self.listens():
            if self.process.poll() is not None or time.monotonic() > end:
                self.__exit__()
                raise FaultsError("nghttpd (Debian's nghttp2-server) does not start")
            time.sleep(0.02)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.place.cleanup()

    def listens(self):
        with socket.socket() as probe:
            # A SYN that is dropped would be waited for far longer than all of the start.
            probe.settimeout(PROBE_SECONDS)
            return probe.connect_ex((self.address, self.port)) == 0


def bare(scene, name):
    """What timeouts alone make of it: each user waits for one of them, and all is well afterwards."""
    load = scene.loads[f"bare-{name}"]
    samples = load.due(scene.failed_at, scene.mended_at)
    failed = [sample for sample in samples if not sample.ok]
    statuses = {sample.status for sample in failed}
    check(failed and statuses <= FAULTS[name].statuses,
          f"statuses {statuses} of {len(failed)} in {len(samples)}")
    longest = max(sample.took for sample in samples)
    longest_max = WAIT_SECONDS_MAX + (BODY_SECONDS if name == "line-down" else 0)
    check(longest < longest_max, f"a user waited {longest:.1f} s, at most {longest_max:.1f} s")
    last = load.between(scene.ended_at - 1, scene.ended_at)
    check(last.requests > 0 and last.success == 1, f"in the end: {last.failures()}")
    return f"{len(failed)} of {len(samples)} failed, longest {longest:.1f} s: {sorted(statuses)}"


def codes(gateway):
    counts = {code: gateway.metric("ringway_errors_total", f'code="{code}"') for code in CODES}
    check(all(counts.values()), f"not all were met: {counts}")
    return ", ".join(f"{count:.0f} x {code}" for code, count in counts.items())
