// Node's http2 and http: trailers, resets, a hundred streams, cookies, WebSocket over HTTP/2.

import assert from "node:assert/strict";
import crypto from "node:crypto";
import events from "node:events";
import fs from "node:fs";
import http2 from "node:http2";
import https from "node:https";
import timers from "node:timers/promises";

const world = JSON.parse(fs.readFileSync(process.env.COUNTERPARTS_WORLD));
const only = process.env.COUNTERPARTS_ONLY ?? "*";
const ca = fs.readFileSync(world.ca);
const CASE_MS = 20_000;
const WAYS = {h2c: ["http", "clear"], "h2 TLS": ["https", "tls"]};
const MIB = 1024 * 1024;
const cases = [];

const pattern = (size) => Buffer.alloc(size, Buffer.from([...Array(251).keys()]));
const add = (name, run, notBy = []) => notBy.includes(world.proxy) || cases.push([name, run]);

/** A session, closed at the end of what is done with it. */
async function within(way, act, options = {}) {
  const [scheme, listener] = WAYS[way];
  const session = http2.connect(`${scheme}://localhost:${world.ports[listener]}`, {ca, ...options});
  const broken = new Promise((_, reject) => session.once("error", reject));
  try {
    return await Promise.race([act(session), broken]);
  } finally {
    session.destroy();
  }
}

/** One exchange: the head, the body, the trailers. */
async function exchange(session, fields, body, trailers) {
  const stream = session.request(fields, {endStream: body === undefined, waitForTrailers: Boolean(trailers)});
  if (trailers) stream.on("wantTrailers", () => stream.sendTrailers(trailers));
  if (body !== undefined) stream.end(body);
  const answer = {status: null, informational: [], trailers: {}};
  stream.on("headers", (head) => answer.informational.push(head[":status"]));
  stream.on("response", (head) => Object.assign(answer, {status: head[":status"], head}));
  stream.on("trailers", (fields) => Object.assign(answer.trailers, fields));
  const chunks = [];
  stream.on("data", (chunk) => chunks.push(chunk));
  await events.once(stream, "close");
  answer.body = Buffer.concat(chunks);
  answer.reset = stream.rstCode;
  return answer;
}

async function told(session, fields, body, trailers) {
  const answer = await exchange(session, fields, body, trailers);
  assert.equal(answer.status, 200);
  return JSON.parse(answer.body);
}

async function trailers(session) {
  const fields = {":path": "/http1/count", ":method": "POST"};
  const seen = await told(session, fields, "body", {"x-sum": "7"});
  assert.deepEqual(seen.trailers.map(([name, value]) => [name.toLowerCase(), value]), [["x-sum", "7"]]);
  const answer = await exchange(session, {":path": "/http1/trailers", te: "trailers"});
  assert.equal(answer.trailers["x-checksum"], "230d8358");
}

async function settings(session) {
  if (!session.remoteSettings.maxFrameSize) await events.once(session, "remoteSettings");
  let pushed = 0;
  session.on("stream", () => pushed++);
  await exchange(session, {":path": "/http1/page/index.html"});
  assert.equal(pushed, 0, "a push");
  const {enableConnectProtocol, maxConcurrentStreams} = session.remoteSettings;
  assert.equal(enableConnectProtocol, true, "SETTINGS_ENABLE_CONNECT_PROTOCOL");
  assert.ok(maxConcurrentStreams >= 100, `${maxConcurrentStreams} streams`);
  const [ms] = await new Promise((done, fail) => session.ping((error, ...rest) => error ? fail(error) : done(rest)));
  assert.ok(ms < 2000, `a PING took ${ms} ms`);
}

async function hundred(session) {
  const sizes = [...Array(100).keys()].map((n) => n * 500);
  const answers = await Promise.all(sizes.map((size) => exchange(session, {":path": `/http1/bytes/${size}`})));
  assert.deepEqual(answers.map((answer) => answer.body.length), sizes);
  const bodies = sizes.map((size) => pattern(size));
  const fields = {":path": "/http1/echo", ":method": "POST"};
  const echoes = await Promise.all(bodies.map((body) => exchange(session, fields, body)));
  echoes.forEach((echo, at) => assert.ok(echo.body.equals(bodies[at]), `echo ${at} differs`));
}

async function aborted(session) {
  return (await told(session, {":path": "/http1/state"})).aborted;
}

/** Streams that are reset let the origin go, and nothing else. */
async function resets(session) {
  const before = await aborted(session);
  const bystander = exchange(session, {":path": "/http1/slow/800"});
  for (let turn = 0; turn < 10; turn++) {
    const stream = session.request({":path": "/http1/endless"});
    await events.once(stream, "data");
    stream.close(http2.constants.NGHTTP2_CANCEL);
    await events.once(stream, "close");
  }
  const end = Date.now() + 3000;
  while (await aborted(session) < before + 10) {
    assert.ok(Date.now() < end, "the origin goes on");
    await timers.setTimeout(50);
  }
  assert.equal((await bystander).status, 200, "the stream beside them");
}

/** A stalled stream holds up no other: its window is its own. */
async function stalled(session) {
  const stream = session.request({":path": "/http1/endless"});
  await events.once(stream, "response");
  stream.pause();
  await timers.setTimeout(500);
  for (let turn = 0; turn < 10; turn++) {
    assert.equal((await exchange(session, {":path": "/http1/bytes/100000"})).body.length, 100000);
  }
  stream.close(http2.constants.NGHTTP2_CANCEL);
}

async function early(session) {
  // With RST_STREAM(NO_ERROR) and a write under way, Node 20 may never say "close": "end" is the end.
  const stream = session.request({":path": "/http1/refuse", ":method": "POST"}, {endStream: false});
  stream.end(pattern(4 * MIB));
  const [head] = await events.once(stream, "response");
  assert.equal(head[":status"], 413);
  assert.equal(Buffer.concat(await stream.toArray()).toString(), "too much\n");
  assert.equal((await exchange(session, {":path": "/http1/hello"})).status, 200, "the next stream");
}

async function interim(session) {
  const answer = await exchange(session, {":path": "/http1/hints"});
  assert.deepEqual([answer.informational, answer.status], [[103], 200]);
  const fields = {":path": "/http1/count", ":method": "POST", expect: "100-continue"};
  const stream = session.request(fields, {endStream: false});
  await events.once(stream, "continue");
  stream.end("after the 100");
  const chunks = await stream.toArray();
  assert.equal(JSON.parse(Buffer.concat(chunks)).bytes, 13);
}

async function cut(session) {
  for (const kind of ["length", "chunked"]) {
    const stream = session.request({":path": `/http1/cut/${kind}`});
    stream.on("error", () => {});
    stream.resume();
    await new Promise((done) => stream.once("close", done));
    assert.notEqual(stream.rstCode, 0, `a cut answer (${kind}) ends as if it were whole`);
  }
  assert.equal((await exchange(session, {":path": "/http1/hello"})).status, 200, "the next stream");
}

/** RFC 9113, 8.2.3 and 8.3.1: cookies are joined, :authority becomes Host. */
async function fields(session) {
  const more = Object.fromEntries([...Array(50).keys()].map((n) => [`x-${n}`, "v".repeat(100)]));
  const seen = await told(session, {
    ":path": "/http1/head?q=%2f", ":authority": "api.test", cookie: ["a=1", "b=2", "c=3"],
    "x-twice": ["one", "two"], te: "trailers", ...more,
  });
  const of = (name) => seen.fields.filter(([key]) => key.toLowerCase() === name).map(([, value]) => value);
  assert.equal(seen.target, "/head?q=%2f");
  assert.deepEqual(of("host"), ["api.test"]);
  assert.deepEqual(of("cookie"), ["a=1; b=2; c=3"]);
  assert.deepEqual(of("x-twice").join(", "), "one, two");
  assert.equal(of("x-49")[0].length, 100);
  assert.equal(seen.fields.filter(([key]) => key.startsWith(":")).length, 0, "pseudo-fields");
  assert.ok(of("te").every((value) => value === "trailers"));
}

async function afresh(session) {
  const answers = [];
  for (let turn = 0; turn < 300; turn++) {
    answers.push((await exchange(session, {":path": "/http1/hello"})).status);
  }
  assert.deepEqual(new Set(answers), new Set([200]));
}

const CASES = {
  "trailers both ways": trailers, "SETTINGS, no push, PING": settings, "a hundred streams at once": hundred,
  "streams that are reset": resets, "a stream that stalls": stalled, "103 and 100": interim,
  "an answer before the body": early, "answers that are cut": cut, "fields, cookies, :authority": fields,
  "300 requests on a connection": afresh,
};
for (const way of Object.keys(WAYS)) {
  for (const [name, run] of Object.entries(CASES)) add(`${way}: ${name}`, () => within(way, run));
}

/** A WebSocket on a stream (RFC 8441), framed here. */
class Socket {
  constructor(session, path, more = {}) {
    this.stream = session.request({
      ":method": "CONNECT", ":protocol": "websocket", ":path": path, "sec-websocket-version": "13",
      origin: "http://localhost", ...more,
    }, {endStream: false});
    this.stream.on("error", () => {});
    this.buffered = Buffer.alloc(0);
  }

  async opened() {
    const [head] = await events.once(this.stream, "response");
    this.chunks = this.stream[Symbol.asyncIterator]();
    this.head = head;
    return head[":status"];
  }

  send(opcode, payload, final = true) {
    const size = payload.length;
    const head = Buffer.alloc(size < 126 ? 2 : size < 65536 ? 4 : 10);
    head[0] = (final ? 0x80 : 0) | opcode;
    head[1] = 0x80 | (size < 126 ? size : size < 65536 ? 126 : 127);
    if (head.length === 4) head.writeUInt16BE(size, 2);
    if (head.length === 10) head.writeBigUInt64BE(BigInt(size), 2);
    const mask = crypto.randomBytes(4);
    const masked = Buffer.from(payload);
    for (let at = 0; at < size; at++) masked[at] ^= mask[at & 3];
    this.stream.write(Buffer.concat([head, mask, masked]));
  }

  async take(size) {
    while (this.buffered.length < size) {
      const {value, done} = await this.chunks.next();
      assert.ok(!done, "the stream ends inside a frame");
      this.buffered = Buffer.concat([this.buffered, value]);
    }
    const taken = this.buffered.subarray(0, size);
    this.buffered = this.buffered.subarray(size);
    return taken;
  }

  async receive() {
    const parts = [];
    for (;;) {
      const [first, second] = await this.take(2);
      let size = second & 0x7f;
      if (size === 126) size = (await this.take(2)).readUInt16BE();
      else if (size === 127) size = Number((await this.take(8)).readBigUInt64BE());
      const opcode = first & 0x0f;
      const payload = Buffer.from(await this.take(size));
      if (opcode >= 8) return [opcode, payload];
      parts.push(payload);
      if (first & 0x80) return [parts.length > 1 ? "fragments" : opcode, Buffer.concat(parts)];
    }
  }

  async echoed(opcode, payload) {
    this.send(opcode, payload);
    const [, back] = await this.receive();
    assert.ok(back.equals(payload), `an echo of ${payload.length} bytes differs`);
  }
}

// Envoy gives an origin of HTTP/1.1 no Sec-WebSocket-Key.
const NO_KEY = ["envoy"];
const code = (number) => Buffer.from([number >> 8, number & 0xff]);

async function webSocket(session, origin) {
  if (!session.remoteSettings.maxFrameSize) await events.once(session, "remoteSettings");
  const socket = new Socket(session, `/${origin}/echo`, {"sec-websocket-protocol": "chat.v3, chat.v1"});
  assert.equal(await socket.opened(), 200);
  assert.equal(socket.head["sec-websocket-protocol"], "chat.v1");
  assert.equal(socket.head["sec-websocket-accept"], undefined, "RFC 8441, 5: not used");
  for (const size of [0, 1, 125, 126, 65535, 65536, MIB]) await socket.echoed(2, pattern(size));
  socket.send(1, Buffer.from("a"), false);
  socket.send(0, Buffer.from("b"), false);
  socket.send(0, Buffer.from("c"));
  assert.equal((await socket.receive())[1].toString(), "abc");
  socket.send(9, Buffer.from("ping"));
  assert.deepEqual(await socket.receive(), [10, Buffer.from("ping")]);
  socket.send(8, code(4001));
  const [opcode, payload] = await socket.receive();
  assert.deepEqual([opcode, payload.readUInt16BE()], [8, 4001]);
  socket.stream.end();
  await events.once(socket.stream, "close");
  assert.equal(socket.stream.rstCode, 0);
}

async function closedByOrigin(session, origin) {
  if (!session.remoteSettings.maxFrameSize) await events.once(session, "remoteSettings");
  const socket = new Socket(session, `/${origin}/close/4003`);
  assert.equal(await socket.opened(), 200);
  const [opcode, payload] = await socket.receive();
  assert.deepEqual([opcode, payload.readUInt16BE()], [8, 4003]);
  socket.send(8, payload);
  socket.stream.end();
  await events.once(socket.stream, "close");
  const refused = new Socket(session, `/${origin}/forbidden`);
  assert.equal(await refused.opened(), 403);
  refused.stream.close();
}

async function manySockets(session, origin) {
  if (!session.remoteSettings.maxFrameSize) await events.once(session, "remoteSettings");
  const sockets = [...Array(20).keys()].map(() => new Socket(session, `/${origin}/echo`));
  const statuses = await Promise.all(sockets.map((socket) => socket.opened()));
  assert.deepEqual(new Set(statuses), new Set([200]));
  for (let turn = 0; turn < 3; turn++) {
    await Promise.all(sockets.map((socket, at) => socket.echoed(1, Buffer.from(`${at} ${turn}`))));
    assert.equal((await exchange(session, {":path": "/http1/hello"})).status, 200, "a request between");
  }
}

for (const way of Object.keys(WAYS)) {
  for (const origin of ["ws", "wss"]) {
    const at = `${way} to ${origin === "ws" ? "clear" : "TLS"}: WebSocket over HTTP/2`;
    add(`${at}, messages and the close`, () => within(way, (session) => webSocket(session, origin)), NO_KEY);
    add(`${at}, closed and refused by the origin`, () => within(way, (session) => closedByOrigin(session, origin)), NO_KEY);
    add(`${at}, twenty and requests between`, () => within(way, (session) => manySockets(session, origin)), NO_KEY);
  }
}

add("https: an agent that keeps connections, resumed sessions", async () => {
  const agent = new https.Agent({ca, keepAlive: true, maxSockets: 4});
  const get = () => new Promise((done, fail) => {
    const options = {agent, host: "localhost", port: world.ports.tls, path: "/http1/bytes/5000"};
    https.get(options, (answer) => answer.toArray().then((parts) => done(Buffer.concat(parts).length), fail))
      .on("error", fail);
  });
  const sizes = await Promise.all([...Array(100).keys()].map(get));
  assert.ok(sizes.every((size) => size === 5000));
  agent.destroy();
});

let failed = 0;
for (const [name, run] of cases) {
  if (only !== "*" && !new RegExp(`^${only.replaceAll("*", ".*")}$`).test(name)) continue;
  const began = performance.now();
  const late = timers.setTimeout(CASE_MS, undefined, {ref: false}).then(() => { throw new Error("still going on"); });
  const finding = await Promise.race([run(), late]).then(() => null, (error) => error);
  const seconds = ((performance.now() - began) / 1000).toFixed(2).padStart(5);
  if (finding) failed++;
  const what = finding ? `: ${finding.message.split("\n").join(" ").slice(0, 300)}` : "";
  console.log(`${finding ? "FAIL" : "pass"} ${seconds} s  ${name}${what}`);
}
process.exit(failed ? 1 : 0);
