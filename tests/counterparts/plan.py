"""What every proxy of these tests is configured to do: listeners, upstreams, routes."""

import socket

# Filled by `ports`: one for each of these.
LISTENERS = {
    "clear": {"h2c": True},
    "tls": {"certs": ["server", "server-rsa", "wild"]},
    "tls13": {"certs": ["server"], "min_version": "1.3"},
    "http1only": {"certs": ["server"], "alpn": ["http/1.1"]},
    "required": {"certs": ["server"], "client_auth": "required"},
    "optional": {"certs": ["server"], "client_auth": "optional"},
    "announced": {"proxy_protocol": True},
}
ORIGINS = [
    "http", "nginx_h2c", "nginx_goaway", "nginx_tls1", "nginx_tls2", "nginx_mutual", "nghttpd", "nghttpd_tls",
    "ws", "wss", "grpc", "grpc_tls", "nothing",
]  # fmt: skip
VERIFIED = {"ca": "ca", "sni": "origin.test"}
# Name: the origin, the protocol towards it, TLS settings.
UPSTREAMS = {
    "http1": ("http", "http1", None),
    "h2c": ("nginx_h2c", "http2", None),
    "goaway": ("nginx_goaway", "http2", None),
    "tls1": ("nginx_tls1", "http1", VERIFIED),
    "tls2": ("nginx_tls2", "http2", VERIFIED),
    "auto": ("nginx_tls2", "auto", VERIFIED),
    "auto1": ("nginx_tls1", "auto", VERIFIED),
    "mutual": ("nginx_mutual", "http1", VERIFIED | {"cert": "proxy"}),
    "nameless": ("nginx_mutual", "http1", VERIFIED),
    "stranger": ("nginx_tls1", "http1", {"ca": "stranger", "sni": "origin.test"}),
    "misnamed": ("nginx_tls1", "http1", {"ca": "ca", "sni": "other.test"}),
    "nghttpd": ("nghttpd", "http2", None),
    "nghttpds": ("nghttpd_tls", "http2", VERIFIED),
    "ws": ("ws", "http1", None),
    "wss": ("wss", "http1", VERIFIED),
    "down": ("nothing", "http1", None),
    "grpc": ("grpc", "http2", None),
    "grpcs": ("grpc_tls", "http2", VERIFIED),
    "grpc_down": ("nothing", "http2", None),
}
# Plain prefixes lose their first segment; those of gRPC stay.
PLAIN = [name for name in UPSTREAMS if not name.startswith("grpc")]
GRPC = {
    "counterparts.Echo": "grpc",
    "grpc.health.v1.Health": "grpc",
    "counterparts.Secure": "grpcs",
    "counterparts.Down": "grpc_down",
}
WORKERS = 2


def ports(names):
    """Ports that are free now, all different."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in names]
    taken = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return dict(zip(names, taken))
