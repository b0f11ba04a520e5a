//! The thread that writes the access log (O1): it looks for chunks from the workers, writes them, and
//! drops and counts what its target does not take.
//!
//! Nothing waits for it but the end of the process, and that for a bounded time: a full disk, a FIFO
//! that nobody reads and a disk that stands still all delay no request and no command of control.

mod pending;
mod sink;

pub use sink::{Sink, open};

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};

use crate::limits::{
    ACCESS_LOG_COMMANDS, ACCESS_LOG_COMPLAINT_MS, ACCESS_LOG_FINISH_MS, ACCESS_LOG_LOOK_BUSY_MS,
    ACCESS_LOG_LOOK_MS, ACCESS_LOG_QUEUE_CHUNKS, ACCESS_LOG_STALL_MS,
};
use crate::observe::access_log::{LogReceiver, LogTallies, WriterTally};
use pending::Pending;

/// The writer's thread, as control holds it. Dropping it lets the thread write out what waits and
/// end.
#[derive(Debug)]
pub struct Writer {
    commands: Sender<Command>,
    finished: Receiver<bool>,
    tallies: LogTallies,
}

#[derive(Debug)]
enum Command {
    Reopen,
    Open(Sink),
    Close,
    Finish(Instant),
}

impl Writer {
    /// Starts it, for the workers with these queues; without a target until it is given one.
    ///
    /// # Errors
    /// The thread could not be made.
    pub fn start(sink: Option<Sink>, queues: Vec<LogReceiver>) -> io::Result<Writer> {
        let (commands, commanded) = crossbeam_channel::bounded(ACCESS_LOG_COMMANDS);
        let (finish, finished) = crossbeam_channel::bounded(1);
        let tallies = LogTallies {
            workers: queues.iter().map(|queue| queue.tally.clone()).collect(),
            writer: Arc::new(WriterTally::default()),
        };
        let thread = LogThread {
            queues,
            turn: 0,
            sink,
            pending: None,
            torn: false,
            tally: tallies.writer.clone(),
            trouble: Trouble::default(),
        };
        let thread_builder = std::thread::Builder::new().name("access-log".to_owned());
        thread_builder.spawn(move || thread.run(&commanded, &finish))?;
        Ok(Writer { commands, finished, tallies })
    }

    /// Has the target opened anew, which is what rotation asks for; one that cannot be opened stays
    /// as it is, and the log says so. False where the writer is stuck: it is inside a write since
    /// [`ACCESS_LOG_COMMANDS`] commands.
    pub fn reopen(&self) -> bool {
        self.commands.try_send(Command::Reopen).is_ok()
    }

    /// Has another target written to, after what waits now. False as in [`Writer::reopen`].
    pub fn replace(&self, sink: Sink) -> bool {
        self.commands.try_send(Command::Open(sink)).is_ok()
    }

    /// Has what waits written out and the target closed: once every worker has the configuration
    /// without a log. False as in [`Writer::reopen`].
    pub fn close(&self) -> bool {
        self.commands.try_send(Command::Close).is_ok()
    }

    /// Waits until everything is written out, `bound` at most; what is left is dropped and counted.
    /// False where it took longer, or the thread is stuck.
    pub fn finish(&self, bound: Duration) -> bool {
        let until = Instant::now() + bound;
        if self.commands.send_deadline(Command::Finish(until), until).is_err() {
            return false;
        }
        // The thread counts what it drops once the time is over.
        let told = self.finished.recv_deadline(until + Duration::from_millis(ACCESS_LOG_LOOK_MS));
        told.unwrap_or(false)
    }

    /// What was logged and what was dropped.
    pub fn tallies(&self) -> LogTallies {
        self.tallies.clone()
    }
}

struct LogThread {
    queues: Vec<LogReceiver>,
    /// Whose chunk is next.
    turn: usize,
    sink: Option<Sink>,
    pending: Option<Pending>,
    /// Whether the target ends inside a line that will not be finished.
    torn: bool,
    tally: Arc<WriterTally>,
    trouble: Trouble,
}

/// How a look for chunks ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// All was written, or dropped; that much had waited in the fullest queue.
    Done(usize),
    /// The target takes nothing now.
    Stalled,
}

impl LogThread {
    fn run(mut self, commands: &Receiver<Command>, finish: &Sender<bool>) {
        let mut pause = Duration::ZERO;
        loop {
            let command = match &self.sink {
                Some(_) => commands.recv_timeout(pause),
                // Nobody logs: only control wakes this thread.
                None => commands.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match command {
                Ok(Command::Finish(until)) => {
                    let _ = finish.send(self.finish(until));
                    return;
                }
                Ok(command) => self.obey(command),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.finish(Instant::now() + Duration::from_millis(ACCESS_LOG_FINISH_MS));
                    return;
                }
            }
            if self.sink.is_some() {
                pause = match self.look(LOOK) {
                    // The look has waited for the target already.
                    Look::Stalled => LOOK_BUSY,
                    Look::Done(waited) if waited >= ACCESS_LOG_QUEUE_CHUNKS / 8 => LOOK_BUSY,
                    Look::Done(_) => LOOK,
                };
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Reopen => {
                let Some(sink) = &self.sink else { return };
                match open(sink.target()) {
                    Ok(anew) => {
                        tracing::info!("access log {}: opened anew", anew.target());
                        self.switch_to(Some(anew));
                    }
                    Err(error) => tracing::error!(
                        "access log {}: cannot be opened anew, and stays as it was: {error}",
                        sink.target()
                    ),
                }
            }
            Command::Open(sink) => {
                if self.sink.is_some() {
                    self.look(Duration::ZERO);
                }
                self.switch_to(Some(sink));
            }
            Command::Close => {
                self.look(LOOK);
                self.switch_to(None);
                // Drops what is left: it is not for a target that comes later.
                self.look(Duration::ZERO);
            }
            Command::Finish(_) => {}
        }
    }

    /// A line whose first half is in another file is lost.
    fn switch_to(&mut self, sink: Option<Sink>) {
        let same = self.sink.as_ref().zip(sink.as_ref()).is_some_and(|(old, new)| old.same_as(new));
        if !same {
            self.torn = false;
            self.trouble = Trouble::default();
            if let Some(pending) = &mut self.pending {
                self.tally.dropped.add(pending.skip_line());
            }
        }
        self.sink = sink;
    }

    /// Writes what waits. Where the target takes nothing, waits for it, for `patience` at most.
    fn look(&mut self, patience: Duration) -> Look {
        let waited = self.queues.iter().map(LogReceiver::waiting).max().unwrap_or(0);
        // Bounded, so that workers who fill the queues as fast as they empty hold up no command.
        for _ in 0..=ACCESS_LOG_QUEUE_CHUNKS * self.queues.len() {
            let Some(pending) = self.pending.take().or_else(|| self.next_chunk()) else {
                break;
            };
            if !self.write(pending, patience) {
                return Look::Stalled;
            }
        }
        Look::Done(waited)
    }

    /// From each worker in turn.
    fn next_chunk(&mut self) -> Option<Pending> {
        for _ in 0..self.queues.len() {
            let worker = self.turn;
            self.turn = (self.turn + 1) % self.queues.len();
            if let Some(chunk) = self.queues[worker].take() {
                return Some(Pending::new(chunk, worker));
            }
        }
        None
    }

    /// Writes a chunk, or what it can of it. False where the target takes nothing and the chunk waits
    /// for it.
    fn write(&mut self, mut pending: Pending, patience: Duration) -> bool {
        let Some(sink) = &self.sink else {
            self.done_with(pending);
            return true;
        };
        let mut asked_at = None;
        loop {
            match pending.advance(&mut self.torn, |bytes| sink.write(bytes)) {
                Ok(()) => self.trouble.over(sink),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // One that says it is ready and takes nothing is not asked again at once.
                    let moved = asked_at.replace(pending.at()) != Some(pending.at());
                    if moved && sink.is_writable(patience) {
                        continue;
                    }
                    self.trouble.stalled(sink, Instant::now());
                    self.pending = Some(pending);
                    return false;
                }
                Err(error) => {
                    self.torn |= pending.is_torn();
                    self.trouble.failed(sink, &error, Instant::now());
                }
            }
            self.done_with(pending);
            return true;
        }
    }

    /// Counts a chunk and gives it back.
    fn done_with(&mut self, pending: Pending) {
        let (written, dropped) = pending.count();
        self.tally.written.add(written);
        self.tally.dropped.add(dropped);
        self.queues[pending.worker].give_back(pending.chunk);
    }

    /// Writes out what waits until then, and drops the rest. Whether all was written.
    fn finish(&mut self, until: Instant) -> bool {
        let dropped_before = self.tally.dropped.get();
        while let Some(pending) = self.pending.take().or_else(|| self.next_chunk()) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.done_with(pending);
            } else {
                self.write(pending, left);
            }
        }
        self.tally.dropped.get() == dropped_before
    }
}

/// Tells of a target that does not take what it is given: the first failure, then one a minute, and
/// that it is over where it was told of.
#[derive(Debug, Default)]
struct Trouble {
    stalled_since: Option<Instant>,
    told_at: Option<Instant>,
    told: bool,
}

impl Trouble {
    fn failed(&mut self, sink: &Sink, error: &io::Error, now: Instant) {
        self.stalled_since = None;
        if self.may_tell(now) {
            tracing::error!("access log {}: records are lost: {error}", sink.target());
        }
    }

    fn stalled(&mut self, sink: &Sink, now: Instant) {
        let since = *self.stalled_since.get_or_insert(now);
        let long = now.duration_since(since) >= Duration::from_millis(ACCESS_LOG_STALL_MS);
        if long && self.may_tell(now) {
            tracing::error!("access log {}: nobody reads it; records will be lost", sink.target());
        }
    }

    fn over(&mut self, sink: &Sink) {
        self.stalled_since = None;
        if std::mem::take(&mut self.told) {
            tracing::info!("access log {}: it is written again", sink.target());
        }
    }

    fn may_tell(&mut self, now: Instant) -> bool {
        let pause = Duration::from_millis(ACCESS_LOG_COMPLAINT_MS);
        if self.told_at.is_some_and(|told| now.duration_since(told) < pause) {
            return false;
        }
        self.told_at = Some(now);
        self.told = true;
        true
    }
}

const LOOK: Duration = Duration::from_millis(ACCESS_LOG_LOOK_MS);
const LOOK_BUSY: Duration = Duration::from_millis(ACCESS_LOG_LOOK_BUSY_MS);

#[cfg(test)]
mod tests;
