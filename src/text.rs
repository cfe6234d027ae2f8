//! The one form of a text, before it is stored, compared or hashed.
//!
//! A letter with an accent is one code point or two (Unicode Standard Annex 15). A letter has a width and a case, and a
//! digit is written in many scripts. A domain has two spellings (RFC 5890). People cannot see which one they typed.

use std::borrow::Cow;
use std::iter;

use unicode_normalization::char::decompose_compatible;
use unicode_normalization::{UnicodeNormalization, is_nfc};
use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};
use zeroize::Zeroizing;

/// Normalization form C. Names that people read keep their case and their width.
pub fn nfc(text: &str) -> Cow<'_, str> {
    if is_nfc(text) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.nfc().collect())
}

/// A password as `OpaqueString` has it (RFC 8265 section 4.2.2): every blank is a space, and the form is NFC. Width and
/// case stay.
pub fn opaque_string(password: &str) -> Zeroizing<String> {
    let mut prepared = Zeroizing::new(String::with_capacity(4 * password.len()));
    if password.is_ascii() {
        prepared.push_str(password);
        return prepared;
    }
    let is_blank = |c: char| c.general_category() == GeneralCategory::SpaceSeparator;
    prepared.extend(password.chars().map(|c| if is_blank(c) { ' ' } else { c }).nfc());
    prepared
}

/// The form in which names are compared: width mapped, lower case, NFC (RFC 8265 section 3.3), without blanks around.
pub fn caseless(name: &str) -> String {
    if name.is_ascii() {
        return name.trim().to_ascii_lowercase();
    }
    let lower = map_width(name).to_lowercase();
    nfc(&lower).trim().to_owned()
}

/// The form in which the names that people sign in with are compared: as [`caseless`], and the domain of an address as
/// [`a_labels`].
pub fn caseless_address(name: &str) -> String {
    let name = caseless(name);
    if name.is_ascii() {
        return name;
    }
    match name.rsplit_once('@') {
        Some((local, domain)) => {
            let domain = a_labels(domain).unwrap_or_else(|| domain.to_owned());
            format!("{local}@{domain}")
        }
        None => name,
    }
}

/// A domain in lower case, with A-labels for what is not ASCII (RFC 5890 section 2.3.2.1). `None` if it cannot be a
/// domain.
pub fn a_labels(domain: &str) -> Option<String> {
    idna::domain_to_ascii(domain).ok()
}

/// An address as people read it, with U-labels in its domain (RFC 5890 section 2.3.2.1).
pub fn readable_address(address: &str) -> Cow<'_, str> {
    let Some((local, domain)) = address.rsplit_once('@').filter(|_| address.contains("xn--")) else {
        return Cow::Borrowed(address);
    };
    match idna::domain_to_unicode(domain) {
        (readable, Ok(())) => Cow::Owned(format!("{local}@{readable}")),
        (_, Err(_)) => Cow::Borrowed(address),
    }
}

/// Full-width and half-width letters in their usual width, in NFC. Other letters that look alike stay different.
pub fn map_width(text: &str) -> String {
    let mut mapped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\u{3000}' | '\u{ff00}'..='\u{ffef}' => decompose_compatible(c, |part| mapped.push(part)),
            _ => mapped.push(c),
        }
    }
    mapped.nfc().collect()
}

/// Whether the text looks like another one: it has a character that cannot be seen, or one that stands for others, such
/// as a ligature (NFKC) or the Kelvin sign. Width does not count.
pub fn is_ambiguous(text: &str) -> bool {
    if text.is_ascii() {
        return false;
    }
    let mapped = map_width(text);
    text.chars().any(|c| is_invisible(c) || stands_for_another(c)) || mapped.nfkc().ne(mapped.chars())
}

/// Whether the character is a format character, another one that is ignorable by default (Unicode Standard section
/// 5.21), or the blank Braille pattern.
fn is_invisible(c: char) -> bool {
    let is_ignorable = matches!(
        c,
        '\u{34f}'
            | '\u{115f}'
            | '\u{1160}'
            | '\u{17b4}'
            | '\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{2800}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{ffa0}'
            | '\u{e0000}'..='\u{e0fff}'
    );
    is_ignorable || is_format(c)
}

/// Whether the character is another one in NFC.
fn stands_for_another(c: char) -> bool {
    let mut form = iter::once(c).nfc();
    form.next() != Some(c) && form.next().is_none()
}

/// A code that a person typed, in its one form: ASCII digits for those of every script, usual width, lower case,
/// without blanks and hyphens.
pub fn code(typed: &str) -> Zeroizing<String> {
    let mut code = Zeroizing::new(String::with_capacity(4 * typed.len()));
    for c in Zeroizing::new(map_width(typed)).chars() {
        let is_between = c.is_whitespace()
            || c == '\u{2212}'
            || is_format(c)
            || c.general_category() == GeneralCategory::DashPunctuation;
        match digit(c) {
            _ if is_between => {}
            Some(digit) => code.push(digit),
            None => code.push(c.to_ascii_lowercase()),
        }
    }
    code
}

/// A secret as a file or a pipe has it: without the byte order mark that some editors put before it, and without the
/// line break that ends its line.
pub fn secret_line(text: &str) -> &str {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text)
}

fn is_format(c: char) -> bool {
    c.general_category() == GeneralCategory::Format
}

/// The decimal digit that `c` is. The digits of a script are ten code points in a row, from zero to nine (Unicode
/// Standard section 4.6).
fn digit(c: char) -> Option<char> {
    let is_digit =
        |at: u32| char::from_u32(at).is_some_and(|c| c.general_category() == GeneralCategory::DecimalNumber);
    let at = u32::from(c);
    if !is_digit(at) {
        return None;
    }
    let zero = (0..at)
        .rev()
        .find(|before| !is_digit(*before))
        .map_or(0, |before| before + 1);
    char::from_digit((at - zero) % 10, 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_one_in_both_forms_of_its_letters() {
        for (composed, decomposed) in [
            (
                "Gr\u{fc}n-K\u{e4}se-\u{d6}l-42!",
                "Gru\u{308}n-Ka\u{308}se-O\u{308}l-42!",
            ),
            ("\u{304c}\u{304e}-2026", "\u{304b}\u{3099}\u{304d}\u{3099}-2026"),
            ("\u{212b}-\u{3000}x", "A\u{30a}- x"),
        ] {
            assert_eq!(*opaque_string(composed), *opaque_string(decomposed));
        }
        assert_ne!(
            *opaque_string("\u{ff21}bc"),
            *opaque_string("Abc"),
            "the width counts"
        );
        assert_eq!(*opaque_string(" Abc "), " Abc ");
    }

    #[test]
    fn a_name_is_one_in_every_case_and_width_and_form() {
        for (one, other) in [
            ("j\u{fc}rgen", "JU\u{308}RGEN"),
            (
                "anna@example.com",
                " \u{ff21}\u{ff2e}\u{ff2e}\u{ff21}\u{ff20}Example.com\u{3000}",
            ),
            ("anna@b\u{fc}cher.example", "Anna@xn--bcher-kva.example"),
            ("anna@b\u{fc}cher.example", "ANNA@BU\u{308}CHER.EXAMPLE"),
            ("\u{30ac}", "\u{ff76}\u{ff9e}"),
        ] {
            assert_eq!(caseless_address(one), caseless_address(other));
        }
        assert_ne!(
            caseless_address("\u{2468}@example.com"),
            caseless_address("9@example.com")
        );
    }

    #[test]
    fn a_form_is_its_own_form() {
        for c in (0..=u32::from(char::MAX)).filter_map(char::from_u32) {
            let text = format!("a{c}\u{308}@{c}b.example");
            let once = caseless_address(&text);
            assert_eq!(caseless_address(&once), once, "{text:?}");
            assert_eq!(
                opaque_string(&opaque_string(&text)),
                opaque_string(&text),
                "{text:?}"
            );
        }
    }

    #[test]
    fn what_nobody_sees_or_tells_apart_is_ambiguous() {
        for text in [
            "a\u{ad}nna",
            "anna\u{200b}",
            "\u{202e}anna",
            "o\u{fb03}ce",
            "x\u{b2}",
            "mi\u{212a}e",
            "a\u{fe0f}nna",
            "an\u{115f}na",
            "\u{1d41a}nna",
        ] {
            assert!(is_ambiguous(text), "{text:?}");
        }
        for text in [
            "anna",
            "ren\u{e9}e",
            "\u{5c71}\u{7530}",
            "\u{645}\u{62d}\u{645}\u{62f}",
        ] {
            assert!(!is_ambiguous(text), "{text:?}");
        }
    }

    #[test]
    fn a_code_has_the_digits_of_every_script() {
        for typed in [
            "492817",
            "492 817",
            "\u{ff14}\u{ff19}\u{ff12}\u{3000}\u{ff18}\u{ff11}\u{ff17}",
            "\u{664}\u{669}\u{662}\u{668}\u{661}\u{667}",
            "\u{6f4}\u{6f9}\u{6f2}\u{2013}\u{6f8}\u{6f1}\u{6f7}",
            "\u{96a}\u{96f}\u{968}\u{96e}\u{967}\u{96d}",
            "\u{1d7d2}\u{1d7d7}\u{1d7d0}\u{1d7d6}\u{1d7cf}\u{1d7d5}",
            "\u{200e}492\u{2010}817\u{200f}",
        ] {
            assert_eq!(*code(typed), "492817", "{typed:?}");
        }
        assert_eq!(*code("\u{ff37}djb\u{ff0d}MJHT"), "wdjbmjht");
        assert_ne!(
            *code("49281\u{2466}"),
            "492817",
            "a digit in a circle is a symbol"
        );
    }

    #[test]
    fn an_address_is_shown_with_the_letters_of_its_domain() {
        assert_eq!(
            readable_address("anna@xn--bcher-kva.example"),
            "anna@b\u{fc}cher.example"
        );
        for same in [
            "anna@example.com",
            "anna@xn--a.example",
            "xn--anna",
            "anna@b\u{fc}cher.example",
        ] {
            assert_eq!(readable_address(same), same);
        }
    }
}
