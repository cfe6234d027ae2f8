//! The languages of pages, and which one a reader gets.

use std::sync::{Arc, LazyLock};

use minijinja::Value;
use minijinja::value::{Enumerator, Object};

use super::Text;
use super::language::{Direction, Language};
use super::text::{self, BUILT_IN, SENTENCES, Sentence};

/// A language of pages: a built-in one, or one that a theme or the operator added.
#[derive(Clone, Debug)]
pub struct Locale {
    tag: String,
    name: String,
    direction: Direction,
    base: &'static Text<'static>,
    language: Arc<Language>,
}

/// The parameter in which a page gets the language that was chosen below it.
pub const LANGUAGE: &str = "lang";

/// The most language ranges of one request that are considered.
const MAX_RANGES: usize = 32;

impl Locale {
    /// A language with the texts of a theme or the operator in place of the built-in ones. In a language that is not built
    /// in, missing texts are English.
    pub fn new(tag: &str, language: impl Into<Arc<Language>>) -> Self {
        let language = language.into();
        let known = BUILT_IN.iter().find(|known| known.tag == tag);
        Self {
            tag: tag.to_owned(),
            name: language
                .name
                .clone()
                .unwrap_or_else(|| known.map_or(tag, |known| known.name).to_owned()),
            direction: language.direction.unwrap_or_else(|| Direction::of_tag(tag)),
            base: built_in_text(tag).unwrap_or(&text::EN),
            language,
        }
    }

    /// English with the built-in texts.
    pub fn english() -> &'static Self {
        static ENGLISH: LazyLock<Locale> = LazyLock::new(|| Locale::new("en", Language::default()));
        &ENGLISH
    }

    /// The language tag (BCP 47).
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// The language's own name for itself; the tag if it is unknown.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The writing direction, as the `dir` attribute has it.
    pub fn direction(&self) -> &'static str {
        self.direction.as_str()
    }

    /// The texts in this language.
    pub fn text(&self) -> Text<'_> {
        if self.language.texts.is_empty() {
            *self.base
        } else {
            self.base.with(&self.language.texts)
        }
    }

    /// The theme's words for a scope.
    pub fn scope(&self, name: &str) -> Option<&str> {
        self.language.scopes.get(name).map(String::as_str)
    }

    /// The texts for templates.
    pub fn values(&self) -> Value {
        Value::from_object(TextValues {
            base: self.base,
            language: Arc::clone(&self.language),
        })
    }

    /// The texts that are missing in this language, and therefore English.
    pub fn missing(&self) -> Vec<&'static str> {
        if built_in_text(&self.tag).is_some() {
            return Vec::new();
        }
        let names = SENTENCES.iter().map(|sentence| sentence.name);
        names
            .filter(|name| !self.language.texts.contains_key(*name))
            .collect()
    }
}

/// The texts for templates. Those that a theme leaves as they are take no memory.
#[derive(Debug)]
struct TextValues {
    base: &'static Text<'static>,
    language: Arc<Language>,
}

impl Object for TextValues {
    fn get_value(self: &Arc<Self>, name: &Value) -> Option<Value> {
        let name = name.as_str()?;
        let built_in = Sentence::named(name)?.of(self.base);
        let own = self.language.texts.get(name);
        Some(own.map_or_else(|| Value::from(built_in), |own| Value::from(own.as_str())))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let names = SENTENCES.iter().map(|sentence| Value::from(sentence.name));
        Enumerator::Values(names.collect())
    }
}

/// The built-in texts of a tag's language. The region does not matter.
pub fn built_in_text(tag: &str) -> Option<&'static Text<'static>> {
    let language = tag.split('-').next().unwrap_or_default();
    BUILT_IN
        .iter()
        .find(|known| known.tag.eq_ignore_ascii_case(language))
        .map(|known| known.text)
}

/// The best language for a reader: the first of `ui_locales` (OpenID Connect Core section 3.1.2.1) that is available,
/// else the best of `Accept-Language` (RFC 9110 section 12.5.4), else the first of `locales`. Ranges are matched by
/// lookup (RFC 4647 section 3.4).
pub fn choose<'a>(
    locales: &'a [Locale],
    ui_locales: Option<&str>,
    accept_language: Option<&str>,
) -> Option<&'a Locale> {
    let asked = ui_locales
        .unwrap_or_default()
        .split_ascii_whitespace()
        .take(MAX_RANGES);
    asked
        .chain(weighted(accept_language.unwrap_or_default()))
        .find_map(|range| lookup(locales, range))
        .or_else(|| locales.first())
}

/// Shortens the range from its end until it is an available tag.
fn lookup<'a>(locales: &'a [Locale], range: &str) -> Option<&'a Locale> {
    let mut range = range;
    loop {
        if let Some(found) = locales
            .iter()
            .find(|locale| locale.tag.eq_ignore_ascii_case(range))
        {
            return Some(found);
        }
        range = range.rsplit_once('-')?.0;
        if let Some((shorter, last)) = range.rsplit_once('-')
            && last.len() == 1
        {
            range = shorter;
        }
    }
}

/// Whether a text has the form of a language tag of BCP 47: two or three letters, then subtags.
pub fn is_tag(text: &str) -> bool {
    let mut parts = text.split('-');
    let is_language = parts.next().is_some_and(|part| {
        matches!(part.len(), 2 | 3) && part.bytes().all(|byte| byte.is_ascii_alphabetic())
    });
    is_language
        && text.len() <= 35
        && parts.all(|part| {
            (1..=8).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
        })
}

/// The ranges of an `Accept-Language` header, the highest weight first, without weight zero.
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
    use std::collections::BTreeMap;

    use super::*;
    use crate::pages::text::BuiltIn;

    fn built_in() -> Vec<Locale> {
        let locale = |built_in: &BuiltIn| Locale::new(built_in.tag, Language::default());
        BUILT_IN.iter().map(locale).collect()
    }

    fn chosen(ui_locales: Option<&str>, accept_language: Option<&str>) -> String {
        choose(&built_in(), ui_locales, accept_language)
            .unwrap()
            .tag()
            .to_owned()
    }

    #[test]
    fn ui_locales_come_before_accept_language() {
        assert_eq!(chosen(Some("fr-CA fr en"), Some("de")), "fr");
        assert_eq!(chosen(Some("tlh ja"), Some("de")), "ja");
        assert_eq!(chosen(Some("tlh"), Some("de")), "de");
        assert_eq!(chosen(Some(""), Some("es-419,es;q=0.9")), "es");
        assert_eq!(chosen(None, None), "en");
    }

    #[test]
    fn a_range_is_shortened_until_it_is_known() {
        for (range, locale) in [
            ("de", "de"),
            ("DE-at", "de"),
            ("ar-EG-u-nu-latn", "ar"),
            ("ja-Jpan-JP-x-private", "ja"),
            ("es-x-lobo", "es"),
            ("den", "en"),
            ("zh-Hant-TW", "en"),
            ("-", "en"),
            ("-de", "en"),
            ("*", "en"),
        ] {
            assert_eq!(chosen(Some(range), None), locale, "{range}");
        }
    }

    #[test]
    fn weights_order_the_header_and_zero_excludes() {
        for (header, locale) in [
            ("en;q=0.5, de;q=0.9, fr;q=0.8", "de"),
            ("fr;q=0.9,de", "de"),
            ("de, fr", "de"),
            ("de;q=0, fr;q=0.1", "fr"),
            ("de;q=0.000, ja;q=0.001", "ja"),
            ("*, de;q=0.5", "de"),
            (" de ; Q=0.5 , es ; q=0.75 ", "es"),
            ("de;q=1.001, fr;q=0.2", "fr"),
            ("de;q=2, fr;q=0.2", "fr"),
            ("de;q=-1, fr;q=0.2", "fr"),
            ("de;q=, fr;q=0.2", "fr"),
            ("de;level=1, fr;q=0.2", "fr"),
            (";;,,;q=1,\u{0}", "en"),
        ] {
            assert_eq!(chosen(None, Some(header)), locale, "{header}");
        }
    }

    #[test]
    fn a_long_list_is_not_read_to_its_end() {
        let header = format!("{}de", "tlh,".repeat(MAX_RANGES));
        assert_eq!(chosen(Some(&header.replace(',', " ")), Some(&header)), "en");
    }

    #[test]
    fn only_arabic_is_written_from_right_to_left_among_the_built_in() {
        let rtl: Vec<_> = built_in()
            .into_iter()
            .filter(|locale| locale.direction() == "rtl")
            .map(|locale| locale.tag().to_owned())
            .collect();
        assert_eq!(rtl, ["ar"]);
        assert_eq!(Direction::of_tag("fa-IR"), Direction::Rtl);
    }

    #[test]
    fn an_added_language_is_english_where_it_says_nothing() {
        let texts = BTreeMap::from([("sign_in".to_owned(), "Aanmelden".to_owned())]);
        let dutch = Locale::new(
            "nl",
            Language {
                name: Some("Nederlands".to_owned()),
                texts,
                ..Language::default()
            },
        );
        assert_eq!(
            (dutch.name(), Locale::english().name()),
            ("Nederlands", "English")
        );
        assert_eq!(
            (dutch.text().sign_in, dutch.text().password),
            ("Aanmelden", "Password")
        );
        let missing = dutch.missing();
        assert!(missing.contains(&"password") && !missing.contains(&"sign_in"));
        assert!(built_in().iter().all(|locale| locale.missing().is_empty()));
        let austrian = Locale::new("de-AT", Language::default());
        assert_eq!(
            (austrian.text().password, austrian.missing().len()),
            ("Passwort", 0)
        );
    }

    #[test]
    fn languages_that_change_nothing_share_their_texts() {
        let language = Arc::new(Language {
            texts: BTreeMap::from([("sign_in".to_owned(), "Aanmelden".to_owned())]),
            ..Language::default()
        });
        let locales: Vec<_> = ["nl", "nl-BE"]
            .map(|tag| Locale::new(tag, Arc::clone(&language)))
            .into();
        assert_eq!(Arc::strong_count(&language), 1 + locales.len());
        let values = locales[0].values();
        assert_eq!(Arc::strong_count(&language), 2 + locales.len());
        let text = |name: &str| values.get_attr(name).unwrap();
        assert_eq!(
            (text("sign_in").as_str(), text("password").as_str()),
            (Some("Aanmelden"), Some("Password"))
        );
        assert!(text("nothing").is_undefined());
        assert_eq!(values.len(), Some(SENTENCES.len()));
    }

    #[test]
    fn a_tag_is_two_or_three_letters_and_subtags() {
        for tag in ["nl", "pt-BR", "zh-Hant-TW", "fil"] {
            assert!(is_tag(tag), "{tag}");
        }
        for tag in [
            "",
            "n",
            "nl_BE",
            "nl-",
            "../en",
            "n1",
            "a-very-long-tag-that-nobody-would-ever-use",
        ] {
            assert!(!is_tag(tag), "{tag}");
        }
    }
}
