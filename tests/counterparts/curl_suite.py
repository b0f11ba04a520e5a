"""curl: every way in against every kind of origin, uploads, Expect, interim answers, errors."""

import hashlib
import json
import re
import subprocess
import tempfile

from suite import CA, PLACE, WORLD, base, case, certificate, check, equal, pattern, run

WAYS = {
    "h1": (["--http1.1"], "http", "1.1"),
    "h2c": (["--http2-prior-knowledge"], "http", "2"),
    "h1 TLS": (["--http1.1"], "https", "1.1"),
    "h2 TLS": (["--http2"], "https", "2"),
}
# The prefix of an upstream, and the protocol that nginx has to see there.
ORIGINS = {
    "http1": None, "tls1": "HTTP/1.1", "h2c": "HTTP/2.0", "tls2": "HTTP/2.0",
    "auto": "HTTP/2.0", "auto1": "HTTP/1.1",
}  # fmt: skip
MIB = 1024 * 1024
CUT = {18, 56, 92}  # A partial file, a failed receive, a failed stream.
RESET = {52, 55, 56, 92}
UNREACHABLE = {502, 503}


class Answer:
    """What a curl says: the final head, the trailers, the body, and about the connection."""

    def __init__(self, code, heads, body, facts):
        blocks = [block.splitlines() for block in re.split(r"\r\n\r\n", heads) if block.strip()]
        answers = [at for at, block in enumerate(blocks) if block[0].startswith("HTTP/")]
        self.code, self.body = code, body
        self.statuses = [int(blocks[at][0].split()[1]) for at in answers]
        self.fields = fields(blocks[answers[-1]][1:]) if answers else {}
        after = blocks[answers[-1] + 1 :] if answers else []
        self.trailers = fields([line for block in after for line in block])
        self.facts = facts
        self.status = self.statuses[-1] if self.statuses else None

    def json(self):
        return json.loads(self.body)


def fields(lines):
    pairs = (line.partition(":") for line in lines)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def curl(way, path, *options, listener=None, stdin=b"", ok=True):
    """One transfer."""
    version, scheme, number = WAYS[way]
    facts = "%{stderr}%{json}"
    with tempfile.NamedTemporaryFile(dir=PLACE) as heads:
        command = ["curl", "-sq", "--max-time", "20", "--cacert", CA, "-D", heads.name, "-w", facts]
        url = base(scheme, listener) + path
        done = subprocess.run([*command, *version, *options, url], input=stdin, capture_output=True)
        head = heads.read().decode("latin-1")
    told = json.loads(done.stderr.decode().splitlines()[-1])
    answer = Answer(done.returncode, head, done.stdout, told)
    if ok:
        equal(answer.code, 0, f"curl's exit code ({told.get('errormsg')})")
        equal(told["http_version"], number, "the version")
    return answer


def sha256(body):
    return hashlib.sha256(body).hexdigest()


def get(way, origin, protocol):
    answer = curl(way, f"/{origin}/hello?x=1")
    equal((answer.status, answer.body), (200, b"hello\n"), "the answer")
    equal(answer.fields["x-origin"], "by hand", "the field")
    if protocol:
        equal(answer.fields.get("x-origin-protocol"), protocol, "the origin's protocol")
    if protocol and origin != "h2c":
        equal(answer.fields["x-origin-tls"], "TLSv1.3", "the origin's TLS")
        equal(answer.fields["x-origin-sni"], "origin.test", "the origin's SNI")


def download(way, origin):
    answer = curl(way, f"/{origin}/bytes/{MIB}")
    equal(sha256(answer.body), sha256(pattern(MIB)), "the body's digest")
    equal(answer.fields["content-length"], str(MIB), "Content-Length")
    answer = curl(way, f"/{origin}/chunks/300000")
    equal(sha256(answer.body), sha256(pattern(300000)), "the digest without a length")


def upload(way, origin):
    body = pattern(MIB)
    told = curl(way, f"/{origin}/count", "-T", "-", "-H", "Content-Type:", stdin=body).json()
    equal((told["method"], told["bytes"], told["sha256"]), ("PUT", MIB, sha256(body)), "unframed")
    told = curl(way, f"/{origin}/count", "--data-binary", "@-", "-H", "Expect:", stdin=body).json()
    equal((told["method"], told["bytes"], told["sha256"]), ("POST", MIB, sha256(body)), "framed")
    equal(told["framing"], "length", "framing towards the origin of a body with a length")
    answer = curl(way, f"/{origin}/echo", "-T", "-", stdin=body[:300000])
    equal(sha256(answer.body), sha256(body[:300000]), "the echo's digest")


def without_body(way, origin):
    answer = curl(way, f"/{origin}/hello", "-I")
    equal((answer.status, answer.fields["content-length"]), (200, "6"), "HEAD")
    for status in (204, 304):
        answer = curl(way, f"/{origin}/status/{status}")
        equal((answer.status, answer.body), (status, b""), "the answer")
    told = curl(way, f"/{origin}/count", "-X", "DELETE").json()
    equal((told["method"], told["bytes"]), ("DELETE", 0), "DELETE")
    told = curl(way, f"/{origin}/count", "-X", "POST", "-d", "").json()
    equal((told["method"], told["bytes"], told["framing"]), ("POST", 0, "length"), "empty POST")


for _way in WAYS:
    for _origin, _protocol in ORIGINS.items():
        case(f"{_way} to {_origin}: GET", _way, _origin, _protocol)(get)
        case(f"{_way} to {_origin}: downloads", _way, _origin)(download)
        case(f"{_way} to {_origin}: uploads", _way, _origin)(upload)
        case(f"{_way} to {_origin}: no body", _way, _origin)(without_body)


def expect(way):
    body = pattern(200000)
    answer = curl(way, "/http1/count", "--data-binary", "@-", "-H", "Expect: 100-continue",
                  "--expect100-timeout", "10", stdin=body)  # fmt: skip
    equal(answer.json()["sha256"], sha256(body), "the digest")
    equal(answer.statuses, [100, 200], "the statuses")
    check(answer.facts["time_total"] < 5, "the 100 came late")


def refused(way):
    for options in (["-H", "Expect: 100-continue", "--expect100-timeout", "10"], ["-H", "Expect:"]):
        answer = curl(way, "/http1/refuse", "--data-binary", "@-", *options,
                      stdin=pattern(4 * MIB), ok=False)  # fmt: skip
        # curl 7.88 drops an answer that comes with RST_STREAM(NO_ERROR); the suite of Node is strict.
        excused = way.startswith("h2") and answer.code in RESET
        check(excused or answer.statuses == [413], f"{answer.statuses}, exit {answer.code}")


def hints(way):
    answer = curl(way, "/http1/hints")
    equal(answer.statuses, [103, 200], "the statuses")
    equal(answer.body, b"after the hint\n", "the body")


def trailers(way):
    answer = curl(way, "/http1/trailers", "-H", "TE: trailers")
    equal(answer.body, b"body\n", "the body")
    equal(answer.trailers.get("x-checksum"), "230d8358", "the trailer")


def cut(way):
    """A broken answer is never shown as a whole one."""
    for kind in ("length", "chunked"):
        answer = curl(way, f"/http1/cut/{kind}", ok=False)
        check(answer.code in CUT, f"exit {answer.code} of a cut {kind} answer")
        equal(answer.body, b"first\n", "what came before the cut")


def errors(way):
    equal(curl(way, "/nothing-here").status, 404, "the status of no route")
    for upstream in ("down", "stranger", "misnamed"):
        status = curl(way, f"/{upstream}/hello").status
        check(status in UNREACHABLE, f"{upstream}: {status}")
    equal(curl(way, "/http1/hello").status, 200, "the status afterwards")


def many_fields(way):
    answer = curl(way, "/http1/fields/80/100")
    equal(len([name for name in answer.fields if re.fullmatch(r"x-\d+", name)]), 80, "fields that came")
    sent = [part for n in range(60) for part in ("-H", f"X-{n}: {'v' * 100}")]
    told = dict(curl(way, "/http1/head", *sent).json()["fields"])
    names = {name.lower() for name in told}
    check({f"x-{n}" for n in range(60)} <= names, "fields are missing at the origin")


def told_to_the_origin(way):
    told = curl(way, "/http1/head?a=b%20c", "-b", "k=v; l=w", "-A", "counterparts").json()
    _, scheme, _ = WAYS[way]
    sent = {name.lower(): value for name, value in told["fields"]}
    equal((told["method"], told["target"]), ("GET", "/head?a=b%20c"), "the request line")
    equal(told["version"], "HTTP/1.1", "the origin's version")
    check(sent["host"].startswith("localhost:"), f"Host is {sent['host']}")
    equal(sent["cookie"], "k=v; l=w", "the cookie")
    equal(sent["user-agent"], "counterparts", "User-Agent")
    equal(sent["x-forwarded-proto"], scheme, "X-Forwarded-Proto")
    forwarded_for(sent)
    check(not any(name.startswith(":") for name in sent), "pseudo-fields at the origin")


def forwarded_for(sent):
    # Envoy names another address of the host in the place of a loopback one.
    wanted = "127.0.0.1" if WORLD["proxy"] == "ringway" else sent["x-forwarded-for"]
    equal(sent["x-forwarded-for"], wanted, "X-Forwarded-For")


def kept_alive(way):
    url = base(WAYS[way][1]) + "/http1/hello"
    told = subprocess.run(
        ["curl", "-sq", "--cacert", CA, *WAYS[way][0], "-w", "%{num_connects} %{http_code}\n",
         *[part for _ in range(10) for part in ("-o", "/dev/null", url)]],
        capture_output=True, text=True, check=True,
    ).stdout.split("\n")  # fmt: skip
    equal(told[:10], ["1 200"] + ["0 200"] * 9, "connections and statuses")


def parallel(way):
    url = base(WAYS[way][1]) + "/http1/bytes/[50000-50039]"
    done = subprocess.run(
        ["curl", "-sq", "-Z", "--parallel-max", "40", "--cacert", CA, *WAYS[way][0], "-o",
         "/dev/null", "-w", "%{http_code} %{size_download}\n", url], capture_output=True, text=True,
    )  # fmt: skip
    equal(done.returncode, 0, "curl's exit code")
    wanted = [f"200 {size}" for size in range(50000, 50040)]
    equal(sorted(done.stdout.split("\n")[:-1]), wanted, "what came")


def events(way):
    equal(curl(way, "/http1/events", "-N").body, b"data: 0\n\ndata: 1\n\ndata: 2\n\n", "events")


for _way in WAYS:
    case(f"{_way}: Expect: 100-continue", _way)(expect)
    case(f"{_way}: an answer before the body has been sent", _way)(refused)
    case(f"{_way}: 103 before the answer", _way)(hints)
    case(f"{_way}: trailers of the answer", _way)(trailers)
    case(f"{_way}: answers that are cut", _way)(cut)
    case(f"{_way}: no route, no origin, wrong certificates", _way)(errors)
    case(f"{_way}: many fields", _way)(many_fields)
    case(f"{_way}: what the origin is told", _way)(told_to_the_origin)
    if _way != "h2c":
        # curl 7.88 fails on its own second stream after prior knowledge.
        case(f"{_way}: ten requests on a connection", _way)(kept_alive)
        case(f"{_way}: forty at a time", _way)(parallel)
    case(f"{_way}: server-sent events", _way)(events)


@case("Upgrade: h2c is not taken: HTTP/1.1 answers")
def upgrade():
    done = curl("h1", "/http1/hello", "--http2")
    equal((done.status, done.body, done.facts["http_version"]), (200, b"hello\n", "1.1"), "the answer")


@case("no ALPN and ALPN without h2 end in HTTP/1.1")
def alpn():
    answer = curl("h1 TLS", "/http1/hello", "--no-alpn")
    equal((answer.status, answer.facts["http_version"]), (200, "1.1"), "without ALPN")
    answer = curl("h1 TLS", "/http1/hello", "--http2", listener="http1only")
    equal((answer.status, answer.facts["http_version"]), (200, "1.1"), "a listener without h2")


@case("a client certificate is told to the origin, as its absence is")
def identity():
    pair = ["--cert", certificate("alice.pem"), "--key", certificate("alice.key")]
    for way in ("h1 TLS", "h2 TLS"):
        for listener in ("required", "optional"):
            told = curl(way, "/http1/head", *pair, listener=listener).json()
            check("alice" in json.dumps(told["fields"]), f"{listener}: no alice: {told['fields']}")
        told = curl(way, "/http1/head", listener="optional").json()
        check("alice" not in json.dumps(told["fields"]), "alice without a certificate")
        refused = curl(way, "/http1/head", listener="required", ok=False)
        check(refused.code != 0 and refused.status is None, "served without a certificate")


@case("the proxy's own certificate reaches an origin that demands one")
def mutual():
    answer = curl("h1", "/mutual/hello")
    equal((answer.status, answer.body), (200, b"hello\n"), "the answer")
    check("CN=proxy" in answer.fields["x-origin-client"], answer.fields["x-origin-client"])
    # nginx answers 400 itself; TLS 1.3 lets it do so after the handshake.
    equal(curl("h1", "/nameless/hello").status, 400, "the status without one")


@case("PROXY protocol, version 1")
def announced():
    told = curl("h1", "/http1/head", "--haproxy-protocol", listener="announced").json()
    sent = {name.lower(): value for name, value in told["fields"]}
    forwarded_for(sent)
    check(curl("h1", "/http1/head", listener="announced", ok=False).status is None, "without it")


@case("nghttpd behind the proxy: a page, an echoed upload")
def nghttpd():
    for prefix in ("nghttpd", "nghttpds"):
        answer = curl("h1", f"/{prefix}/page.txt")
        equal(answer.body, b"a page of nghttpd\n", "the page")
        body = pattern(300000)
        answer = curl("h2 TLS", f"/{prefix}/echo", "--data-binary", "@-", stdin=body)
        equal(sha256(answer.body), sha256(body), "the echo's digest")
        equal(curl("h1", f"/{prefix}/missing").status, 404, "the status of a missing page")


run()
