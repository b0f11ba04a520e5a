//! What an access log is written to. No write to a FIFO or a pipe waits for its reader.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::limits::ACCESS_LOG_PIECE_BYTES;
use crate::observe::access_log::Target;

/// An open target.
#[derive(Debug)]
pub struct Sink {
    file: File,
    target: Target,
    /// Device and inode.
    identity: (u64, u64),
    /// Whether a write may wait for a reader, because the descriptor is shared with others and
    /// cannot be told not to.
    blocks: bool,
}

/// Opens a target, so that a configuration whose log cannot be opened is refused: before it is
/// applied, on a thread that may block.
///
/// # Errors
/// The operating system's.
pub fn open(target: &Target) -> io::Result<Sink> {
    match target {
        Target::Path(path) => Sink::new(open_path(path)?, target.clone()),
        Target::Stdout => Sink::new(io::stdout().as_fd().try_clone_to_owned()?, Target::Stdout),
    }
}

/// Without a reader a FIFO opens for reading and writing only, and one opened so outlives its
/// readers.
fn open_path(path: &Path) -> io::Result<OwnedFd> {
    let common = OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let fifo = || rustix::fs::open(path, OFlags::RDWR | common, Mode::empty());
    if path.metadata().is_ok_and(|facts| facts.file_type().is_fifo()) {
        return Ok(fifo()?);
    }
    let file = common | OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
    match rustix::fs::open(path, file, Mode::RUSR | Mode::WUSR | Mode::RGRP) {
        // It became one just now.
        Err(Errno::NXIO) => Ok(fifo()?),
        opened => Ok(opened?),
    }
}

impl Sink {
    fn new(file: OwnedFd, target: Target) -> io::Result<Sink> {
        let file = File::from(file);
        let facts = file.metadata()?;
        let blocks = target == Target::Stdout && !facts.is_file();
        Ok(Sink { identity: (facts.dev(), facts.ino()), blocks, target, file })
    }

    /// As standard output would be.
    #[cfg(test)]
    pub fn shared(file: OwnedFd) -> Sink {
        Sink::new(file, Target::Stdout).expect("an open descriptor")
    }

    /// What was opened.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Whether both are the same file.
    pub fn same_as(&self, other: &Sink) -> bool {
        self.identity == other.identity
    }

    /// Writes some of `bytes`.
    ///
    /// # Errors
    /// `WouldBlock` where a reader must read first, or the operating system's.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut piece = bytes;
        if self.blocks {
            if !self.is_writable(Duration::ZERO) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            piece = &bytes[..bytes.len().min(ACCESS_LOG_PIECE_BYTES)];
        }
        loop {
            match (&self.file).write(piece) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                written => return written,
            }
        }
    }

    /// Waits until a write would not, for `patience` at most. An error is left to the write.
    pub fn is_writable(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let timeout = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            match poll(&mut [PollFd::new(&self.file, PollFlags::OUT)], Some(&timeout)) {
                Err(Errno::INTR) if !left.is_zero() => {}
                Err(Errno::INTR) => return false,
                Ok(ready) => return ready > 0,
                Err(_) => return true,
            }
        }
    }
}
