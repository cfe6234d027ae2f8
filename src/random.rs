//! The only reader of entropy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ring::digest;
use ring::rand::{SecureRandom, SystemRandom};
use uuid::Uuid;

/// The source of randomness: the operating system, or a seed for repeatable tests.
#[derive(Clone, Debug)]
pub enum Random {
    /// The operating system's generator.
    System(SystemRandom),
    /// SHA-256 over a seed and a counter. For tests only: the seed reveals all values.
    Seeded(u64, Arc<AtomicU64>),
}

impl Random {
    /// The operating system's generator.
    pub fn system() -> Self {
        #[expect(clippy::disallowed_methods, reason = "the one reader of system entropy")]
        Self::System(SystemRandom::new())
    }

    /// A repeatable sequence, for tests.
    pub fn seeded(seed: u64) -> Self {
        Self::Seeded(seed, Arc::new(AtomicU64::new(0)))
    }

    /// Fills `bytes`.
    ///
    /// # Panics
    /// When the operating system has no entropy: no safe value can be made then, so the request ends.
    pub fn fill(&self, bytes: &mut [u8]) {
        match self {
            Self::System(system) => {
                assert!(system.fill(bytes).is_ok(), "the operating system gave no entropy");
            }
            Self::Seeded(seed, counter) => {
                for chunk in bytes.chunks_mut(digest::SHA256_OUTPUT_LEN) {
                    let mut context = digest::Context::new(&digest::SHA256);
                    context.update(&seed.to_be_bytes());
                    context.update(&counter.fetch_add(1, Ordering::SeqCst).to_be_bytes());
                    for (to, from) in chunk.iter_mut().zip(context.finish().as_ref()) {
                        *to = *from;
                    }
                }
            }
        }
    }

    /// `N` random bytes.
    pub fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.fill(&mut bytes);
        bytes
    }

    /// A random identifier without a time (RFC 9562 section 5.4).
    pub fn uuid_v4(&self) -> Uuid {
        uuid::Builder::from_random_bytes(self.bytes()).into_uuid()
    }

    /// An identifier that sorts by `made_at`, a time since the epoch, to 244 ns (RFC 9562 sections 5.7 and 6.2, method 3).
    /// New rows therefore lie behind all others in the store, which fills its pages whole and not by half.
    pub fn uuid_v7(&self, made_at: Duration) -> Uuid {
        let mut rest: [u8; 10] = self.bytes();
        let fraction = (u64::from(made_at.subsec_nanos() % 1_000_000) << 12) / 1_000_000;
        let [.., high, low] = fraction.to_be_bytes();
        (rest[0], rest[1]) = (high, low);
        let millis = u64::try_from(made_at.as_millis()).unwrap_or(u64::MAX);
        uuid::Builder::from_unix_timestamp_millis(millis, &rest).into_uuid()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_never_gives_the_same_bytes_twice() {
        let (one, two) = (Random::seeded(7), Random::seeded(7));
        let first: [u8; 40] = one.bytes();
        assert_eq!(first, two.bytes::<40>());
        assert_ne!(first, one.bytes::<40>());
        assert_ne!(first, Random::seeded(8).bytes::<40>());
    }

    #[test]
    fn version_7_identifiers_sort_by_time() {
        let random = Random::system();
        let made = |nanos: u64| random.uuid_v7(Duration::from_nanos(1_000_000_000_000 + nanos));
        for (earlier, later) in [
            (0, 1_000_000),
            (0, 250),
            (999_750, 1_000_000),
            (999_999, 1_000_250),
        ] {
            assert!(made(earlier) < made(later), "{earlier} {later}");
        }
        assert_eq!(made(0).get_timestamp().unwrap().to_unix(), (1_000, 0));
        assert_eq!(made(0).get_version_num(), 7);
        assert_ne!(made(0), made(0));
        assert_eq!(random.uuid_v4().get_version_num(), 4);
    }
}
