//! Asking an origin over HTTP/2: one connection, shared by the requests of a core.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;

use bytes::Bytes;
use h2::client::SendRequest;
use http::Request;

use super::stream::{Broken, OriginStream};
use crate::io::Handle;
use crate::io::signal::Signal;

/// A place for one request on a shared connection.
pub struct SharedStream {
    sender: RefCell<SendRequest<Bytes>>,
    signal: Rc<Signal>,
}

impl SharedStream {
    /// A place on the connection of `sender`.
    pub fn new(sender: SendRequest<Bytes>) -> SharedStream {
        SharedStream { sender: RefCell::new(sender), signal: Rc::default() }
    }

    /// What deadlines shut down in the place of a descriptor.
    pub fn handle(&self) -> Handle {
        Handle::Signal(self.signal.clone())
    }

    /// Sends the head of a request once the origin allows another stream; `end` says that nothing
    /// follows it.
    ///
    /// # Errors
    /// See [`Broken`].
    pub async fn begin(&self, head: Request<()>, end: bool) -> Result<OriginStream, Broken> {
        let ready = poll_fn(|context| self.sender.borrow_mut().poll_ready(context));
        self.signal.writing(ready).await??;
        let (response, sender) = self.sender.borrow_mut().send_request(head, end)?;
        Ok(OriginStream::new(response, sender, self.signal.clone()))
    }
}
