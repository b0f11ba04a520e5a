//! Tests of what is decided without a connection.
