//! Counts sign-ins by method.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::described::described;

described! {
    /// How a user signed in: the first step.
    pub enum SignInMethod {
        /// With a password.
        Password = "password",
        /// By a link or a code from a mail.
        Email = "email",
        /// With a passkey.
        Passkey = "passkey",
        /// At an upstream provider.
        Provider = "provider",
    }
}

static COUNTS: [AtomicU64; SignInMethod::ALL.len()] = [const { AtomicU64::new(0) }; SignInMethod::ALL.len()];

/// Counts a sign-in.
pub fn count(method: SignInMethod) {
    let mut methods = SignInMethod::ALL.iter().zip(&COUNTS);
    if let Some((_, count)) = methods.find(|(known, _)| **known == method) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// How many sign-ins of each method this process has counted.
pub fn counts() -> impl Iterator<Item = (SignInMethod, u64)> {
    let counts = COUNTS.iter().map(|count| count.load(Ordering::Relaxed));
    SignInMethod::ALL.into_iter().zip(counts)
}
