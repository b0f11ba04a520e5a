//! The simulated world: a client, origins, the connection between them, and time.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};

use ringway::base::buffer::Buf;
use ringway::io::mem::{End, Faults, pair, simulate_network};
use ringway::io::{Shutdown, Stream};
use ringway::observe::WorkerCounters;
use ringway::observe::access_log::log_queue;
use ringway::proxy::{Downstream, ListenerState};
use ringway::snapshot::{Ids, Snapshot, load_text};
use ringway::state::Core;
use ringway::worker::simulation::{Stream as Begun, busy, http2, parked, sweep};

/// What happens next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The client sends.
    Client(Vec<u8>),
    /// The client ends its direction.
    ClientEnd,
    /// The client resets the connection.
    ClientReset,
    /// The origin that was last sent anything sends.
    Origin(Vec<u8>),
    /// The same origin ends its direction.
    OriginEnd,
    /// The same origin resets its connection.
    OriginReset,
    /// So many milliseconds pass.
    Pass(u64),
}

/// How a peer saw its connection end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Open,
    Cleanly,
    Reset,
}

/// Bounds and faults of the proxy's ends. 0 is none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Knobs {
    pub read_max: usize,
    pub write_max: usize,
    /// The operation of the client's connection at which it is reset, from 1.
    pub client_fault: usize,
    /// The same of every origin's connection.
    pub origin_fault: usize,
    /// The peers take nothing of what they are sent.
    pub client_stalls: bool,
    pub origin_stalls: bool,
}

pub struct Origin {
    pub end: End,
    pub got: Vec<u8>,
    faults: Rc<Faults>,
}

type Task = Pin<Box<dyn Future<Output = ()>>>;

pub struct World {
    pub core: Rc<Core>,
    pub got: Vec<u8>,
    pub origins: Vec<Origin>,
    client: End,
    client_faults: Rc<Faults>,
    task: Option<Task>,
    woken: Arc<Woken>,
    knobs: Knobs,
    current: Option<usize>,
    now_ms: Cell<u64>,
}

/// Connections that can be made in one run; the next is refused.
pub const ORIGINS: usize = 4;
/// Longer than any timeout of the configuration, and than all that can follow one another.
pub const LONG_MS: u64 = 20_000;

const CONFIG: &str = r#"
[runtime]
workers = 1

[listener.public]
address = "127.0.0.1:80"
trusted_proxies = ["192.0.2.0/24"]
timeouts = { head = "2s", body = "2s", idle = "3s", write = "2s" }

[upstream.app]
endpoints = [{ address = "127.0.0.1:9" }]
timeouts = { connect = "2s", response = "2s", body = "2s", idle = "5s", tunnel = "3s" }

[[route]]
id = "all"
prefix = "/"
upstream = "app"

[[route]]
id = "small"
prefix = "/small"
upstream = "app"
body_bytes_max = 8

[[route]]
id = "total"
prefix = "/total"
upstream = "app"
timeouts = { total = "3s" }
"#;

/// Polls of one run to rest: more is a loop that wakes itself.
const POLLS_MAX: usize = 10_000;
/// `fail_in` that is never reached, so that what is left of it counts operations.
const NEVER: usize = 1 << 40;

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl World {
    /// A connection that was just accepted; time is 0.
    pub fn new(knobs: Knobs) -> World {
        World::of(knobs, |core, down| Box::pin(connection(core, down)))
    }

    /// The same of a client that speaks HTTP/2.
    pub fn http2(knobs: Knobs) -> World {
        World::of(knobs, |core, down| Box::pin(streams(core, down)))
    }

    fn of(knobs: Knobs, serve: impl FnOnce(Rc<Core>, Box<Downstream>) -> Task) -> World {
        let core = Core::new(
            snapshot(),
            Arc::new(WorkerCounters::default()),
            log_queue().0,
            ringway::observe::SeriesRegistry::default().add_worker(),
            0,
            1,
        );
        let near: (Vec<End>, Vec<Origin>) = (0..ORIGINS)
            .map(|_| {
                let (proxy, end) = pair();
                let faults = proxy.faults();
                knobs.apply(&faults, knobs.origin_fault);
                (proxy, Origin { end, got: Vec::new(), faults })
            })
            .unzip();
        simulate_network(near.0);
        let (proxy, client) = pair();
        let client_faults = proxy.faults();
        knobs.apply(&client_faults, knobs.client_fault);
        let peer = "192.0.2.1:1000".parse().expect("an address");
        let listener = ListenerState::new(core.snapshot().listeners[0].clone(), 80);
        let down = Box::new(Downstream::new(Stream::Mem(proxy), peer, &listener, &core));
        let task = serve(core.clone(), down);
        let mut world = World {
            core,
            got: Vec::new(),
            origins: near.1,
            client,
            client_faults,
            task: Some(task),
            woken: Arc::default(),
            knobs,
            current: None,
            now_ms: Cell::new(0),
        };
        world.woken.0.store(true, Ordering::Relaxed);
        world.settle();
        world
    }

    pub fn step(&mut self, step: &Step) {
        let origin = self.current.map(|index| &self.origins[index].end);
        match (step, origin) {
            (Step::Client(bytes), _) => self.client.push(bytes),
            (Step::ClientEnd, _) => self.client.shutdown(Shutdown::Write),
            (Step::ClientReset, _) => self.client.reset(),
            (Step::Origin(bytes), Some(origin)) => origin.push(bytes),
            (Step::OriginEnd, Some(origin)) => origin.shutdown(Shutdown::Write),
            (Step::OriginReset, Some(origin)) => origin.reset(),
            (Step::Pass(ms), _) => return self.pass(*ms),
            (_, None) => {}
        }
        self.settle();
    }

    /// Lets time pass, a sweep at a time.
    pub fn pass(&mut self, ms: u64) {
        let end_ms = self.now_ms.get() + ms;
        while self.now_ms.get() < end_ms {
            self.now_ms.set(end_ms.min(self.now_ms.get() + 100));
            sweep(&self.core, self.now_ms.get(), true);
            self.settle();
        }
    }

    /// Both peers end what they have not ended. The connection has to follow at once, or after the
    /// pause in which it discards what the client has still sent.
    pub fn end(&mut self) {
        for step in [Step::ClientEnd, Step::OriginEnd] {
            self.step(&step);
        }
        for origin in &self.origins {
            origin.end.shutdown(Shutdown::Write);
        }
        self.settle();
        self.pass(if self.is_over() { 0 } else { LONG_MS });
    }

    pub fn is_over(&self) -> bool {
        self.task.is_none()
    }

    pub fn client_saw(&self) -> Ended {
        match (self.client.was_reset(), self.client.ended()) {
            (true, _) => Ended::Reset,
            (false, true) => Ended::Cleanly,
            (false, false) => Ended::Open,
        }
    }

    /// Operations on the client's connection so far, where no fault was asked for.
    pub fn client_operations(&self) -> usize {
        NEVER - self.client_faults.fail_in.get()
    }

    /// The same on the origins' connections: the most of any.
    pub fn origin_operations(&self) -> usize {
        let used = |origin: &Origin| NEVER - origin.faults.fail_in.get();
        self.origins.iter().map(used).max().unwrap_or(0)
    }

    /// What must hold once the connection is over: everything was given back.
    pub fn check_rest(&mut self) {
        assert!(self.is_over(), "the connection is over");
        let counters = self.core.counters.clone();
        assert_eq!(counters.panics.get(), 0, "panics");
        assert_eq!(counters.connections.get(), 0, "connections");
        assert_eq!(counters.in_flight.get(), 0, "in flight");
        assert_eq!(counters.tunnels.get(), 0, "tunnels");
        assert_eq!(counters.upstream_connections.get(), counters.pool_idle.get(), "upstream");
        assert_eq!(self.core.deadlines.in_use(), 0, "deadline slots");
        assert_eq!(Buf::bodies_in_use(), 0, "body buffers");
        self.pass(LONG_MS);
        assert_eq!(counters.pool_idle.get(), 0, "idle connections are closed in time");
        assert_eq!(counters.upstream_connections.get(), 0, "upstream connections");
    }

    /// Polls until nothing moves, taking what arrives.
    fn settle(&mut self) {
        loop {
            self.poll();
            let mut moved = false;
            if !self.knobs.client_stalls {
                let taken = self.client.take();
                moved |= !taken.is_empty();
                self.got.extend(taken);
            }
            if !self.knobs.origin_stalls {
                for (index, origin) in self.origins.iter_mut().enumerate() {
                    let taken = origin.end.take();
                    if !taken.is_empty() {
                        moved = true;
                        self.current = Some(index);
                    }
                    origin.got.extend(taken);
                }
            }
            if !moved && !self.woken.0.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    fn poll(&mut self) {
        let waker = Waker::from(self.woken.clone());
        for _ in 0..POLLS_MAX {
            if !self.woken.0.swap(false, Ordering::Relaxed) {
                return;
            }
            let Some(task) = &mut self.task else { return };
            if task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                self.task = None;
            }
        }
        panic!("the connection wakes itself for ever");
    }
}

impl Knobs {
    fn apply(&self, faults: &Faults, fault: usize) {
        faults.read_max.set(self.read_max);
        faults.write_max.set(self.write_max);
        faults.fail_in.set(if fault == 0 { NEVER } else { fault });
    }
}

/// The tasks of a connection, one after the other.
async fn connection(core: Rc<Core>, mut down: Box<Downstream>) {
    while let Some(idle) = busy(&core, down).await {
        down = parked(idle).await;
    }
}

/// A connection of HTTP/2 and its streams, which are tasks of their own elsewhere.
async fn streams(core: Rc<Core>, down: Box<Downstream>) {
    let begun: RefCell<Vec<Task>> = RefCell::default();
    let mut running: Vec<Task> = Vec::new();
    let start = |stream: Begun| begun.borrow_mut().push(Box::pin(stream.run()));
    let mut serving = std::pin::pin!(http2(&core, down, start));
    let mut over = false;
    std::future::poll_fn(|context| {
        over = over || serving.as_mut().poll(context).is_ready();
        running.append(&mut begun.borrow_mut());
        running.retain_mut(|stream| stream.as_mut().poll(context).is_pending());
        if over && running.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

fn snapshot() -> Arc<Snapshot> {
    static SNAPSHOT: OnceLock<Arc<Snapshot>> = OnceLock::new();
    let compile = || {
        let loaded = load_text("simulation", CONFIG, &mut Ids::default(), 1);
        Arc::new(loaded.expect("the configuration is right").snapshot)
    };
    SNAPSHOT.get_or_init(compile).clone()
}
