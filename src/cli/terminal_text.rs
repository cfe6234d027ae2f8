//! Text without characters that a terminal would obey, or that a reader would not see.

use std::fmt::Write;

/// The characters of the category Cf, in Unicode 16: they direct the order of letters, or have no shape of their own.
const FORMAT_CHARACTERS: [(char, char); 21] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{180e}', '\u{180e}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{202a}', '\u{202e}'),
    ('\u{2060}', '\u{2064}'),
    ('\u{2066}', '\u{206f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{fff9}', '\u{fffb}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0001}', '\u{e0001}'),
    ('\u{e0020}', '\u{e007f}'),
];

/// A part of a line, such as a table cell. A line end is replaced too, because it could fake another line.
pub fn printable(text: &str) -> String {
    without_controls(text).replace('\n', " ")
}

/// Replaces control and format characters, except line ends.
pub fn without_controls(text: &str) -> String {
    text.replace(is_control, "\u{fffd}")
}

/// Escapes control and format characters in a JSON text. There they occur within strings only (RFC 8259 section 7), so the
/// values stay the same.
pub fn escape_json(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if is_control(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a string does not fail.
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(c);
        }
    }
    escaped
}

fn is_control(c: char) -> bool {
    let is_format = || {
        FORMAT_CHARACTERS
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&c))
    };
    c != '\n' && (c.is_control() || !c.is_ascii() && is_format())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_json_text_has_the_same_values_and_no_control_or_format_character() {
        let value = serde_json::json!({"\u{9b}31m": ["\u{7f}\u{85}\u{202e}\u{feff}", "é\n\u{e0041}😀"]});
        let text = serde_json::to_string_pretty(&value).unwrap();
        let escaped = escape_json(&text);
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&escaped).unwrap(),
            value
        );
        assert!(!escaped.contains(is_control), "{escaped}");
        assert!(
            escaped.contains("\\u009b31m") && escaped.contains("\\udb40\\udc41😀"),
            "{escaped}"
        );
    }

    #[test]
    fn letters_and_spaces_of_all_scripts_stay_and_what_has_no_shape_is_replaced() {
        let text = "Zoë \u{a0}Ωμέγα \u{5e9}\u{5dc} \u{e01}\u{e33} 漢字 e\u{301} 🏳";
        assert_eq!(without_controls(text), text);
        let hidden = "a\u{ad}b\u{200b}c\u{200d}d\u{2060}e\u{feff}f\u{180e}g\u{e0061}";
        assert_eq!(printable(hidden), "a�b�c�d�e�f�g�");
    }
}
