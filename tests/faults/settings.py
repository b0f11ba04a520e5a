"""What gateways and endpoints are told in trials: configurations, mechanisms, ways to fail."""

import collections
import re

from origins import BODY, CHECK_PATH, TRICKLE_PIECES

# Of seconds, but for counts. A trial is as long as they are, so they are short. They hold with and
# without every mechanism.
Times = collections.namedtuple(
    "Times", "connect response body per_try interval check slow_start window open trickle "
             "requests_min consecutive")


def seconds(value):
    return f'"{value * 1000:.0f}ms"'


def timeouts(times):
    return (f"timeouts = {{ connect = {seconds(times.connect)}, "
            f"response = {seconds(times.response)}, body = {seconds(times.body)} }}")


def breaker(times):
    """What all tiers of a breaker share."""
    return (f"window = {seconds(times.window)}, requests_min = {times.requests_min}, "
            f"open = {seconds(times.open)}, trickle = {seconds(times.trickle)}")


def mechanisms(times):
    """Each mechanism: its keys, and what switches it off where it is on by default."""
    # A check that looks for a body's end sees what is cut.
    end = BODY[-4:].decode().strip()
    return {
        "least_request": ('balance = "least_request"', 'balance = "round_robin"'),
        "checks": (f'health = {{ path = "{CHECK_PATH}", interval = {seconds(times.interval)}, '
                   f'timeout = {seconds(times.check)}, rise = 2, fall = 2, body = "{end}" }}\n'
                   f"slow_start = {seconds(times.slow_start)}", ""),
        "breaker": (f"breaker = {{ {breaker(times)}, endpoint = {{ "
                    f"consecutive = {times.consecutive}, error_percent = 30 }} }}",
                    "breaker = { endpoint = false }"),
        "retries": ('retry = { on = ["connect", "stale", "refused_stream", "reset", "timeout", '
                    f'"503"], tries = 3, per_try_timeout = {seconds(times.per_try)}, '
                    "budget_percent = 20 }", "retry = { budget_percent = 0 }"),
    }


def upstream(name, addresses, times, chosen, zones=None, **words):
    """The table of an upstream that has the chosen mechanisms and no other; `words` are more keys,
    or others in the place of a mechanism's."""
    lines = [f"[upstream.{name}]", "endpoints = ["]
    for address in addresses:
        zone = f', zone = "{zones[address]}"' if zones else ""
        lines.append(f'  {{ address = "{address}"{zone} }},')
    keys = {key: on if key in chosen else off for key, (on, off) in mechanisms(times).items()}
    keys = {**keys, "timeouts": timeouts(times), **words}
    return "\n".join([*lines, "]", *filter(None, keys.values())])


def config(listen, admin, driver, upstreams, fixed=()):
    """A whole file: each upstream has the paths under its name; `fixed` are names of those whose
    origins know one path only, that of checks."""
    names = [re.match(r"\[upstream\.([a-z0-9-]+)\]", text)[1] for text in upstreams]
    paths = {name: f'regex = "/{name}/.*"\nrewrite = "{CHECK_PATH}"' if name in fixed
             else f'prefix = "/{name}"' for name in names}
    routes = [f'[[route]]\nid = "{name}"\n{path}\nupstream = "{name}"'
              for name, path in paths.items()]
    head = (f'[runtime]\nworkers = 2\ndriver = "{driver}"\n\n[admin]\nlisten = "{admin}"\n\n'
            f'[listener.public]\naddress = "{listen}"')
    return "\n\n".join([head, *upstreams, *routes]) + "\n"


# What an endpoint is told, and what that is.
Fault = collections.namedtuple("Fault", "terms text")


def faults(times):
    """{name: Fault} of one endpoint; each is worse than the timeouts allow."""
    late, piece = times.response * 1.6, times.body * 4 / 3
    whole = piece * TRICKLE_PIECES
    return {
        "refuse": Fault({"mode": "refuse"}, "closes its listener and its connections"),
        "hang-accept": Fault({"mode": "hang-accept"},
                             "hangs before it accepts, its backlog being full"),
        "hang": Fault({"mode": "hang"}, "accepts and never answers"),
        "slow": Fault({"mode": "slow", "seconds": late}, f"answers after {late * 1000:.0f} ms"),
        "trickle": Fault({"mode": "trickle", "seconds": whole},
                         f"sends the body within {whole:.1f} s, a tenth at a time"),
        "cut": Fault({"mode": "cut"}, "closes in the middle of the body"),
        "reset": Fault({"mode": "reset"}, "resets on a request"),
        "fail": Fault({"mode": "fail"}, "answers 503"),
        "bursts": Fault({"mode": "burst", "on": 0.5, "off": 0.5},
                        "answers 503 every other half second"),
        "flap": Fault({"mode": "flap", "seconds": 1.0}, "is down and up, a second each"),
    }
