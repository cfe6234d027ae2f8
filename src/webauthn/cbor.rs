//! A reader of CBOR (RFC 8949) that accepts only the CTAP2 canonical encoding (CTAP 2.2 section 8).
//!
//! Integers and lengths have their shortest form, lengths are definite, keys of a map are sorted and distinct, tags do not
//! occur, and maps and arrays are nested four levels deep at most. Web Authentication section 2.4 advises to refuse the
//! rest. The libraries for CBOR accept it, so their result would have to be encoded again and compared.
//!
//! An attestation object comes from the browser, and some programs write its members in another order:
//! [`in_any_order`].

use std::cmp::Ordering;
use std::collections::BTreeSet;

const MAX_DEPTH: u8 = 4;

/// One value. Strings are borrowed from the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Major types 0 and 1.
    Integer(i128),
    /// Major type 2.
    Bytes(&'a [u8]),
    /// Major type 3.
    Text(&'a str),
    /// Major type 4.
    Array(Vec<Value<'a>>),
    /// Major type 5, in the order of the encoding. Keys are distinct.
    Map(Vec<(Value<'a>, Value<'a>)>),
    /// Major type 7: a boolean, null or floating-point number, of which nothing is read.
    Simple,
}

/// The bytes are not one value in the canonical encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Reads the first value, and returns the bytes behind it.
pub fn first(bytes: &[u8]) -> Result<(Value<'_>, &[u8]), Malformed> {
    let mut reader = Reader {
        rest: bytes,
        takes_any_order: false,
    };
    let value = reader.value(0)?;
    Ok((value, reader.rest))
}

pub fn only(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    match first(bytes)? {
        (value, []) => Ok(value),
        _ => Err(Malformed),
    }
}

/// Reads the only value. The keys of its maps may have any order.
pub fn in_any_order(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    let mut reader = Reader {
        rest: bytes,
        takes_any_order: true,
    };
    let value = reader.value(0)?;
    reader.rest.is_empty().then_some(value).ok_or(Malformed)
}

struct Reader<'a> {
    rest: &'a [u8],
    takes_any_order: bool,
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: u64) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(length).map_err(|_| Malformed)?;
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    /// The argument of a head (RFC 8949 section 3), which must have its shortest form.
    fn argument(&mut self, info: u8) -> Result<u64, Malformed> {
        let (length, least) = match info {
            0..=23 => return Ok(info.into()),
            24 => (1, 24),
            25 => (2, 1 << 8),
            26 => (4, 1 << 16),
            27 => (8, 1 << 32),
            _ => return Err(Malformed),
        };
        let bytes = self.take(length)?;
        let argument = bytes
            .iter()
            .fold(0, |argument, byte| argument << 8 | u64::from(*byte));
        if argument < least {
            return Err(Malformed);
        }
        Ok(argument)
    }

    fn value(&mut self, depth: u8) -> Result<Value<'a>, Malformed> {
        let [head] = self.take(1)? else {
            return Err(Malformed);
        };
        let (major, info) = (head >> 5, head & 0x1f);
        if major == 7 {
            return self.simple(info);
        }
        let argument = self.argument(info)?;
        if matches!(major, 4 | 5) && depth == MAX_DEPTH {
            return Err(Malformed);
        }
        Ok(match major {
            0 => Value::Integer(argument.into()),
            1 => Value::Integer(-1 - i128::from(argument)),
            2 => Value::Bytes(self.take(argument)?),
            3 => Value::Text(str::from_utf8(self.take(argument)?).map_err(|_| Malformed)?),
            4 => {
                let values = (0..argument).map(|_| self.value(depth + 1));
                Value::Array(values.collect::<Result<_, _>>()?)
            }
            5 => self.map(argument, depth)?,
            _ => return Err(Malformed),
        })
    }

    fn map(&mut self, entries: u64, depth: u8) -> Result<Value<'a>, Malformed> {
        let mut map = Vec::new();
        let mut last_key: &[u8] = &[];
        let mut keys = BTreeSet::new();
        for _ in 0..entries {
            let start = self.rest;
            let key = self.value(depth + 1)?;
            let encoded = start.get(..start.len() - self.rest.len()).ok_or(Malformed)?;
            let is_in_order = self.takes_any_order || canonical_order(last_key, encoded) == Ordering::Less;
            if !is_in_order || !keys.insert(encoded) {
                return Err(Malformed);
            }
            last_key = encoded;
            map.push((key, self.value(depth + 1)?));
        }
        Ok(Value::Map(map))
    }

    fn simple(&mut self, info: u8) -> Result<Value<'a>, Malformed> {
        match info {
            0..=23 => {}
            25 => _ = self.take(2)?,
            26 => _ = self.take(4)?,
            27 => _ = self.take(8)?,
            _ => return Err(Malformed),
        }
        Ok(Value::Simple)
    }
}

/// The order of encoded keys: first by major type, then the shorter one, then by bytes.
fn canonical_order(one: &[u8], other: &[u8]) -> Ordering {
    let rank = |key: &[u8]| (key.first().map(|head| head >> 5), key.len());
    rank(one).cmp(&rank(other)).then_with(|| one.cmp(other))
}

#[cfg(test)]
mod tests {
    use super::super::tests::unhex;
    use super::*;

    fn read(hexadecimal: &str) -> Result<Value<'static>, Malformed> {
        only(Vec::leak(unhex(hexadecimal)))
    }

    #[test]
    fn values_of_each_type_are_read() {
        assert_eq!(read("17"), Ok(Value::Integer(23)));
        assert_eq!(read("1818"), Ok(Value::Integer(24)));
        assert_eq!(read("1bffffffffffffffff"), Ok(Value::Integer(u64::MAX.into())));
        assert_eq!(read("390100"), Ok(Value::Integer(-257)));
        assert_eq!(
            read("3bffffffffffffffff"),
            Ok(Value::Integer(-1 - i128::from(u64::MAX)))
        );
        assert_eq!(read("43010203"), Ok(Value::Bytes(&[1, 2, 3])));
        assert_eq!(read("62c3bc"), Ok(Value::Text("ü")));
        assert_eq!(read("80"), Ok(Value::Array(vec![])));
        assert_eq!(
            read("a2010220f5"),
            Ok(Value::Map(vec![
                (Value::Integer(1), Value::Integer(2)),
                (Value::Integer(-1), Value::Simple)
            ]))
        );
        for simple in ["f4", "f6", "f93c00", "fa00000000", "fb0000000000000000"] {
            assert_eq!(read(simple), Ok(Value::Simple), "{simple}");
        }
    }

    #[test]
    fn what_is_not_canonical_is_refused() {
        for (encoded, reason) in [
            ("", "nothing"),
            ("0101", "two values"),
            ("1817", "a number that fits into the head"),
            ("190018", "a number that fits into one byte"),
            ("1a0000ffff", "a number that fits into two bytes"),
            ("1b00000000ffffffff", "a number that fits into four bytes"),
            ("3817", "a negative number that fits into the head"),
            ("580101", "a length that fits into the head"),
            ("5f4101ff", "an indefinite length of bytes"),
            ("7f6161ff", "an indefinite length of text"),
            ("9f01ff", "an indefinite array"),
            ("bf0102ff", "an indefinite map"),
            ("a1", "a map without its entry"),
            ("a201010202ff", "a break"),
            ("a202010102", "keys in another order"),
            ("a220010102", "a negative key before a positive one"),
            ("a2626161016162 02", "a longer key before a shorter one"),
            ("a201010102", "the same key twice"),
            ("c001", "a tag"),
            ("1c", "a reserved head"),
            ("f8ff", "a simple value in two bytes"),
            ("61ff", "text that is not UTF-8"),
            ("420a", "too few bytes"),
            ("5bffffffffffffffff", "more bytes than there can be"),
            ("9bffffffffffffffff", "more values than there can be"),
        ] {
            assert_eq!(read(encoded), Err(Malformed), "{reason}");
        }
    }

    #[test]
    fn keys_in_another_order_are_read_where_the_order_does_not_matter() {
        let sorted = in_any_order(&[0xa2, 1, 1, 2, 2]).unwrap();
        assert_eq!(only(&[0xa2, 1, 1, 2, 2]), Ok(sorted));
        let reversed = in_any_order(&[0xa2, 2, 2, 1, 1]).unwrap();
        let Value::Map(entries) = reversed else { panic!() };
        assert_eq!(entries.first().unwrap().0, Value::Integer(2));
        for (encoded, reason) in [
            ("a3010102020101", "the same key twice"),
            ("a1181701", "a number that fits into the head"),
            ("a1010100", "two values"),
        ] {
            assert_eq!(in_any_order(&unhex(encoded)), Err(Malformed), "{reason}");
        }
    }

    #[test]
    fn nesting_ends_at_four_levels() {
        assert!(read("8181818101").is_ok());
        assert_eq!(read("818181818101"), Err(Malformed));
        assert_eq!(read("a101a101a101a10180"), Err(Malformed));
        assert_eq!(read(&"81".repeat(100_000)), Err(Malformed));
    }
}
