//! What the measuring programs share: the ring, the accept loop, the command line, the measured
//! window, TLS and gRPC messages.

pub mod args;
pub mod grpc;
pub mod ring;
pub mod server;
pub mod tls;
pub mod window;
