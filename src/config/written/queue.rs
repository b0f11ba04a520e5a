//! `queue` and `concurrency` of an upstream

use super::super::decode::{Decode, Decoder, Fields};
use super::super::diagnostic::Diagnostic;
use super::super::read::{integer, timeout};
use super::super::tree::Node;
use crate::limits::{CONNECTIONS_MAX, QUEUE_LENGTH_MAX};

/// `upstream.NAME.queue`
#[derive(Clone, Copy, Debug)]
pub struct Queue {
    /// `length_max`
    pub length_max: usize,
    /// `timeout`, in milliseconds
    pub timeout_ms: u64,
}

impl Decode for Queue {
    fn decode(node: &Node, decoder: &mut Decoder) -> Option<Queue> {
        let mut f = Fields::of("upstream.NAME.queue", node, decoder)?;
        let length_max = f.required("length_max", "100", integer(1..=QUEUE_LENGTH_MAX));
        let timeout_ms = f.required("timeout", "\"500ms\"", timeout);
        f.finish();
        Some(Queue { length_max: length_max?, timeout_ms: timeout_ms? })
    }
}

/// `upstream.NAME.concurrency`
#[derive(Clone, Copy, Debug)]
pub struct Concurrency {
    /// `min`
    pub min: usize,
    /// `max`
    pub max: usize,
}

impl Decode for Concurrency {
    fn decode(node: &Node, decoder: &mut Decoder) -> Option<Concurrency> {
        let mut f = Fields::of("upstream.NAME.concurrency", node, decoder)?;
        let min = f.required("min", "4", integer(1..=CONNECTIONS_MAX));
        let max = f.required("max", "1000", integer(1..=CONNECTIONS_MAX));
        f.finish();
        let (min, max) = (min?, max?);
        if min > max {
            let message = format!("the least, {min}, is above the most, {max}");
            let remedy = "write the smaller number as `min`";
            decoder.found.push(Diagnostic::error(node.span.clone(), message).remedy(remedy));
            return None;
        }
        Some(Concurrency { min, max })
    }
}
