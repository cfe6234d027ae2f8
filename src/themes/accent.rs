//! Palettes from one accent colour, in the colour space OKLCH (CSS Color 4, section 9).
//!
//! Lightness and chroma of each colour are fixed, so that the contrast is right for every hue. The accent itself keeps
//! its chroma, and is darkened or lightened until it can be read.

use super::tokens::{Colour, Palette};

/// A colour by lightness (0 to 1), chroma and hue (in radians).
#[derive(Clone, Copy, Debug)]
struct Oklch {
    lightness: f64,
    chroma: f64,
    hue: f64,
}

impl Oklch {
    fn of(colour: Colour) -> Self {
        let [red, green, blue] = colour.linear();
        let long = (0.412_221_470_8 * red + 0.536_332_536_3 * green + 0.051_445_992_9 * blue).cbrt();
        let medium = (0.211_903_498_2 * red + 0.680_699_545_1 * green + 0.107_396_956_6 * blue).cbrt();
        let short = (0.088_302_461_9 * red + 0.281_718_837_6 * green + 0.629_978_700_5 * blue).cbrt();
        let a = 1.977_998_495_1 * long - 2.428_592_205_0 * medium + 0.450_593_709_9 * short;
        let b = 0.025_904_037_1 * long + 0.782_771_766_2 * medium - 0.808_675_766_0 * short;
        Self {
            lightness: 0.210_454_255_3 * long + 0.793_617_785_0 * medium - 0.004_072_046_8 * short,
            chroma: a.hypot(b),
            hue: b.atan2(a),
        }
    }

    /// Linear red, green and blue, which may lie outside sRGB.
    fn linear(self) -> [f64; 3] {
        let (a, b) = (self.chroma * self.hue.cos(), self.chroma * self.hue.sin());
        let long = (self.lightness + 0.396_337_777_4 * a + 0.215_803_757_3 * b).powi(3);
        let medium = (self.lightness - 0.105_561_345_8 * a - 0.063_854_172_8 * b).powi(3);
        let short = (self.lightness - 0.089_484_177_5 * a - 1.291_485_548_0 * b).powi(3);
        [
            4.076_741_662_1 * long - 3.307_711_591_3 * medium + 0.230_969_929_2 * short,
            -1.268_438_004_6 * long + 2.609_757_401_1 * medium - 0.341_319_396_5 * short,
            -0.004_196_086_3 * long - 0.703_418_614_7 * medium + 1.707_614_701_0 * short,
        ]
    }

    /// The colour in sRGB, with as much of the chroma as fits.
    fn colour(self) -> Colour {
        let fits = |colour: &Self| colour.linear().iter().all(|part| (-0.001..=1.001).contains(part));
        let reduced = (0..=20).map(|step| Self {
            chroma: self.chroma * f64::from(20 - step) / 20.0,
            ..self
        });
        let found = reduced.into_iter().find(fits).unwrap_or(self);
        Colour::of_linear(found.linear())
    }
}

/// The colours of problems and behind them, which do not depend on the accent.
const DANGER_LIGHT: [&str; 2] = ["#b3261e", "#fdf1ef"];
/// The same in the dark scheme.
const DANGER_DARK: [&str; 2] = ["#ffb4ab", "#33171a"];

/// The light and the dark palette around an accent.
pub(super) fn palettes(accent: Colour) -> [Palette; 2] {
    [palette(accent, false), palette(accent, true)]
}

fn palette(accent: Colour, is_dark: bool) -> Palette {
    let given = Oklch::of(accent);
    // Greys have a little of the hue, and none if the accent has none.
    let grey = |lightness: f64, chroma: f64| Oklch {
        lightness,
        chroma: chroma.min(given.chroma * 0.12),
        hue: given.hue,
    };
    let (surface, ground) = if is_dark {
        (grey(0.218, 0.010).colour(), grey(0.172, 0.010).colour())
    } else {
        (grey(1.0, 0.0).colour(), grey(0.976, 0.004).colour())
    };
    let accent = readable(given, [surface, ground], is_dark);
    let strong = Oklch {
        lightness: accent.lightness + if is_dark { 0.06 } else { -0.07 },
        ..accent
    };
    let on_accent = if is_dark {
        Oklch {
            lightness: 0.22,
            chroma: given.chroma * 0.3,
            ..given
        }
        .colour()
    } else {
        grey(1.0, 0.0).colour()
    };
    let [ink, muted, line, edge] = if is_dark {
        [
            grey(0.945, 0.006),
            grey(0.735, 0.012),
            grey(0.315, 0.012),
            grey(0.575, 0.014),
        ]
    } else {
        [
            grey(0.225, 0.016),
            grey(0.485, 0.016),
            grey(0.918, 0.006),
            grey(0.640, 0.014),
        ]
    };
    let [danger, danger_ground] = if is_dark { DANGER_DARK } else { DANGER_LIGHT };
    let mut palette = Palette::default();
    for (name, colour) in [
        ("ground", ground),
        ("surface", surface),
        ("ink", ink.colour()),
        ("muted", muted.colour()),
        ("line", line.colour()),
        ("edge", edge.colour()),
        ("accent", accent.colour()),
        ("accent-strong", strong.colour()),
        ("on-accent", on_accent),
        ("danger", danger.parse().unwrap_or_default()),
        ("danger-ground", danger_ground.parse().unwrap_or_default()),
    ] {
        palette.set(name, colour);
    }
    palette
}

/// The accent as dark, or in the dark scheme as light, as text of 4.5 : 1 has to be on both backgrounds.
fn readable(accent: Oklch, behind: [Colour; 2], is_dark: bool) -> Oklch {
    let start = if is_dark {
        accent.lightness.max(0.74)
    } else {
        accent.lightness
    };
    let step = if is_dark { 0.01 } else { -0.01 };
    let lighter = (0..100).map(|count| Oklch {
        lightness: (start + step * f64::from(count)).clamp(0.0, 1.0),
        // Light colours of full chroma dazzle on a dark ground.
        chroma: if is_dark {
            accent.chroma.min(0.13)
        } else {
            accent.chroma
        },
        ..accent
    });
    let is_readable = |candidate: &Oklch| {
        behind
            .iter()
            .all(|behind| candidate.colour().contrast(*behind) >= 4.6)
    };
    lighter.into_iter().find(is_readable).unwrap_or(accent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colour_survives_the_way_through_the_colour_space() {
        for text in ["#000000", "#ffffff", "#0f766e", "#4f46e5", "#ff0000", "#808080"] {
            let colour: Colour = text.parse().unwrap();
            assert_eq!(Oklch::of(colour).colour().to_string(), text);
        }
    }

    #[test]
    fn every_accent_gives_palettes_with_enough_contrast() {
        for red in (0..=255_u32).step_by(51) {
            for green in (0..=255_u32).step_by(51) {
                for blue in (0..=255_u32).step_by(51) {
                    let accent: Colour = format!("#{red:02x}{green:02x}{blue:02x}").parse().unwrap();
                    for palette in palettes(accent) {
                        assert!(
                            palette.weak_pairs().is_empty(),
                            "{accent}: {:?}",
                            palette.weak_pairs()
                        );
                    }
                }
            }
        }
    }
}
