"""A whole service is down after a calm: how often its origins are tried, counted try by try."""

import asyncio

import settings
from load import Load, phases
from origins import BODY, HOST
from processes import Gateway, Origins, free_ports
from scene import TIMES, WORKERS, check, judged

# With retries alone, and with all that might keep them back or add to them.
SETS = {"outage": ("retries",), "outage-checked": ("least_request", "checks", "breaker", "retries")}
PER_SECOND, CONNECTIONS = 150, 64
CALM_SECONDS, DOWN_SECONDS, AFTER_SECONDS = 2.0, 5.0, 4.0
RETRIES_MAX = 0.20
# docs/retries.md: what retries of a worker may be ahead at first, and of how many seconds of its load.
LENT, KEPT_SECONDS = 10, 0.5
# Half of what comes in pays it back: a second of it, and a hundred requests of each worker, which do
# not all get the same.
SETTLED_SECONDS = 1.0 + 1.5 * 100 * WORKERS / PER_SECOND
AHEAD_MAX = WORKERS * LENT + KEPT_SECONDS * RETRIES_MAX * PER_SECOND


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
    running = [asyncio.create_task(load.run(phase=phase)) for load, phase in phases(loads)]
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
    steps = counted(tries, load.path, back_at)
    check(steps, "no request met the outage")
    for after, firsts, retries in steps:
        ahead = retries - RETRIES_MAX * firsts
        # And one of each worker, which is paid for in part.
        most = WORKERS + (AHEAD_MAX if after < SETTLED_SECONDS else 0)
        check(ahead <= most, f"{after:.1f} s after it began: {retries} retries of {firsts} requests, "
                             f"{ahead:.0f} more than a fifth")
    _, firsts, retries = steps[-1]
    check(firsts >= PER_SECOND * DOWN_SECONDS / 2 and retries > 0,
          f"no outage: {firsts} requests, {retries} retries")
    last = load.between(back_at + AFTER_SECONDS - 1, back_at + AFTER_SECONDS)
    check(last.requests > 0 and last.success == 1, f"after it: {last.failures()}")
    return f"{firsts} requests, {retries} retries: {1 + retries / firsts:.3f} times the load"


def counted(tries, path, until):
    """[(seconds since the outage's first answer, first tries, retries)] after each try in it.

    Tries of one request have one path, so that none is taken for another."""
    mine = [(at, own, mode) for at, _, own, mode in tries if own.startswith(f"{path}/")]
    begin = next((at for at, _, mode in mine if mode == "fail"), until)
    known = {own for at, own, _ in mine if at < begin}
    firsts = retries = 0
    steps = []
    for at, own, _ in mine:
        if begin <= at < until:
            firsts, retries = firsts + (own not in known), retries + (own in known)
            known.add(own)
            steps.append((at - begin, firsts, retries))
    return steps
