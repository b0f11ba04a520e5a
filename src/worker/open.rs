//! From accept to the first request: what a connection says before it speaks HTTP.

use std::rc::Rc;

use super::conn;
use crate::proxy::Downstream;
use crate::state::Core;

/// Starts to serve a connection that has just been accepted. One that has nothing to say before its
/// first request is served at once.
pub(super) fn start(core: &Rc<Core>, down: Box<Downstream>) {
    conn::start(core.clone(), down);
}
