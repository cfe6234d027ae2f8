//! RSA key generation by the rules of FIPS 186-5 appendix A.1.3, since ring has none.

use std::convert::Infallible;

use crypto_bigint::rand_core::{TryCryptoRng, TryRng};
use crypto_bigint::{Limb, NonZero, Odd, U1024, U1536, U2048, U3072, U4096, Uint};
use crypto_primes::Flavor;
use crypto_primes::fips::{self, FipsOptions};
use zeroize::Zeroizing;

use super::alg::Algorithm;
use super::der;
use super::keyring::{SigningKey, SigningKeyError, rsa_private_key_info};
use crate::random::Random;

/// The public exponent. It is prime, so a number is coprime to it unless it is a multiple.
const E: u32 = 65537;

/// The first 64 bits of √2: a prime that starts with more is larger than √2 · 2^(bits − 1).
const SQRT_2: u64 = 0xb504_f333_f9de_6484;

/// Why no key was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RsaKeygenError {
    /// Another length than those that can sign.
    #[error("rsa keys are 2048, 3072 or 4096 bits long")]
    UnsupportedSize,
    /// So many candidates without a prime, or so many unfit primes, that the random source must be broken.
    #[error("random source yields no usable primes")]
    NoPrimes,
    /// The finished key failed its check.
    #[error("generated rsa key was rejected: {0}")]
    Rejected(#[from] SigningKeyError),
}

/// Makes an RSA key of `bits` and gives it as a `PrivateKeyInfo` (PKCS#8, RFC 5208 section 5) in DER.
///
/// 2048 bits take a tenth of a second or two, 4096 about a second: never call it on a thread that serves
/// requests. The key has been read back, and has signed and verified a message, when it is returned. The rounds
/// of Miller-Rabin are those of FIPS 186-5 table B.1.
pub fn generate(bits: usize, random: &Random) -> Result<Zeroizing<Vec<u8>>, RsaKeygenError> {
    let private_key = match bits {
        2048 => private_key::<{ U1024::LIMBS }, { U2048::LIMBS }>(5, random),
        3072 => private_key::<{ U1536::LIMBS }, { U3072::LIMBS }>(4, random),
        4096 => private_key::<{ U2048::LIMBS }, { U4096::LIMBS }>(4, random),
        _ => Err(RsaKeygenError::UnsupportedSize),
    }?;
    let pkcs8 = rsa_private_key_info(&private_key);
    SigningKey::from_pkcs8_der(Algorithm::Rs256, &pkcs8)?;
    Ok(pkcs8)
}

/// An `RSAPrivateKey` (RFC 8017 appendix A.1.2) of two primes that fill `HALF` limbs each.
fn private_key<const HALF: usize, const WHOLE: usize>(
    rounds: usize,
    random: &Random,
) -> Result<Zeroizing<Vec<u8>>, RsaKeygenError> {
    (0..10)
        .find_map(|_| {
            let first = match prime::<HALF>(rounds, random) {
                Ok(prime) => prime,
                Err(error) => return Some(Err(error)),
            };
            let second = match prime::<HALF>(rounds, random) {
                Ok(prime) => prime,
                Err(error) => return Some(Err(error)),
            };
            let (larger, smaller) = if first > second {
                (first, second)
            } else {
                (second, first)
            };
            assemble::<HALF, WHOLE>(&larger, &smaller).map(Ok)
        })
        .unwrap_or(Err(RsaKeygenError::NoPrimes))
}

/// A probable prime of full length, larger than √2 · 2^(bits − 1), with `E` coprime to one less.
///
/// Every candidate is drawn anew: stepping on from one would prefer the primes behind long gaps.
fn prime<const HALF: usize>(rounds: usize, random: &Random) -> Result<Uint<HALF>, RsaKeygenError> {
    let options = FipsOptions::with_mr_iterations(rounds).with_trial_division_test();
    let mut bytes = Zeroizing::new(vec![0; Uint::<HALF>::BYTES]);
    for _ in 0..20 * Uint::<HALF>::BITS {
        random.fill(&mut bytes);
        if let Some(last) = bytes.last_mut() {
            *last |= 1;
        }
        if bytes
            .first_chunk()
            .is_none_or(|first| u64::from_be_bytes(*first) <= SQRT_2)
        {
            continue;
        }
        let candidate = Uint::from_be_slice(&bytes);
        if remainder_by_e(&candidate) != Limb::ONE
            && fips::is_prime(&mut Entropy(random), Flavor::Any, &candidate, options)
        {
            return Ok(candidate);
        }
    }
    Err(RsaKeygenError::NoPrimes)
}

fn remainder_by_e<const LIMBS: usize>(number: &Uint<LIMBS>) -> Limb {
    NonZero::new(Limb::from_u32(E)).map_or(Limb::ZERO, |e| number.rem_limb(e))
}

/// The private key of two primes, `p > q`; none when they are too close to each other or the private exponent
/// is too small.
fn assemble<const HALF: usize, const WHOLE: usize>(
    p: &Uint<HALF>,
    q: &Uint<HALF>,
) -> Option<Zeroizing<Vec<u8>>> {
    let half_bits = Uint::<HALF>::BITS;
    if p.wrapping_sub(q).bits_vartime() <= half_bits - 100 + 1 {
        return None;
    }
    let p_less_one = p.wrapping_sub(&Uint::ONE);
    let q_less_one = q.wrapping_sub(&Uint::ONE);
    let common = p_less_one.gcd(&q_less_one).resize::<WHOLE>();
    let product = p_less_one.resize::<WHOLE>().wrapping_mul(&q_less_one);
    let least_common_multiple = product.wrapping_div(&NonZero::new(common).into_option()?);
    let modulus = NonZero::new(least_common_multiple).into_option()?;
    let d = Uint::<WHOLE>::from_u32(E).invert_mod(&modulus).into_option()?;
    if d.bits_vartime() <= half_bits {
        return None;
    }
    let n = p.resize::<WHOLE>().wrapping_mul(q);
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

/// Our random source in the shape that the primality tests draw their bases from.
struct Entropy<'a>(&'a Random);

impl TryRng for Entropy<'_> {
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

impl TryCryptoRng for Entropy<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_keys_are_accepted_and_differ() {
        let random = Random::system();
        let keys = [(); 2].map(|()| generate(2048, &random).unwrap());
        let [one, two] = keys
            .each_ref()
            .map(|der| SigningKey::from_pkcs8_der(Algorithm::Ps256, der).unwrap());
        assert_ne!(one.kid(), two.kid());
        assert_eq!(one.sign(b"message").unwrap().len(), 256);
    }

    #[test]
    fn a_seed_repeats_a_key() {
        let [one, two] = [(); 2].map(|()| generate(2048, &Random::seeded(3)).unwrap());
        assert_eq!(one, two);
    }

    #[test]
    fn other_sizes_are_refused() {
        for bits in [0, 512, 1024, 2047, 2049, 8192] {
            assert_eq!(
                generate(bits, &Random::system()).unwrap_err(),
                RsaKeygenError::UnsupportedSize
            );
        }
    }

    #[test]
    fn the_rounds_keep_the_error_below_the_strength_of_the_key() {
        for (prime_bits, strength, rounds) in [(1024, 112, 5), (1536, 128, 4), (2048, 144, 4)] {
            let needed = crypto_primes::hazmat::minimum_mr_iterations(prime_bits, strength).unwrap();
            assert!(needed <= rounds, "{prime_bits} bits: {needed}");
        }
    }

    #[test]
    fn primes_that_are_close_to_each_other_are_refused() {
        let p = Uint::<{ U1024::LIMBS }>::MAX;
        let near = p.wrapping_sub(&Uint::ONE.shl_vartime(1024 - 100));
        assert!(assemble::<{ U1024::LIMBS }, { U2048::LIMBS }>(&p, &near).is_none());
    }
}
