"""Headless Chromium: a page with scripts, images, fetches, an upload, events, a WebSocket."""

import base64
import hashlib
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request

import page
from suite import PLACE, WORLD, base, case, certificate, check, equal, pattern, run

LOAD_S_MAX = 25
QUIET = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--remote-debugging-port=0", "--no-proxy-server",
]  # fmt: skip
NAMES = ["chromium-headless-shell", "chromium"]


def ask(path):
    with urllib.request.urlopen(f"{base()}/http1{path}", timeout=5) as answer:
        return answer.read()


def key_hash(name):
    """The hash of a certificate's key, by which Chromium trusts it without the authority."""
    public = ["openssl", "x509", "-in", certificate(name), "-noout", "-pubkey"]
    pem = subprocess.run(public, capture_output=True, check=True).stdout
    der = ["openssl", "pkey", "-pubin", "-outform", "DER"]
    key = subprocess.run(der, input=pem, capture_output=True, check=True).stdout
    return base64.b64encode(hashlib.sha256(key).digest()).decode()


def load(url):
    """Opens the page and waits for what it reports."""
    binary = next(filter(None, map(shutil.which, NAMES)), None)
    check(binary, "Chromium is not installed")
    ask("/forget")
    hashes = ",".join(key_hash(name) for name in ("server.pem", "server-rsa.pem"))
    with tempfile.TemporaryDirectory(dir=PLACE, ignore_cleanup_errors=True) as profile:
        trust = f"--ignore-certificate-errors-spki-list={hashes}"
        command = [binary, *QUIET, trust, f"--user-data-dir={profile}", url]
        with open(PLACE / "chromium.log", "wb") as log:
            browser = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            return report()
        finally:
            browser.terminate()
            browser.wait()


def report():
    end = time.monotonic() + LOAD_S_MAX
    while time.monotonic() < end:
        state = json.loads(ask("/state"))
        if state["reports"]:
            return state["reports"][0] | {"let_go": state["aborted"]}
        time.sleep(0.1)
    log = (PLACE / "chromium.log").read_text()[-500:]
    return check(False, f"the page did not report in {LOAD_S_MAX} s: {log}")


def browse(scheme, protocol):
    found = load(f"{base(scheme)}/http1/page/index.html")
    # Envoy gives an origin of HTTP/1.1 no Sec-WebSocket-Key where the client had HTTP/2.
    if WORLD["proxy"] != "envoy" or protocol == "http/1.1":
        equal(found["failures"], [], "failures")
        equal((found["socket"], found["close"]), ([5, 100000], [4002, True]), "the WebSocket")
    equal(found["protocols"], [protocol], "the protocols")
    equal((found["scripts"], found["images"]), (page.SCRIPTS, page.IMAGES), "scripts and images")
    equal(found["style"], "rgb(1, 2, 3)", "the style")
    digest = hashlib.sha256(pattern(page.UPLOAD_BYTES)).hexdigest()
    upload = found["upload"]
    equal((upload["bytes"], upload["sha256"]), (page.UPLOAD_BYTES, digest), "the upload")
    equal(found["download"], 300000, "the download")
    equal((found["parallel"], found["events"]), (True, ["0", "1", "2"]), "fetches and events")
    equal((found["aborted"], found["let_go"]), (True, 1), "a fetch that was aborted")


case("https: a page over HTTP/2", "https", "h2")(browse)
case("http: a page over HTTP/1.1", "http", "http/1.1")(browse)


run()
