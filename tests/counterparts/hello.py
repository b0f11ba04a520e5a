"""ClientHellos by hand, for versions and cipher suites that today's clients no longer offer."""

import os
import socket
import struct

ALERT, HANDSHAKE = 0x15, 0x16
TLS12 = 0x0303
EXTENSIONS = {
    10: struct.pack(">HHHH", 6, 23, 24, 25),  # supported_groups: P-256, P-384, P-521
    11: b"\x01\x00",  # ec_point_formats
    13: struct.pack(">H8H", 16, 0x0403, 0x0503, 0x0401, 0x0501, 0x0804, 0x0805, 0x0201, 0x0203),
    0xFF01: b"\x00",  # renegotiation_info
}


def client_hello(version, suites, compressions=b"\x00"):
    """A record with a ClientHello of SSL 3.0 to TLS 1.2."""
    name = b"localhost"
    extensions = {0: struct.pack(">HBH", len(name) + 3, 0, len(name)) + name, **EXTENSIONS}
    packed = b"".join(struct.pack(">HH", kind, len(data)) + data for kind, data in extensions.items())
    body = struct.pack(">H", version) + os.urandom(32) + b"\x00"
    body += struct.pack(f">H{len(suites)}H", 2 * len(suites), *suites)
    body += bytes([len(compressions)]) + compressions
    body += struct.pack(">H", len(packed)) + packed
    message = b"\x01" + struct.pack(">I", len(body))[1:] + body
    return struct.pack(">BHH", HANDSHAKE, min(version, 0x0301), len(message)) + message


def answer(port, record):
    """("alert", its number), ("hello", version, suite, compression), or ("closed",)."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as stream:
        stream.sendall(record)
        try:
            head = exactly(stream, 5)
            body = exactly(stream, struct.unpack(">H", head[3:])[0])
        except (ConnectionError, EOFError):
            return ("closed",)
    if head[0] == ALERT:
        return ("alert", body[1])
    session = body[38]
    suite, compression = struct.unpack_from(">HB", body, 39 + session)
    return ("hello", struct.unpack_from(">H", body, 4)[0], suite, compression)


def exactly(stream, size):
    read = b""
    while len(read) < size:
        piece = stream.recv(size - len(read))
        if not piece:
            raise EOFError
        read += piece
    return read
