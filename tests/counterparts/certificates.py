"""Certificates by openssl: two authorities, servers with both key types, clients."""

import subprocess

AUTHORITIES = {"ca": "Counterparts CA", "stranger": "Stranger CA"}
LOCAL = "DNS:localhost,DNS:api.test,IP:127.0.0.1,IP:::1"
# Name: who signs, key, names; clients have none.
LEAVES = {
    "server": ("ca", "ec", LOCAL),
    "server-rsa": ("ca", "rsa", LOCAL),
    "wild": ("ca", "ec", "DNS:*.wild.test"),
    "origin": ("ca", "ec", "DNS:origin.test,DNS:localhost,IP:127.0.0.1"),
    "alice": ("ca", "ec", None),
    "proxy": ("ca", "ec", None),
    "mallory": ("stranger", "ec", None),
}
KEYS = {
    "ec": ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
    "rsa": ["-newkey", "rsa:2048"],
}
DAYS = "3650"


def make(place):
    """Makes all that are missing in the directory `place`: NAME.pem and NAME.key."""
    place.mkdir(parents=True, exist_ok=True)
    done = place / "done.txt"
    if done.exists():
        return
    for name, subject in AUTHORITIES.items():
        usage = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
        request(place, name, KEYS["ec"], subject, ["-x509", "-days", DAYS, *usage], f"{name}.pem")
    for name, (authority, key, names) in LEAVES.items():
        request(place, name, KEYS[key], name, [], f"{name}.csr")
        sign(place, name, authority, names)
    done.write_text("yes")


def request(place, name, key, subject, more, out):
    openssl(
        place, "req", "-new", *key, "-nodes", "-sha256", "-subj", f"/O=Ringway tests/CN={subject}",
        "-keyout", f"{name}.key", "-out", out, *more,
    )  # fmt: skip


def sign(place, name, authority, names):
    usage = "serverAuth" if names else "clientAuth"
    lines = ["basicConstraints=critical,CA:FALSE", f"extendedKeyUsage={usage}"]
    lines += [f"subjectAltName={names}"] if names else []
    (place / f"{name}.ext").write_text("\n".join(lines) + "\n")
    openssl(
        place, "x509", "-req", "-in", f"{name}.csr", "-sha256", "-days", DAYS, "-CAcreateserial",
        "-CA", f"{authority}.pem", "-CAkey", f"{authority}.key",
        "-extfile", f"{name}.ext", "-out", f"{name}.pem",
    )  # fmt: skip


def openssl(place, *arguments):
    subprocess.run(["openssl", *arguments], cwd=place, check=True, capture_output=True)
