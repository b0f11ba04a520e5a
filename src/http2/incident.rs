//! What several requests fail of at once.

use std::cell::Cell;
use std::rc::Rc;

/// The end of a connection that requests shared, or of a connect that they waited for. Each of them
/// fails, but of the endpoint it says no more than one failure does.
#[derive(Clone, Debug, Default)]
pub struct Incident(Rc<Cell<bool>>);

impl Incident {
    /// Counts one of its failures; true for the first.
    pub fn count(&self) -> bool {
        !self.0.replace(true)
    }
}
