//! Recovery codes: what a user signs in with if the other factor is lost.

use uuid::Uuid;
use zeroize::Zeroizing;

use super::RecoveryCodes;
use crate::secret::{Digest, RecoveryCode};
use crate::text;

/// Letters and digits that nobody confuses: Crockford's base 32.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// The bytes that one code is made of: 80 bits, too many to guess with a copy of the store.
const LEN: usize = 10;
/// The letters of a code.
const LETTERS: usize = LEN * 8 / 5;

/// Recovery codes that were just made.
pub struct GeneratedCodes {
    /// What the user sees once.
    pub texts: Vec<Zeroizing<String>>,
    /// What is stored.
    pub codes: RecoveryCodes,
}

impl RecoveryCodes {
    /// How many there are of them.
    pub const COUNT: usize = 10;
    /// The random bytes of all.
    pub const RANDOM: usize = Self::COUNT * LEN;

    /// Makes the codes of the factor with this id.
    pub fn generate(id: Uuid, random: &[u8; Self::RANDOM]) -> GeneratedCodes {
        let texts: Vec<_> = random.chunks(LEN).map(text_of).collect();
        let digests = texts.iter().filter_map(|text| Self::digest(id, text));
        let codes = Self {
            unused: digests.collect(),
        };
        GeneratedCodes { texts, codes }
    }

    /// The digest of a typed code; `None` if the text is no such code. Case, spaces and hyphens do not matter.
    pub fn digest(id: Uuid, typed: &str) -> Option<Digest<RecoveryCode>> {
        let mut salted = Zeroizing::new(id.as_bytes().to_vec());
        for letter in text::code(typed).chars() {
            let letter = match letter {
                'i' | 'l' => '1',
                'o' => '0',
                letter => letter,
            };
            salted.push(u8::try_from(letter).ok().filter(|byte| ALPHABET.contains(byte))?);
        }
        (salted.len() == size_of::<Uuid>() + LETTERS).then(|| Digest::of(&salted))
    }

    /// Uses a code up. Returns whether it was unused.
    pub fn use_up(&mut self, code: &Digest<RecoveryCode>) -> bool {
        let before = self.unused.len();
        self.unused.retain(|unused| unused != code);
        self.unused.len() < before
    }
}

/// The code of ten bytes, in groups of four letters.
fn text_of(bytes: &[u8]) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(LETTERS + 3));
    let number = bytes
        .iter()
        .fold(0_u128, |number, byte| number << 8 | u128::from(*byte));
    for place in (0..LETTERS).rev() {
        let index = usize::try_from(number >> (5 * place) & 31).ok();
        text.extend(
            index
                .and_then(|at| ALPHABET.get(at))
                .map(|letter| char::from(*letter)),
        );
        if place % 4 == 0 && place > 0 {
            text.push('-');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_is_accepted_once_however_it_is_written() {
        let id = Uuid::from_u128(1);
        let mut random = [0; RecoveryCodes::RANDOM];
        for (at, byte) in random.iter_mut().enumerate() {
            *byte = u8::try_from(at).unwrap();
        }
        let GeneratedCodes { texts, mut codes } = RecoveryCodes::generate(id, &random);
        assert_eq!((texts.len(), codes.unused.len()), (10, 10));
        assert_eq!(*texts[0], "000g-40r4-0m30-e209");
        for (left, text) in texts.iter().enumerate().rev() {
            let typed = text.to_uppercase().replace('-', " ").replace('0', "O");
            let digest = RecoveryCodes::digest(id, &typed).unwrap();
            assert!(codes.use_up(&digest) && !codes.use_up(&digest));
            assert_eq!(codes.unused.len(), left);
        }
    }

    #[test]
    fn the_code_of_another_factor_and_other_texts_are_none() {
        let generated = RecoveryCodes::generate(Uuid::from_u128(1), &[7; RecoveryCodes::RANDOM]);
        let GeneratedCodes { texts, codes } = generated;
        let elsewhere = RecoveryCodes::digest(Uuid::from_u128(2), &texts[0]).unwrap();
        assert!(!codes.clone().use_up(&elsewhere));
        for typed in [
            "",
            "123456",
            "000g-40r4-0m30-e20",
            "000g-40r4-0m30-e2099",
            "000g-40r4-0m30-e20u",
        ] {
            assert!(
                RecoveryCodes::digest(Uuid::from_u128(1), typed).is_none(),
                "{typed}"
            );
        }
    }
}
