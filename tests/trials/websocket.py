"""Autobahn's WebSocket cases: through the proxy each has the verdict that it has without it."""

import functools
import json
import os
import shutil
import subprocess
import sys

from harness import HERE, PLACE, Proxy, check, origin

VENV = PLACE / "venv"
REQUIREMENTS = HERE / "requirements.txt"
AT_ONCE = 4
SUITE_S_MAX = 400
REPEATS = 20
# Groups 12 and 13 send a thousand compressed messages of each of 18 kinds; the last six of them,
# the largest in fragments, take two thirds of the suite's time. TRIALS_ALL=1 runs them too.
LONG = [] if os.environ.get("TRIALS_ALL") else [f"{g}.*.{n}" for g in (12, 13) for n in range(13, 19)]


def trial(driver):
    direct = direct_verdicts()
    with origin("ws_origin.py", tools() / "bin" / "python") as origin_port:
        with Proxy(driver, origin_port) as proxy:
            proxied = verdicts(proxy.port, driver)
            status = proxy.status()
    check(status["tunnels"] == 0 and status["panics"] == 0, f"status: {status}")
    check(direct.keys() == proxied.keys(), f"{len(direct)} cases directly, {len(proxied)} proxied")
    differ = {case for case in direct if direct[case] != proxied[case]}
    unsteady = differ and {case for case in differ if proxied[case] in direct_again(case)}
    findings = [f"{case}: {direct[case]} directly, {proxied[case]} proxied" for case in differ]
    check(differ == unsteady, f"verdicts differ: {'; '.join(sorted(findings))}")
    good = sum(verdict[0] in ("OK", "NON-STRICT", "INFORMATIONAL") for verdict in direct.values())
    unsteady = f", of which the origin varies by itself: {sorted(unsteady)}" if unsteady else ""
    return f"{len(direct)} cases with the same verdict, {good} of them conforming{unsteady}"


@functools.cache
def tools():
    """The tools in an environment of their own, made once for each list of them."""
    wanted = REQUIREMENTS.read_text()
    stamp = VENV / "installed.txt"
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(VENV, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
        pip = [str(VENV / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "-r", str(REQUIREMENTS)], check=True)
        stamp.write_text(wanted)
    return VENV


def direct_again(case):
    """What an origin says without the proxy, over and over: cases that end a connection in the
    middle of an echo have two verdicts, by which of the two wins."""
    with origin("ws_origin.py", tools() / "bin" / "python") as origin_port:
        return {verdicts(origin_port, "again", [case])[case] for _ in range(REPEATS)}


@functools.cache
def direct_verdicts():
    with origin("ws_origin.py", tools() / "bin" / "python") as origin_port:
        return verdicts(origin_port, "direct")


def verdicts(port, name, cases=()):
    """The verdict of each case: behaviour, and behaviour at the close."""
    place = PLACE / f"websocket-{name}"
    shutil.rmtree(place, ignore_errors=True)
    command = [
        str(tools() / "bin" / "kosoku"), "-p", str(AT_ONCE), "-o", str(place),
        *(option for case in LONG for option in ("-x", case)),
        *(option for case in cases for option in ("-i", case)), f"ws://127.0.0.1:{port}",
    ]  # fmt: skip
    # Cases that the origin itself fails make its exit code; they are compared like the others.
    done = subprocess.run(command, capture_output=True, text=True, timeout=SUITE_S_MAX)
    index = place / "index.json"
    check(index.exists(), f"no report of the {name} run: {done.stderr[-2000:]}")
    agents = json.loads(index.read_text())
    return {
        case: (verdict["behavior"], verdict["behaviorClose"])
        for cases in agents.values()
        for case, verdict in cases.items()
    }
