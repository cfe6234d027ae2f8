//! Ports for processes, which cannot bind port 0 because others have to know where they listen.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// A free port on loopback that no other call in this process returns. It is below those that the kernel gives to outgoing
/// connections, and each process of tests begins somewhere else.
pub(crate) fn free_port() -> u16 {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    loop {
        let next = std::process::id().wrapping_mul(7_919) % 22_000 + TRIED.fetch_add(1, Ordering::Relaxed);
        let port = u16::try_from(10_000 + next % 22_000).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
