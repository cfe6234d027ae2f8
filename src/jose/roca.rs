//! RSA moduli whose private key can be computed. A library in chips made them until 2017 (CVE-2017-15361, "ROCA"). A
//! client could register such a key, and Wycheproof's key vectors require that it is refused.
//!
//! Each prime of that library was a power of 65537 modulo the product of the first small primes, and so is the modulus.
//! Any other modulus has this property with a probability of less than one in a hundred million.

/// The primes in that product for keys of every size, without 2.
const PRIMES: [u16; 38] = [
    3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103,
    107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167,
];
const GENERATOR: u32 = 65_537;

/// Whether a big-endian modulus has the property of that library.
pub(super) fn is_weak(modulus: &[u8]) -> bool {
    PRIMES.into_iter().map(u32::from).all(|prime| {
        let rest = modulus
            .iter()
            .fold(0, |rest, byte| (rest << 8 | u32::from(*byte)) % prime);
        is_power(rest, prime)
    })
}

/// Whether `rest` is a power of the generator modulo `prime`.
fn is_power(rest: u32, prime: u32) -> bool {
    std::iter::successors(Some(1), |power| Some(power * GENERATOR % prime))
        .take(usize::try_from(prime).unwrap_or_default())
        .any(|power| power == rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_power_of_the_generator_is_marked_and_its_neighbour_is_not() {
        let power = 65_537_u128.pow(7).to_be_bytes();
        assert!(is_weak(&power));
        assert!(!is_weak(&(65_537_u128.pow(7) + 2).to_be_bytes()));
    }
}
