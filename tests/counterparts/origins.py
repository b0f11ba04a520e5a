"""The origins as processes: one by hand, `websockets`, `grpcio`, nginx, nghttpd."""

import contextlib
import pathlib
import shutil
import subprocess

HERE = pathlib.Path(__file__).resolve().parent

NGINX = """
daemon off;
pid {place}/nginx.pid;
error_log {place}/nginx-error.log warn;
worker_processes 1;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {place}/nginx-body;
    proxy_temp_path {place}/nginx-proxy;
    fastcgi_temp_path {place}/nginx-fastcgi;
    uwsgi_temp_path {place}/nginx-uwsgi;
    scgi_temp_path {place}/nginx-scgi;
    ssl_certificate {certificates}/origin.pem;
    ssl_certificate_key {certificates}/origin.key;
    ssl_protocols TLSv1.2 TLSv1.3;
    client_max_body_size 0;
    keepalive_requests 1000000;
    upstream by_hand {{ server 127.0.0.1:{http}; keepalive 16; }}
    server {{
        listen 127.0.0.1:{nginx_h2c} http2;
        listen 127.0.0.1:{nginx_tls1} ssl;
        {proxied}
    }}
    server {{
        listen 127.0.0.1:{nginx_goaway} http2;
        keepalive_requests 100;
        {proxied}
    }}
    server {{
        listen 127.0.0.1:{nginx_tls2} ssl http2;
        {proxied}
    }}
    server {{
        listen 127.0.0.1:{nginx_mutual} ssl;
        ssl_client_certificate {certificates}/ca.pem;
        ssl_verify_client on;
        {proxied}
    }}
}}
"""
PROXIED = """
        add_header x-origin-protocol $server_protocol always;
        add_header x-origin-tls $ssl_protocol always;
        add_header x-origin-sni $ssl_server_name always;
        add_header x-origin-client $ssl_client_s_dn always;
        location / {
            proxy_pass http://by_hand;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $http_host;
            proxy_request_buffering off;
            proxy_buffering off;
        }
"""


@contextlib.contextmanager
def all_of_them(python, place, ports):
    """Started, and ended by their ids."""
    certificates = place / "certificates"
    pair = [str(certificates / "origin.pem"), str(certificates / "origin.key")]
    with contextlib.ExitStack() as stack:
        scripts = [
            ("http_origin.py", [ports["http"]]),
            ("ws_origin.py", [ports["ws"], ports["wss"], *pair]),
            ("grpc_origin.py", [ports["grpc"], ports["grpc_tls"], *pair]),
        ]
        started = [
            stack.enter_context(process([python, str(HERE / script), *map(str, arguments)]))
            for script, arguments in scripts
        ]
        stack.enter_context(process(nginx(place, ports)))
        stack.enter_context(process(nghttpd(place, "--no-tls", ports["nghttpd"])))
        stack.enter_context(process(nghttpd(place, None, ports["nghttpd_tls"], pair)))
        for (script, _), origin in zip(scripts, started):
            if origin.stdout.readline() != "ready\n":
                raise RuntimeError(f"{script} did not start")
        yield


@contextlib.contextmanager
def process(command):
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield child
    finally:
        child.terminate()
        try:
            child.wait(5)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def nginx(place, ports):
    config = place / "nginx.conf"
    text = NGINX.format(place=place, certificates=place / "certificates", proxied=PROXIED, **ports)
    config.write_text(text)
    return [shutil.which("nginx") or "/usr/sbin/nginx", "-e", str(place / "nginx-error.log"),
            "-c", str(config), "-p", str(place)]  # fmt: skip


def nghttpd(place, clear, port, pair=()):
    documents = place / "documents"
    documents.mkdir(exist_ok=True)
    (documents / "page.txt").write_text("a page of nghttpd\n")
    options = ["--echo-upload", "--trailer", "x-after: yes", "-d", str(documents)]
    options += [clear] if clear else []
    certificate, key = pair or (None, None)
    return ["nghttpd", "-a", "127.0.0.1", *options, str(port), *([key, certificate] if pair else [])]
