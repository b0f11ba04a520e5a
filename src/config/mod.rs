//! Configuration as written: source text to a spanned tree, and the tree to structs.
//!
//! Every mistake is collected with its place and a remedy. What the structs refer to is checked by
//! `snapshot`, the only validator.

pub mod diagnostic;
pub mod tree;

pub mod decode;
pub mod read;

pub mod reference;
pub mod written;

pub use diagnostic::{Diagnostic, Diagnostics, Severity, Source};
pub use written::Config;
