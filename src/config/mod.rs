//! Configuration as written: source texts to one spanned tree, and the tree to structs.
//!
//! `include` reads the files, `tree` (TOML) and `json` parse them, `environment` expands variables,
//! `merge` makes one tree of all, `decode` and `read` take structs out of it, and `show` shows it
//! without its secrets.
//!
//! Every mistake is collected with its place and a remedy. What the structs refer to is checked by
//! `snapshot`, the only validator.

pub mod diagnostic;
pub mod source;

pub mod environment;
pub mod json;
pub mod merge;
pub mod show;
pub mod tree;

pub mod decode;
pub mod read;

pub mod include;

pub mod reference;
pub mod written;

pub use diagnostic::{Diagnostic, Diagnostics, Severity};
pub use include::Gathered;
pub use source::{Kind, Source, Sources};
pub use written::Config;
