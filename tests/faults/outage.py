"""A whole service is down after a calm: how often its origins are tried, counted try by try."""

import asyncio
import collections

import settings
from load import Load
from origins import BODY, HOST
from processes import Gateway, Origins, free_ports
from scene import TIMES, WORKERS, check, judged

# With retries alone, and with all that might keep them back or add to them.
SETS = {"outage": ("retries",), "outage-checked": ("least_request", "checks", "breaker", "retries")}
# Each worker gets its hundred requests within two seconds, from when on nothing may be ahead.
PER_SECOND, CONNECTIONS = 150, 32
CALM_SECONDS, DOWN_SECONDS, SETTLED_SECONDS, AFTER_SECONDS = 2.0, 5.0, 2.5, 4.0
# When those who are asked again have it; the calm's own share of a retry or two is rounded away.
RETRIES_MAX = 0.20
# docs/retries.md: what a worker may be ahead before that, in retries and in seconds of its load.
LENT, KEPT_SECONDS = 10, 0.5


def trial(binary, driver):
    """[(name, finding or None, detail)]"""
    ports = free_ports(2 + 3 * len(SETS))
    own, rest = ports[:2], ports[2:]
    with Origins(rest) as origins:
        upstreams = [settings.upstream(name, addresses(rest, place), TIMES, mechanisms)
                     for place, (name, mechanisms) in enumerate(SETS.items())]
        with Gateway(f"outage-{driver}", binary, own, driver, upstreams) as gateway:
            loads = {name: Load(gateway.port, f"/{name}", PER_SECOND, BODY, CONNECTIONS)
                     for name in SETS}
            back_at = asyncio.run(hold(origins, list(loads.values())))
            tries = origins.tries()
            return [judged(name, lambda load=load: judge(load, tries, back_at))
                    for load in loads.values() for name in [load.path[1:]]]


def addresses(ports, place):
    return [f"{HOST}:{port}" for port in ports[3 * place:3 * place + 3]]


async def hold(origins, loads):
    """When all of them answered again."""
    for load in loads:
        await load.open()
    running = [asyncio.create_task(load.run()) for load in loads]
    await asyncio.sleep(CALM_SECONDS)
    await asyncio.to_thread(origins.tell, origins.ports, "fail")
    await asyncio.sleep(DOWN_SECONDS)
    await asyncio.to_thread(origins.tell, origins.ports, "answer")
    back_at = asyncio.get_running_loop().time()
    await asyncio.sleep(AFTER_SECONDS)
    for load in loads:
        load.stop()
    await asyncio.gather(*running)
    for load in loads:
        load.close()
    return back_at


def judge(load, tries, back_at):
    """Over the whole outage, and over all that began with it and ended somewhere."""
    mine = [(at, path, mode) for at, _, path, mode in tries if path.startswith(f"{load.path}/")]
    begin = next((at for at, _, mode in mine if mode == "fail"), None)
    check(begin, "no request met the outage")
    known = {path for at, path, _ in mine if at < begin}
    met = collections.Counter()
    for at, path, _ in mine:
        if not begin <= at < back_at:
            continue
        met["again" if path in known else "first"] += 1
        known.add(path)
        ahead = met["again"] - RETRIES_MAX * met["first"]
        most = WORKERS if at > begin + SETTLED_SECONDS else \
            WORKERS * LENT + KEPT_SECONDS * RETRIES_MAX * PER_SECOND + WORKERS
        check(ahead <= most, f"{at - begin:.1f} s after it began: {met['again']} retries of "
                             f"{met['first']} requests, {ahead:.0f} more than a fifth")
    check(met["first"] >= PER_SECOND * DOWN_SECONDS / 2 and met["again"] > 0,
          f"no outage: {dict(met)}")
    last = load.between(back_at + AFTER_SECONDS - 1, back_at + AFTER_SECONDS)
    check(last.requests > 0 and last.success == 1, f"after it: {last.failures()}")
    ratio = 1 + met["again"] / met["first"]
    return f"{met['first']} requests, {met['again']} retries: {ratio:.3f} times the load"
