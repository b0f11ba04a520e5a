"""Hosts that a network takes away: namespaces, each host behind a veth pair, and what becomes of it.

The runner and the gateway are in one network namespace of their own, the origins in another one, so that
nothing of the machine's network is touched. Neither has a name: they end with the processes in them,
and with them the interfaces, however the trial ends.
"""

import collections
import os
import shutil
import subprocess
import sys

from processes import FaultsError

# Set once the runner is in a namespace of its own.
INSIDE = "FAULTS_NAMESPACE"
# Of benchmarks (RFC 2544): /30 for each host, the gateway's end being .1 and the host's .2.
PREFIX = "198.18"
# What must be possible in a namespace.
NEEDED = """set -e
ip link set lo up
ip link add g0 type veth peer name h0
ip rule add pref 20 lookup local"""


def run(*argv):
    done = subprocess.run(list(map(str, argv)), capture_output=True, text=True)
    if done.returncode != 0:
        raise FaultsError(f"{' '.join(map(str, argv))}: {done.stderr.strip()}")


def enter():
    """Goes on in a network namespace of our own. Returns why not, where that is not possible."""
    if INSIDE in os.environ:
        run("ip", "link", "set", "lo", "up")
        return None
    missing = [tool for tool in ("unshare", "nsenter", "ip") if not shutil.which(tool)]
    if missing:
        return f"{', '.join(missing)} not found"
    # Who is not root may still be it in a user namespace.
    unshare = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
    done = subprocess.run([*unshare, "sh", "-c", NEEDED], capture_output=True, text=True)
    if done.returncode != 0:
        return f"no network namespace may be made and filled: {done.stderr.strip()}"
    sys.stdout.flush()
    os.execvpe(unshare[0], [*unshare, sys.executable, *sys.argv], {**os.environ, INSIDE: "1"})


def inside(pid):
    """What begins a command in the network namespace of a process."""
    return ["nsenter", "-t", pid, "-n"]


def lay(pid):
    """The namespace of the origins, before there are lines to it."""
    run(*inside(pid), "ip", "link", "set", "lo", "up")
    # What swallows packets comes before the table of our own addresses.
    run(*inside(pid), "ip", "rule", "add", "pref", "20", "lookup", "local")
    run(*inside(pid), "ip", "rule", "del", "pref", "0")


class Host:
    """A host: a line to it, an address at its end, and what can become of both. There in a `with`."""

    def __init__(self, number, pid):
        self.near, self.far = f"g{number}", f"h{number}"
        self.net, self.gateway, self.address = (
            f"{PREFIX}.{number}.{last}" for last in ("0/30", "1", "2"))
        self.pid, self.inside = pid, inside(pid)
        self.mac = f"02:00:00:00:{number:02x}:02"

    def __enter__(self):
        try:
            self.connect()
        except BaseException:
            # Half a line would be in the way of the next trial's.
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        # Whatever state a trial left it in; the far end goes with the near one.
        for argv in (["route", "del", "unreachable", f"{self.address}/32"],
                     ["link", "del", self.near]):
            subprocess.run(["ip", *argv], capture_output=True)

    def connect(self):
        run("ip", "link", "add", self.near, "type", "veth",
            "peer", "name", self.far, "address", self.mac, "netns", self.pid)
        run("ip", "address", "add", f"{self.gateway}/30", "dev", self.near)
        run("ip", "link", "set", self.near, "up")
        run(*self.inside, "ip", "address", "add", f"{self.address}/30", "dev", self.far)
        run(*self.inside, "ip", "link", "set", self.far, "up")
        # As if a switch were between: a line that is down does not tell by an address unanswered.
        run("ip", "neighbour", "replace", self.address, "lladdr", self.mac, "dev", self.near,
            "nud", "permanent")

    def swallow(self, does):
        """Packets are dropped without a word in both directions, or no longer."""
        for rule in (["iif", self.far], ["from", self.address]):
            run(*self.inside, "ip", "rule", does, "pref", "10", *rule, "blackhole")

    def line(self, state):
        run(*self.inside, "ip", "link", "set", self.far, state)

    def route(self, does):
        """The way to the host alone is there or not: EHOSTUNREACH."""
        run("ip", "route", does, "unreachable", f"{self.address}/32")

    def lose_net(self):
        """The way to its network vanishes: ENETUNREACH."""
        run("ip", "route", "del", self.net, "dev", self.near)

    def find_net(self):
        run("ip", "route", "add", self.net, "dev", self.near, "src", self.gateway)

    def thin(self):
        """A line with a delay above every timeout and with losses; where the kernel has no netem, one
        that a few requests fill, which comes to the same."""
        device = [*self.inside, "tc", "qdisc", "add", "dev", self.far, "root"]
        try:
            run(*device, "netem", "delay", "3s", "loss", "20%")
        except FaultsError:
            run(*device, "tbf", "rate", "4kbit", "burst", "1600", "limit", "6000")

    def widen(self):
        run(*self.inside, "tc", "qdisc", "del", "dev", self.far, "root")


# What becomes of a host, what undoes it, whether it is never reached in between, and what users get
# where nothing else is done about it; 0 is an answer that broke off.
Fault = collections.namedtuple("Fault", "fail mend steady statuses")
FAULTS = {
    "black-hole": Fault(lambda host: host.swallow("add"), lambda host: host.swallow("del"),
                        True, {504}),
    "line-down": Fault(lambda host: host.line("down"), lambda host: host.line("up"),
                       True, {0, 504}),
    "host-unreachable": Fault(lambda host: host.route("add"), lambda host: host.route("del"),
                              True, {502, 504}),
    "net-unreachable": Fault(Host.lose_net, Host.find_net, True, {502, 504}),
    "thin-line": Fault(Host.thin, Host.widen, False, {0, 504}),
}
