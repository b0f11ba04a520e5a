//! Signals, as the control thread receives them.

use std::os::unix::net::UnixStream as StdStream;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

/// A signal that means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// HUP: read the configuration again.
    Reload,
    /// QUIT: let requests end, then leave.
    Drain,
    /// TERM and INT: the same; once it has begun, leave at once.
    Stop,
    /// USR1: open log files again.
    Reopen,
    /// USR2: reserved.
    Reserved(&'static str),
}

/// Where they arrive: the handler writes one byte to a socket and does nothing else.
#[derive(Debug)]
pub struct Signals {
    /// In the order of [`SIGNALS`].
    streams: [UnixStream; SIGNALS.len()],
}

/// Signals that are taken over and wait to be received.
#[derive(Debug)]
pub struct Registered {
    /// In the order of [`SIGNALS`].
    streams: Vec<StdStream>,
}

impl Registered {
    /// Takes all of them over: before anything that takes time, because until then they end the
    /// process; what comes meanwhile waits.
    ///
    /// # Errors
    /// No descriptor was left, or a handler could not be set.
    pub fn take_over() -> std::io::Result<Registered> {
        let mut streams = Vec::with_capacity(SIGNALS.len());
        for (number, _) in SIGNALS {
            let (read, write) = StdStream::pair()?;
            read.set_nonblocking(true)?;
            signal_hook::low_level::pipe::register(number, write)?;
            streams.push(read);
        }
        Ok(Registered { streams })
    }

    /// Receives them from now on; inside the control thread's runtime.
    ///
    /// # Errors
    /// What the driver says.
    pub fn receive(self) -> std::io::Result<Signals> {
        let streams = self.streams.into_iter().map(UnixStream::from_std);
        let streams = streams.collect::<std::io::Result<Vec<_>>>()?;
        let streams = <[_; SIGNALS.len()]>::try_from(streams);
        Ok(Signals { streams: streams.map_err(|_| std::io::ErrorKind::Other)? })
    }
}

impl Signals {
    /// The next one. May be dropped without losing any.
    pub async fn next(&mut self) -> Signal {
        let [hup, quit, term, int, usr1, usr2] = &mut self.streams;
        let at = tokio::select! {
            at = arrived(hup, 0) => at,
            at = arrived(quit, 1) => at,
            at = arrived(term, 2) => at,
            at = arrived(int, 3) => at,
            at = arrived(usr1, 4) => at,
            at = arrived(usr2, 5) => at,
        };
        SIGNALS[at].1
    }
}

async fn arrived(stream: &mut UnixStream, at: usize) -> usize {
    // One byte is one signal; the handler's end is never closed.
    match stream.read(&mut [0]).await {
        Ok(1) => at,
        _ => std::future::pending().await,
    }
}

const SIGNALS: [(i32, Signal); 6] = [
    (SIGHUP, Signal::Reload),
    (SIGQUIT, Signal::Drain),
    (SIGTERM, Signal::Stop),
    (SIGINT, Signal::Stop),
    (SIGUSR1, Signal::Reopen),
    (SIGUSR2, Signal::Reserved("USR2")),
];
