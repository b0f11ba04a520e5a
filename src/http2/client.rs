//! Asking an origin over HTTP/2: one connection, shared by the requests of a core.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;

use bytes::Bytes;
use h2::client::SendRequest;
use http::Request;

use super::origin::Place;
use super::stream::{Broken, OriginStream};
use crate::io::Handle;
use crate::io::signal::Signal;

/// A place for one request on a shared connection.
pub struct SharedStream {
    sender: RefCell<SendRequest<Bytes>>,
    signal: Rc<Signal>,
    place: Place,
}

impl SharedStream {
    /// A place on the connection of `sender`.
    pub(super) fn new(sender: SendRequest<Bytes>, place: Place) -> SharedStream {
        SharedStream { sender: RefCell::new(sender), signal: Rc::default(), place }
    }

    /// What deadlines shut down in the place of a descriptor.
    pub fn handle(&self) -> Handle {
        Handle::Signal(self.signal.clone())
    }

    /// Whether the origin takes an extended CONNECT, which WebSocket needs (RFC 8441 section 3).
    pub fn takes_extended_connect(&self) -> bool {
        self.sender.borrow().is_extended_connect_protocol_enabled()
    }

    /// Sends the head of a request once the origin allows another stream; `end` says that nothing
    /// follows it.
    ///
    /// # Errors
    /// See [`Broken`]; [`Broken::Refused`] where the connection was gone before anything was sent.
    pub async fn begin(&self, head: Request<()>, end: bool) -> Result<OriginStream, Broken> {
        let ready = poll_fn(|context| self.sender.borrow_mut().poll_ready(context));
        self.signal.writing(ready).await?.map_err(|_| Broken::Refused)?;
        let begun = self.sender.borrow_mut().send_request(head, end);
        let (response, sender) =
            begun.map_err(|error| match error.is_io() || error.is_go_away() {
                true => Broken::Refused,
                false => Broken::from(error),
            })?;
        let origin = self.place.origin().clone();
        Ok(OriginStream::new(response, sender, self.signal.clone(), origin))
    }
}
