"""One of three hosts is lost in ways that loopback cannot show, with and without checks."""

import asyncio
import contextlib
import shutil

import settings
from hosts import FAULTS, Host, lay
from processes import Gateway, Origins, free_ports
from scene import CHECKED, PASSIVE, TIMES, WAIT_SECONDS_MAX, Part, Scene, check, judged

# So long is a body under way on the line that goes down.
BODY_SECONDS = 0.6
# Each of them was met, of documented ones.
CODES = ("connect_timeout", "connect_failed", "response_timeout", "response_body_timeout")


def trial(binary, driver):
    """[(name, finding or None, detail)]"""
    good, *bad = free_ports(3 + len(FAULTS))
    own, bad = bad[:2], bad[2:]
    with contextlib.ExitStack() as stack:
        origins = stack.enter_context(Origins([good, *bad], ["unshare", "--net"]))
        pid = origins.process.pid
        lay(pid)
        names = [name for name in FAULTS if name != "thin-line" or shutil.which("tc")]
        one, two, *hosts = (stack.enter_context(Host(number, pid))
                            for number in range(2 + len(names)))
        healthy = [f"{host.address}:{good}" for host in (one, two)]
        parts, upstreams = [], [settings.upstream("calm", healthy, TIMES, CHECKED)]
        for name, host, port in zip(names, hosts, bad):
            parts += [part(prefix, name, host, port, mechanisms)
                      for prefix, mechanisms in (("", CHECKED), ("passive-", PASSIVE))]
            upstreams.append(settings.upstream(f"bare-{name}", [f"{host.address}:{port}"], TIMES, ()))
        upstreams += [settings.upstream(it.name, [it.address, *healthy], TIMES, it.mechanisms)
                      for it in parts]
        # The line goes down while bodies are on it.
        origins.tell([bad[names.index("line-down")]], "trickle", seconds=BODY_SECONDS, checked=True)
        with Gateway(f"network-{driver}", binary, own, driver, upstreams) as gateway:
            scene = Scene(gateway, origins, parts, [f"bare-{name}" for name in names])
            asyncio.run(scene.hold())
            return [*scene.verdicts(), *(judged(f"bare-{name}", lambda name=name: bare(scene, name))
                                         for name in names), judged("codes", lambda: codes(gateway))]


def part(prefix, name, host, port, mechanisms):
    # One of the two parts of a host does it.
    first = mechanisms == CHECKED
    return Part(f"{prefix}{name}", f"{host.address}:{port}", port, mechanisms,
                fail=lambda: first and FAULTS[name].fail(host),
                mend=lambda: first and FAULTS[name].mend(host),
                steady=FAULTS[name].steady, loses=name == "line-down")


def bare(scene, name):
    """What timeouts alone make of it: each user waits for one of them, and all is well afterwards."""
    load = scene.loads[f"bare-{name}"]
    samples = load.due(scene.failed_at, scene.mended_at)
    failed = [sample for sample in samples if not sample.ok]
    statuses = {sample.status for sample in failed}
    check(failed and statuses <= FAULTS[name].statuses,
          f"statuses {statuses} of {len(failed)} in {len(samples)}")
    longest = max(sample.took for sample in samples)
    check(longest < WAIT_SECONDS_MAX, f"a user waited {longest:.1f} s, at most {WAIT_SECONDS_MAX:.1f} s")
    last = load.between(scene.ended_at - 1, scene.ended_at)
    check(last.requests > 0 and last.success == 1, f"in the end: {last.failures()}")
    return f"{len(failed)} of {len(samples)} failed, longest {longest:.1f} s: {sorted(statuses)}"


def codes(gateway):
    counts = {code: gateway.metric("ringway_errors_total", f'code="{code}"') for code in CODES}
    check(all(counts.values()), f"not all were met: {counts}")
    return ", ".join(f"{count:.0f} x {code}" for code, count in counts.items())
