"""How proxies are compared: in turn, round by round, and what of it a report says."""

import collections
import datetime
import statistics
import sys

import harness
from harness import PerfError, StartError

# A budget is met when the median is within three per cent of it.
NOISE = 1.03
# Cores that other processes may use before a run is called noisy.
FOREIGN_MAX = 0.05


def measure(cases, proxies, rounds, measure_once, notes):
    """{(case, proxy): [sample]} and {(case, proxy): why it does not count}.

    `measure_once(case, proxy)` gives a sample, or None where the proxy has no part in the case;
    its samples say what they are. A proxy that does not start is left out, and noted."""
    samples, faults = collections.defaultdict(list), {}
    absent = set()
    for case in cases:
        for number in range(rounds):
            # Every proxy gets every place in the round: a machine that warms up favours none.
            turn = number % len(proxies)
            for name in proxies[turn:] + proxies[:turn]:
                key = (case, name)
                if key in absent:
                    continue
                try:
                    sample = measure_once(case, name)
                    if sample is not None:
                        samples[key].append(sample)
                        print(f"{case} round {number + 1} {name}: {sample.say()}", flush=True)
                except StartError as error:
                    print(f"{case} {name}: {error}", file=sys.stderr)
                    notes.append(f"{case} {name}: not measured, {error}")
                    absent.add(key)
                except PerfError as error:
                    print(f"{case} round {number + 1} {name}: {error}", file=sys.stderr)
                    faults[key] = str(error)
    # One bad round spoils its row: it has no median to judge by.
    return {key: taken for key, taken in samples.items() if key not in faults}, faults


def remarks(samples, faults, notes):
    """Lines above the table: what was not measured or does not count, and noise."""
    lines = [f"- **{note}**" for note in notes]
    lines += [f"- **{case} {name}: invalid, {why}**" for (case, name), why in faults.items()]
    foreign = [sample.foreign for taken in samples.values() for sample in taken]
    if foreign and statistics.median(foreign) > FOREIGN_MAX:
        lines.append(f"- **noisy: other processes used {statistics.median(foreign):.2f} cores "
                     f"(median), up to {max(foreign):.2f}; believe no number here**")
    return lines


def facts(machine, programs, more):
    """The list at the head of a report."""
    now = datetime.datetime.now(datetime.timezone.utc)
    known = {"date": f"{now:%Y-%m-%d %H:%M} UTC", **machine, **more, **harness.versions(programs)}
    return [f"- {name}: {value}" for name, value in known.items()]


def results_path(kind, out=None):
    stamp = f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}"
    return out or harness.RESULTS / f"{stamp}-{kind}.md"


def config_text(templates):
    """The configurations that were measured, as they are in perf/peers."""
    lines = []
    for template in templates:
        lines += ["", f"### {template.name}", "```", template.read_text().rstrip(), "```"]
    return lines
