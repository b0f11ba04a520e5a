//! A client's connection: waiting for a request, reading its head, serving it, and again.

use std::rc::Rc;

use crate::base::buffer::Buf;
use crate::http1::conn::{NoHead, read_request_head};
use crate::io::runtime::catch_panic;
use crate::io::{Cancel, Peek, Shutdown, Stream, Wait, spawn};
use crate::limits::DRAIN_IDLE_MS;
use crate::proxy::{Downstream, Exchange, Next, refuse, serve};
use crate::state::Core;

/// Starts to serve a connection.
pub(super) fn start(core: Rc<Core>, down: Box<Downstream>) {
    spawn(task(core, down));
}

async fn task(core: Rc<Core>, down: Box<Downstream>) {
    let left = catch_panic(run(&core, down)).await;
    if let Some(idle) = still_open(&core, left) {
        park(core, idle);
    }
}

/// Lets an idle connection wait for its next request in a task of its own, which is a fraction of
/// the size of one that serves and holds no buffer.
fn park(core: Rc<Core>, down: Box<Downstream>) {
    spawn(async move {
        start(core, parked(down).await);
    });
}

/// Serves a connection until it ends or is to be parked, and survives its panics.
pub async fn busy(core: &Rc<Core>, down: Box<Downstream>) -> Option<Box<Downstream>> {
    still_open(core, catch_panic(run(core, down)).await)
}

fn still_open(core: &Core, left: Option<Left>) -> Option<Box<Downstream>> {
    match left {
        Some(Left::Idle(down)) => Some(down),
        Some(Left::Ended) => None,
        None => {
            core.counters.panics.increment();
            tracing::error!("a panic ended a connection; the others go on");
            None
        }
    }
}

/// Waits until an idle connection has something to read.
pub async fn parked(down: Box<Downstream>) -> Box<Downstream> {
    // Whatever ended the wait shows in the read that follows.
    let _ = down.stream().readable().await;
    down
}

/// What is left of a connection when its task ends.
pub enum Left {
    /// Nothing: it has been closed.
    Ended,
    /// It waits for its next request.
    Idle(Box<Downstream>),
}

/// Serves requests until the connection ends or has been idle for a while.
pub async fn run(core: &Rc<Core>, mut down: Box<Downstream>) -> Left {
    loop {
        if down.behind.is_empty() {
            let spare = std::mem::take(&mut down.behind);
            down.refresh();
            match next_bytes(core, &down, spare).await {
                Some(bytes) if !bytes.is_empty() => down.behind = bytes,
                Some(_) => return Left::Idle(down),
                None => return Left::Ended,
            }
        }
        down.refresh();
        let mut exchange = Exchange::take(core);
        exchange.context.request.bytes = std::mem::take(&mut down.behind);
        let next = match read_head(&down, &mut exchange).await {
            Ok(()) => {
                // A head may be long in coming: the plan is to be that of the snapshot that serves.
                down.refresh();
                serve(&mut exchange, &down, core).await
            }
            Err(NoHead::Closed) => return Left::Ended,
            Err(NoHead::Refused(kind)) => Box::pin(refuse(&mut exchange, &down, core, kind)).await,
        };
        match next {
            Next::KeepAlive => down.behind = exchange.take_behind(),
            Next::Close => {
                drop(exchange);
                Box::pin(down.close()).await;
                return Left::Ended;
            }
            Next::Reset => {
                down.reset();
                return Left::Ended;
            }
        }
    }
}

async fn read_head(down: &Downstream, exchange: &mut Exchange) -> Result<(), NoHead> {
    let listener = down.listener();
    down.timer.arm(Wait::Head, listener.head_timeout_ms);
    let Exchange { context, parser, .. } = exchange;
    let request = &mut context.request;
    let read = read_request_head(down.stream(), request, parser, &listener.head, &down.timer).await;
    down.timer.disarm();
    read
}

/// Waits for the first bytes of a request. An empty buffer: the connection has been idle for a
/// sweep, and is to be parked. `None`: the client is done, or has been idle for too long. `spare` is
/// a buffer to use again.
///
/// A busy connection waits in a read: four operations a request (docs/decisions/0005).
async fn next_bytes(core: &Core, down: &Downstream, spare: Buf) -> Option<Buf> {
    let mut idle_ms = down.listener().idle_timeout_ms;
    if down.ends(core) {
        idle_ms = idle_ms.min(DRAIN_IDLE_MS);
    }
    let mut buf = if spare.capacity() > 0 { spare } else { Buf::for_head() };
    buf.compact();
    let parked_too_long = down.timer.expired().is_some();
    down.timer.arm(Wait::Idle, idle_ms);
    let (result, back) = down.stream().read_cancelable(buf, &down.idle_read).await;
    match result {
        Ok(count) if count > 0 => Some(back),
        Err(error) if Cancel::is_canceled(&error) => {
            down.timer.arm(Wait::Parked, idle_ms.saturating_sub(down.timer.waited_ms()));
            Some(Buf::empty())
        }
        Ok(_) if parked_too_long || down.timer.expired().is_some() => {
            Box::pin(last_look(down.stream(), back)).await
        }
        _ => None,
    }
}

/// The sweep has ended an idle connection's wait. What has come since is served all the same, and
/// else the end is told at once: not even a busy core makes more requests cross it on the wire than
/// must (RFC 9112 section 9.5).
async fn last_look(stream: &Stream, buf: Buf) -> Option<Buf> {
    if !matches!(stream.peek(), Peek::Bytes | Peek::Part) {
        stream.say_end();
        stream.shutdown(Shutdown::Both);
        return None;
    }
    match stream.read(buf).await {
        (Ok(count), back) if count > 0 => Some(back),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;
    use crate::io::driver::{DriverChoice, probe};
    use crate::io::{Listener, runtime::run as run_on};

    fn size<C, F>(_: impl Fn(C, Box<Downstream>) -> F) -> usize {
        std::mem::size_of::<F>()
    }

    /// A drain must not lose it: its first byte has reached an accepted connection.
    #[test]
    fn a_request_that_crossed_the_end_of_an_idle_connection_is_served() {
        for choice in [DriverChoice::Epoll, DriverChoice::Auto] {
            let report = probe(choice).expect("a driver");
            let looked = run_on(&report, async {
                let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
                socket.set_nonblocking(true).expect("set");
                let address = socket.local_addr().expect("an address");
                let listener = Listener::adopt(socket).expect("adopted");
                let mut client = std::net::TcpStream::connect(address).expect("connected");
                let (stream, _) = listener.accept().expect("accepts").expect("has one");
                stream.shutdown(Shutdown::Read);
                let (ended, buf) = stream.read(Buf::for_head()).await;
                assert!(matches!(ended, Ok(0)), "as the sweep ends a wait");
                client.write_all(b"GET / HTTP/1.1\r\n").expect("written");
                let crossed = last_look(&stream, buf).await;
                let nothing = last_look(&stream, Buf::for_head()).await;
                (crossed.map(|buf| buf.len()), nothing.is_none(), client.read(&mut [0]).ok())
            });
            assert_eq!(looked.expect("runs"), (Some(16), true, Some(0)), "{report}");
        }
    }

    /// A busy connection is one heap block as large as the largest state of this future; the task
    /// round it catches panics and parks.
    #[test]
    fn the_connection_future_stays_below_a_kibibyte() {
        let (connection, task) =
            (size(|core: &'static Rc<Core>, down| run(core, down)), size(task));
        assert!(connection < 1024 && task < 1024 + 128, "{connection} bytes, {task} as a task");
    }
}
