//! The plain path allocates nothing: a worker over real sockets, on both drivers, with an allocator
//! that counts by thread.
#![allow(unsafe_code, reason = "an allocator is unsafe to implement")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ringway::observe::WorkerCounters;
use ringway::snapshot::{Ids, load_text};
use ringway::worker::{InboxSender, Opened, Report, Setup, inbox, spawn};

/// Counts what threads allocate that have not excused themselves: the workers.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
/// Allocations whose place is told.
static TO_TELL: AtomicU64 = AtomicU64::new(0);
static COUNTS: AtomicBool = AtomicBool::new(false);

thread_local! {
    static EXCUSED: Cell<bool> = const { Cell::new(false) };
}

// SAFETY: everything is handed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as for the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as for the caller.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as for the caller.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

fn count() {
    if !COUNTS.load(Ordering::Relaxed) || EXCUSED.get() {
        return;
    }
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    let told = |left: u64| left.checked_sub(1);
    if TO_TELL.fetch_update(Ordering::Relaxed, Ordering::Relaxed, told).is_ok() {
        EXCUSED.set(true);
        println!("allocated at\n{}", Backtrace::force_capture());
        EXCUSED.set(false);
    }
}

/// One of each, with all that they do to a request that passes.
const FILTERS: &str = "{ kind = \"ip_list\", allow = [\"127.0.0.0/8\"] }, \
    { kind = \"rate_limit\", key = \"header:accept\", rate = \"1000000/s\" }, \
    { kind = \"cors\", origins = [\"https://a.example\"] }, \
    { kind = \"headers\", when = [{ header = \"accept\", equals = \"*/*\" }], \
      set = { accept = \"${client.address} ${request.header.accept}\", \
              x-upstream = \"${upstream.name}\" }, \
      add = { x-more = \"1\" }, remove = [\"x-none\"], \
      response = { set = { x-status = \"${response.status}\" }, remove = [\"server\"] } }";
/// What a load balancer in front adds, which the listener trusts.
const BELIEVED: &str = "X-Forwarded-For: 192.0.2.1, 127.0.0.9\r\nX-Forwarded-Proto: https\r\n\
    X-Forwarded-Port: 443\r\nX-Request-Id: given\r\n";
const WARM_UP: usize = 300;
const REQUESTS: usize = 1_000;
/// A machine that stands still for longer than a sweep lets the proxy park the connection, which
/// allocates: one round without such a pause is enough.
const ROUNDS: usize = 3;
const LARGE: usize = 64 * 1024;

/// Time in which idle connections are watched, and the sweeps in it. The accept loop allocates now and
/// then, for it wakes by itself.
const IDLE: Duration = Duration::from_millis(1_000);
const SWEEPS: u64 = 1_000 / ringway::limits::SWEEP_MS;

/// The preface, SETTINGS and the acknowledgement of the other side's.
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0";

#[test]
fn requests_allocate_nothing_after_a_warm_up() {
    EXCUSED.set(true);
    for driver in ["io_uring", "epoll"] {
        let (proxy, _inbox) = start(driver, origin());
        for (path, fields) in [
            ("/small", ""),
            ("/chunked", ""),
            ("/large", ""),
            ("/small/filtered", ""),
            ("/small", BELIEVED),
        ] {
            let mut client = TcpStream::connect(proxy).expect("a worker accepts");
            let request =
                format!("GET {path} HTTP/1.1\r\nHost: a.test\r\nAccept: */*\r\n{fields}\r\n");
            exchange(&mut client, request.as_bytes(), WARM_UP);
            let free = (0..ROUNDS).any(|_| {
                let before = ALLOCATIONS.load(Ordering::Relaxed);
                TO_TELL.store(3, Ordering::Relaxed);
                COUNTS.store(true, Ordering::Relaxed);
                exchange(&mut client, request.as_bytes(), REQUESTS);
                COUNTS.store(false, Ordering::Relaxed);
                let made = ALLOCATIONS.load(Ordering::Relaxed) - before;
                println!("{driver} {path}: {made} allocations for {REQUESTS} requests");
                made == 0
            });
            assert!(free, "{driver} {path}: requests allocate");
        }
        idle_connections_cost_a_sweep_nothing(driver, proxy);
    }
}

/// The sweep passes connections of HTTP/2 that wait for their next stream: their reads have been taken
/// back, and there is nothing more to do. In the one test, since it is all threads that are counted.
fn idle_connections_cost_a_sweep_nothing(driver: &str, proxy: SocketAddr) {
    let mut client = TcpStream::connect(proxy).expect("a worker accepts");
    client.write_all(HTTP2).expect("the proxy takes it");
    client.set_read_timeout(Some(IDLE)).expect("a timeout");
    let silence = |client: &mut TcpStream| {
        while let Ok(count) = client.read(&mut [0; 1024]) {
            assert!(count > 0, "the connection goes on");
        }
    };
    silence(&mut client);
    let free = (0..ROUNDS).any(|_| {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        TO_TELL.store(3, Ordering::Relaxed);
        COUNTS.store(true, Ordering::Relaxed);
        silence(&mut client);
        COUNTS.store(false, Ordering::Relaxed);
        let made = ALLOCATIONS.load(Ordering::Relaxed) - before;
        println!("{driver}: {made} allocations while nothing happens");
        made < SWEEPS
    });
    assert!(free, "{driver}: idle connections allocate");
}

/// Sends a request so many times, each after the answer to the one before.
fn exchange(client: &mut TcpStream, request: &[u8], times: usize) {
    let mut got = Vec::with_capacity(2 * LARGE);
    for _ in 0..times {
        got.clear();
        client.write_all(request).expect("the proxy takes it");
        while !is_whole(&got) {
            let start = got.len();
            got.resize(start + LARGE, 0);
            let count = client.read(&mut got[start..]).expect("the proxy answers");
            got.truncate(start + count);
            assert!(count > 0, "the connection goes on");
        }
        assert!(got.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&got));
    }
}

fn is_whole(answer: &[u8]) -> bool {
    let Some(head) = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { return false };
    let fields = String::from_utf8_lossy(&answer[..head]).to_lowercase();
    match fields.split("content-length: ").nth(1) {
        Some(length) => {
            let length = length.lines().next().and_then(|length| length.parse::<usize>().ok());
            answer.len() == head + 4 + length.expect("a number")
        }
        None => answer.ends_with(b"\r\n0\r\n\r\n"),
    }
}

/// An origin that serves each connection in a thread of its own.
fn origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        EXCUSED.set(true);
        for stream in listener.incoming() {
            let stream = stream.expect("a connection");
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

fn serve(mut stream: TcpStream) {
    EXCUSED.set(true);
    let large = format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n{}", "x".repeat(LARGE));
    let mut bytes = [0; 4096];
    loop {
        let mut got = 0;
        while !bytes[..got].ends_with(b"\r\n\r\n") {
            match stream.read(&mut bytes[got..]) {
                Ok(count) if count > 0 => got += count,
                _ => return,
            }
        }
        let answer = match &bytes[..6] {
            b"GET /s" => "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            b"GET /c" => {
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
            }
            _ => &large,
        };
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// Starts a worker; returns where it listens, and its inbox.
fn start(driver: &str, origin: SocketAddr) -> (SocketAddr, InboxSender) {
    let text = format!(
        "[runtime]\nworkers = 1\ndriver = \"{driver}\"\n\n\
         [access_log]\npath = \"stdout\"\nformat = \"json\"\n\
         [listener.public]\naddress = \"127.0.0.1:0\"\n\
         trusted_proxies = [\"127.0.0.0/8\"]\nh2c = true\n\n\
         [upstream.app]\nendpoints = [{{ address = \"{origin}\" }}]\n\n\
         [[route]]\nid = \"all\"\nprefix = \"/\"\nupstream = \"app\"\n\n\
         [[route]]\nid = \"filtered\"\nprefix = \"/small/filtered\"\nupstream = \"app\"\n\
         filters = [{FILTERS}]\n"
    );
    let loaded = load_text("test", &text, &mut Ids::default(), 1).expect("it is right");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.set_nonblocking(true).expect("a socket");
    let address = listener.local_addr().expect("it is bound");
    let (sender, inbox) = inbox::inbox().expect("a descriptor is left");
    let (reports, reported) = crossbeam_channel::unbounded();
    let setup = Setup {
        index: 0,
        workers: 1,
        cpu: None,
        opened: vec![Opened { plan: loaded.snapshot.listeners[0].clone(), socket: listener }],
        snapshot: Arc::new(loaded.snapshot),
        counters: Arc::new(WorkerCounters::default()),
        log: ringway::observe::access_log::log_queue().0,
        series: ringway::observe::SeriesRegistry::default().add_worker(),
        inbox,
        reports,
        connections_max: 100,
    };
    spawn(setup).expect("a thread");
    match reported.recv() {
        Ok(Report::Started { driver: taken, .. }) => assert_eq!(taken.kind.name(), driver),
        other => panic!("the worker has not started: {other:?}"),
    }
    (address, sender)
}
