"""openssl s_client and ClientHellos by hand: versions, suites, ALPN, SNI, resumption, clients."""

import re
import socket
import subprocess
import tempfile

import hello
from suite import CA, PLACE, PORTS, WORLD, case, certificate, check, equal, run

GET = b"GET /http1/hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
TLS13 = ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"]
TLS12 = {
    "ECDSA": ["ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384",
              "ECDHE-ECDSA-CHACHA20-POLY1305"],
    "RSA": ["ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-GCM-SHA384",
            "ECDHE-RSA-CHACHA20-POLY1305"],
}  # fmt: skip
# The numbers of suites by what is wrong with them (IANA's registry).
WEAK = {
    "no encryption": [0x0001, 0x0002, 0x003B, 0xC006, 0xC010],
    "export": [0x0003, 0x0006, 0x0008, 0x0011, 0x0014, 0x0017],
    "anonymous": [0x0018, 0x001B, 0x0034, 0x003A, 0x006C, 0x00A6, 0xC015, 0xC018],
    "RC4": [0x0004, 0x0005, 0xC007, 0xC011],
    "DES and 3DES": [0x0009, 0x000A, 0x0013, 0x0016, 0xC008, 0xC012],
    "RSA key exchange": [0x002F, 0x0035, 0x003C, 0x003D, 0x009C, 0x009D],
    "CBC": [0xC009, 0xC00A, 0xC013, 0xC014, 0xC023, 0xC024, 0xC027, 0xC028],
    "finite-field DHE": [0x0033, 0x0039, 0x0067, 0x006B, 0x009E, 0x009F],
    "RC2, IDEA, SEED, Camellia": [0x0007, 0x0096, 0x0099, 0x0041, 0x0084, 0x00BA, 0x00C0],
}
GOOD = [0xC02B, 0xC02C, 0xC02F, 0xC030, 0xCCA8, 0xCCA9]
OLD = {"SSL 3.0": 0x0300, "TLS 1.0": 0x0301, "TLS 1.1": 0x0302}


class Session:
    """One s_client: what it said, and whether the request was answered."""

    def __init__(self, *options, listener="tls", stdin=GET, name="localhost"):
        named = ["-noservername"] if name is None else ["-servername", name]
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{PORTS[listener]}", "-CAfile", CA]
        command += [*named, *(["-ign_eof"] if stdin else []), *options]
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=15)
        self.code = done.returncode
        self.told = (done.stdout + done.stderr).decode("latin-1")
        self.served = "HTTP/1.1 200" in self.told and "hello\n" in self.told

    def has(self, expression, what):
        check(re.search(expression, self.told), f"{what}: {self.told[-300:]!r}")

    def lacks(self, expression, what):
        check(not re.search(expression, self.told), f"{what}: {self.told[-300:]!r}")

    def well(self):
        check(self.served and self.code == 0, f"not served, exit {self.code}: {self.told[-300:]!r}")
        self.has(r"Verify return code: 0 \(ok\)", "the certificate is not verified")
        self.lacks("unexpected eof", "no close_notify")
        return self

    def refused(self, alert):
        check(not self.served, "served")
        self.has(alert, "not refused as it should be")

    def subject(self):
        return re.search(r"subject=.*CN = (\S+)", self.told).group(1)


@case("TLS 1.3 and 1.2, every good suite, verified, closed with close_notify")
def good():
    for suite in TLS13:
        session = Session("-tls1_3", "-ciphersuites", suite).well()
        session.has(f"New, TLSv1.3, Cipher is {suite}", suite)
    for suites in TLS12.values():
        for suite in suites:
            session = Session("-tls1_2", "-cipher", suite).well()
            session.has(f"New, TLSv1.2, Cipher is {suite}", suite)
    for group in ("X25519", "P-256", *(["P-384"] if WORLD["proxy"] == "ringway" else [])):
        Session("-tls1_3", "-groups", group).well()


@case("both kinds of certificates, by what the client can verify")
def key_types():
    for version in ("-tls1_3", "-tls1_2"):
        equal(Session(version).well().subject(), "server", "the certificate by default")
    rsa = Session("-tls1_3", "-sigalgs", "rsa_pss_rsae_sha256").well()
    equal(rsa.subject(), "server-rsa", "the certificate of a client that knows RSA only")
    equal(Session("-tls1_2", "-cipher", "aRSA").well().subject(), "server-rsa", "over TLS 1.2")


@case("SSL 3.0, TLS 1.0 and TLS 1.1 are refused")
def old():
    for name, version in OLD.items():
        found = hello.answer(PORTS["tls"], hello.client_hello(version, GOOD + WEAK["CBC"]))
        check(found[0] in ("alert", "closed"), f"{name}: {found}")
    for option in ("-tls1", "-tls1_1"):
        # rustls misses signature_algorithms, which these versions lack, before it sees the version.
        refusal = "alert (protocol version|handshake failure)"
        Session(option, "-cipher", "ALL:@SECLEVEL=0").refused(refusal)


@case("weak suites are refused")
def weak():
    for name, suites in WEAK.items():
        if WORLD["proxy"] == "envoy" and name in ("CBC", "RSA key exchange"):
            continue
        found = hello.answer(PORTS["tls"], hello.client_hello(hello.TLS12, suites))
        check(found == ("alert", 40) or found == ("alert", 71), f"{name}: {found}")
    found = hello.answer(PORTS["tls"], hello.client_hello(hello.TLS12, [*WEAK["CBC"], *GOOD]))
    check(found[0] == "hello" and found[2] in GOOD, f"good ones after weak ones: {found}")


@case("no compression")
def compression():
    record = hello.client_hello(hello.TLS12, GOOD, compressions=b"\x01\x00")
    found = hello.answer(PORTS["tls"], record)
    equal((found[0], found[-1]), ("hello", 0), "the answer to a client that offers DEFLATE")
    Session("-tls1_2").well().has("Compression: NONE", "compression")


@case("no renegotiation, but the extension that protects it")
def renegotiation():
    session = Session("-tls1_2", "-legacy_renegotiation", stdin=b"R\n" + GET)
    session.has("Secure Renegotiation IS supported", "renegotiation_info")
    # -ign_eof switches commands off: this one goes without it.
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{PORTS['tls']}", "-tls1_2"]
    done = subprocess.run(command, input=b"R\n" + GET, capture_output=True, timeout=15)
    told = (done.stdout + done.stderr).decode("latin-1")
    check("RENEGOTIATING" in told and "hello\n" not in told, f"renegotiated: {told[-300:]!r}")


@case("ALPN")
def alpn():
    for offer, wanted in (("h2,http/1.1", "h2"), ("http/1.1,h2", "h2"), ("http/1.1", "http/1.1"),
                          ("foo,http/1.1", "http/1.1"), ("h2", "h2")):  # fmt: skip
        for version in ("-tls1_3", "-tls1_2"):
            Session(version, "-alpn", offer, stdin=b"").has(f"ALPN protocol: {wanted}", offer)
    Session(stdin=GET).well().has("No ALPN negotiated", "without ALPN")
    if WORLD["proxy"] != "envoy":
        # RFC 7301, 3.2
        Session("-alpn", "foo", stdin=b"").refused("alert no application protocol")
    only = Session("-alpn", "h2,http/1.1", listener="http1only", stdin=b"")
    only.has("ALPN protocol: http/1.1", "a listener without h2")


@case("SNI: exact, wildcard, default")
def names():
    for name, wanted in (("api.test", "server"), ("a.wild.test", "wild"), ("A.WILD.TEST", "wild"),
                         ("other.test", "server"), (None, "server")):  # fmt: skip
        equal(Session(name=name).well().subject(), wanted, f"the certificate for {name}")
    if WORLD["proxy"] != "envoy":
        for name in ("a.b.wild.test", "wild.test"):
            equal(Session(name=name).well().subject(), "server", f"the certificate for {name}")


@case("a listener of TLS 1.3 only")
def minimum():
    Session("-tls1_3", listener="tls13").well()
    Session("-tls1_2", listener="tls13").refused("alert protocol version")


@case("sessions are resumed, whichever worker is met")
def resumed():
    for version in ("-tls1_3", "-tls1_2"):
        with tempfile.NamedTemporaryFile(dir=PLACE) as ticket:
            Session(version, "-sess_out", ticket.name).well().has("New, TLS", "a new session")
            for _ in range(8):
                Session(version, "-sess_in", ticket.name).well().has("Reused, TLS", version)


@case("a ticket without a certificate opens nothing that demands one")
def ticket_of_another_listener():
    with tempfile.NamedTemporaryFile(dir=PLACE) as ticket:
        Session("-tls1_3", "-sess_out", ticket.name).well()
        Session("-tls1_3", "-sess_in", ticket.name, listener="required").refused(
            "alert certificate required"
        )


@case("client certificates: required and optional; unknown issuers")
def clients():
    def pair(name):
        return ["-cert", certificate(f"{name}.pem"), "-key", certificate(f"{name}.key")]

    for version in ("-tls1_3", "-tls1_2"):
        for listener in ("required", "optional"):
            Session(version, *pair("alice"), listener=listener).well()
            session = Session(version, *pair("mallory"), listener=listener)
            session.refused("alert (unknown ca|bad certificate|decrypt error|certificate unknown)")
        Session(version, listener="optional").well()
    Session("-tls1_3", listener="required").refused("alert certificate required")
    Session("-tls1_2", listener="required").refused("alert (handshake failure|certificate required)")
    asked = Session(*pair("alice"), listener="required")
    asked.has("Acceptable client certificate CA names", "the names of authorities")


@case("small records, both ways")
def records():
    Session("-tls1_2", "-split_send_frag", "512", "-max_send_frag", "512").well()
    Session("-tls1_3", "-max_send_frag", "512").well()


@case("a key update that demands another")
def key_update():
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{PORTS['tls']}", "-tls1_3", "-CAfile", CA]
    lines = [b"k\n", b"K\n", GET.replace(b"\r\n", b"\n")]
    process = subprocess.Popen([*command, "-crlf"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT)  # fmt: skip
    for line in lines:
        process.stdin.write(line)
        process.stdin.flush()
        try:
            process.wait(0.4)
        except subprocess.TimeoutExpired:
            continue
    told = process.communicate(timeout=10)[0].decode("latin-1")
    check("KEYUPDATE" in told and "HTTP/1.1 200" in told, told[-300:])


@case("no early data")
def early_data():
    with tempfile.NamedTemporaryFile(dir=PLACE) as ticket, tempfile.NamedTemporaryFile(dir=PLACE) as data:
        data.write(GET)
        data.flush()
        Session("-tls1_3", "-sess_out", ticket.name).well()
        session = Session("-tls1_3", "-sess_in", ticket.name, "-early_data", data.name)
        session.lacks("Early data was accepted", "early data")


@case("clear text on a TLS port is refused at once")
def clear_text():
    with socket.create_connection(("127.0.0.1", PORTS["tls"]), timeout=5) as stream:
        stream.sendall(GET)
        answer = b""
        try:
            while piece := stream.recv(4096):
                answer += piece
        except ConnectionResetError:
            pass
    check(b"hello" not in answer, f"answered {answer[:100]}")


run()
