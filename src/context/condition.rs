//! Conditions on a request: what `when` lists.

use super::RequestContext;

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Condition {}

/// Whether all of them hold.
pub fn all_hold(conditions: &[Condition], _context: &RequestContext) -> bool {
    conditions.is_empty()
}
