-- Prints what wrk counted as one line. No request or response hook: those would cost wrk its speed.
function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(
    "counted requests=%d bytes=%d us=%d connect=%d read=%d write=%d timeout=%d status=%d p50=%d p99=%d\n",
    summary.requests, summary.bytes, summary.duration, e.connect, e.read, e.write, e.timeout,
    e.status, latency:percentile(50), latency:percentile(99)))
end
