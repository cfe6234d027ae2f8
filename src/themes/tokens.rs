//! Design tokens: the values that the stylesheet uses, and the contrast of its colours.

use std::fmt::{self, Write};
use std::str::FromStr;

/// The colours of a theme, by their names in `theme.toml` and in the stylesheet's custom properties.
pub const COLOURS: [&str; 11] = [
    "ground",
    "surface",
    "ink",
    "muted",
    "line",
    "edge",
    "accent",
    "accent-strong",
    "on-accent",
    "danger",
    "danger-ground",
];

/// Text colours and their backgrounds, for the contrast of WCAG 2.2 level AA (1.4.3).
const TEXT_PAIRS: [(&str, &str); 9] = [
    ("ink", "surface"),
    ("ink", "ground"),
    ("muted", "surface"),
    ("muted", "ground"),
    ("accent", "surface"),
    ("on-accent", "accent"),
    ("on-accent", "accent-strong"),
    ("danger", "danger-ground"),
    ("ink", "danger-ground"),
];

/// Edges of controls and their backgrounds (1.4.11).
const EDGE_PAIRS: [(&str, &str); 2] = [("edge", "surface"), ("accent", "ground")];

const TEXT_RATIO: f64 = 4.5;
const EDGE_RATIO: f64 = 3.0;

/// An opaque colour of the sRGB space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Colour {
    red: u8,
    green: u8,
    blue: u8,
}

/// The text is no colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a colour is written #rrggbb")]
pub struct NotAColour;

impl FromStr for Colour {
    type Err = NotAColour;

    fn from_str(text: &str) -> Result<Self, NotAColour> {
        let digits = text.strip_prefix('#').ok_or(NotAColour)?;
        let is_plain = digits.len() == 6 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let part = |range: std::ops::Range<usize>| {
            let digits = digits.get(range).filter(|_| is_plain).ok_or(NotAColour)?;
            u8::from_str_radix(digits, 16).map_err(|_| NotAColour)
        };
        Ok(Self {
            red: part(0..2)?,
            green: part(2..4)?,
            blue: part(4..6)?,
        })
    }
}

impl fmt::Display for Colour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{:02x}{:02x}{:02x}", self.red, self.green, self.blue)
    }
}

impl Colour {
    /// Red, green and blue as amounts of light, 0 to 1.
    pub(super) fn linear(self) -> [f64; 3] {
        [self.red, self.green, self.blue].map(|part| {
            let value = f64::from(part) / 255.0;
            if value <= 0.04045 {
                value / 12.92
            } else {
                ((value + 0.055) / 1.055).powf(2.4)
            }
        })
    }

    /// The colour of these amounts of light. Amounts outside 0 to 1 are cut off.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the value is rounded and lies between 0 and 255"
    )]
    pub(super) fn of_linear(light: [f64; 3]) -> Self {
        let [red, green, blue] = light.map(|part| {
            let part = part.clamp(0.0, 1.0);
            let value = if part <= 0.003_130_8 {
                part * 12.92
            } else {
                1.055 * part.powf(1.0 / 2.4) - 0.055
            };
            (value * 255.0).round() as u8
        });
        Self { red, green, blue }
    }

    /// The relative luminance of WCAG 2.2.
    fn luminance(self) -> f64 {
        let [red, green, blue] = self.linear();
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }

    /// The contrast ratio of WCAG 2.2 between two colours, 1 to 21.
    pub fn contrast(self, other: Self) -> f64 {
        let (one, other) = (self.luminance(), other.luminance());
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }
}

/// The colours of one scheme, in the order of [`COLOURS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Palette([Colour; COLOURS.len()]);

impl Palette {
    /// The colour of that name; `None` if the name is not in [`COLOURS`].
    pub fn colour(&self, name: &str) -> Option<Colour> {
        self.named()
            .find(|(known, _)| *known == name)
            .map(|(_, colour)| colour)
    }

    /// Sets the colour of that name. Returns whether there is one.
    pub fn set(&mut self, name: &str, colour: Colour) -> bool {
        let found = COLOURS.iter().zip(&mut self.0).find(|(known, _)| **known == name);
        found.map(|(_, current)| *current = colour).is_some()
    }

    fn named(&self) -> impl Iterator<Item = (&'static str, Colour)> {
        COLOURS.into_iter().zip(self.0)
    }

    fn css(&self) -> String {
        self.named().fold(String::new(), |mut css, (name, colour)| {
            let _ = write!(css, "--{name}:{colour};");
            css
        })
    }

    /// The pairs of colours with too little contrast.
    pub fn weak_pairs(&self) -> Vec<WeakPair> {
        let text = TEXT_PAIRS.map(|pair| (pair, TEXT_RATIO));
        let edges = EDGE_PAIRS.map(|pair| (pair, EDGE_RATIO));
        let mut weak = Vec::new();
        for ((front, behind), required) in text.into_iter().chain(edges) {
            let (Some(front_colour), Some(behind_colour)) = (self.colour(front), self.colour(behind)) else {
                continue;
            };
            let ratio = front_colour.contrast(behind_colour);
            if ratio < required {
                weak.push(WeakPair {
                    front,
                    behind,
                    ratio,
                    required,
                });
            }
        }
        weak
    }
}

/// Two colours with too little contrast.
#[derive(Clone, Copy, Debug)]
pub struct WeakPair {
    /// The name of the colour in front.
    pub front: &'static str,
    /// The name of the colour behind it.
    pub behind: &'static str,
    /// The contrast ratio.
    pub ratio: f64,
    /// The ratio that WCAG 2.2 requires.
    pub required: f64,
}

/// The custom properties that a theme sets on the root element.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// The colours of the light scheme.
    pub light: Palette,
    /// The colours of the dark scheme.
    pub dark: Palette,
    /// The radius of corners, as a CSS length.
    pub radius: String,
    /// The font stack of text.
    pub font: String,
}

impl Tokens {
    /// The tokens as CSS, for the beginning of the stylesheet.
    pub fn css(&self) -> String {
        format!(
            ":root{{color-scheme:light dark;--radius:{};--font:{};{}}}\n@media (prefers-color-scheme:dark){{:root{{{}}}}}\n",
            self.radius,
            self.font,
            self.light.css(),
            self.dark.css()
        )
    }
}

/// Whether a text is a CSS length and nothing else: `0`, or a number with `rem`, `em` or `px`.
pub fn is_length(text: &str) -> bool {
    let number = ["rem", "em", "px"]
        .iter()
        .find_map(|unit| text.strip_suffix(unit));
    text == "0"
        || number.is_some_and(|number| {
            number.len() <= 8
                && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
                && number.parse::<f32>().is_ok()
        })
}

/// Whether a text is a list of font names and nothing else. It cannot end its declaration or the file.
pub fn is_font_stack(text: &str) -> bool {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, ' ' | ',' | '"' | '\'' | '-' | '_');
    let is_paired = |quote: char| text.matches(quote).count().is_multiple_of(2);
    !text.trim().is_empty()
        && text.len() <= 500
        && text.chars().all(is_plain)
        && is_paired('"')
        && is_paired('\'')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colour_is_six_digits() {
        assert_eq!("#0c655C".parse::<Colour>().unwrap().to_string(), "#0c655c");
        for text in [
            "", "#fff", "red", "#0c655g", "0c655c", "#0c655c;", "#+c655c", "#é655c",
        ] {
            assert_eq!(text.parse::<Colour>(), Err(NotAColour), "{text}");
        }
    }

    #[test]
    fn black_on_white_has_the_greatest_contrast() {
        let [black, white] = ["#000000", "#ffffff"].map(|text| text.parse::<Colour>().unwrap());
        assert!((black.contrast(white) - 21.0).abs() < 1e-9);
        assert!((white.contrast(white) - 1.0).abs() < 1e-9);
        let grey: Colour = "#767676".parse().unwrap();
        assert!((grey.contrast(white) - 4.54).abs() < 0.01);
    }

    #[test]
    fn a_palette_without_contrast_says_which_pairs() {
        let weak = Palette::default().weak_pairs();
        assert_eq!(weak.len(), TEXT_PAIRS.len() + EDGE_PAIRS.len());
        assert_eq!((weak[0].front, weak[0].behind), ("ink", "surface"));
    }

    #[test]
    fn a_value_cannot_leave_its_declaration() {
        for text in ["0", "0.75rem", "12px", "1em"] {
            assert!(is_length(text), "{text}");
        }
        for text in [
            "",
            "rem",
            "1rem;}",
            "calc(1rem)",
            "1%",
            "-1px",
            "1..2px",
            "99999999999px",
        ] {
            assert!(!is_length(text), "{text}");
        }
        assert!(is_font_stack("Inter, \"Noto Sans\", 'A B', sans-serif"));
        for text in ["", " ", "a;b", "a}b", "\"a", "url(x)", "a/*", "a\\b", "a\nb"] {
            assert!(!is_font_stack(text), "{text}");
        }
    }
}
