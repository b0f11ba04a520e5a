"""A scene: many upstreams behind one gateway, each with one endpoint that fails in a way of its own.

All of them fail at once and are mended at once, so that a scene takes no longer than its slowest part,
and whatever one of them does to the users of another is seen. Judged is what can be counted: answers,
events, states. Times are bounds far above what a busy machine takes.
"""

import asyncio
import collections
import time

from load import Load, phases
from origins import BODY
from settings import Times

# One timeout is far above what a busy machine delays an answer by, and a fault is worse than it.
TIMES = Times(connect=1.0, response=1.0, body=1.0, per_try=1.0, interval=0.5, check=0.5,
              slow_start=1.0, window=2.0, open=1.0, trickle=1.0, requests_min=5, consecutive=3)
CHECKED = ("checks", "breaker", "retries")
# The same, with nobody but the users to find a fault.
PASSIVE = ("breaker", "retries")
PER_SECOND, CONNECTIONS = 24, 8
WARM_SECONDS, JUDGED_SECONDS = 1.5, 3.0
# What is waited for comes in a few seconds; a machine may be that much slower.
FOUND_SECONDS_MAX, BACK_SECONDS_MAX = 15.0, 40.0
LOOK_SECONDS = 0.1
# Events are told before workers hear of them.
SETTLE_SECONDS = 0.2
# One of two timeouts in a row would be longer than this.
WAIT_SECONDS_MAX = 2 * TIMES.response
WORKERS = 2
# A passive breaker asks users: one on each worker, whenever it was open for so long.
PROBES_MAX = WORKERS * (1 + int(JUDGED_SECONDS / TIMES.open))

# An upstream `name`, the address of its endpoint that fails, the port that this one has in the log of
# the origins, its mechanisms, and what is done to it and undone: functions. `steady`: it never answers
# well in between. `body_seconds`: so long was the body of an answer on its way that is lost when it
# fails; 0 where none need be.
Part = collections.namedtuple("Part", "name address port mechanisms fail mend steady body_seconds")


class Finding(Exception):
    """What a part did not do."""


def check(holds, finding):
    if not holds:
        raise Finding(finding)


class Scene:
    """The parts, a load on each, and one more on the upstream `calm`, which nothing is done to.

    `bare` are names of upstreams that are asked too, and that their trial judges itself."""

    def __init__(self, gateway, origins, parts, bare=()):
        self.gateway, self.origins, self.parts = gateway, origins, parts
        self.loads = {name: Load(gateway.port, f"/{name}", PER_SECOND, BODY, CONNECTIONS)
                      for name in [*(part.name for part in parts), *bare, "calm"]}
        # Times of the monotonic clock, by the name of the part.
        self.found, self.back = {}, {}
        self.failed_at = self.mended_at = self.ended_at = 0.0
        self.events_before, self.asked_before = 0, {}
        # What the gateway said of itself while all failed, and in the end.
        self.during, self.after = None, None

    async def hold(self):
        for load in self.loads.values():
            await load.open()
        running = [asyncio.create_task(load.run(phase=phase))
                   for load, phase in phases(self.loads.values())]
        try:
            await asyncio.sleep(WARM_SECONDS)
            await asyncio.to_thread(self.fail)
            await self.until(self.look_for_found, FOUND_SECONDS_MAX)
            await asyncio.sleep(SETTLE_SECONDS + JUDGED_SECONDS)
            self.during = await asyncio.to_thread(self.look)
            await asyncio.to_thread(self.mend)
            await self.until(self.look_for_back, BACK_SECONDS_MAX)
            self.after = await asyncio.to_thread(self.look)
            self.ended_at = time.monotonic()
        finally:
            for load in self.loads.values():
                load.stop()
            await asyncio.gather(*running)
            for load in self.loads.values():
                load.close()
        await asyncio.sleep(LOOK_SECONDS)

    def fail(self):
        self.events_before, _ = self.gateway.events()
        self.failed_at = time.monotonic()
        for part in self.parts:
            part.fail()

    def mend(self):
        self.mended_at, self.asked_before = time.monotonic(), self.asked()
        for part in self.parts:
            part.mend()

    async def until(self, whole, seconds):
        end = time.monotonic() + seconds
        while not await asyncio.to_thread(whole) and time.monotonic() < end:
            await asyncio.sleep(LOOK_SECONDS)

    def look_for_found(self):
        _, events = self.gateway.events()
        now = time.monotonic()
        out = {(event["upstream"], event["subject"]) for event in events
               if event["number"] > self.events_before and event["to"] in ("open", "down")}
        for part in self.parts:
            if (part.name, part.address) in out:
                self.found.setdefault(part.name, now)
        return len(self.found) == len(self.parts)

    def look_for_back(self):
        """In with all of its share, and asked again."""
        endpoints, now = endpoints_of(self.gateway.status()), time.monotonic()
        asked = self.asked()
        for part in self.parts:
            shown = endpoints[part.name, part.address]
            whole = (shown.get("standing"), shown.get("share_percent")) == ("in", 100)
            if whole and asked[part.name] > self.asked_before[part.name]:
                self.back.setdefault(part.name, now)
            else:
                self.back.pop(part.name, None)
        return len(self.back) == len(self.parts)

    def asked(self):
        """How many requests of each part its endpoint has had: its origins say so, where they can."""
        asked = self.origins.asked()
        others = [part for part in self.parts if part.port not in asked]
        # Nobody reads so long a text for nothing: the load has its times from this process.
        samples = self.gateway.metrics() if others else []
        return {**{part.name: asked[part.port].get(part.name, 0)
                   for part in self.parts if part.port in asked},
                **{part.name: total(samples, "ringway_upstream_requests_total", part)
                   for part in others}}

    def look(self):
        return Look(self.gateway)

    def verdicts(self):
        """[(name, finding or None, detail)] of each part, and of those who saw nothing of it."""
        results = [judged(part.name, lambda part=part: self.judge(part)) for part in self.parts]
        return [*results, judged("calm", self.judge_calm)]

    def judge(self, part):
        found = self.found.get(part.name)
        check(found, f"not found in {FOUND_SECONDS_MAX:.0f} s: {self.during.shown(part)}")
        load = self.loads[part.name]
        meanwhile = load.between(self.failed_at, found)
        after = load.between(found + SETTLE_SECONDS, self.mended_at)
        said = (f"found in {found - self.failed_at:.1f} s, users {meanwhile.success:.1%} while it was, "
                f"{after.success:.1%} of {after.requests} after")
        failures = sum(not sample.ok for sample in load.due(found + SETTLE_SECONDS, self.mended_at))
        most = PROBES_MAX if "checks" not in part.mechanisms else after.requests // 100
        check(after.requests >= PER_SECOND and failures <= most,
              f"{said}: {failures} failed, at most {most}: {after.failures()}")
        lost = sum(not sample.ok for sample in load.due(self.failed_at - TIMES.body, found))
        check(lost > 0 or not part.body_seconds, f"{said}: the fault took nobody's answer")
        longest = max(sample.took for sample in load.due(0, self.mended_at))
        longest_max = WAIT_SECONDS_MAX + part.body_seconds
        check(longest < longest_max,
              f"{said}: a user waited {longest:.1f} s, at most {longest_max:.1f} s")
        self.during.judge_out(part)
        back = self.back.get(part.name)
        check(back, f"{said}; not back in {BACK_SECONDS_MAX:.0f} s: {self.after.shown(part)}")
        self.after.judge_in(part)
        return f"{said}, longest {longest:.1f} s; back in {back - self.mended_at:.1f} s"

    def judge_calm(self):
        load = self.loads["calm"]
        all_of_it = load.between(0, time.monotonic())
        check(all_of_it.requests > 0 and all_of_it.success == 1, f"failed: {all_of_it.failures()}")
        failing = {(part.name, part.address) for part in self.parts}
        wrong = [event for event in self.after.events if event["tier"] == "endpoint"
                 and event["to"] == "open" and (event["upstream"], event["subject"]) not in failing]
        check(not wrong, f"isolated though nothing was done to it: {wrong}")
        status = self.gateway.status()
        check(status["panics"] == 0, f"{status['panics']} panics")
        return f"{all_of_it.requests} requests to others, all answered"


class Look:
    """What a gateway says of itself at one time."""

    def __init__(self, gateway):
        self.gateway = gateway
        self.endpoints, self.events = endpoints_of(gateway.status()), gateway.events()[1]
        self.samples = gateway.metrics()

    def shown(self, part):
        return self.endpoints[part.name, part.address]

    def told(self, part):
        """Its events in short."""
        return [f"{event['tier']} {event['from']} to {event['to']}" for event in self.events
                if (event["upstream"], event["subject"]) == (part.name, part.address)]

    def value(self, name, part):
        return total(self.samples, name, part)

    def judge_out(self, part):
        """Status, metrics and events say that it was isolated; where it is steady, that it is."""
        shown = self.shown(part)
        if "checks" in part.mechanisms:
            noticed = sum(value for family, label, value in self.samples
                          if family == "ringway_health_checks_total" and "failed" in label)
        else:
            noticed = self.value("ringway_breaker_transitions_total", part)
        check(noticed > 0 and self.told(part), f"no metric or event: {self.told(part)}, {shown}")
        if part.steady:
            share = self.value("ringway_upstream_endpoint_share", part)
            check(shown["standing"] != "in" and shown["share_percent"] < 100 and share < 1,
                  f"is in all the same: {shown}, share {share}")
        if part.steady and "checks" in part.mechanisms:
            up = self.value("ringway_upstream_endpoint_up", part)
            check(shown["up"] is False and up == 0, f"is up: {shown}, metric {up:.0f}")

    def judge_in(self, part):
        """The same of its return."""
        share, told = self.value("ringway_upstream_endpoint_share", part), self.told(part)
        check(share == 1, f"its share in the metrics is {share}")
        check(any(it.endswith(("to closed", "to up")) for it in told), f"no event of it: {told}")


def total(samples, name, part):
    """The sum of a metric over the samples of a part's endpoint."""
    labels = (f'upstream="{part.name}"', f'endpoint="{part.address}"')
    return sum(value for family, label, value in samples
               if family == name and all(it in label for it in labels))


def judged(name, judge):
    try:
        return name, None, judge()
    except Finding as finding:
        return name, str(finding), ""


def endpoints_of(status):
    """{(upstream, address): what is shown of it}."""
    return {(upstream["name"], endpoint["address"]): endpoint
            for upstream in status["upstreams"] for endpoint in upstream["endpoints"]}
