"""Cases of a suite: one line a case, `pass` or `FAIL` and what was found; exit 1 on any failure."""

import fnmatch
import json
import os
import pathlib
import signal
import sys
import time
import traceback

WORLD = json.loads(pathlib.Path(os.environ["COUNTERPARTS_WORLD"]).read_text())
PLACE = pathlib.Path(WORLD["place"])
PORTS = WORLD["ports"]
CA = WORLD["ca"]
CASE_S_MAX = 30

_cases = []


class Failed(Exception):
    """A case's finding."""


class _Overdue(Exception):
    pass


def check(holds, finding):
    if not holds:
        raise Failed(finding)


def equal(found, wanted, what):
    check(found == wanted, f"{what} is {found!r:.300}, not {wanted!r:.300}")


def case(name, *arguments, not_by=()):
    """Registers a function as a case; of `not_by`, the proxies that cannot do this."""

    def register(function):
        if WORLD["proxy"] not in not_by:
            _cases.append((name, function, arguments))
        return function

    return register


def pattern(size):
    """The body that the origins send as /bytes/SIZE."""
    row = bytes(range(251))
    return (row * (size // len(row) + 1))[:size]


def base(scheme="http", listener=None):
    """The address of a listener of the proxy."""
    listener = listener or ("tls" if scheme == "https" else "clear")
    return f"{scheme}://localhost:{PORTS[listener]}"


def certificate(name):
    return str(PLACE / "certificates" / name)


def run():
    """Runs the cases that COUNTERPARTS_ONLY names (with `*`), else all."""
    only = os.environ.get("COUNTERPARTS_ONLY", "*")
    signal.signal(signal.SIGALRM, _overdue)
    failed = 0
    for name, function, arguments in _cases:
        if not fnmatch.fnmatch(name, only):
            continue
        began = time.monotonic()
        finding = _attempt(function, arguments)
        seconds = time.monotonic() - began
        failed += finding is not None
        verdict = "pass" if finding is None else "FAIL"
        print(f"{verdict} {seconds:5.2f} s  {name}" + (f": {finding}" if finding else ""), flush=True)
    sys.stdout.flush()
    # Libraries with threads of their own are not waited for.
    os._exit(1 if failed else 0)


def _attempt(function, arguments):
    signal.alarm(CASE_S_MAX)
    try:
        function(*arguments)
        return None
    except Failed as finding:
        return str(finding)
    except _Overdue:
        return f"still going on after {CASE_S_MAX} s"
    except Exception as error:
        ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "_suite" in frame.filename]
        return f"{type(error).__name__}: {error} (line {ours[-1].lineno})"
    finally:
        signal.alarm(0)


def _overdue(*_):
    raise _Overdue
