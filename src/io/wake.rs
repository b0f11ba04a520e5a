//! Waking a core from another thread: an eventfd that its ring waits on.

use std::io;
use std::os::fd::OwnedFd;

use monoio::net::UnixStream;
use rustix::io::Errno;

use super::stream::Shared;

/// An eventfd of this core. It is adopted as a stream because that waits on both drivers; a file
/// would spin on epoll.
pub struct Wake {
    inner: Shared<UnixStream>,
}

impl Wake {
    /// Takes a non-blocking eventfd over.
    ///
    /// # Errors
    /// It could not be registered with the driver.
    pub fn adopt(eventfd: OwnedFd) -> io::Result<Wake> {
        Ok(Wake { inner: Shared::new(UnixStream::from_std(eventfd.into())?) })
    }

    /// Waits until it is written to, and clears it.
    ///
    /// # Errors
    /// What the driver says.
    pub async fn wait(&self) -> io::Result<()> {
        loop {
            self.inner.get().readable(false).await?;
            let mut count = [0u8; 8];
            match rustix::io::read(&self.inner, &mut count) {
                Ok(_) => return Ok(()),
                Err(Errno::WOULDBLOCK | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
