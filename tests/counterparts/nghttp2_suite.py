"""nghttp and h2load of nghttp2: frames as they come, loads of which no request may fail."""

import re
import subprocess
import tempfile

from suite import PLACE, base, case, check, equal, pattern, run

WAYS = {"h2c": "http", "h2 TLS": "https"}
ORIGINS = ["http1", "h2c", "tls2"]
REQUESTS = 2000


def nghttp(way, path, *options):
    command = ["nghttp", "-y", "-t", "10", *options, base(WAYS[way]) + path]
    done = subprocess.run(command, capture_output=True, timeout=20)
    equal(done.returncode, 0, f"nghttp's exit code ({done.stderr[-300:]})")
    return done.stdout


def h2load(way, path, *options, requests=REQUESTS, clients=8):
    """A load; all its requests succeed with 2xx."""
    scheme = WAYS.get(way, "https" if "TLS" in way else "http")
    version = [] if way in WAYS else ["-p" if scheme == "http" else "--npn-list", "http/1.1"]
    command = ["h2load", "-n", str(requests), "-c", str(clients), "-t", "1", *version, *options]
    done = subprocess.run([*command, base(scheme) + path], capture_output=True, text=True, timeout=25)
    line = re.search(r"requests: (\d+) total, .*?(\d+) succeeded, (\d+) failed, (\d+) errored", done.stdout)
    check(line, f"no report: {done.stdout[-300:]}{done.stderr[-300:]}")
    equal(line.groups(), (str(requests), str(requests), "0", "0"), "total, good, failed, errored")
    statuses = re.search(r"status codes: (\d+) 2xx", done.stdout).group(1)
    equal(statuses, str(requests), "2xx")


def page(way):
    told = nghttp(way, "/http1/hello", "-nv").decode()
    check(":status: 200" in told, told[-500:])
    check(re.search(r"recv SETTINGS frame .*stream_id=0", told), "no SETTINGS")
    check("recv GOAWAY" not in told and "RST_STREAM" not in told, "an error in a plain exchange")
    equal(nghttp(way, "/http1/hello"), b"hello\n", "the body")


def bodies(way):
    with tempfile.NamedTemporaryFile(dir=PLACE) as file:
        file.write(pattern(300000))
        file.flush()
        answer = nghttp(way, "/http1/echo", "-d", file.name)
        check(answer == pattern(300000), "the echo differs")
        told = nghttp(
            way, "/http1/count", "-d", file.name, "--no-content-length", "--trailer", "x-sum: 7"
        ).decode()
    check('"bytes": 300000' in told, told)
    check(re.search(r'\[\["x-sum", "7"\]\]', told, re.IGNORECASE), f"no trailer at the origin: {told}")


def trailers(way):
    for prefix in ("nghttpd", "nghttpds"):
        told = nghttp(way, f"/{prefix}/page.txt", "-nv", "-H", "te: trailers").decode()
        check(re.search(r"recv \(stream_id=\d+\) x-after: yes", told), f"{prefix}: no trailer")
    told = nghttp(way, "/http1/trailers", "-nv", "-H", "te: trailers").decode()
    check("x-checksum: 230d8358" in told, "http1: no trailer")


def small_windows(way):
    answer = nghttp(way, "/http1/bytes/300000", "-w", "10", "-W", "11", "--no-dep")
    check(answer == pattern(300000), "the body differs")


def padded(way):
    equal(nghttp(way, "/http1/hello", "-b", "200"), b"hello\n", "the body")
    told = nghttp(way, "/http1/hello", "-nv", "--max-concurrent-streams", "3", "-m", "20").decode()
    equal(told.count(":status: 200"), 20, "answers to twenty on a connection")


for _way in WAYS:
    case(f"nghttp, {_way}: a page, frame by frame", _way)(page)
    case(f"nghttp, {_way}: uploads, trailers of the request", _way)(bodies)
    case(f"nghttp, {_way}: trailers of answers", _way)(trailers)
    case(f"nghttp, {_way}: windows of 1 and 2 KiB", _way)(small_windows)
    case(f"nghttp, {_way}: padding, twenty streams", _way)(padded)
    for _origin in ORIGINS:
        case(f"h2load, {_way} to {_origin}: 8 connections of 16 streams", _way, f"/{_origin}/hello",
             "-m", "16")(h2load)  # fmt: skip
    case(f"h2load, {_way}: one stream a connection", _way, "/http1/hello", "-m", "1")(h2load)

    @case(f"h2load, {_way}: 100 streams, bodies of 20 KB", _way)
    def bodies_down(way):
        h2load(way, "/http1/bytes/20000", "-m", "100", requests=1000, clients=2)

    @case(f"h2load, {_way}: uploads of 20 KB", _way)
    def bodies_up(way):
        with tempfile.NamedTemporaryFile(dir=PLACE) as file:
            file.write(pattern(20000))
            file.flush()
            h2load(way, "/http1/count", "-m", "10", "-d", file.name, requests=500, clients=4)


# nginx says goodbye after a hundred requests, with others under way: those are sent anew.
case("h2load, h2c to an origin that says GOAWAY", "h2c", "/goaway/hello", "-m", "16",
     not_by=["envoy"])(h2load)  # fmt: skip
case("h2load, HTTP/1.1", "h1", "/http1/hello")(h2load)
case("h2load, HTTP/1.1 over TLS", "h1 TLS", "/http1/hello")(h2load)
case("h2load, HTTP/1.1 to an origin of HTTP/2", "h1", "/tls2/hello")(h2load)


run()
