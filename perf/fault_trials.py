"""The trials of perf/faults: each runs its cases and gives rows for the report, and verdicts."""

import functools

from fault_bench import (ALL, BREAKER, ORIGIN_PORTS, SLOW_START_SECONDS, WARM_SECONDS,
                         WINDOW_SECONDS, Verdict, config, upstream)
from fault_origins import TICKS_PER_SECOND

PER_SECOND = 300
# The gateways of single mechanisms run beside each other, and share the load.
BESIDE_PER_SECOND = 80
# In which a fault has to be found; what users see in it is told, and judged after it.
DETECTION_SECONDS = 2.0
# Of undisturbed: a hundredth of success, a tenth of p99, and what a shared machine adds by itself.
SUCCESS_LOSS_MAX, P99_GROWTH_MAX, NOISE_MS = 0.01, 1.10, 5.0

FIVE = list(ORIGIN_PORTS)[:5]
FAULTS = {
    "refuse": ({"mode": "refuse"}, "closes its listener and its connections"),
    "hang-accept": ({"mode": "hang-accept"}, "hangs before it accepts, its backlog being full"),
    "hang": ({"mode": "hang"}, "accepts and never answers"),
    "slow": ({"mode": "slow", "seconds": 0.4}, "answers after 400 ms"),
    "trickle": ({"mode": "trickle", "seconds": 2.0}, "sends the body within 2 s, a tenth at a time"),
    "cut": ({"mode": "cut"}, "closes in the middle of the body"),
    "reset": ({"mode": "reset"}, "resets on a request"),
    "fail": ({"mode": "fail"}, "answers 503"),
    "bursts": ({"mode": "burst", "on": 0.5, "off": 0.5}, "answers 503 every other half second"),
    "flap": ({"mode": "flap", "seconds": 1.0}, "is down and up, a second each"),
}
# What stands beside each other in the table.
SETS = {"none": (), "breaker": ("breaker",), "checks": ("checks",), "retries": ("retries",),
        "least_request": ("least_request",)}


def limit_ms(undisturbed):
    return undisturbed.p99_ms * P99_GROWTH_MAX + NOISE_MS


def judge(trial, now, undisturbed):
    """Success and p99 against undisturbed."""
    least, most = undisturbed.success - SUCCESS_LOSS_MAX, limit_ms(undisturbed)
    passed = now.requests > 0 and now.success >= least and now.p99_ms <= most
    return Verdict(trial, passed, f"{now.say()}; at least {least:.2%}, p99 at most {most:.1f} ms")


def five(mechanisms):
    """A configuration of five endpoints with these mechanisms."""
    return lambda port, admin: config(port, admin, upstream("main", FIVE, mechanisms))


def total(counts):
    """Requests that all endpoints got."""
    return sum(sum(tenths.values()) for tenths in counts.values())


class Endpoint:
    """One of five endpoints fails, in each way."""

    title = "One of five endpoints fails"
    # Of "none" first: what physics and good timeouts alone allow.
    heads = ["the endpoint", *SETS, "all: while it is found", "all: after", "failed after"]

    def __init__(self, faults):
        self.faults = faults

    def run(self, bench):
        """Rows: what users saw; one verdict for each fault."""
        undisturbed = self.one(bench, None)
        rows, verdicts = [undisturbed[0]], []
        for name in self.faults:
            row, after = self.one(bench, name)
            rows.append(row)
            verdicts.append(judge(name, after, undisturbed[1]))
            print(f"{name}: {after.say()}", flush=True)
        return rows, verdicts

    def one(self, bench, name):
        """(row, what users of the gateway with all mechanisms saw after the detection)."""
        events = []
        if name:
            terms = FAULTS[name][0]
            events = [(WARM_SECONDS, lambda _: bench.origins.tell([FIVE[0]], **terms))]
        beside = bench.run(
            {key: five(mechanisms) for key, mechanisms in SETS.items()},
            [(key, "/main", BESIDE_PER_SECOND) for key in SETS], WARM_SECONDS + bench.seconds,
            events)
        found = WARM_SECONDS + DETECTION_SECONDS
        ran = bench.run({"all": five(ALL)}, [("all", "/main", PER_SECOND)],
                        found + bench.seconds, events)
        after = ran.seen(0, found, found + bench.seconds)
        cells = [beside.seen(number, WARM_SECONDS, WARM_SECONDS + bench.seconds).cell()
                 for number in range(len(SETS))]
        what = f"{name}: {FAULTS[name][1]}" if name else "undisturbed"
        row = [what, *cells, ran.seen(0, WARM_SECONDS, found).cell(), after.cell(),
               after.failures()]
        return row, after


class Service:
    """One service hangs as a whole, and another one lives on the same workers (B1)."""

    title = "One service hangs, another one is on the same workers"
    heads = ["the hanging service", "the other: success, p50, p99", "the hanging one", "its answers",
             "most requests of it in flight at once"]
    in_flight_max = 20
    per_second = 150
    stuck, other = list(ORIGIN_PORTS)[:2], list(ORIGIN_PORTS)[2:4]

    def text(self, capped, port, admin):
        # Nothing but the bulkhead holds back what hangs, for two seconds a request.
        words = {"timeouts": 'timeouts = { response = "2s" }'}
        if capped:
            words["cap"] = f"in_flight_max = {self.in_flight_max}"
        return config(port, admin, upstream("stuck", self.stuck, (), **words),
                      upstream("other", self.other, ()))

    def run(self, bench):
        """Undisturbed, then hanging with and without a cap."""
        cases = {"answers, in_flight_max": (True, False), "hangs, in_flight_max": (True, True),
                 "hangs, no cap": (False, True)}
        rows, others, held = [], {}, {}
        for name, (capped, hangs) in cases.items():
            others[name], held[name], row = self.one(bench, name, capped, hangs)
            rows.append(row)
        calm, capped = others["answers, in_flight_max"], others["hangs, in_flight_max"]
        most = held["hangs, in_flight_max"]
        return rows, [
            judge("service: the other one", capped, calm),
            Verdict("service: cap", 0 < most <= self.in_flight_max,
                    f"{most:.0f} requests of the hanging service in flight, at most "
                    f"{self.in_flight_max}; {held['hangs, no cap']:.0f} without")]

    def one(self, bench, name, capped, hangs):
        held = []

        def look(running):
            gateway, = running.values()
            held.append(gateway.metric("ringway_upstream_requests_in_flight", 'upstream="stuck"'))

        until = WARM_SECONDS + DETECTION_SECONDS + bench.seconds
        events = [(until - 2.0, look), (until - 1.5, look), (until - 1.0, look)]
        if hangs:
            events.insert(0, (WARM_SECONDS, lambda _: bench.origins.tell(self.stuck, "hang")))
        gateway = "bulkhead" if capped else "no-bulkhead"
        ran = bench.run(
            {gateway: functools.partial(self.text, capped)},
            [(gateway, "/other", self.per_second), (gateway, "/stuck", self.per_second)],
            until, events)
        # Whole waits of two seconds stand behind what is judged.
        other, stuck = (ran.seen(load, until - bench.seconds, until) for load in (0, 1))
        print(f"service {name}: the other one {other.say()}", flush=True)
        row = [name, other.say(), stuck.say(), stuck.failures(), f"{max(held):.0f}"]
        return other, max(held), row


class Zone:
    """A zone of two dies, and comes back."""

    title = "A zone of two is killed and brought back"
    heads = ["second after the kill", "users", "failed",
             *(f"{zone}{number}" for zone in "ab" for number in (1, 2, 3))]
    ports = list(ORIGIN_PORTS)
    dead_seconds, back_seconds = 6, 9

    def text(self, tiers, port, admin):
        zones = {other: "ab"[number // 3] for number, other in enumerate(self.ports)}
        words = {}
        if tiers:
            words = {"slow_start": f'slow_start = "{SLOW_START_SECONDS}s"',
                     "breaker": f"breaker = {{ {BREAKER}, endpoint = {{ consecutive = 5 }}, "
                                "zone = { error_percent = 50 } }"}
        mechanisms = ("least_request", "retries") if tiers else ()
        return config(port, admin, upstream("main", self.ports, mechanisms, zones, **words))

    def run(self, bench):
        """The seconds of the gateway with zones; the other one is summed up in a row."""
        self.tried = []
        begin_dead, end_dead = WARM_SECONDS + 1, WARM_SECONDS + 1 + self.dead_seconds
        moved = 2 * WINDOW_SECONDS
        events = [(begin_dead, lambda _: bench.origins.tell(self.ports[:3], "refuse")),
                  (begin_dead + moved, self.look), (end_dead - 0.2, self.look),
                  (end_dead, lambda _: bench.origins.tell(self.ports[:3], "answer"))]
        ran = bench.run({"zones": functools.partial(self.text, True)},
                        [("zones", "/main", PER_SECOND)], end_dead + self.back_seconds, events)
        killed, back = ran.happened[0], ran.happened[3]
        rows = self.rows(ran, killed, back)
        without = bench.run({"no-zones": functools.partial(self.text, False)},
                            [("no-zones", "/main", PER_SECOND)], begin_dead + moved, events[:1])
        since = without.happened[0]
        users = without.loads[0].between(since, since + moved)
        rows.append([f"the first {moved} s with neither breakers nor retries", users.cell(),
                     users.failures(), *[""] * 6])
        return rows, self.verdicts(ran, killed, back)

    def look(self, running):
        gateway, = running.values()
        self.tried.append(sum(
            gateway.metric("ringway_upstream_endpoint_connect_failures_total", f":{port}\"")
            for port in self.ports[:3]))

    def rows(self, ran, killed, back):
        rows = []
        for second in range(-1, self.dead_seconds + self.back_seconds):
            begin = killed + second
            what = {0: f"{second}, killed", round(back - killed): f"{second}, brought back"}
            users = ran.loads[0].between(begin, begin + 1)
            rows.append([what.get(second, str(second)), users.cell(), users.failures(),
                         *(f"{ran.rate([port], begin, begin + 1):.0f}" for port in self.ports)])
        return rows

    def verdicts(self, ran, killed, back):
        between = ran.loads[0].between
        moved = killed + 2 * WINDOW_SECONDS
        calm = between(killed - 1, killed)
        tries = self.tried[1] - self.tried[0]
        share = tries / max(1, PER_SECOND * (self.dead_seconds - 2 * WINDOW_SECONDS - 0.2))
        end = ran.begin + WARM_SECONDS + 1 + self.dead_seconds + self.back_seconds
        last = ran.rate(self.ports[:3], end - 2, end - 0.5)
        came = [at for port in self.ports[:3] for at in ran.counts[port]
                if at >= back * TICKS_PER_SECOND]
        began = min(came, default=end * TICKS_PER_SECOND) / TICKS_PER_SECOND
        first = ran.rate(self.ports[:3], began, began + 1)
        rising = [ran.rate(self.ports[:3], began + at, began + at + 1) for at in range(5)]
        # With a trickle before it, and then from a tenth to all in three seconds.
        slow = first <= PER_SECOND / 2 * 0.5 and last >= PER_SECOND / 2 * 0.8
        return [
            judge("zone: killed, after two windows", between(moved, back), calm),
            Verdict("zone: moved", share <= 0.02,
                    f"{tries:.0f} tries at the dead zone after two windows, {share:.2%} of the "
                    f"requests; at most 2.00%; {self.tried[0]:.0f} before"),
            judge("zone: brought back", between(back, end), calm),
            Verdict("zone: slow start", slow, "requests a second of the zone from the first one: "
                    + ", ".join(f"{rate:.0f}" for rate in rising) + f"; at the end {last:.0f} of "
                    f"{PER_SECOND / 2:.0f}; at most {PER_SECOND / 4:.0f} at first, at least "
                    f"{PER_SECOND / 2 * 0.8:.0f} at the end")]


class Budget:
    """All endpoints of an upstream fail: retries must not multiply the outage."""

    title = "A whole upstream answers 503"
    heads = ["retries", "users", "requests that origins got in the outage", "of those without",
             "the same with the calm before it"]
    load_max = 1.20

    def text(self, mechanisms, port, admin):
        return config(port, admin, upstream("main", FIVE, mechanisms))

    def run(self, bench):
        """Without retries, then with them; the outage from the first request, and after a calm."""
        rows, verdicts = [], []
        for name, calm in (("from the first request", 0.0), ("after three calm seconds", 3.0)):
            loads, whole = {}, {}
            for retries in (False, True):
                kind = "retries" if retries else "none"
                before = []

                def fail(_, before=before):
                    before.append(total(bench.origins.counts()))
                    bench.origins.tell(FIVE, "fail")

                ran = bench.run(
                    {kind: functools.partial(self.text, ("retries",) if retries else ())},
                    [(kind, "/main", PER_SECOND)], calm + bench.seconds + 2,
                    [(calm, fail)])
                since = ran.happened[0]
                whole[kind] = total(ran.counts)
                loads[kind] = whole[kind] - before[0]
                users = ran.loads[0].between(since, since + bench.seconds + 2)
                rows.append([f"{kind}, {name}", users.cell(), str(loads[kind]),
                             *(f"{load[kind] / max(1, load['none']):.3f}"
                               for load in (loads, whole))])
            ratio = loads["retries"] / max(1, loads["none"])
            verdicts.append(Verdict(f"budget: {name}", 0 < ratio <= self.load_max,
                                    f"{ratio:.3f} times the load of the origins; at most "
                                    f"{self.load_max:.2f}"))
        return rows, verdicts


# By the name that --only takes; Endpoint is taken by the names of its faults too.
TRIALS = {"service": Service, "zone": Zone, "budget": Budget}
