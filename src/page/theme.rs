//! What a theme decides: names and tokens. How the pages are built from them is the stylesheet's part.

use std::fmt::Write;

/// The looks of one installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Theme {
    /// The name that people know the product by.
    pub product_name: String,
    /// The path of the issuer, before every address of our own; empty when the issuer has none. Without a
    /// slash at its end.
    pub base_path: String,
}

impl Theme {
    /// The built-in theme, for an issuer with that path.
    pub fn built_in(base_path: &str) -> Self {
        Self {
            base_path: base_path.trim_end_matches('/').to_owned(),
            ..Self::default()
        }
    }
}

impl Default for Theme {
    fn default() -> Self {
        Self {
            product_name: "idsvc".to_owned(),
            base_path: String::new(),
        }
    }
}

/// The colours of one scheme, each as `#rrggbb`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Palette {
    /// Behind everything.
    pub ground: &'static str,
    /// The card that a page stands on.
    pub surface: &'static str,
    /// Text.
    pub ink: &'static str,
    /// Text that stands back.
    pub muted: &'static str,
    /// Lines that only divide.
    pub line: &'static str,
    /// The edges of fields, which must be seen.
    pub edge: &'static str,
    /// What can be pressed or followed.
    pub accent: &'static str,
    /// The accent under a pointer.
    pub accent_strong: &'static str,
    /// Text on the accent.
    pub on_accent: &'static str,
    /// Text of a problem.
    pub danger: &'static str,
    /// Behind the text of a problem.
    pub danger_ground: &'static str,
}

/// The values that the stylesheet is written in terms of, as custom properties of the root element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokens {
    /// The colours by day.
    pub light: Palette,
    /// The colours where the reader prefers dark.
    pub dark: Palette,
    /// How round the corners are, as a CSS length.
    pub radius: &'static str,
    /// The font stack of text.
    pub font: &'static str,
}

impl Tokens {
    /// The built-in tokens.
    pub const BUILT_IN: Self = Self {
        light: Palette {
            ground: "#f4f6f5",
            surface: "#ffffff",
            ink: "#15201d",
            muted: "#55625e",
            line: "#dfe5e2",
            edge: "#7c8985",
            accent: "#0c655c",
            accent_strong: "#084c45",
            on_accent: "#ffffff",
            danger: "#a3221b",
            danger_ground: "#fdf1ef",
        },
        dark: Palette {
            ground: "#0e1312",
            surface: "#161d1b",
            ink: "#e7eeeb",
            muted: "#a2b0ab",
            line: "#29322f",
            edge: "#71807b",
            accent: "#6bd3c4",
            accent_strong: "#94e3d7",
            on_accent: "#06231f",
            danger: "#ffb1a8",
            danger_ground: "#2f1816",
        },
        radius: "0.75rem",
        font: "system-ui,-apple-system,\"Segoe UI\",Roboto,\"Noto Sans\",\"Noto Sans Arabic\",\"Noto Sans JP\",sans-serif",
    };

    /// The tokens as CSS, to stand before the stylesheet.
    pub fn css(&self) -> String {
        let mut css = String::new();
        let _ = write!(
            css,
            ":root{{color-scheme:light dark;--radius:{};--font:{};{}}}\n@media (prefers-color-scheme:dark){{:root{{{}}}}}\n",
            self.radius,
            self.font,
            self.light.css(),
            self.dark.css()
        );
        css
    }
}

impl Palette {
    fn css(&self) -> String {
        let properties = [
            ("ground", self.ground),
            ("surface", self.surface),
            ("ink", self.ink),
            ("muted", self.muted),
            ("line", self.line),
            ("edge", self.edge),
            ("accent", self.accent),
            ("accent-strong", self.accent_strong),
            ("on-accent", self.on_accent),
            ("danger", self.danger),
            ("danger-ground", self.danger_ground),
        ];
        properties.iter().fold(String::new(), |mut css, (name, value)| {
            let _ = write!(css, "--{name}:{value};");
            css
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The relative luminance of WCAG 2.2.
    fn luminance(colour: &str) -> f64 {
        let part = |at: usize| {
            let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.04045 {
                value / 12.92
            } else {
                ((value + 0.055) / 1.055).powf(2.4)
            }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    }

    fn contrast(one: &str, other: &str) -> f64 {
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    #[test]
    fn colours_meet_the_contrast_of_wcag_aa() {
        for palette in [Tokens::BUILT_IN.light, Tokens::BUILT_IN.dark] {
            let text = [
                (palette.ink, palette.surface),
                (palette.ink, palette.ground),
                (palette.muted, palette.surface),
                (palette.muted, palette.ground),
                (palette.accent, palette.surface),
                (palette.on_accent, palette.accent),
                (palette.on_accent, palette.accent_strong),
                (palette.danger, palette.danger_ground),
                (palette.ink, palette.danger_ground),
            ];
            for (front, behind) in text {
                assert!(
                    contrast(front, behind) >= 4.5,
                    "{front} on {behind}: {}",
                    contrast(front, behind)
                );
            }
            for (front, behind) in [(palette.edge, palette.surface), (palette.accent, palette.ground)] {
                assert!(
                    contrast(front, behind) >= 3.0,
                    "{front} on {behind}: {}",
                    contrast(front, behind)
                );
            }
        }
    }

    #[test]
    fn the_base_path_has_no_slash_at_its_end() {
        assert_eq!(Theme::built_in("/id/").base_path, "/id");
        assert_eq!(Theme::built_in("/").base_path, "");
    }

    #[test]
    fn every_custom_property_of_the_stylesheet_has_a_value() {
        let (tokens, style) = (
            Tokens::BUILT_IN.css(),
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/style.css")),
        );
        for used in style.split("var(--").skip(1) {
            let name = &used[..used.find([')', ',']).unwrap()];
            assert!(
                tokens.contains(&format!("--{name}:")) || style.contains(&format!("--{name}:")),
                "--{name} has no value"
            );
        }
    }
}
