"""The trials of perf/faults: each runs its cases and gives rows for the report, and verdicts."""

import contextlib
import shutil

from fault_bench import (ALL, CALM_PORTS, CONTROL, ORIGIN_PORTS, PINNED, TIMES, WARM_SECONDS, Bench,
                         Verdict, five, local)
# Of tests/faults, which fault_bench has made known.
import settings
from hosts import FAULTS as LOSSES, Host, lay
from origins import TICKS_PER_SECOND
from outage import RETRIES_MAX, counted
from processes import Origins
from scene import WORKERS

# Of the gateway that is judged, and of the control beside it.
PER_SECOND = 200
# The gateways of single mechanisms run beside each other, and share the load.
BESIDE_PER_SECOND = 80
# In which a fault has to be found; what users see in it is told, and judged after it.
DETECTION_SECONDS = 2.0
# Of the control: a hundredth of success, a tenth of p99, and what its own p99 changes by from one
# gateway to another.
SUCCESS_LOSS_MAX, P99_GROWTH_MAX, NOISE_MS = 0.01, 1.10, 2.0
# Behind a control that is slower, a user's timeout could hide: a quarter of the shortest. Such a case is
# held again, so often.
CONTROL_MS_MAX, CALM_TRIES = TIMES.connect * 1000 / 4, 3
# A gateway that spins would slow the control as well: so much CPU beyond the control's, and seconds of
# it that more connections and retries may take.
CPU_GROWTH_MAX, CPU_SECONDS = 1.5, 0.2

FAULTS = settings.faults(TIMES)
# What stands beside each other in the table.
SETS = {"none": (), "breaker": ("breaker",), "checks": ("checks",), "retries": ("retries",),
        "least_request": ("least_request",)}


def judge(trial, now, control, cpu=None):
    """Success and p99 against what the control saw in the same seconds; CPU too, where it is told."""
    least = control.success - SUCCESS_LOSS_MAX
    most = control.p99_ms * P99_GROWTH_MAX + NOISE_MS
    passed = now.requests > 0 and now.success >= least and now.p99_ms <= most
    passed = passed and control.p99_ms <= CONTROL_MS_MAX
    said = (f"{now.say()}; at least {least:.2%}, p99 at most {most:.1f} ms "
            f"(control {control.p99_ms:.1f} ms)")
    if cpu:
        mine, other = cpu
        cpu_max = other * CPU_GROWTH_MAX + CPU_SECONDS
        passed = passed and mine <= cpu_max
        said += f"; {mine:.2f} s of CPU, at most {cpu_max:.2f}"
    return Verdict(trial, passed, said)


class Endpoint:
    """One of five endpoints fails, in each way."""

    title = "One of five endpoints fails"
    # Of "none" first: what physics and good timeouts alone allow.
    heads = ["the endpoint", *SETS, "all: while it is found", "all: after", "the control then",
             "failed after"]
    first = "undisturbed"

    def __init__(self, faults):
        self.faults = faults

    def run(self, bench, only=None):
        """Rows: what users saw; one verdict for each fault."""
        port, tell = ORIGIN_PORTS[0], bench.origins.tell
        faults = [(name, FAULTS[name].text, lambda name=name: tell([port], **FAULTS[name].terms), None)
                  for name in self.faults if only is None or name in only]
        return self.compare(bench, local(ORIGIN_PORTS[:5]), local(CALM_PORTS), faults)

    def compare(self, bench, addresses, calm, faults):
        """`faults` are (name, text, fail, mend) of the first of the addresses."""
        rows, verdicts = [], []
        for name, text, fail, mend in [(self.first, "", None, None), *faults]:
            events = [(WARM_SECONDS, lambda _, fail=fail: fail())] if fail else []
            for _ in range(CALM_TRIES):
                row, after, control, cpu = self.one(bench, addresses, calm, events, mend)
                if control.p99_ms <= CONTROL_MS_MAX:
                    break
            rows.append([f"{name}: {text}" if text else name, *row])
            verdicts.append(judge(name, after, control, cpu))
            print(f"{name}: {after.say()}, control {control.say()}", flush=True)
        return rows, verdicts

    def one(self, bench, addresses, calm, events, mend):
        """(cells, what users of the gateway with all mechanisms saw after the detection, what those
        of the control did, CPU seconds of both)."""
        beside = bench.run({key: five(addresses, mechanisms) for key, mechanisms in SETS.items()},
                           [(key, "/main", BESIDE_PER_SECOND) for key in SETS],
                           WARM_SECONDS + bench.seconds, events, mend)
        found = WARM_SECONDS + DETECTION_SECONDS
        until = found + bench.seconds
        ran = bench.run({"all": five(addresses, ALL), CONTROL: five(calm, ALL)},
                        [("all", "/main", PER_SECOND), (CONTROL, "/main", PER_SECOND)],
                        until, events, mend)
        after, control = ran.seen(0, found, until), ran.seen(1, found, until)
        cells = [beside.seen(number, WARM_SECONDS, WARM_SECONDS + bench.seconds).cell()
                 for number in range(len(SETS))]
        row = [*cells, ran.seen(0, WARM_SECONDS, found).cell(), after.cell(), control.cell(),
               after.failures()]
        return row, after, control, (ran.cpu["all"], ran.cpu[CONTROL])


class Loss(Endpoint):
    """One of five hosts is lost, each behind a line of its own."""

    title = "One of five hosts is lost: a veth pair and a network namespace"
    first = "undisturbed hosts"
    port = 19120
    texts = {"black-hole": "packets to and from it are dropped without a word",
             "line-down": "its line is down",
             "host-unreachable": "EHOSTUNREACH",
             "net-unreachable": "ENETUNREACH",
             "thin-line": "a line with far too much delay and loss"}

    def run(self, bench, only=None):
        """The same, with endpoints that are hosts."""
        names = [name for name in self.faults if only is None or name in only]
        with contextlib.ExitStack() as stack:
            origins = stack.enter_context(Origins([self.port], [*PINNED, "unshare", "--net"]))
            pid = origins.process.pid
            lay(pid)
            hosts = [stack.enter_context(Host(number, pid)) for number in range(6)]
            addresses, lost = [f"{host.address}:{self.port}" for host in hosts], hosts[0]
            faults = [(name, self.texts[name], lambda name=name: LOSSES[name].fail(lost),
                       lambda name=name: LOSSES[name].mend(lost))
                      for name in names if name != "thin-line" or shutil.which("tc")]
            own = Bench(origins, bench.seconds, bench.driver, bench.configs)
            return self.compare(own, addresses[:5], addresses[1:], faults)


class Service:
    """One service hangs as a whole, and another one lives on the same workers (B1)."""

    title = "One service hangs, another one is on the same workers"
    heads = ["the hanging service", "the other: success, p50, p99", "the control then",
             "the hanging one", "its answers", "most requests of it in flight at once"]
    in_flight_max = 20
    per_second = 150

    def upstreams(self, ports, capped):
        """A service on the first two ports, another one on the next two."""
        # Nothing but the bulkhead holds back what hangs, for two seconds a request.
        words = {"timeouts": 'timeouts = { response = "2s" }'}
        if capped:
            words["cap"] = f"in_flight_max = {self.in_flight_max}"
        return [settings.upstream("stuck", local(ports[:2]), TIMES, (), **words),
                settings.upstream("other", local(ports[2:4]), TIMES, ())]

    def run(self, bench, _=None):
        """Hanging with and without a cap, each beside a gateway whose services all answer."""
        rows, seen, held = [], {}, {}
        for name, capped in (("hangs, in_flight_max", True), ("hangs, no cap", False)):
            seen[capped], held[capped], row = self.one(bench, capped)
            rows.append([name, *row])
            print(f"service {name}: the other one {seen[capped][0].say()}", flush=True)
        return rows, [
            judge("service: the other one", *seen[True]),
            Verdict("service: cap", 0 < held[True] <= self.in_flight_max,
                    f"{held[True]:.0f} requests of the hanging service in flight, at most "
                    f"{self.in_flight_max}; {held[False]:.0f} without")]

    def one(self, bench, capped):
        gateway, held = "bulkhead" if capped else "no-bulkhead", []

        def look(running):
            held.append(running[gateway].metric("ringway_upstream_requests_in_flight",
                                                'upstream="stuck"'))

        until = WARM_SECONDS + DETECTION_SECONDS + bench.seconds
        events = [(WARM_SECONDS, lambda _: bench.origins.tell(ORIGIN_PORTS[:2], "hang")),
                  (until - 2.0, look), (until - 1.5, look), (until - 1.0, look)]
        ran = bench.run(
            {gateway: self.upstreams(ORIGIN_PORTS, capped),
             CONTROL: self.upstreams(CALM_PORTS, capped)},
            [(name, path, self.per_second) for name in (gateway, CONTROL)
             for path in ("/other", "/stuck")], until, events)
        # Whole waits of two seconds stand behind what is judged.
        other, stuck, control, _ = (ran.seen(load, until - bench.seconds, until) for load in range(4))
        row = [other.say(), control.say(), stuck.say(), stuck.failures(), f"{max(held):.0f}"]
        # Most of its other requests fail at once, or wait: no more work than answers.
        return (other, control, (ran.cpu[gateway], ran.cpu[CONTROL])), max(held), row


class Zone:
    """A zone of two dies, and comes back."""

    title = "A zone of two is killed and brought back"
    heads = ["second after the kill", "users", "failed", "the control then",
             *(f"{zone}{number}" for zone in "ab" for number in (1, 2, 3))]
    ports = ORIGIN_PORTS
    dead_seconds, back_seconds = 6, 9

    def upstreams(self, tiers):
        addresses = local(self.ports)
        zones = {address: "ab"[number // 3] for number, address in enumerate(addresses)}
        words = {}
        if tiers:
            words = {"slow_start": 'slow_start = "3s"',
                     "breaker": f"breaker = {{ {settings.breaker(TIMES)}, "
                                "endpoint = { consecutive = 5 }, zone = { error_percent = 50 } }"}
        mechanisms = ("least_request", "retries") if tiers else ()
        return [settings.upstream("main", addresses, TIMES, mechanisms, zones, **words)]

    def run(self, bench, _=None):
        """The seconds of the gateway with zones; the other one is summed up in a row."""
        self.tried = []
        begin_dead, end_dead = WARM_SECONDS + 1, WARM_SECONDS + 1 + self.dead_seconds
        moved = 2 * TIMES.window
        events = [(begin_dead, lambda _: bench.origins.tell(self.ports[:3], "refuse")),
                  (begin_dead + moved, self.look), (end_dead - 0.2, self.look),
                  (end_dead, lambda _: bench.origins.tell(self.ports[:3], "answer"))]
        ran = bench.run({"zones": self.upstreams(True), CONTROL: five(local(CALM_PORTS), ALL)},
                        [("zones", "/main", PER_SECOND), (CONTROL, "/main", PER_SECOND)],
                        end_dead + self.back_seconds, events)
        killed, back = ran.happened[0], ran.happened[3]
        rows = self.rows(ran, killed, back)
        without = bench.run({"no-zones": self.upstreams(False)}, [("no-zones", "/main", PER_SECOND)],
                            begin_dead + moved, events[:1])
        since = without.happened[0]
        users = without.loads[0].between(since, since + moved)
        rows.append([f"the first {moved:.0f} s with neither breakers nor retries", users.cell(),
                     users.failures(), *[""] * 7])
        return rows, self.verdicts(ran, killed, back)

    def look(self, running):
        self.tried.append(sum(
            running["zones"].metric("ringway_upstream_endpoint_connect_failures_total", f":{port}\"")
            for port in self.ports[:3]))

    def rows(self, ran, killed, back):
        rows = []
        for second in range(-1, self.dead_seconds + self.back_seconds):
            begin = killed + second
            what = {0: f"{second}, killed", round(back - killed): f"{second}, brought back"}
            users, control = (load.between(begin, begin + 1) for load in ran.loads)
            rows.append([what.get(second, str(second)), users.cell(), users.failures(),
                         control.cell(),
                         *(f"{ran.rate([port], begin, begin + 1):.0f}" for port in self.ports)])
        return rows

    def verdicts(self, ran, killed, back):
        moved, end = killed + 2 * TIMES.window, back + self.back_seconds
        tries = self.tried[1] - self.tried[0]
        share = tries / max(1, PER_SECOND * (self.dead_seconds - 2 * TIMES.window - 0.2))
        killed_for, back_for = ([load.between(begin, until) for load in ran.loads]
                                for begin, until in ((moved, back), (back, end)))
        return [
            judge("zone: killed, after two windows", *killed_for),
            Verdict("zone: moved", share <= 0.02,
                    f"{tries:.0f} tries at the dead zone after two windows, {share:.2%} of the "
                    f"requests; at most 2.00%; {self.tried[0]:.0f} before"),
            judge("zone: brought back", *back_for),
            self.slow_start(ran, back, end)]

    def slow_start(self, ran, back, end):
        """The zone's share after it is back: a trickle, then from a tenth to all of it."""
        last = ran.rate(self.ports[:3], end - 2, end - 0.5)
        came = [at for port in self.ports[:3] for at in ran.counts[port]
                if at >= back * TICKS_PER_SECOND]
        began = min(came, default=end * TICKS_PER_SECOND) / TICKS_PER_SECOND
        rising = [ran.rate(self.ports[:3], began + at, began + at + 1) for at in range(5)]
        half = PER_SECOND / 2
        slow = rising[0] <= half * 0.5 and last >= half * 0.8
        return Verdict("zone: slow start", slow, "requests a second of the zone from the first one: "
                       + ", ".join(f"{rate:.0f}" for rate in rising) + f"; at the end {last:.0f} of "
                       f"{half:.0f}; at most {half / 2:.0f} at first, at least {half * 0.8:.0f} at "
                       "the end")


class Budget:
    """All endpoints of an upstream fail: retries must not multiply the outage."""

    title = "A whole upstream answers 503"
    heads = ["retries", "users", "requests in the outage", "retries of them", "times the load",
             "most retries ahead of a fifth in its first seconds", "after them"]
    # In which what a burst takes ahead of its time is paid back (docs/retries.md).
    ahead_seconds = 3.0

    def run(self, bench, _=None):
        """Without retries, then with them; the outage from the first request, and after a calm."""
        rows, verdicts = [], []
        for name, calm in (("from the first request", 0.0), ("after three calm seconds", 3.0)):
            for kind, mechanisms in (("none", ()), ("retries", ("retries",))):
                until = calm + bench.seconds + 2
                ran = bench.run({kind: five(local(ORIGIN_PORTS[:5]), mechanisms)},
                                [(kind, "/main", PER_SECOND)], until, [(calm, self.fail(bench))])
                since = ran.happened[0]
                users = ran.loads[0].between(since, ran.begin + until)
                steps = counted(ran.tries, "/main", ran.begin + until) or [(0.0, 0, 0)]
                row, verdict = self.judge(name, steps)
                rows.append([f"{kind}, {name}", users.cell(), *row])
                print(f"budget {kind}, {name}: {', '.join(row)}", flush=True)
                if mechanisms:
                    verdicts.append(verdict)
        return rows, verdicts

    @staticmethod
    def fail(bench):
        return lambda _: bench.origins.tell(ORIGIN_PORTS[:5], "fail")

    def judge(self, name, steps):
        """Over the outage, and over all parts of it that begin with it."""
        _, firsts, retries = steps[-1]
        ahead = [(after, again - RETRIES_MAX * first) for after, first, again in steps]
        early, late = (max((over for after, over in ahead if (after < self.ahead_seconds) == first),
                           default=0.0) for first in (True, False))
        row = [str(firsts), str(retries), f"{1 + retries / max(1, firsts):.3f}",
               f"{max(0, early):.1f}", f"{max(0, late):.1f}"]
        # One of each worker has been paid for in part.
        passed = retries > 0 and late <= WORKERS
        return row, Verdict(f"budget: {name}", passed,
                            f"{retries} retries of {firsts} requests; after {self.ahead_seconds:.0f} s "
                            f"never more than {max(0, late):.1f} above a fifth of them; at most "
                            f"{WORKERS}, as the next one of each worker is paid for in part")


# By the name that --only takes; Endpoint and Loss are taken by the names of their faults too.
TRIALS = {"service": Service, "zone": Zone, "budget": Budget}
