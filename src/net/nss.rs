//! How the static executable resolves names.
//!
//! glibc loads the modules that `/etc/nsswitch.conf` names, even into a static executable. Such a module loads the
//! machine's own C library, and two C libraries in one process crash. The resolvers for the hosts file and DNS are part
//! of the executable. glibc has one function to use only those, and no safe crate wraps it.

#![expect(unsafe_code, reason = "glibc offers this setting as a C function only")]

use std::ffi::{c_char, c_int};

unsafe extern "C" {
    fn __nss_configure_lookup(database: *const c_char, service_line: *const c_char) -> c_int;
}

/// Resolves host names by the hosts file and DNS only, and ignores the machine's configuration. Call it once, before the
/// process has a second thread.
pub fn use_built_in_resolvers() {
    // SAFETY: both arguments are constants that end with NUL, and glibc copies them. No other thread exists yet that could
    // resolve names at the same time. The call fails only without memory, and the machine's setting then remains.
    unsafe { __nss_configure_lookup(c"hosts".as_ptr(), c"files dns".as_ptr()) };
}
