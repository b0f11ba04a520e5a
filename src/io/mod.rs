//! The only module that names monoio, and the only home of unsafe code.
//!
//! Everything above sees [`Stream`], [`Listener`], a few functions to spawn and sleep, and the
//! driver ladder. A later change of runtime changes this folder alone.

pub mod driver;
pub mod runtime;

pub mod connect;
pub mod listener;
pub mod mem;
pub mod poll;
pub mod signal;
pub mod stream;
pub mod wait;
pub mod wake;

#[cfg(feature = "demo")]
pub mod demo_origin;

mod buffer;
mod cancel;

pub use cancel::Cancel;
pub use driver::{DriverChoice, DriverKind, DriverReport};
pub use listener::Listener;
pub use poll::{PollIo, Poller};
pub use runtime::{sleep_ms, spawn};
pub use stream::{Handle, Peek, Shutdown, Stream};
pub use wait::{Target, Wait};
pub use wake::Wake;
