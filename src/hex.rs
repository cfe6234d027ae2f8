//! Bytes as hexadecimal digits in lower case, two for each byte.

/// Appends the digits of these bytes. Within the capacity of `text` nothing is reallocated, so no copy of a secret is left
/// in memory.
pub fn push<'a>(text: &mut String, bytes: impl IntoIterator<Item = &'a u8>) {
    for byte in bytes {
        for half in [byte >> 4, byte & 15] {
            text.extend(char::from_digit(half.into(), 16));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_two_digits_in_lower_case() {
        let mut text = "#".to_owned();
        push(&mut text, &[0x00, 0x0a, 0xf3, 0xff]);
        assert_eq!(text, "#000af3ff");
    }
}
