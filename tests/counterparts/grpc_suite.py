"""grpcio: all kinds of calls, metadata, deadlines, cancelling, errors; clear, TLS, TLS origins."""

import json
import time

import grpc
import httpx
from grpc_health.v1 import health_pb2, health_pb2_grpc
from suite import CA, PORTS, base, case, check, equal, pattern, run

MIB = 1024 * 1024
TIMEOUT_S = 10
OPTIONS = [("grpc.max_receive_message_length", 8 * MIB), ("grpc.max_send_message_length", 8 * MIB),
           ("grpc.enable_http_proxy", 0)]  # fmt: skip
CODE = grpc.StatusCode


def channel(kind, **more):
    if kind == "clear":
        return grpc.insecure_channel(f"localhost:{PORTS['clear']}", OPTIONS, **more)
    with open(CA, "rb") as roots:
        credentials = grpc.ssl_channel_credentials(roots.read())
    return grpc.secure_channel(f"localhost:{PORTS['tls']}", credentials, OPTIONS, **more)


class Client:
    """The methods of a service, taking and giving bytes."""

    def __init__(self, kind, service="counterparts.Echo", **more):
        self.channel, self.service = channel(kind, **more), service

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()

    def unary(self, method):
        return self.channel.unary_unary(f"/{self.service}/{method}")

    def up(self, method):
        return self.channel.stream_unary(f"/{self.service}/{method}")

    def down(self, method):
        return self.channel.unary_stream(f"/{self.service}/{method}")

    def both(self, method):
        return self.channel.stream_stream(f"/{self.service}/{method}")

    def state(self):
        return json.loads(self.unary("State")(b"", timeout=TIMEOUT_S))


def failure(call):
    """How a call fails."""
    try:
        call()
    except grpc.RpcError as error:
        return error
    return check(False, "no error")


def unary(kind, service):
    with Client(kind, service) as client:
        sent = [("x-echo", "one, two"), ("x-echo-bin", bytes(range(256)))]
        answer, call = client.unary("Unary").with_call(b"hello", metadata=sent, timeout=TIMEOUT_S)
        equal(answer, b"hello", "the answer")
        initial = dict(call.initial_metadata())
        equal(initial["x-initial"], "yes", "initial metadata")
        equal((initial["x-echo"], initial["x-echo-bin"]), ("one, two", bytes(range(256))), "echoed")
        trailing = dict(call.trailing_metadata())
        equal((trailing["x-trailing"], trailing["x-trailing-bin"]), ("yes", b"\0\xff\1"), "trailing")
        equal(client.unary("Unary")(b"", timeout=TIMEOUT_S), b"", "an empty answer")


def streaming(kind, service):
    with Client(kind, service) as client:
        total = client.up("Total")((b"x" * n for n in range(200)), timeout=TIMEOUT_S)
        equal(total, b"200 19900", "client streaming")
        equal(client.up("Total")(iter(()), timeout=TIMEOUT_S), b"0 0", "an empty client stream")
        call = client.down("Count")(b"500 1000", timeout=TIMEOUT_S)
        sizes = [len(message) for message in call]
        equal(sizes, [1000] * 500, "server streaming")
        equal(dict(call.trailing_metadata())["x-trailing"], "500", "trailing metadata")
        equal(list(client.down("Count")(b"0 0", timeout=TIMEOUT_S)), [], "an empty server stream")


def dialogue(kind, service):
    """Each message waits for the echo of the last: nothing may be held back."""
    with Client(kind, service) as client:
        heard = []

        def say():
            for number in range(50):
                while len(heard) < number:
                    time.sleep(0.001)
                yield b"%d" % number

        for message in client.both("Chat")(say(), timeout=TIMEOUT_S):
            heard.append(message)
        equal(heard, [b"%d" % number for number in range(50)], "the dialogue")


def large(kind, service):
    with Client(kind, service) as client:
        body = pattern(4 * MIB)
        check(client.unary("Unary")(body, timeout=TIMEOUT_S) == body, "4 MiB differ")
        total = client.up("Total")(iter([body] * 3), timeout=TIMEOUT_S)
        equal(total, b"3 %d" % (12 * MIB), "three of 4 MiB upwards")
        sizes = [len(m) for m in client.down("Count")(b"3 %d" % (4 * MIB), timeout=TIMEOUT_S)]
        equal(sizes, [4 * MIB] * 3, "three of 4 MiB downwards")


def at_once(kind, service):
    with Client(kind, service) as client:
        calls = [client.unary("Unary").future(b"%d" % n, timeout=TIMEOUT_S) for n in range(100)]
        equal([call.result() for call in calls], [b"%d" % n for n in range(100)], "the answers")


def errors(kind, service):
    with Client(kind, service) as client:
        for number, code in enumerate(CODE):
            if code is CODE.OK:
                continue
            text = f"{number} wrong: 100 % größer"
            error = failure(lambda: client.unary("Fail")(text.encode(), timeout=TIMEOUT_S))
            equal((error.code(), error.details()), (code, "wrong: 100 % größer"), "the error")
            equal(dict(error.trailing_metadata())["x-why-bin"], b"\0\1\2", "trailing metadata")
        error = failure(lambda: client.unary("Missing")(b"", timeout=TIMEOUT_S))
        equal(error.code(), CODE.UNIMPLEMENTED, "the code of an unknown method")
        heard = []
        error = failure(lambda: heard.extend(client.down("FailLate")(b"", timeout=TIMEOUT_S)))
        equal((error.code(), error.details()), (CODE.DATA_LOSS, "after two"), "the late error")
        error = failure(lambda: client.up("Early")(endless_messages(), timeout=TIMEOUT_S))
        equal((error.code(), error.details()), (CODE.FAILED_PRECONDITION, "enough"), "early end")


def endless_messages():
    end = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end:
        yield b"more"
        time.sleep(0.005)


def deadlines(kind, service):
    with Client(kind, service) as client:
        before = client.state()["cancelled"]["Slow"]
        began = time.monotonic()
        error = failure(lambda: client.unary("Slow")(b"8", timeout=0.5))
        equal(error.code(), CODE.DEADLINE_EXCEEDED, "the code")
        check(0.4 < time.monotonic() - began < 2, f"after {time.monotonic() - began} s")
        until(lambda: client.state()["cancelled"]["Slow"] > before, "the origin goes on")
        check(0 < client.state()["remaining_s"] < 0.6, f"left: {client.state()['remaining_s']}")
        equal(client.unary("Slow")(b"0.2", timeout=5), b"late", "an answer in time")


def cancelling(kind, service):
    with Client(kind, service) as client:
        before = client.state()["cancelled"]
        call = client.down("Endless")(b"", timeout=TIMEOUT_S)
        for _ in range(3):
            equal(next(call), b"again", "a message")
        call.cancel()
        until(lambda: client.state()["cancelled"]["Endless"] > before["Endless"], "Endless goes on")
        call = client.up("Upload").future(endless_messages(), timeout=TIMEOUT_S)
        time.sleep(0.2)
        call.cancel()
        until(lambda: client.state()["cancelled"]["Upload"] > before["Upload"], "Upload goes on")
        equal(client.unary("Unary")(b"still", timeout=TIMEOUT_S), b"still", "the connection after")


def until(holds, finding, seconds=3):
    end = time.monotonic() + seconds
    while not holds():
        check(time.monotonic() < end, finding)
        time.sleep(0.05)


def compressed(kind, service):
    with Client(kind, service, compression=grpc.Compression.Gzip) as client:
        body = b"again and again " * 10000
        check(client.unary("Unary")(body, timeout=TIMEOUT_S) == body, "compressed messages differ")


for _kind in ("clear", "TLS"):
    for _service in ("counterparts.Echo", "counterparts.Secure"):
        _at = f"{_kind} to {'TLS' if _service.endswith('Secure') else 'clear'}"
        case(f"{_at}: unary, metadata both ways", _kind, _service)(unary)
        case(f"{_at}: streams of clients and servers", _kind, _service)(streaming)
        case(f"{_at}: a dialogue", _kind, _service)(dialogue)
        case(f"{_at}: messages of 4 MiB", _kind, _service)(large)
        case(f"{_at}: a hundred at once", _kind, _service)(at_once)
        case(f"{_at}: errors of the origin", _kind, _service)(errors)
        case(f"{_at}: deadlines", _kind, _service)(deadlines)
        case(f"{_at}: cancelled calls", _kind, _service)(cancelling)
        case(f"{_at}: compressed messages", _kind, _service)(compressed)


@case("the health service")
def health():
    for kind in ("clear", "TLS"):
        with channel(kind) as opened:
            stub = health_pb2_grpc.HealthStub(opened)
            request = health_pb2.HealthCheckRequest(service="counterparts.Echo")
            equal(stub.Check(request, timeout=TIMEOUT_S).status, 1, "the status")
            request = health_pb2.HealthCheckRequest(service="counterparts.Tired")
            equal(stub.Check(request, timeout=TIMEOUT_S).status, 2, "the status of a tired one")
            request = health_pb2.HealthCheckRequest(service="counterparts.Gone")
            error = failure(lambda: stub.Check(request, timeout=TIMEOUT_S))
            equal(error.code(), CODE.NOT_FOUND, "the code of an unknown service")
            watch = stub.Watch(health_pb2.HealthCheckRequest(service="counterparts.Echo"))
            equal(next(watch).status, 1, "the first of a watch")
            watch.cancel()


@case("no route: UNIMPLEMENTED; origin down: UNAVAILABLE")
def gateway_errors():
    for kind in ("clear", "TLS"):
        with Client(kind, "counterparts.Nowhere") as client:
            error = failure(lambda: client.unary("Unary")(b"", timeout=TIMEOUT_S))
            equal(error.code(), CODE.UNIMPLEMENTED, "the code of no route")
        with Client(kind, "counterparts.Down") as client:
            error = failure(lambda: client.unary("Unary")(b"", timeout=TIMEOUT_S))
            equal(error.code(), CODE.UNAVAILABLE, f"the code of no origin ({error.details()})")
            error = failure(lambda: list(client.down("Count")(b"1 1", timeout=TIMEOUT_S)))
            equal(error.code(), CODE.UNAVAILABLE, "the code of a stream without origin")


@case("errors of the gateway are answers of gRPC: 200, grpc-status in the head")
def trailers_only():
    headers = {"content-type": "application/grpc", "te": "trailers"}
    with httpx.Client(http1=False, http2=True) as client:
        answer = client.post(f"{base()}/counterparts.Down/Unary", headers=headers, content=b"\0" * 5)
    equal((answer.status_code, answer.headers.get("grpc-status")), (200, "14"), "the answer")
    equal(answer.headers["content-type"], "application/grpc", "the content type")


@case("the gateway keeps grpc-timeout where the client does not")
def grpc_timeout():
    headers = {"content-type": "application/grpc", "te": "trailers", "grpc-timeout": "400m"}
    began = time.monotonic()
    message = b"\0\0\0\0\x018"
    with httpx.Client(http1=False, http2=True, timeout=TIMEOUT_S) as client:
        answer = client.post(f"{base()}/counterparts.Echo/Slow", headers=headers, content=message)
    equal(answer.headers.get("grpc-status"), "4", f"grpc-status of {answer.status_code}")
    check(0.3 < time.monotonic() - began < 2, f"after {time.monotonic() - began} s")


run()
