//! What the service promises, tried from outside: a real socket, a browser that keeps cookies, a clock moved by
//! hand.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, in its helpers too"
)]

mod backup;
mod cli;
mod crash;
mod harness;
mod import;
mod rsa_keygen;
mod shared;
mod spec;
mod state;
mod sweep;
mod tidy;
mod watch;
