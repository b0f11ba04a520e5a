//! Ringway: an HTTP reverse proxy and API gateway on io_uring.
//!
//! A module imports only from those above it in this list (docs/architecture.md, tests/tidy.rs).

pub mod limits;

pub mod base;
pub mod error;

pub mod config;
pub mod http;
pub mod io;
pub mod observe;

pub mod http1;
pub mod http2;

pub mod context;

pub mod filter;
pub mod route;
pub mod upstream;

pub mod snapshot;
pub mod state;

pub mod proxy;

pub mod worker;

pub mod control;

pub mod cli;
