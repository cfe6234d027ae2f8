//! RSA key generation by the rules of FIPS 186-5 appendix A.1.3, since ring has none.

use std::convert::Infallible;

use crypto_bigint::rand_core::{TryCryptoRng, TryRng};
use crypto_bigint::{Limb, NonZero, Odd, U1024, U2048, Uint};
use crypto_primes::Flavor;
use crypto_primes::fips::{self, FipsOptions};
use zeroize::Zeroizing;

use super::alg::Algorithm;
use super::der;
use super::keyring::{SigningKey, SigningKeyError, private_key_info};
use crate::random::Random;

/// The public exponent. It is prime, so a number is coprime to it unless it is a multiple of it.
const E: u32 = 65537;

/// The first 64 bits of √2. A prime whose first 64 bits are larger is larger than √2 · 2^1023.
const SQRT_2: u64 = 0xb504_f333_f9de_6484;

/// The rounds of Miller-Rabin for a prime of 1024 bits (FIPS 186-5 table B.1).
const ROUNDS: usize = 5;

/// Why no key was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RsaKeygenError {
    /// No usable primes among many candidates, so the random source must be broken.
    #[error("random source yields no usable primes")]
    NoPrimes,
    /// The new key failed its check.
    #[error("generated rsa key was rejected: {0}")]
    Rejected(#[from] SigningKeyError),
}

/// Makes an RSA key of 2048 bits, as a `PrivateKeyInfo` (PKCS#8, RFC 5208 section 5) in DER.
///
/// It takes about 0.1 s or 0.2 s, so do not call it on a thread that serves requests. The returned key was read back,
/// and it has signed and verified a message.
pub fn generate(random: &Random) -> Result<Zeroizing<Vec<u8>>, RsaKeygenError> {
    for _ in 0..10 {
        let (one, other) = (prime(random)?, prime(random)?);
        let (p, q) = if one > other { (one, other) } else { (other, one) };
        if let Some(private_key) = assemble(&p, &q) {
            let pkcs8 = private_key_info(der::RSA_ENCRYPTION, &private_key);
            SigningKey::from_pkcs8_der(Algorithm::Rs256, &pkcs8)?;
            return Ok(pkcs8);
        }
    }
    Err(RsaKeygenError::NoPrimes)
}

/// A probable prime of 1024 bits, larger than √2 · 2^1023, where `E` is coprime to the prime minus one.
///
/// Every candidate is random. Searching upwards from one candidate would prefer primes after long gaps.
fn prime(random: &Random) -> Result<U1024, RsaKeygenError> {
    let options = FipsOptions::with_mr_iterations(ROUNDS).with_trial_division_test();
    let mut bytes = Zeroizing::new([0; U1024::BYTES]);
    for _ in 0..20 * U1024::BITS {
        random.fill(bytes.as_mut_slice());
        if let Some(last) = bytes.last_mut() {
            *last |= 1;
        }
        if bytes
            .first_chunk()
            .is_none_or(|first| u64::from_be_bytes(*first) <= SQRT_2)
        {
            continue;
        }
        let candidate = U1024::from_be_slice(bytes.as_slice());
        if remainder_by_e(&candidate) != Limb::ONE
            && fips::is_prime(&mut RngAdapter(random), Flavor::Any, &candidate, options)
        {
            return Ok(candidate);
        }
    }
    Err(RsaKeygenError::NoPrimes)
}

fn remainder_by_e(number: &U1024) -> Limb {
    NonZero::new(Limb::from_u32(E)).map_or(Limb::ZERO, |e| number.rem_limb(e))
}

/// An `RSAPrivateKey` (RFC 8017 appendix A.1.2) from two primes, `p > q`. `None` if they are too close to each other or
/// the private exponent is too small.
fn assemble(p: &U1024, q: &U1024) -> Option<Zeroizing<Vec<u8>>> {
    let half_bits = U1024::BITS;
    if p.wrapping_sub(q).bits_vartime() <= half_bits - 100 + 1 {
        return None;
    }
    let p_less_one = p.wrapping_sub(&Uint::ONE);
    let q_less_one = q.wrapping_sub(&Uint::ONE);
    let common: U2048 = p_less_one.gcd(&q_less_one).resize();
    let product = p_less_one.resize::<{ U2048::LIMBS }>().wrapping_mul(&q_less_one);
    let least_common_multiple = product.wrapping_div(&NonZero::new(common).into_option()?);
    let modulus = NonZero::new(least_common_multiple).into_option()?;
    let d = U2048::from_u32(E).invert_mod(&modulus).into_option()?;
    if d.bits_vartime() <= half_bits {
        return None;
    }
    let n = p.resize::<{ U2048::LIMBS }>().wrapping_mul(q);
    let first_exponent = d.rem(&NonZero::new(p_less_one).into_option()?);
    let second_exponent = d.rem(&NonZero::new(q_less_one).into_option()?);
    let coefficient = q.invert_odd_mod(&Odd::new(*p).into_option()?).into_option()?;
    Some(der::element(
        der::SEQUENCE,
        &[
            &der::unsigned(&[0]),
            &integer(&n),
            &der::unsigned(&E.to_be_bytes()),
            &integer(&d),
            &integer(p),
            &integer(q),
            &integer(&first_exponent),
            &integer(&second_exponent),
            &integer(&coefficient),
        ],
    ))
}

fn integer<const LIMBS: usize>(number: &Uint<LIMBS>) -> Zeroizing<Vec<u8>> {
    let bytes: Zeroizing<Vec<u8>> = Zeroizing::new(
        number
            .as_limbs()
            .iter()
            .rev()
            .flat_map(|limb| limb.0.to_be_bytes())
            .collect(),
    );
    der::unsigned(&bytes)
}

/// Adapts the random source to the interface of the primality tests.
struct RngAdapter<'a>(&'a Random);

impl TryRng for RngAdapter<'_> {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(u32::from_ne_bytes(self.0.bytes()))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(u64::from_ne_bytes(self.0.bytes()))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.0.fill(bytes);
        Ok(())
    }
}

impl TryCryptoRng for RngAdapter<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_keys_are_accepted_and_differ() {
        let random = Random::system();
        let keys = [(); 2].map(|()| generate(&random).unwrap());
        let [one, two] = keys
            .each_ref()
            .map(|der| SigningKey::from_pkcs8_der(Algorithm::Ps256, der).unwrap());
        assert_ne!(one.kid(), two.kid());
        assert_eq!(one.sign(b"message").unwrap().len(), 256);
    }

    #[test]
    fn a_seed_repeats_a_key() {
        let [one, two] = [(); 2].map(|()| generate(&Random::seeded(3)).unwrap());
        assert_eq!(one, two);
    }

    #[test]
    fn the_rounds_keep_the_error_below_the_strength_of_the_key() {
        assert!(crypto_primes::hazmat::minimum_mr_iterations(1024, 112).unwrap() <= ROUNDS);
    }

    #[test]
    fn primes_that_are_close_to_each_other_are_refused() {
        let p = U1024::MAX;
        let near = p.wrapping_sub(&Uint::ONE.shl_vartime(1024 - 100));
        assert!(assemble(&p, &near).is_none());
    }
}
