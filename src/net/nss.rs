//! How the static executable resolves names.
//!
//! glibc asks the modules that `/etc/nsswitch.conf` names, and loads them even into an executable that it is linked
//! into. Such a module brings the machine's own C library along, of whatever version, and two of them in one process
//! crash. The hosts file and DNS are part of the executable; to stay with them has to be said in the one way that
//! glibc offers, which no safe crate wraps.

#![expect(unsafe_code, reason = "glibc offers this setting as a C function only")]

use std::ffi::{c_char, c_int};

unsafe extern "C" {
    fn __nss_configure_lookup(database: *const c_char, service_line: *const c_char) -> c_int;
}

/// Resolves the names of hosts by the hosts file and DNS, whatever the machine is configured to do. To be called once,
/// before the process has a second thread.
pub fn stay_built_in() {
    // SAFETY: both arguments are constants with a NUL at their end, which glibc copies; nobody resolves names meanwhile,
    // because there is no other thread yet. It fails for want of memory only, and the machine's setting remains then.
    unsafe { __nss_configure_lookup(c"hosts".as_ptr(), c"files dns".as_ptr()) };
}
