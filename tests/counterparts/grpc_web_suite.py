"""gRPC-Web, its frames built by hand: binary and text, over HTTP/1.1 and HTTP/2."""

import base64
import struct

import httpx
from suite import CA, base, case, check, equal, pattern, run

WAYS = {
    "h1": (True, False, "http"),
    "h2c": (False, True, "http"),
    "h1 TLS": (True, False, "https"),
    "h2 TLS": (False, True, "https"),
}
TRAILERS = 0x80


def frame(message):
    return struct.pack(">BI", 0, len(message)) + message


def frames(body):
    """The messages, and the trailers of the last frame."""
    messages, at = [], 0
    while at < len(body):
        kind, size = struct.unpack_from(">BI", body, at)
        part = body[at + 5 : at + 5 + size]
        equal(len(part), size, "the size of a frame")
        at += 5 + size
        if kind & TRAILERS:
            equal(at, len(body), "the place of the trailers' end")
            lines = part.decode().strip().split("\r\n")
            pairs = (line.partition(":") for line in lines)
            return messages, {name.lower(): value.strip() for name, _, value in pairs}
        messages.append(part)
    return messages, {}


def chunks_of_text(body):
    """Decodes base64 that was encoded piece by piece, with padding in between."""
    decoded, start = b"", 0
    while start < len(body):
        padding = body.find(b"=", start)
        end = len(body) if padding < 0 else padding + (2 if body[padding : padding + 2] == b"==" else 1)
        decoded += base64.b64decode(body[start:end])
        start = end
    return decoded


def call(way, method, message, text=False, service="counterparts.Echo", headers=()):
    http1, http2, scheme = WAYS[way]
    kind = "application/grpc-web-text" if text else "application/grpc-web"
    body = frame(message)
    sent = {"content-type": f"{kind}+proto", "accept": f"{kind}+proto", "x-grpc-web": "1"}
    with httpx.Client(http1=http1, http2=http2, verify=CA if scheme == "https" else True,
                      timeout=10) as client:  # fmt: skip
        answer = client.post(
            f"{base(scheme)}/{service}/{method}",
            headers=sent | dict(headers),
            content=base64.b64encode(body) if text else body,
        )
    equal(answer.status_code, 200, "the status")
    equal(answer.headers["content-type"].partition("+")[0], kind, "the content type")
    content = chunks_of_text(answer.content) if text else answer.content
    messages, trailers = frames(content)
    # An answer without messages may carry its trailers in the head.
    return messages, trailers or answer.headers, answer


def unary(way, text):
    for size in (0, 1, 2, 3, 1000, 300000):
        messages, trailers, answer = call(way, "Unary", pattern(size), text, headers={"x-echo": "yes"})
        equal(messages, [pattern(size)], "the messages")
        equal((trailers["grpc-status"], trailers["x-trailing"]), ("0", "yes"), "the trailers")
        equal((answer.headers["x-initial"], answer.headers["x-echo"]), ("yes", "yes"), "the head")


def streaming(way, text):
    messages, trailers, _ = call(way, "Count", b"100 777", text)
    equal([len(message) for message in messages], [777] * 100, "the messages")
    equal(trailers["grpc-status"], "0", "grpc-status")
    messages, trailers, _ = call(way, "Count", b"0 0", text)
    equal((messages, trailers["grpc-status"]), ([], "0"), "an empty stream")


def errors(way, text):
    messages, trailers, _ = call(way, "Fail", b"5 not here", text)
    equal(messages, [], "the messages")
    check(trailers["grpc-status"] not in ("", "0"), f"grpc-status {trailers['grpc-status']}")
    equal(trailers["grpc-message"], "not here", "grpc-message")
    messages, trailers, _ = call(way, "FailLate", b"", text)
    equal((messages, trailers["grpc-status"]), ([b"one", b"two"], "15"), "a late error")


def gateway_errors(way, text):
    _, trailers, _ = call(way, "Unary", b"", text, service="counterparts.Down")
    equal(trailers["grpc-status"], "14", "grpc-status without an origin")


for _way in WAYS:
    for _text in (False, True):
        _form = "text" if _text else "binary"
        case(f"{_way}, {_form}: unary", _way, _text)(unary)
        case(f"{_way}, {_form}: server streaming", _way, _text)(streaming)
        case(f"{_way}, {_form}: errors", _way, _text)(errors)
        # Envoy's own errors are 503 towards gRPC-Web.
        case(f"{_way}, {_form}: no origin", _way, _text, not_by=["envoy"])(gateway_errors)


run()
