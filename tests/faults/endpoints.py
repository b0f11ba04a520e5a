"""One of three endpoints fails, in each way that loopback can show, with and without checks."""

import asyncio

import settings
from processes import Gateway, Origins, free_ports
from origins import HOST
from scene import CHECKED, PASSIVE, TIMES, Part, Scene

FAULTS = settings.faults(TIMES)
# They answer well from time to time.
UNSTEADY = ("bursts", "flap")


def trial(binary, driver):
    """[(name, finding or None, detail)]"""
    ports = free_ports(4 + 2 * len(FAULTS))
    # The good ones are shared: what they get is the load of all.
    own, good, bad = ports[:2], ports[2:4], ports[4:]
    with Origins([*good, *bad]) as origins:
        parts = [part(origins, name, mechanisms, prefix, bad.pop())
                 for prefix, mechanisms in (("", CHECKED), ("passive-", PASSIVE))
                 for name in FAULTS]
        healthy = [f"{HOST}:{port}" for port in good]
        upstreams = [settings.upstream(it.name, [it.address, *healthy], TIMES, it.mechanisms)
                     for it in parts]
        upstreams.append(settings.upstream("calm", healthy, TIMES, CHECKED))
        with Gateway(f"endpoints-{driver}", binary, own, driver, upstreams) as gateway:
            scene = Scene(gateway, origins, parts)
            asyncio.run(scene.hold())
            return scene.verdicts()


def part(origins, name, mechanisms, prefix, port):
    return Part(
        f"{prefix}{name}", f"{HOST}:{port}", port, mechanisms,
        fail=lambda: origins.tell([port], **FAULTS[name].terms),
        mend=lambda: origins.tell([port], "answer"),
        steady=name not in UNSTEADY, body_seconds=0)
