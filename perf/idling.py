"""Resident bytes of idle connections, in clear text or TLS."""

import pathlib
import re
import socket
import ssl
import subprocess
import time

import harness
from harness import HOST, PORTS, PerfError

# Connections that have an exchange at once: a proxy's pools should not be what is measured.
AT_ONCE = 16
CLEAR = (("/1k", 1 << 10), ("/64k", 64 << 10))
TLS = CLEAR[:1]


def measure(name, connections, settle, front=""):
    """(bytes an idle connection, RssAnon before, RssAnon with all of them)."""
    exchanges = TLS if front else CLEAR
    words = {"RESUMPTION": "ticket"}
    with harness.origin(), harness.proxy(name, front=front, words=words) as proxy:
        # What a proxy allocates once belongs to no connection.
        close(exchange_all(AT_ONCE * 4, exchanges, front))
        time.sleep(settle)
        before = anonymous_bytes(proxy.pid)
        open_now = exchange_all(connections, exchanges, front)
        time.sleep(settle)
        after = anonymous_bytes(proxy.pid)
        gone = sum(not still_open(stream) for stream in open_now)
        close(open_now)
        if gone:
            raise PerfError(f"{name} closed {gone} of {connections} idle connections")
    return (after - before) / connections, before, after


def rustls_bytes(connections):
    """What rustls itself keeps of a server connection, with no proxy round it."""
    pem = harness.certificate()
    argv = [harness.binary("rustls-state"), "--connections", connections,
            "--cert", pem["CERT"], "--key", pem["KEY"]]
    done = subprocess.run([*map(str, argv)], capture_output=True, text=True)
    counted = re.search(r"^counted connections=(\d+) bytes=(\d+)$", done.stdout, re.M)
    if done.returncode != 0 or not counted:
        raise PerfError(f"rustls-state failed: {done.stderr.strip()[-300:]}")
    return int(counted[2]) / int(counted[1])


def exchange_all(count, exchanges, front):
    """Opens connections in groups, and has every exchange on each."""
    context = tls_context() if front else None
    streams = []
    while len(streams) < count:
        group = [connect(context) for _ in range(min(AT_ONCE, count - len(streams)))]
        for path, body_bytes in exchanges:
            for stream in group:
                host = harness.SERVER_NAME if front else "idle"
                stream.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            for stream in group:
                # One answer is under way: the buffer can swallow nothing of a next one.
                with stream.makefile("rb") as file:
                    status, body, _ = harness.read_answer(file)
                if status != 200 or len(body) != body_bytes:
                    raise PerfError(f"{path} answers {status} with {len(body)} bytes")
        streams += group
    return streams


def tls_context():
    context = ssl.create_default_context(cafile=str(harness.certificate()["CERT"]))
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["http/1.1"])
    return context


def connect(context):
    stream = socket.create_connection((HOST, PORTS["proxy"]), timeout=10)
    if context:
        stream = context.wrap_socket(stream, server_hostname=harness.SERVER_NAME)
    return stream


def anonymous_bytes(pid):
    """RssAnon of a process and its descendants."""
    total = 0
    for member in harness.family(pid, harness.processes()):
        status = pathlib.Path("/proc", str(member), "status").read_text()
        total += int(re.search(r"^RssAnon:\s+(\d+) kB", status, re.M)[1]) * 1024
    return total


def still_open(stream):
    """Whether nothing has ended the connection; eats a byte of TLS, which nobody sends."""
    stream.setblocking(False)
    try:
        if isinstance(stream, ssl.SSLSocket):
            return stream.recv(1) != b""
        return stream.recv(1, socket.MSG_PEEK) != b""
    except (BlockingIOError, ssl.SSLWantReadError):
        return True
    except OSError:
        return False


def close(streams):
    for stream in streams:
        stream.close()
