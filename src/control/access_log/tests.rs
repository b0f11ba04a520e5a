//! The writer with real files, FIFOs and a full disk.

use super::*;
use crate::observe::AccessRecord;
use crate::observe::access_log::record::testing::record;
use crate::observe::access_log::{Format, LogBuffer, LogCounts, Target, log_queue};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A directory of a test's own, removed at its end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("ringway-log-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a directory");
        Directory(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn fifo(&self) -> PathBuf {
        let path = self.file("fifo");
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0)
            .expect("a FIFO");
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// `response_body_bytes` numbers the records, `worker` stands in the target.
fn log(buffer: &mut LogBuffer, worker: usize, number: u64) {
    let target = format!("/worker/{worker}");
    let target = target.as_bytes();
    buffer.record(&AccessRecord { target, worker, ..record(number) });
}

fn start(target: Option<&Path>, workers: usize) -> (Writer, Vec<LogBuffer>) {
    let (mut buffers, queues): (Vec<_>, Vec<_>) = (0..workers).map(|_| log_queue()).unzip();
    buffers.iter_mut().for_each(|buffer| buffer.set_format(Some(Format::Combined)));
    let writer = Writer::start(target.map(sink), queues).expect("a thread");
    (writer, buffers)
}

fn sink(path: &Path) -> Sink {
    open(&Target::Path(path.to_owned())).expect("it can be opened")
}

/// Waits until it holds, which takes the writer a look or two.
fn wait_for(writer: &Writer, what: impl Fn(LogCounts) -> bool) -> LogCounts {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let counts = writer.tallies().sum();
        if what(counts) {
            return counts;
        }
        assert!(Instant::now() < until, "in time: {counts:?}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// Numbers of one worker's records, in the order of the lines; every line must be whole.
fn numbers(text: &str, worker: usize) -> Vec<u64> {
    let mut found = Vec::new();
    for line in text.lines() {
        assert!(line.starts_with("127.0.0.1 - - [") && line.ends_with("\"-\" \"-\""), "{line}");
        let (_, rest) = line.split_once("/worker/").expect("a target");
        let (which, rest) = rest.split_once(" HTTP/1.1\" 200 ").expect("a status");
        if which.parse() == Ok(worker) {
            found.push(rest.split(' ').next().and_then(|it| it.parse().ok()).expect("a number"));
        }
    }
    found
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn in_order(numbers: &[u64]) -> bool {
    numbers.windows(2).all(|pair| pair[0] < pair[1])
}

fn run(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

fn is_all(numbers: &[u64], made: u64) -> bool {
    numbers.iter().copied().eq(0..made)
}

/// Reads a FIFO until nothing has come for a while.
fn read_out(fifo: &Path) -> String {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::open(fifo, flags, Mode::empty()).expect("it is there"));
    let (mut out, mut quiet) = (Vec::new(), 0);
    let mut piece = [0; 16 * 1024];
    while quiet < 100 {
        match file.read(&mut piece) {
            Ok(read) if read > 0 => {
                out.extend_from_slice(&piece[..read]);
                quiet = 0;
            }
            _ => {
                quiet += 1;
                std::thread::park_timeout(Duration::from_millis(2));
            }
        }
    }
    String::from_utf8(out).expect("lines")
}

const BOUND: Duration = Duration::from_secs(5);

#[test]
fn every_record_of_every_worker_arrives_in_order() {
    let directory = Directory::new("order");
    let path = directory.file("access.log");
    let (writer, buffers) = start(Some(&path), 3);
    let threads: Vec<_> = (buffers.into_iter().enumerate())
        .map(|(worker, mut buffer)| {
            std::thread::spawn(move || {
                for number in 0..5_000 {
                    log(&mut buffer, worker, number);
                    if number % 700 == 0 {
                        buffer.flush();
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("a worker"));
    assert!(writer.finish(BOUND));
    let all = text(&path);
    for worker in 0..3 {
        assert!(is_all(&numbers(&all, worker), 5_000));
    }
    let counts = writer.tallies().sum();
    assert_eq!((counts.handed_over, counts.written), (15_000, 15_000));
    assert!(!writer.reopen(), "the thread has ended");
}

#[test]
fn what_waits_is_written_within_a_look() {
    let directory = Directory::new("look");
    let path = directory.file("access.log");
    let (writer, mut buffers) = start(Some(&path), 1);
    log(&mut buffers[0], 0, 1);
    buffers[0].flush();
    wait_for(&writer, |counts| counts.written == 1);
    assert_eq!(numbers(&text(&path), 0), [1]);
    let mode = std::fs::metadata(&path).map(|facts| std::os::unix::fs::MetadataExt::mode(&facts));
    assert_eq!(mode.expect("a file") & 0o777 & !0o640, 0, "nobody else reads it");
}

#[test]
fn rotation_under_load_loses_no_line() {
    let directory = Directory::new("rotate");
    let path = directory.file("access.log");
    let (writer, mut buffers) = start(Some(&path), 1);
    let mut buffer = buffers.remove(0);
    let made = std::thread::spawn(move || {
        for number in 0..8_000 {
            log(&mut buffer, 0, number);
            if number % 50 == 0 {
                buffer.flush();
                std::thread::park_timeout(Duration::from_millis(5));
            }
        }
    });
    let mut files = Vec::new();
    while !made.is_finished() {
        let rotated = directory.file(&format!("access.log.{}", files.len()));
        if std::fs::rename(&path, &rotated).is_ok() {
            files.push(rotated);
            assert!(writer.reopen());
        }
        std::thread::park_timeout(Duration::from_millis(40));
    }
    made.join().expect("a worker");
    assert!(writer.finish(BOUND));
    files.push(path);
    assert!(files.len() > 3, "it was rotated");
    let all: Vec<u64> = files.iter().flat_map(|file| numbers(&text(file), 0)).collect();
    assert_eq!(writer.tallies().sum().written, 8_000);
    assert!(is_all(&all, 8_000));
}

#[test]
fn one_that_cannot_be_opened_anew_stays() {
    let directory = Directory::new("stays");
    let inner = directory.file("inner");
    std::fs::create_dir(&inner).expect("a directory");
    let (writer, mut buffers) = start(Some(&inner.join("access.log")), 1);
    let moved = directory.file("moved");
    std::fs::rename(&inner, &moved).expect("moved");
    assert!(writer.reopen());
    log(&mut buffers[0], 0, 1);
    buffers[0].flush();
    assert!(writer.finish(BOUND));
    assert_eq!(numbers(&text(&moved.join("access.log")), 0), [1]);
}

#[test]
fn what_cannot_be_opened_is_refused() {
    let directory = Directory::new("refused");
    for path in [directory.0.clone(), directory.file("none/access.log")] {
        assert!(open(&Target::Path(path.clone())).is_err(), "{}", path.display());
    }
}

#[test]
fn another_target_follows_and_a_closed_one_drops() {
    let directory = Directory::new("another");
    let (first, second) = (directory.file("first"), directory.file("second"));
    let (writer, mut buffers) = start(None, 1);
    let buffer = &mut buffers[0];
    log(buffer, 0, 1);
    buffer.flush();
    assert!(writer.reopen() && writer.replace(sink(&first)));
    wait_for(&writer, |counts| counts.written == 1);
    log(buffer, 0, 2);
    buffer.flush();
    assert!(writer.replace(sink(&second)));
    log(buffer, 0, 3);
    buffer.flush();
    wait_for(&writer, |counts| counts.written == 3);
    assert!(writer.close());
    log(buffer, 0, 4);
    buffer.flush();
    writer.finish(BOUND);
    let counts = writer.tallies().sum();
    assert_eq!(counts.written + counts.dropped_at_target, 4);
    let all = [text(&first), text(&second)].map(|text| numbers(&text, 0)).concat();
    assert!(all.starts_with(&[1, 2, 3]) && all.len() as u64 == counts.written, "{all:?}");
}

/// `/dev/full` fails every write with ENOSPC.
#[test]
fn a_full_device_drops_and_counts() {
    let (writer, mut buffers) = start(Some(Path::new("/dev/full")), 1);
    (0..3_000).for_each(|number| log(&mut buffers[0], 0, number));
    buffers[0].flush();
    let counts = wait_for(&writer, |counts| counts.dropped_at_target == counts.handed_over);
    assert_eq!((counts.handed_over, counts.written), (3_000, 0));
    assert!(writer.finish(BOUND), "nothing is left");
}

/// Short writes, a torn line, and a log that goes on when there is room: needs leave to mount.
#[test]
fn a_full_disk_drops_and_counts_and_recovers() {
    let directory = Directory::new("disk");
    let disk = directory.file("disk");
    std::fs::create_dir(&disk).expect("a directory");
    if !run(Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "none"]).arg(&disk)) {
        return;
    }
    let ballast = disk.join("ballast");
    std::fs::write(&ballast, vec![0; 40 * 1024]).expect("there is room");
    let path = disk.join("access.log");
    let (writer, mut buffers) = start(Some(&path), 1);
    (0..2_000).for_each(|number| log(&mut buffers[0], 0, number));
    buffers[0].flush();
    let full = wait_for(&writer, |counts| counts.written + counts.dropped_at_target == 2_000);
    assert!(full.written > 100 && full.dropped_at_target > 1_000, "{full:?}");
    std::fs::remove_file(&ballast).expect("it is there");
    (2_000..2_010).for_each(|number| log(&mut buffers[0], 0, number));
    buffers[0].flush();
    assert!(writer.finish(BOUND));
    let counts = writer.tallies().sum();
    assert_eq!(counts.written, full.written + 10);
    let all = text(&path);
    drop(writer);
    assert!(run(Command::new("umount").arg("-l").arg(&disk)));
    // One line is torn, and stands alone.
    let (whole, torn): (Vec<&str>, Vec<&str>) =
        all.lines().partition(|line| line.ends_with("\"-\" \"-\""));
    assert!(torn.len() <= 1, "{torn:?}");
    assert_eq!(whole.len() as u64, counts.written);
    assert_eq!(
        numbers(&whole[whole.len() - 10..].join("\n"), 0),
        (2_000..2_010).collect::<Vec<_>>()
    );
}

#[test]
fn a_fifo_that_nobody_reads_holds_up_nothing() {
    let directory = Directory::new("unread");
    let fifo = directory.fifo();
    let began = Instant::now();
    let (writer, mut buffers) = start(Some(&fifo), 1);
    let made = 80_000;
    (0..made).for_each(|number| log(&mut buffers[0], 0, number));
    buffers[0].flush();
    let counts = writer.tallies().sum();
    assert!(counts.dropped_at_queue > 0, "the queue is full");
    assert_eq!(counts.handed_over + counts.dropped_at_queue, made);
    // A command is obeyed all the same, and the rest goes where there is room.
    let other = directory.file("access.log");
    assert!(writer.reopen() && writer.replace(sink(&other)));
    let counts =
        wait_for(&writer, |counts| counts.written + counts.dropped_at_target == counts.handed_over);
    assert!(counts.dropped_at_target <= 1, "only what was half out: {counts:?}");
    let found = numbers(&text(&other), 0);
    assert!(in_order(&found) && !found.is_empty());
    // The end comes in time.
    assert!(writer.replace(sink(&fifo)));
    (0..made).for_each(|number| log(&mut buffers[0], 0, number));
    buffers[0].flush();
    assert!(!writer.finish(Duration::from_millis(100)));
    let counts = writer.tallies().sum();
    assert_eq!(counts.written + counts.dropped_at_target, counts.handed_over);
    assert!(began.elapsed() < BOUND, "nothing waited");
}

#[test]
fn a_reader_that_pauses_gets_whole_lines_in_order() {
    let directory = Directory::new("pauses");
    let fifo = directory.fifo();
    let (writer, mut buffers) = start(Some(&fifo), 2);
    for number in 0..3_000 {
        log(&mut buffers[0], 0, number);
        log(&mut buffers[1], 1, number);
    }
    buffers.iter_mut().for_each(LogBuffer::flush);
    // Nobody reads yet: the pipe is full, and the rest waits.
    std::thread::park_timeout(Duration::from_millis(150));
    let all = read_out(&fifo);
    wait_for(&writer, |counts| counts.written == 6_000);
    for worker in 0..2 {
        assert!(is_all(&numbers(&all, worker), 3_000));
    }
    // The reader is gone: what is written now waits for the next one.
    log(&mut buffers[0], 0, 7);
    buffers[0].flush();
    wait_for(&writer, |counts| counts.written == 6_001);
    assert_eq!(numbers(&read_out(&fifo), 0), [7]);
    assert!(writer.finish(BOUND));
}

/// The path of a standard output that is a pipe: its descriptor is shared, and blocks.
#[test]
fn a_pipe_that_may_block_is_written_only_when_it_is_ready() {
    let (mut reader, writer_end) = std::io::pipe().expect("a pipe");
    let sink = Sink::shared(std::os::fd::OwnedFd::from(writer_end));
    let (mut buffer, queue) = log_queue();
    buffer.set_format(Some(Format::Combined));
    let writer = Writer::start(Some(sink), vec![queue]).expect("a thread");
    (0..3_000).for_each(|number| log(&mut buffer, 0, number));
    buffer.flush();
    let read = std::thread::spawn(move || {
        let mut all = vec![0; 100 * 1024];
        reader.read_exact(&mut all).map(|()| (all, reader))
    });
    let (all, reader) = read.join().expect("a reader").expect("so much was written");
    // Now it stops reading: the end comes all the same.
    assert!(!writer.finish(Duration::from_millis(100)));
    let counts = writer.tallies().sum();
    assert_eq!(counts.written + counts.dropped_at_target, 3_000);
    assert!(counts.written > 1_000, "{counts:?}");
    let all = String::from_utf8(all).expect("lines");
    let (whole, _) = all.rsplit_once('\n').expect("more than one");
    assert!(in_order(&numbers(whole, 0)));
    drop(reader);
}

#[test]
fn trouble_is_told_once_a_minute_and_its_end_where_it_was_told() {
    let sink = sink(Path::new("/dev/null"));
    let error = io::Error::from(io::ErrorKind::StorageFull);
    let (mut trouble, start) = (Trouble::default(), Instant::now());
    let minute = Duration::from_millis(ACCESS_LOG_COMPLAINT_MS);
    trouble.failed(&sink, &error, start);
    assert!(trouble.told);
    trouble.over(&sink);
    trouble.failed(&sink, &error, start + minute / 2);
    assert!(!trouble.told, "not again so soon");
    trouble.failed(&sink, &error, start + minute);
    assert!(trouble.told);
    let mut trouble = Trouble::default();
    trouble.stalled(&sink, start);
    assert!(!trouble.told, "a reader may be slow");
    trouble.stalled(&sink, start + Duration::from_millis(ACCESS_LOG_STALL_MS));
    assert!(trouble.told);
    trouble.over(&sink);
    assert!(!trouble.told && trouble.stalled_since.is_none());
}
