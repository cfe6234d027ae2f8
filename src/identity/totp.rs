//! Codes of an authenticator app: TOTP (RFC 6238) with SHA-1, six digits and steps of 30 seconds.
//!
//! Every app knows these values. Several apps ignore other values, and would show wrong codes.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use ring::hmac;
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};
use zeroize::Zeroizing;

use crate::clock::Timestamp;
use crate::text;

/// The seconds of a time step (RFC 6238 section 4.1).
const STEP: u64 = 30;
const DIGITS: usize = 6;
const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// The secret that a user's app and the service share.
#[derive(Clone)]
pub struct TotpSeed(Zeroizing<Vec<u8>>);

impl TotpSeed {
    /// The bytes of a new seed: 160 bits, as RFC 4226 section 4 recommends.
    pub const LEN: usize = 20;

    /// A seed of these bytes. `None` if there are fewer than 10, which is the least that apps make, or more than
    /// 64, the block of the hash function.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let fits = (10..=64).contains(&bytes.len());
        fits.then(|| Self(Zeroizing::new(bytes.to_owned())))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Base32 (RFC 4648 section 6) without padding, for people to type.
    pub fn base32(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(self.0.len() * 8 / 5 + 1));
        let (mut bits, mut held) = (0_u32, 0_u32);
        let mut push = |index: u32| {
            let letter = usize::try_from(index & 31).ok().and_then(|at| BASE32.get(at));
            text.extend(letter.map(|letter| char::from(*letter)));
        };
        for byte in self.0.iter() {
            bits = (bits << 8 | u32::from(*byte)) & 0xfff;
            held += 8;
            while held >= 5 {
                held -= 5;
                push(bits >> held);
            }
        }
        if held > 0 {
            push(bits << (5 - held));
        }
        text
    }

    /// The bytes that base32 stands for (RFC 4648 section 6), with padding or without, in letters of either case.
    pub fn decode_base32(text: &str) -> Option<Zeroizing<Vec<u8>>> {
        let text = text.trim_end_matches('=');
        let mut bytes = Zeroizing::new(Vec::with_capacity(text.len() * 5 / 8));
        let (mut bits, mut held) = (0_u32, 0_u32);
        for letter in text.bytes() {
            let value = BASE32
                .iter()
                .position(|known| *known == letter.to_ascii_uppercase())?;
            bits = (bits << 5 | u32::try_from(value).ok()?) & 0xfff;
            held += 5;
            if held >= 8 {
                held -= 8;
                bytes.push(u8::try_from(bits >> held & 0xff).ok()?);
            }
        }
        Some(bytes)
    }

    /// The seed in base32, in groups of four letters.
    pub fn grouped(&self) -> String {
        let text = self.base32();
        let groups: Vec<_> = text.as_bytes().chunks(4).map(String::from_utf8_lossy).collect();
        groups.join(" ")
    }

    /// The address that a QR code has in it. Apps show `issuer` and `account`.
    ///
    /// A colon ends the issuer, so neither of them has a colon, not even an encoded one. Some apps decode the label
    /// before they look for the colon. They refuse a second one, or an issuer that differs from the parameter.
    pub fn address(&self, issuer: &str, account: &str) -> Zeroizing<String> {
        let (issuer, account) = (label_part(issuer), label_part(account));
        Zeroizing::new(format!(
            "otpauth://totp/{issuer}:{account}?secret={}&issuer={issuer}&algorithm=SHA1&digits={DIGITS}&period={STEP}",
            *self.base32()
        ))
    }

    /// The time step of a typed code: the present one, or one beside it, because clocks differ (RFC 6238 section 5.2).
    /// `None` if it is the code of neither.
    pub fn step_of(&self, typed: &str, now: Timestamp) -> Option<u64> {
        let typed = text::code(typed);
        let present = now.seconds() / STEP;
        let mut found = 0;
        let mut is_found = Choice::from(0);
        for step in present.saturating_sub(1)..=present + 1 {
            let code = Zeroizing::new(format!("{:06}", self.number(step) % 1_000_000));
            let is_same = code.as_bytes().ct_eq(typed.as_bytes());
            found.conditional_assign(&step, is_same);
            is_found |= is_same;
        }
        bool::from(is_found).then_some(found)
    }

    /// The number of a time step, of which a code has the last digits (RFC 4226 section 5.3).
    fn number(&self, step: u64) -> u32 {
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &self.0);
        let tag = hmac::sign(&key, &step.to_be_bytes());
        let bytes = tag.as_ref();
        let offset = usize::from(bytes.last().copied().unwrap_or_default() & 15);
        let chunk = bytes.get(offset..).and_then(<[u8]>::first_chunk);
        u32::from_be_bytes(chunk.copied().unwrap_or_default()) & 0x7fff_ffff
    }
}

/// The text with spaces in the place of colons, percent-encoded.
fn label_part(text: &str) -> String {
    let words = text.split(|c: char| c == ':' || c.is_whitespace());
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    utf8_percent_encode(&words.join(" "), NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seed() -> TotpSeed {
        TotpSeed::new(b"12345678901234567890").unwrap()
    }

    /// RFC 6238 appendix B, the rows of SHA-1.
    #[test]
    fn codes_agree_with_the_vectors_of_the_rfc() {
        for (seconds, digits) in [
            (59, 94_287_082),
            (1_111_111_109, 7_081_804),
            (1_111_111_111, 14_050_471),
            (1_234_567_890, 89_005_924),
            (2_000_000_000, 69_279_037),
            (20_000_000_000, 65_353_130),
        ] {
            assert_eq!(seed().number(seconds / STEP) % 100_000_000, digits);
            let typed = format!("{:06}", digits % 1_000_000);
            let now = Timestamp::from_seconds(seconds);
            assert_eq!(seed().step_of(&typed, now), Some(seconds / STEP));
        }
    }

    #[test]
    fn a_code_is_accepted_one_step_early_and_one_step_late() {
        let step_at = |seconds| seed().step_of(" 287 082 ", Timestamp::from_seconds(seconds));
        for (seconds, step) in [
            (0, Some(1)),
            (59, Some(1)),
            (89, Some(1)),
            (90, None),
            (150, None),
        ] {
            assert_eq!(step_at(seconds), step, "{seconds}");
        }
        for typed in ["", "287 08", "287 0822", "28708\u{2461}", "094287082"] {
            assert_eq!(
                seed().step_of(typed, Timestamp::from_seconds(59)),
                None,
                "{typed}"
            );
        }
    }

    /// RFC 4648 section 10, without padding; shorter seeds are no seeds.
    #[test]
    fn a_seed_is_written_in_base32() {
        assert_eq!(*seed().base32(), "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ");
        assert_eq!(
            *TotpSeed::new(b"foobarfooba").unwrap().base32(),
            "MZXW6YTBOJTG633CME"
        );
        assert!(TotpSeed::new(b"123456789").is_none() && TotpSeed::new(&[0; 65]).is_none());
        for (text, bytes) in [
            (
                "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ",
                Some(&b"12345678901234567890"[..]),
            ),
            ("mzxw6ytboi======", Some(b"foobar")),
            ("MZXW6YTBOJTG633CME", Some(b"foobarfooba")),
            ("MZXW1", None),
            ("MZ=XW", None),
        ] {
            let decoded = TotpSeed::decode_base32(text);
            assert_eq!(decoded.as_ref().map(|bytes| bytes.as_slice()), bytes, "{text}");
        }
    }

    #[test]
    fn the_address_escapes_the_names() {
        let address = seed().address("id.example", "a b&c@example.com");
        let names =
            "otpauth://totp/id%2Eexample:a%20b%26c%40example%2Ecom?secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";
        assert!(address.starts_with(names), "{}", *address);
    }

    #[test]
    fn neither_the_issuer_nor_the_account_of_an_address_has_a_colon() {
        for (issuer, account, label) in [
            (
                "id.example.com:8443",
                "alice@example.com",
                ["id%2Eexample%2Ecom%208443", "alice%40example%2Ecom"],
            ),
            (
                "id.example.com",
                "corp:248289761001",
                ["id%2Eexample%2Ecom", "corp%20248289761001"],
            ),
            (
                "Acme: Identity",
                "jürgen+test@example.com",
                ["Acme%20Identity", "j%C3%BCrgen%2Btest%40example%2Ecom"],
            ),
            ("[::1]:8443/idsvc", ":", ["%5B%201%5D%208443%2Fidsvc", ""]),
        ] {
            let address = seed().address(issuer, account);
            let rest = address.strip_prefix("otpauth://totp/").unwrap();
            let (shown, parameters) = rest.split_once('?').unwrap();
            assert_eq!(shown, label.join(":"));
            let issuer = format!("&issuer={}&", label[0]);
            assert!(
                parameters.contains(&issuer) && !parameters.contains("%3A"),
                "{parameters}"
            );
        }
    }
}
