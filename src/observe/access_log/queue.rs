//! The way of records from a worker to the writer: chunks over a bounded channel, and back empty
//! over another, so that none is allocated while the log is keeping up.

use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender};

use super::format::{Format, RECORD_BYTES_MAX};
use super::record::AccessRecord;
use super::text::DateText;
use super::wall::WallClock;
use crate::limits::{ACCESS_LOG_CHUNK_BYTES, ACCESS_LOG_QUEUE_CHUNKS};
use crate::observe::Counter;

/// A worker's end of the access log. Nothing that it does waits.
#[derive(Debug)]
pub struct LogBuffer {
    format: Option<Format>,
    dates: DateText,
    wall: WallClock,
    chunk: Chunk,
    full: Sender<Chunk>,
    empty: Receiver<Chunk>,
    tally: Arc<WorkerTally>,
}

/// The writer's end of one worker's access log.
#[derive(Debug)]
pub struct LogReceiver {
    full: Receiver<Chunk>,
    empty: Sender<Chunk>,
    /// What the worker counts.
    pub tally: Arc<WorkerTally>,
}

/// Whole lines, a record each.
#[derive(Debug, Default)]
pub struct Chunk {
    /// The lines.
    pub bytes: Vec<u8>,
    /// How many.
    pub records: u64,
}

/// What a worker counts of its access log, by record. What was handed over and what was dropped are
/// together all that were made, but for those since the last flush.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct WorkerTally {
    /// Records given to the writer.
    pub handed_over: Counter,
    /// Records dropped because the writer had fallen behind.
    pub dropped: Counter,
    /// Chunks allocated.
    pub chunks_made: Counter,
}

/// What the writer counts, by record: of what was handed over, the rest is still waiting.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct WriterTally {
    /// Records whose lines are out whole.
    pub written: Counter,
    /// Records dropped because the target did not take them.
    pub dropped: Counter,
}

/// Everybody's tallies, for whoever shows them.
#[derive(Clone, Debug)]
pub struct LogTallies {
    /// By worker.
    pub workers: Arc<[Arc<WorkerTally>]>,
    /// The writer's.
    pub writer: Arc<WriterTally>,
}

/// Sums of all tallies, by record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounts {
    /// Records given to the writer.
    pub handed_over: u64,
    /// Records written.
    pub written: u64,
    /// Records dropped on workers, because the writer had fallen behind.
    pub dropped_at_queue: u64,
    /// Records dropped by the writer, because the target did not take them.
    pub dropped_at_target: u64,
}

/// Makes both ends of one worker's access log. It is off until it is given a format.
pub fn log_queue() -> (LogBuffer, LogReceiver) {
    let (full, filled) = crossbeam_channel::bounded(ACCESS_LOG_QUEUE_CHUNKS);
    // Room for the one that the writer holds and the one that the worker fills besides.
    let (emptied, empty) = crossbeam_channel::bounded(ACCESS_LOG_QUEUE_CHUNKS + 2);
    let tally = Arc::new(WorkerTally::default());
    let buffer = LogBuffer {
        format: None,
        dates: DateText::new(),
        wall: WallClock::read(),
        chunk: Chunk::default(),
        full,
        empty,
        tally: tally.clone(),
    };
    (buffer, LogReceiver { full: filled, empty: emptied, tally })
}

impl LogBuffer {
    /// Takes the format in force, none where the log is off. Records made before keep theirs, and are
    /// handed over: once a worker has said that a configuration is in force, the writer has all lines
    /// of the one before.
    pub fn set_format(&mut self, format: Option<Format>) {
        self.hand_over();
        self.wall = WallClock::read();
        self.format = format;
    }

    /// Whether records are wanted.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.format.is_some()
    }

    /// Microseconds from the epoch to an instant, for [`AccessRecord::started_us`].
    #[inline]
    pub fn wall_us(&self, instant: Instant) -> u64 {
        self.wall.of(instant)
    }

    /// Logs one exchange, where the log is on.
    #[inline]
    pub fn record(&mut self, record: &AccessRecord<'_>) {
        let Some(format) = self.format else { return };
        if self.chunk.bytes.capacity() == 0 {
            self.chunk = self.empty_chunk();
        }
        format.write(record, &mut self.dates, &mut self.chunk.bytes);
        self.chunk.records += 1;
        if self.chunk.bytes.len() >= ACCESS_LOG_CHUNK_BYTES {
            self.hand_over();
        }
    }

    /// Hands over what there is: at the sweep, and before a worker says that its drain is over.
    pub fn flush(&mut self) {
        if self.is_on() {
            self.wall = WallClock::read();
        }
        self.hand_over();
    }

    fn hand_over(&mut self) {
        if self.chunk.records == 0 {
            return;
        }
        let chunk = std::mem::take(&mut self.chunk);
        let records = chunk.records;
        match self.full.try_send(chunk) {
            Ok(()) => self.tally.handed_over.add(records),
            Err(refused) => {
                self.tally.dropped.add(records);
                self.chunk = refused.into_inner();
                self.chunk.clear();
            }
        }
    }

    fn empty_chunk(&self) -> Chunk {
        self.empty.try_recv().unwrap_or_else(|_| {
            self.tally.chunks_made.increment();
            // The record that fills it fits as well, so that it never grows.
            Chunk { bytes: Vec::with_capacity(CHUNK_CAPACITY), records: 0 }
        })
    }
}

impl Drop for LogBuffer {
    fn drop(&mut self) {
        self.hand_over();
    }
}

impl LogReceiver {
    /// The next chunk, if one waits.
    pub fn take(&self) -> Option<Chunk> {
        self.full.try_recv().ok()
    }

    /// How many chunks wait.
    pub fn waiting(&self) -> usize {
        self.full.len()
    }

    /// Gives a chunk back to be filled again.
    pub fn give_back(&self, mut chunk: Chunk) {
        chunk.clear();
        // A worker that has gone wants none.
        let _ = self.empty.try_send(chunk);
    }
}

impl Chunk {
    fn clear(&mut self) {
        self.bytes.clear();
        self.records = 0;
    }
}

impl LogTallies {
    /// The sums now.
    pub fn sum(&self) -> LogCounts {
        let over = |count: fn(&WorkerTally) -> &Counter| {
            self.workers.iter().map(|worker| count(worker).get()).sum()
        };
        LogCounts {
            handed_over: over(|worker| &worker.handed_over),
            written: self.writer.written.get(),
            dropped_at_queue: over(|worker| &worker.dropped),
            dropped_at_target: self.writer.dropped.get(),
        }
    }
}

const CHUNK_CAPACITY: usize = ACCESS_LOG_CHUNK_BYTES + RECORD_BYTES_MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::access_log::record::testing::record;

    fn on() -> (LogBuffer, LogReceiver) {
        let (mut buffer, receiver) = log_queue();
        buffer.set_format(Some(Format::Combined));
        (buffer, receiver)
    }

    #[test]
    fn nothing_is_made_while_it_is_off() {
        let (mut buffer, receiver) = log_queue();
        assert!(!buffer.is_on());
        buffer.record(&record(1));
        buffer.flush();
        assert!(receiver.take().is_none());
        assert_eq!(receiver.tally.chunks_made.get(), 0);
    }

    #[test]
    fn another_format_or_none_begins_another_chunk() {
        let (mut buffer, receiver) = on();
        for format in [Some(Format::Json), None] {
            buffer.record(&record(1));
            buffer.set_format(format);
            assert_eq!(receiver.take().map(|chunk| chunk.records), Some(1));
        }
    }

    #[test]
    fn a_flush_hands_over_what_there_is_and_a_full_chunk_goes_by_itself() {
        let (mut buffer, receiver) = on();
        buffer.record(&record(1));
        assert!(receiver.take().is_none());
        buffer.flush();
        buffer.flush();
        let chunk = receiver.take().expect("one");
        assert_eq!((chunk.records, receiver.waiting()), (1, 0));
        let mut made = 1;
        while receiver.waiting() == 0 {
            made += 1;
            buffer.record(&record(made));
        }
        let chunk = receiver.take().expect("full");
        assert_eq!(chunk.records, made - 1);
        assert!(chunk.bytes.len() >= ACCESS_LOG_CHUNK_BYTES);
        assert_eq!(receiver.tally.handed_over.get(), made);
    }

    #[test]
    fn what_is_handed_over_and_what_is_dropped_is_all() {
        let (mut buffer, receiver) = on();
        let made = 80_000;
        (0..made).for_each(|number| buffer.record(&record(number)));
        buffer.flush();
        let (handed, dropped) = (receiver.tally.handed_over.get(), receiver.tally.dropped.get());
        assert!(dropped > 0, "the queue was full");
        assert_eq!(handed + dropped, made);
        assert_eq!(receiver.waiting(), ACCESS_LOG_QUEUE_CHUNKS);
        let chunks: Vec<Chunk> = std::iter::from_fn(|| receiver.take()).collect();
        let lines: Vec<&str> = chunks
            .iter()
            .flat_map(|chunk| std::str::from_utf8(&chunk.bytes).expect("text").lines())
            .collect();
        assert_eq!(lines.len() as u64, handed);
        assert_eq!(chunks.iter().map(|chunk| chunk.records).sum::<u64>(), handed);
        for (number, line) in lines.iter().enumerate() {
            assert!(line.contains(&format!(" 200 {number} ")), "in order: {line}");
        }
    }

    #[test]
    fn a_writer_that_has_gone_delays_nobody() {
        let (mut buffer, receiver) = on();
        let tally = receiver.tally.clone();
        drop(receiver);
        (0..10).for_each(|number| buffer.record(&record(number)));
        drop(buffer);
        assert_eq!((tally.handed_over.get(), tally.dropped.get()), (0, 10));
    }

    #[test]
    fn chunks_go_round_and_never_grow() {
        let (mut buffer, receiver) = on();
        for number in 0..50_000 {
            buffer.record(&record(number));
            if let Some(chunk) = receiver.take() {
                assert_eq!(chunk.bytes.capacity(), CHUNK_CAPACITY);
                receiver.give_back(chunk);
            }
        }
        assert_eq!(receiver.tally.dropped.get(), 0);
        assert!(receiver.tally.chunks_made.get() <= 2);
    }
}
