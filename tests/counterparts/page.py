"""The page for browsers: scripts, images, fetches, an upload, events, a WebSocket."""

IMAGES = 20
SCRIPTS = 5
UPLOAD_BYTES = 1024 * 1024

INDEX = """<!doctype html>
<html><head><meta charset="utf-8"><title>Counterparts</title>
<link rel="stylesheet" href="style.css">
SCRIPTS
</head><body>
IMAGES
<script src="main.js"></script>
</body></html>
"""

MAIN = """
"use strict";
const found = {scripts: window.scripts};
const loaded = new Promise((done) => addEventListener("load", done));

async function upload() {
  const body = new Uint8Array(BYTES).map((_, at) => at % 251);
  const answer = await fetch("../count", {method: "POST", body});
  found.upload = await answer.json();
  delete found.upload.fields;
}

async function download() {
  const answer = await fetch("../chunks/300000");
  found.download = (await answer.arrayBuffer()).byteLength;
}

async function aborted() {
  const abort = new AbortController();
  const answer = await fetch("../endless", {signal: abort.signal});
  await answer.body.getReader().read();
  abort.abort();
  found.aborted = true;
}

async function parallel() {
  const answers = await Promise.all([...Array(50).keys()].map((n) => fetch(`../bytes/${n}`)));
  const sizes = await Promise.all(answers.map(async (answer) => (await answer.blob()).size));
  found.parallel = sizes.every((size, n) => size === n);
}

function events() {
  return new Promise((done) => {
    const source = new EventSource("../events");
    found.events = [];
    source.onmessage = (event) => {
      found.events.push(event.data);
      if (found.events.length === 3) { source.close(); done(); }
    };
  });
}

function socket() {
  return new Promise((done, fail) => {
    const socket = new WebSocket(`${location.origin.replace("http", "ws")}/ws/echo`);
    socket.onopen = () => { socket.send("hello"); socket.send("x".repeat(100000)); };
    found.socket = [];
    socket.onerror = () => fail(new Error("WebSocket"));
    socket.onmessage = (event) => {
      found.socket.push(event.data.length);
      if (found.socket.length === 2) socket.close(4002, "enough");
    };
    socket.onclose = (event) => { found.close = [event.code, event.wasClean]; done(); };
  });
}

async function main() {
  const parts = {upload, download, aborted, parallel, events, socket};
  found.failures = [];
  await Promise.all(Object.entries(parts).map(([name, part]) => part().catch(
    (failure) => found.failures.push(`${name}: ${failure}`))));
  await loaded;
  const images = [...document.images];
  found.images = images.filter((image) => image.complete && image.naturalWidth === 8).length;
  found.style = getComputedStyle(document.body).color;
  const entries = performance.getEntriesByType("resource")
    .concat(performance.getEntriesByType("navigation"));
  found.protocols = [...new Set(entries.map((entry) => entry.nextHopProtocol))];
  await fetch("../report", {method: "POST", body: JSON.stringify(found)});
}
main();
""".replace("BYTES", str(UPLOAD_BYTES))

IMAGE = '<svg xmlns="http://www.w3.org/2000/svg" width="8" height="8"><rect width="8" height="8"/></svg>'


def pattern(size):
    """A body of so many bytes."""
    row = bytes(range(251))
    return (row * (size // len(row) + 1))[:size]


def find(name):
    """The content type and the bytes of a part of the page."""
    if name.startswith("image"):
        return "image/svg+xml", IMAGE.encode()
    if name.startswith("script"):
        return "text/javascript", b"window.scripts = (window.scripts || 0) + 1;\n"
    if name == "main.js":
        return "text/javascript", MAIN.encode()
    if name == "style.css":
        return "text/css", b"body { color: rgb(1, 2, 3) }\n"
    scripts = "\n".join(f'<script src="script{n}.js"></script>' for n in range(SCRIPTS))
    images = "\n".join(f'<img src="image{n}.svg" alt="">' for n in range(IMAGES))
    return "text/html", INDEX.replace("SCRIPTS", scripts).replace("IMAGES", images).encode()
