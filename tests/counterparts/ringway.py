"""Ringway as a process: its configuration, its start, its end, what it says of itself."""

import http.client
import json
import subprocess

from plan import GRPC, LISTENERS, PLAIN, UPSTREAMS, WORKERS

GRACE_S = 10


class Ringway:
    """The proxy under test."""

    def __init__(self, binary, driver, place, ports):
        self.driver, self.ports = driver, ports
        self.config = place / f"ringway-{driver}.toml"
        self.log_path = place / f"ringway-{driver}.log"
        self.config.write_text(configuration(driver, place / "certificates", ports))
        self.command = [binary, "run", "--config", str(self.config)]
        self.process = None

    def start(self):
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)

    def ready(self):
        return self.admin("/v1/ready")[0] == 200

    def admin(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.ports["admin"], timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def findings(self):
        """What is wrong with a proxy that has served everything."""
        if self.process.poll() is not None:
            return [f"the proxy ended with {self.process.returncode}: {self.log()}"]
        status = json.loads(self.admin("/v1/status")[1])
        drivers = {worker["driver"] for worker in status["workers"]}
        found = [] if drivers == {self.driver} else [f"runs on {drivers}, not on {self.driver}"]
        if status["panics"]:
            found.append(f"{status['panics']} panics: {self.log()}")
        return found

    def stop(self):
        """A drain: it ends by itself, with code 0."""
        if self.process.poll() is not None:
            return []
        self.process.terminate()
        try:
            code = self.process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return [f"still there {GRACE_S} s after SIGTERM: {self.log()}"]
        return [] if code == 0 else [f"ended with {code} after SIGTERM: {self.log()}"]

    def log(self):
        return self.log_path.read_text()[-2000:]


def configuration(driver, certificates, ports):
    parts = [
        f'[runtime]\nworkers = {WORKERS}\ndriver = "{driver}"\ndrain = "5s"\n',
        f'[admin]\nlisten = "127.0.0.1:{ports["admin"]}"\n',
    ]
    for name, what in LISTENERS.items():
        parts.append(f'[listener.{name}]\naddress = "127.0.0.1:{ports[name]}"\n')
        parts[-1] += listener(what, certificates)
    for name, (origin, protocol, tls) in UPSTREAMS.items():
        text = f'[upstream.{name}]\nendpoints = [{{ address = "127.0.0.1:{ports[origin]}" }}]\n'
        text += f'protocol = "{protocol}"\n' if protocol != "http1" else ""
        parts.append(text + (f"tls = {{ {upstream_tls(tls, certificates)} }}\n" if tls else ""))
    parts += [
        f'[[route]]\nid = "{name}"\nprefix = "/{name}/"\nskip_segments = 1\nupstream = "{name}"\n'
        f"filters = [{{ kind = \"headers\", set = {{ {IDENTITY} }} }}]\n"
        for name in PLAIN
    ]
    parts += [
        f'[[route]]\nid = "{service}"\nprefix = "/{service}/"\nupstream = "{upstream}"\n'
        'filters = [{ kind = "grpc_web" }]\n'
        for service, upstream in GRPC.items()
    ]
    return "\n".join(parts)


# What the proxy knows of the client's connection, told to the origin.
IDENTITY = 'x-client-subject = "${client_cert.subject}"'


def listener(what, certificates):
    text = "h2c = true\n" if what.get("h2c") else ""
    if what.get("proxy_protocol"):
        text += 'proxy_protocol = "required"\ntrusted_proxies = ["127.0.0.0/8"]\n'
    if "certs" not in what:
        return text
    pairs = ", ".join(
        f'{{ cert = "{certificates / name}.pem", key = "{certificates / name}.key" }}'
        for name in what["certs"]
    )
    parts = [f"certs = [{pairs}]"]
    parts += [f"alpn = {json.dumps(what['alpn'])}"] if "alpn" in what else []
    parts += [f'min_version = "{what["min_version"]}"'] if "min_version" in what else []
    if "client_auth" in what:
        parts += [f'client_ca = "{certificates}/ca.pem"', f'client_auth = "{what["client_auth"]}"']
    return text + f"tls = {{ {', '.join(parts)} }}\n"


def upstream_tls(tls, certificates):
    parts = [f'ca = "{certificates / tls["ca"]}.pem"', f'sni = "{tls["sni"]}"']
    if "cert" in tls:
        pair = certificates / tls["cert"]
        parts += [f'cert = "{pair}.pem"', f'key = "{pair}.key"']
    return ", ".join(parts)
