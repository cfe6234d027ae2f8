//! Bech32 (BIP 173), the encoding of recipients and identities. As in age, the length is not limited.

use zeroize::Zeroizing;

const CHARACTERS: &[u8; 32] = b"qpzry9x8gf2tvdw0s3jn54khce6mua7l";
const GENERATOR: [u32; 5] = [0x3b6a_57b2, 0x2650_8e6d, 0x1ea1_19fa, 0x3d42_33dd, 0x2a14_62b3];
const CHECKSUM_LEN: usize = 6;

/// The 32 bytes behind the prefix `hrp`, which is in lower case. `None` for another prefix, length, case or checksum.
pub(super) fn decode(hrp: &str, text: &str) -> Option<Zeroizing<[u8; 32]>> {
    let is_upper = !text.bytes().any(|byte| byte.is_ascii_lowercase());
    let is_lower = !text.bytes().any(|byte| byte.is_ascii_uppercase());
    let (prefix, data) = text.rsplit_once('1')?;
    if !(is_upper || is_lower) || !prefix.eq_ignore_ascii_case(hrp) {
        return None;
    }
    let mut values = Zeroizing::new(Vec::with_capacity(data.len()));
    for byte in data.bytes() {
        let known = CHARACTERS
            .iter()
            .position(|known| *known == byte.to_ascii_lowercase())?;
        values.push(u8::try_from(known).ok()?);
    }
    if checksum(hrp, &values) != 1 {
        return None;
    }
    let length = values.len().checked_sub(CHECKSUM_LEN)?;
    values.truncate(length);
    from_groups_of_five(&values)
}

fn checksum(hrp: &str, values: &[u8]) -> u32 {
    let high = hrp.bytes().map(|byte| byte >> 5);
    let low = hrp.bytes().map(|byte| byte & 31);
    let all = high.chain([0]).chain(low).chain(values.iter().copied());
    all.fold(1, |sum, value| {
        let shifted = ((sum & 0x01ff_ffff) << 5) ^ u32::from(value);
        let selected = GENERATOR.iter().enumerate();
        let selected = selected.filter(|(bit, _)| (sum >> 25) >> bit & 1 == 1);
        selected.fold(shifted, |sum, (_, generator)| sum ^ generator)
    })
}

/// Joins groups of five bits. Bits that fill the last group up must be zero, and fewer than five.
fn from_groups_of_five(groups: &[u8]) -> Option<Zeroizing<[u8; 32]>> {
    let mut bytes = Zeroizing::new([0; 32]);
    let mut places = bytes.iter_mut();
    let (mut bits, mut count) = (0_u32, 0);
    for group in groups {
        bits = (bits << 5 | u32::from(*group)) & 0xfff;
        count += 5;
        if count >= 8 {
            count -= 8;
            *places.next()? = u8::try_from(bits >> count & 0xff).ok()?;
        }
    }
    let is_whole = places.next().is_none() && count < 5 && bits & ((1 << count) - 1) == 0;
    is_whole.then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The identity and its recipient from the specification.
    const IDENTITY: &str = "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX";
    const RECIPIENT: &str = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";

    #[test]
    fn a_key_is_read_in_either_case_and_not_in_both() {
        assert_eq!(*decode("age-secret-key-", IDENTITY).unwrap(), [0x42; 32]);
        assert_eq!(
            decode("age", RECIPIENT),
            decode("age", &RECIPIENT.to_ascii_uppercase())
        );
        assert!(decode("age", RECIPIENT).is_some());
        for wrong in [RECIPIENT.replacen('a', "A", 1), RECIPIENT.replacen('z', "Z", 1)] {
            assert_eq!(decode("age", &wrong), None, "{wrong}");
        }
        assert_eq!(decode("age", IDENTITY), None);
        assert_eq!(decode("age-secret-key-", RECIPIENT), None);
    }

    #[test]
    fn every_changed_or_missing_character_is_noticed() {
        for at in 0..RECIPIENT.len() {
            for character in CHARACTERS.iter().copied().chain(*b"1bio \n-") {
                let mut changed = RECIPIENT.as_bytes().to_vec();
                changed[at] = character;
                if changed != RECIPIENT.as_bytes() {
                    let changed = String::from_utf8(changed).unwrap();
                    assert_eq!(decode("age", &changed), None, "{changed}");
                }
            }
            let mut shorter = RECIPIENT.to_owned();
            shorter.remove(at);
            assert_eq!(decode("age", &shorter), None, "{shorter}");
        }
        for odd in ["", "1", "age", "age1", "age1qqqqqq", "é1é"] {
            assert_eq!(decode("age", odd), None, "{odd}");
        }
    }

    #[test]
    fn bits_that_fill_up_are_zero() {
        let mut groups = [0; 52];
        assert_eq!(*from_groups_of_five(&groups).unwrap(), [0; 32]);
        for bits in 1..16 {
            groups[51] = bits;
            assert_eq!(from_groups_of_five(&groups), None);
        }
        for other in [50, 51, 53, 54] {
            assert_eq!(from_groups_of_five(&vec![0; other]), None, "{other}");
        }
    }
}
