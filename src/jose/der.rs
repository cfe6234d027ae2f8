//! The part of DER that keys need (ITU-T X.690 section 10).

use zeroize::Zeroizing;

pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const OBJECT_IDENTIFIER: u8 = 0x06;
pub(super) const SEQUENCE: u8 = 0x30;
/// The constructed context tag 0.
pub(super) const CONTEXT_0: u8 = 0xa0;
/// The constructed context tag 1.
pub(super) const CONTEXT_1: u8 = 0xa1;

/// rsaEncryption with its NULL parameters (RFC 8017 appendix C), as the inside of an `AlgorithmIdentifier`.
pub(super) const RSA_ENCRYPTION: &[u8] = &[
    0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00,
];
/// id-ecPublicKey with the named curve secp256r1 (RFC 5480 section 2.1.1).
pub(super) const EC_P256: &[u8] = &[
    0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03,
    0x01, 0x07,
];
/// id-ecPublicKey with the named curve secp384r1 (RFC 5480 section 2.1.1).
pub(super) const EC_P384: &[u8] = &[
    0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22,
];
/// The object identifier secp256r1 alone, without tag and length.
pub(super) const SECP256R1: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
/// id-Ed25519 (RFC 8410 section 3).
pub(super) const ED25519: &[u8] = &[0x06, 0x03, 0x2b, 0x65, 0x70];

/// The bytes are not the DER that was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Reads one element after the other.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The contents of `bytes`, which must be one element.
    pub(super) fn only(bytes: &'a [u8], tag: u8) -> Result<&'a [u8], Malformed> {
        let mut reader = Self::new(bytes);
        let contents = reader.element(tag)?;
        reader.end()?;
        Ok(contents)
    }

    /// The contents of the next element, which must have `tag`. Only definite and minimal lengths are accepted.
    pub(super) fn element(&mut self, tag: u8) -> Result<&'a [u8], Malformed> {
        let (found, rest) = self.0.split_first().ok_or(Malformed)?;
        let (first, mut rest) = rest.split_first().ok_or(Malformed)?;
        let length = if *first < 0x80 {
            usize::from(*first)
        } else {
            let count = usize::from(*first & 0x7f);
            let (bytes, after) = rest.split_at_checked(count).ok_or(Malformed)?;
            rest = after;
            if !(1..=2).contains(&count) || bytes.first() == Some(&0) {
                return Err(Malformed);
            }
            let length = bytes
                .iter()
                .fold(0, |length, byte| length << 8 | usize::from(*byte));
            if length < 0x80 {
                return Err(Malformed);
            }
            length
        };
        let (contents, rest) = rest.split_at_checked(length).ok_or(Malformed)?;
        if *found != tag {
            return Err(Malformed);
        }
        self.0 = rest;
        Ok(contents)
    }

    /// The next element, if it has `tag`.
    pub(super) fn optional(&mut self, tag: u8) -> Result<Option<&'a [u8]>, Malformed> {
        if self.0.first() == Some(&tag) {
            self.element(tag).map(Some)
        } else {
            Ok(None)
        }
    }

    /// A positive INTEGER, without the zero that keeps its sign.
    pub(super) fn positive(&mut self) -> Result<&'a [u8], Malformed> {
        match self.element(INTEGER)? {
            [0, digits @ ..] if digits.first().is_some_and(|first| *first >= 0x80) => Ok(digits),
            digits @ [0x01..=0x7f, ..] => Ok(digits),
            _ => Err(Malformed),
        }
    }

    /// A BIT STRING of whole bytes.
    pub(super) fn bit_string(&mut self) -> Result<&'a [u8], Malformed> {
        match self.element(BIT_STRING)? {
            [0, bytes @ ..] => Ok(bytes),
            _ => Err(Malformed),
        }
    }

    /// Fails if bytes are left.
    pub(super) fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}

/// One element with the concatenated `parts` as contents.
pub(super) fn element(tag: u8, parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut bytes = Zeroizing::new(Vec::with_capacity(length + 10));
    bytes.push(tag);
    let octets = length.to_be_bytes();
    let significant = octets.iter().skip_while(|octet| **octet == 0);
    if length >= 0x80 {
        bytes.push(0x80 | u8::try_from(significant.clone().count()).unwrap_or(0x7f));
    }
    if length == 0 {
        bytes.push(0);
    }
    bytes.extend(significant);
    for part in parts {
        bytes.extend_from_slice(part);
    }
    bytes
}

/// An INTEGER from the big-endian bytes of a number that is not negative.
pub(super) fn unsigned(bytes: &[u8]) -> Zeroizing<Vec<u8>> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let digits = bytes.get(zeros..).unwrap_or_default();
    match digits.first() {
        Some(..0x80) => element(INTEGER, &[digits]),
        _ => element(INTEGER, &[&[0], digits]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_at_every_length_form() {
        for length in [0, 1, 0x7f, 0x80, 0xff, 0x100, 0xffff] {
            let contents = vec![7; length];
            let written = element(OCTET_STRING, &[&contents]);
            assert_eq!(Reader::only(&written, OCTET_STRING), Ok(contents.as_slice()));
        }
        assert_eq!(*unsigned(&[0, 0, 0x80]), [INTEGER, 2, 0, 0x80]);
        assert_eq!(*unsigned(&[0, 0x7f]), [INTEGER, 1, 0x7f]);
        assert_eq!(*unsigned(&[]), [INTEGER, 1, 0]);
    }

    #[test]
    fn lax_encodings_are_refused() {
        let cases: [&[u8]; 8] = [
            &[],
            &[SEQUENCE],
            &[SEQUENCE, 0x80, 0, 0],
            &[SEQUENCE, 0x81, 0x01, 0],
            &[SEQUENCE, 0x82, 0x00, 0x81],
            &[SEQUENCE, 0x84, 0xff, 0xff, 0xff, 0xff],
            &[SEQUENCE, 2, 0],
            &[SEQUENCE, 0, 0],
        ];
        for bytes in cases {
            assert_eq!(Reader::only(bytes, SEQUENCE), Err(Malformed), "{bytes:02x?}");
        }
        for bytes in [
            &[INTEGER, 1, 0][..],
            &[INTEGER, 2, 0, 1],
            &[INTEGER, 1, 0x80],
            &[INTEGER, 0],
        ] {
            assert_eq!(Reader::new(bytes).positive(), Err(Malformed), "{bytes:02x?}");
        }
    }
}
