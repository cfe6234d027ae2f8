//! Which language a page is written in.

use super::Text;
use super::text;

/// A language that the pages are written in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Locale {
    /// English.
    #[default]
    En,
    /// German.
    De,
    /// French.
    Fr,
    /// Spanish.
    Es,
    /// Japanese.
    Ja,
    /// Arabic.
    Ar,
}

/// How many language ranges of one request are looked at.
const MAX_RANGES: usize = 32;

impl Locale {
    /// Every language, for `ui_locales_supported` (OpenID Connect Discovery 1.0 section 3).
    pub const SUPPORTED: [Self; 6] = [Self::En, Self::De, Self::Fr, Self::Es, Self::Ja, Self::Ar];

    /// The language that suits a reader best: the first of `ui_locales` (OpenID Connect Core section 3.1.2.1)
    /// that we have, else the best of `Accept-Language` (RFC 9110 section 12.5.4), else English. Ranges are
    /// matched by lookup (RFC 4647 section 3.4).
    pub fn choose(ui_locales: Option<&str>, accept_language: Option<&str>) -> Self {
        let asked = ui_locales
            .unwrap_or_default()
            .split_ascii_whitespace()
            .take(MAX_RANGES);
        asked
            .map(Self::lookup)
            .chain(
                weighted(accept_language.unwrap_or_default())
                    .into_iter()
                    .map(Self::lookup),
            )
            .flatten()
            .next()
            .unwrap_or_default()
    }

    /// The language tag (BCP 47).
    pub fn tag(self) -> &'static str {
        match self {
            Self::En => "en",
            Self::De => "de",
            Self::Fr => "fr",
            Self::Es => "es",
            Self::Ja => "ja",
            Self::Ar => "ar",
        }
    }

    /// The language's name in itself.
    pub fn name(self) -> &'static str {
        match self {
            Self::En => "English",
            Self::De => "Deutsch",
            Self::Fr => "Français",
            Self::Es => "Español",
            Self::Ja => "日本語",
            Self::Ar => "العربية",
        }
    }

    /// The writing direction, as the `dir` attribute has it.
    pub fn direction(self) -> &'static str {
        match self {
            Self::Ar => "rtl",
            Self::En | Self::De | Self::Fr | Self::Es | Self::Ja => "ltr",
        }
    }

    /// The texts in this language.
    pub fn text(self) -> &'static Text {
        match self {
            Self::En => &text::EN,
            Self::De => &text::DE,
            Self::Fr => &text::FR,
            Self::Es => &text::ES,
            Self::Ja => &text::JA,
            Self::Ar => &text::AR,
        }
    }

    /// Shortens the range from its end until it is a tag that we have.
    fn lookup(range: &str) -> Option<Self> {
        let mut range = range;
        loop {
            if let Some(found) = Self::SUPPORTED
                .iter()
                .find(|locale| locale.tag().eq_ignore_ascii_case(range))
            {
                return Some(*found);
            }
            range = range.rsplit_once('-')?.0;
            if let Some((shorter, last)) = range.rsplit_once('-')
                && last.len() == 1
            {
                range = shorter;
            }
        }
    }
}

/// The ranges of an `Accept-Language` header, the most wanted first; without those of weight zero.
fn weighted(header: &str) -> Vec<&str> {
    let mut ranges: Vec<(u16, &str)> = header
        .split(',')
        .take(MAX_RANGES)
        .filter_map(|item| {
            let (range, weight) = match item.split_once(';') {
                Some((range, parameter)) => (range, thousandths(parameter)?),
                None => (item, 1000),
            };
            (weight > 0).then_some((weight, range.trim()))
        })
        .collect();
    ranges.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
    ranges.into_iter().map(|(_, range)| range).collect()
}

/// The weight `q=0.8` in thousandths (RFC 9110 section 12.4.2).
fn thousandths(parameter: &str) -> Option<u16> {
    let (name, value) = parameter.trim().split_once('=')?;
    let (whole, fraction) = value.split_once('.').unwrap_or((value, ""));
    let well_formed = name.eq_ignore_ascii_case("q")
        && matches!(whole, "0" | "1")
        && fraction.len() <= 3
        && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let weight = format!("{whole}{fraction:0<3}").parse().ok()?;
    (well_formed && weight <= 1000).then_some(weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ui_locales_come_before_accept_language() {
        assert_eq!(Locale::choose(Some("fr-CA fr en"), Some("de")), Locale::Fr);
        assert_eq!(Locale::choose(Some("tlh ja"), Some("de")), Locale::Ja);
        assert_eq!(Locale::choose(Some("tlh"), Some("de")), Locale::De);
        assert_eq!(Locale::choose(Some(""), Some("es-419,es;q=0.9")), Locale::Es);
        assert_eq!(Locale::choose(None, None), Locale::En);
    }

    #[test]
    fn a_range_is_shortened_until_it_is_known() {
        for (range, locale) in [
            ("de", Locale::De),
            ("DE-at", Locale::De),
            ("ar-EG-u-nu-latn", Locale::Ar),
            ("ja-Jpan-JP-x-private", Locale::Ja),
            ("es-x-lobo", Locale::Es),
            ("den", Locale::En),
            ("zh-Hant-TW", Locale::En),
            ("-", Locale::En),
            ("-de", Locale::En),
            ("*", Locale::En),
        ] {
            assert_eq!(Locale::choose(Some(range), None), locale, "{range}");
        }
    }

    #[test]
    fn weights_order_the_header_and_zero_excludes() {
        for (header, locale) in [
            ("en;q=0.5, de;q=0.9, fr;q=0.8", Locale::De),
            ("fr;q=0.9,de", Locale::De),
            ("de, fr", Locale::De),
            ("de;q=0, fr;q=0.1", Locale::Fr),
            ("de;q=0.000, ja;q=0.001", Locale::Ja),
            ("*, de;q=0.5", Locale::De),
            (" de ; Q=0.5 , es ; q=0.75 ", Locale::Es),
            ("de;q=1.001, fr;q=0.2", Locale::Fr),
            ("de;q=2, fr;q=0.2", Locale::Fr),
            ("de;q=-1, fr;q=0.2", Locale::Fr),
            ("de;q=, fr;q=0.2", Locale::Fr),
            ("de;level=1, fr;q=0.2", Locale::Fr),
            (";;,,;q=1,\u{0}", Locale::En),
        ] {
            assert_eq!(Locale::choose(None, Some(header)), locale, "{header}");
        }
    }

    #[test]
    fn a_long_list_is_not_read_to_its_end() {
        let header = format!("{}de", "tlh,".repeat(MAX_RANGES));
        assert_eq!(
            Locale::choose(Some(&header.replace(',', " ")), Some(&header)),
            Locale::En
        );
    }

    #[test]
    fn only_arabic_is_written_from_right_to_left() {
        let rtl: Vec<_> = Locale::SUPPORTED
            .into_iter()
            .filter(|locale| locale.direction() == "rtl")
            .collect();
        assert_eq!(rtl, [Locale::Ar]);
    }
}
