"""A gRPC origin without generated code: `counterparts.Echo` speaks bytes; and the health service."""

import json
import sys
import threading
import time
from concurrent import futures

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

MESSAGE_BYTES_MAX = 8 * 1024 * 1024
THREADS = 32
WAIT_S_MAX = 10
# The end of a stream shows before the cancel that was its reason.
SETTLE_S = 0.3

cancelled = {"Slow": 0, "Endless": 0, "Upload": 0}
seen = {"remaining_s": None}


def unary(request, context):
    """Gives the message back, with the metadata whose names begin with x-."""
    ours = [(key, value) for key, value in context.invocation_metadata() if key.startswith("x-")]
    context.send_initial_metadata([("x-initial", "yes"), *ours])
    context.set_trailing_metadata([("x-trailing", "yes"), ("x-trailing-bin", b"\x00\xff\x01")])
    return request


def total(requests, _):
    sizes = [len(request) for request in requests]
    return f"{len(sizes)} {sum(sizes)}".encode()


def count(request, context):
    number, size = map(int, request.split())
    context.set_trailing_metadata([("x-trailing", str(number))])
    for _ in range(number):
        yield b"m" * size


def chat(requests, _):
    yield from requests


def slow(request, context):
    """Answers late, if it is still asked for."""
    seen["remaining_s"] = context.time_remaining()
    over = threading.Event()
    context.add_callback(over.set)
    if over.wait(float(request)):
        cancelled["Slow"] += 1
    return b"late"


def endless(_, context):
    over = threading.Event()
    context.add_callback(over.set)
    end = time.monotonic() + WAIT_S_MAX
    while not over.wait(0.02) and time.monotonic() < end:
        yield b"again"
    cancelled["Endless"] += 1


def upload(requests, context):
    """Counts what is sent; a call that ends together with its stream was cancelled."""
    over = threading.Event()
    context.add_callback(over.set)
    try:
        return str(sum(len(request) for request in requests)).encode()
    finally:
        cancelled["Upload"] += over.wait(SETTLE_S)


def fail(request, context):
    code, _, text = request.decode().partition(" ")
    context.set_trailing_metadata([("x-why-bin", b"\x00\x01\x02")])
    context.abort(list(grpc.StatusCode)[int(code)], text)


def fail_late(request, context):
    yield b"one"
    yield b"two"
    context.abort(grpc.StatusCode.DATA_LOSS, "after two")


def early(requests, context):
    """Ends a client's stream after the first message."""
    next(requests)
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "enough")


def show_state(_, __):
    return json.dumps({"cancelled": cancelled, **seen}).encode()


METHODS = {
    "Unary": grpc.unary_unary_rpc_method_handler(unary),
    "Total": grpc.stream_unary_rpc_method_handler(total),
    "Count": grpc.unary_stream_rpc_method_handler(count),
    "Chat": grpc.stream_stream_rpc_method_handler(chat),
    "Slow": grpc.unary_unary_rpc_method_handler(slow),
    "Endless": grpc.unary_stream_rpc_method_handler(endless),
    "Upload": grpc.stream_unary_rpc_method_handler(upload),
    "Fail": grpc.unary_unary_rpc_method_handler(fail),
    "FailLate": grpc.unary_stream_rpc_method_handler(fail_late),
    "Early": grpc.stream_unary_rpc_method_handler(early),
    "State": grpc.unary_unary_rpc_method_handler(show_state),
}


def main(port, tls_port, certificate, key):
    options = [("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
               ("grpc.max_send_message_length", MESSAGE_BYTES_MAX), ("grpc.so_reuseport", 0)]  # fmt: skip
    server = grpc.server(futures.ThreadPoolExecutor(THREADS), options=options)
    services = ["counterparts.Echo", "counterparts.Secure"]
    handlers = [grpc.method_handlers_generic_handler(service, METHODS) for service in services]
    server.add_generic_rpc_handlers(handlers)
    alive = health.HealthServicer()
    alive.set("counterparts.Echo", health_pb2.HealthCheckResponse.SERVING)
    alive.set("counterparts.Tired", health_pb2.HealthCheckResponse.NOT_SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(alive, server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    with open(certificate, "rb") as chain, open(key, "rb") as private:
        credentials = grpc.ssl_server_credentials([(private.read(), chain.read())])
    server.add_secure_port(f"127.0.0.1:{tls_port}", credentials)
    server.start()
    print("ready", flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
