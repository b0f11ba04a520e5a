"""Envoy as the proxy (`--proxy envoy`): shows that the suites themselves are right."""

import http.client
import json
import subprocess

from plan import GRPC, LISTENERS, PLAIN, UPSTREAMS, WORKERS

TYPE = "type.googleapis.com/envoy"
HTTP = f"{TYPE}.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
UPSTREAM_HTTP = f"{TYPE}.extensions.upstreams.http.v3.HttpProtocolOptions"
DOWNSTREAM_TLS = f"{TYPE}.extensions.transport_sockets.tls.v3.DownstreamTlsContext"
UPSTREAM_TLS = f"{TYPE}.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
FILTERS = {"grpc_web": "GrpcWeb", "router": "Router"}


class Envoy:
    """The peer."""

    def __init__(self, binary, place, ports):
        self.ports = ports
        self.log_path = place / "envoy.log"
        config = place / "envoy.json"
        config.write_text(json.dumps(configuration(place / "certificates", ports), indent=1))
        self.command = [
            binary, "-c", str(config), "--concurrency", str(WORKERS), "-l", "warning",
            "--disable-hot-restart",
        ]  # fmt: skip
        self.process = None

    def start(self):
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)

    def ready(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.ports["admin"], timeout=10)
        try:
            connection.request("GET", "/ready")
            return connection.getresponse().status == 200
        finally:
            connection.close()

    def findings(self):
        ended = self.process.poll() is not None
        return [f"the proxy ended: {self.log()}"] if ended else []

    def stop(self):
        self.process.kill()
        self.process.wait()
        return []

    def log(self):
        return self.log_path.read_text()[-2000:]


def configuration(certificates, ports):
    listeners = [listener(name, what, certificates, ports) for name, what in LISTENERS.items()]
    clusters = [cluster(name, *what, certificates, ports) for name, what in UPSTREAMS.items()]
    return {
        "admin": {"address": address(ports["admin"])},
        "static_resources": {"listeners": listeners, "clusters": clusters},
    }


def address(port):
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def listener(name, what, certificates, ports):
    manager = {
        "@type": HTTP,
        "stat_prefix": name,
        "codec_type": "AUTO",
        "proxy_100_continue": True,
        "use_remote_address": True,
        "http_protocol_options": {"enable_trailers": True},
        "http2_protocol_options": {"allow_connect": True},
        "upgrade_configs": [{"upgrade_type": "websocket"}],
        "http_filters": [
            {
                "name": f"envoy.filters.http.{module}",
                "typed_config": {"@type": f"{TYPE}.extensions.filters.http.{module}.v3.{kind}"},
            }
            for module, kind in FILTERS.items()
        ],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes()}]},
        "forward_client_cert_details": "SANITIZE_SET",
        "set_current_client_cert_details": {"subject": True},
    }
    chain = {"filters": [{"name": "http", "typed_config": manager}]}
    chains, inspectors = [chain], []
    if "certs" in what:
        chain["transport_socket"] = downstream_tls(what, what["certs"][:2], certificates)
        inspectors.append("tls_inspector.v3.TlsInspector")
    if "wild" in what.get("certs", []):
        wild = {**chain, "filter_chain_match": {"server_names": ["*.wild.test"]}}
        chains.append(wild | {"transport_socket": downstream_tls(what, ["wild"], certificates)})
    if what.get("proxy_protocol"):
        inspectors.append("proxy_protocol.v3.ProxyProtocol")
    return {
        "name": name,
        "address": address(ports[name]),
        "filter_chains": chains,
        "listener_filters": [
            {
                "name": kind,
                "typed_config": {"@type": f"{TYPE}.extensions.filters.listener.{kind}"},
            }
            for kind in inspectors
        ],
    }


def routes():
    plain = [
        {
            "match": {"prefix": f"/{name}/"},
            "route": {"cluster": name, "prefix_rewrite": "/", "timeout": "0s"},
        }
        for name in PLAIN
    ]
    services = [
        {
            "match": {"prefix": f"/{service}/"},
            "route": {
                "cluster": cluster,
                "timeout": "0s",
                "max_stream_duration": {"grpc_timeout_header_max": "0s"},
            },
        }
        for service, cluster in GRPC.items()
    ]
    return plain + services


def pair(name, certificates):
    files = {"certificate_chain": f"{name}.pem", "private_key": f"{name}.key"}
    return {what: {"filename": str(certificates / file)} for what, file in files.items()}


def trust(name, certificates):
    return {"trusted_ca": {"filename": str(certificates / f"{name}.pem")}}


def downstream_tls(what, names, certificates):
    low = "TLSv1_3" if what.get("min_version") == "1.3" else "TLSv1_2"
    common = {
        "tls_certificates": [pair(name, certificates) for name in names],
        "alpn_protocols": what.get("alpn", ["h2", "http/1.1"]),
        "tls_params": {"tls_minimum_protocol_version": low, "tls_maximum_protocol_version": "TLSv1_3"},
    }
    context = {"@type": DOWNSTREAM_TLS, "common_tls_context": common}
    if "client_auth" in what:
        common["validation_context"] = trust("ca", certificates)
        context["require_client_certificate"] = what["client_auth"] == "required"
    return {"name": "tls", "typed_config": context}


def cluster(name, origin, protocol, tls, certificates, ports):
    explicit = {"http1": "http_protocol_options", "http2": "http2_protocol_options"}
    if protocol == "auto":
        options = {"auto_config": {"http2_protocol_options": {}}}
    else:
        more = {"enable_trailers": True} if protocol == "http1" else {}
        options = {"explicit_http_config": {explicit[protocol]: more}}
    endpoint = {"endpoint": {"address": address(ports[origin])}}
    found = {
        "name": name,
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]},
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {"@type": UPSTREAM_HTTP, **options}
        },
    }
    if tls:
        names = [{"san_type": "DNS", "matcher": {"exact": tls["sni"]}}]
        trusted = trust(tls["ca"], certificates) | {"match_typed_subject_alt_names": names}
        versions = {"tls_maximum_protocol_version": "TLSv1_3"}
        common = {"validation_context": trusted, "tls_params": versions}
        common |= {"alpn_protocols": ["h2"]} if protocol == "http2" else {}
        common |= {"tls_certificates": [pair(tls["cert"], certificates)]} if "cert" in tls else {}
        context = {"@type": UPSTREAM_TLS, "common_tls_context": common, "sni": tls["sni"]}
        found["transport_socket"] = {"name": "tls", "typed_config": context}
    return found
