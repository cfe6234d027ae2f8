//! `theme.toml`: what a theme says without writing HTML or CSS, and `locales/xx.toml`, which adds a language.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::CONTRACT;
use super::finding::{Finding, Severity, line_of};
use super::policy::{ContentSecurityPolicy, Load};
use super::tokens::{COLOURS, Colour, Palette, Tokens, is_font_stack, is_length};
use crate::pages::locale::{Direction, is_tag};
use crate::pages::text;
use crate::pages::text::{PLACE, PLACE_OPTIONAL};

/// Texts by their names, or words for scopes by theirs.
pub type Words = BTreeMap<String, String>;

/// A link of the operator's, such as one to the privacy policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Where it leads.
    pub href: String,
    /// Its text by language tag; under the empty tag for all other languages.
    pub texts: Words,
}

/// What a theme adds to one language.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Language {
    /// Its name in itself; nothing when the service knows it, or nobody does.
    pub name: Option<String>,
    /// How it is written; nothing when the tag says it.
    pub direction: Option<Direction>,
    /// Texts in the place of the built-in ones.
    pub texts: Words,
    /// Words for scopes.
    pub scopes: Words,
}

impl Language {
    /// Takes what `weaker` says where this says nothing.
    pub fn underlay(&mut self, weaker: &Self) {
        self.direction = self.direction.or(weaker.direction);
        self.name = self.name.take().or_else(|| weaker.name.clone());
        for (mine, theirs) in [
            (&mut self.texts, &weaker.texts),
            (&mut self.scopes, &weaker.scopes),
        ] {
            for (name, value) in theirs {
                mine.entry(name.clone()).or_insert_with(|| value.clone());
            }
        }
    }
}

/// What `theme.toml` says, checked.
#[derive(Clone, Debug, Default)]
pub struct Manifest {
    /// The name that people know the product by.
    pub product_name: String,
    /// The file of the mark beside it.
    pub logo: Option<String>,
    /// The file of the icon in a browser's tab.
    pub favicon: Option<String>,
    /// Colours, corners and font.
    pub tokens: Tokens,
    /// Links below every page.
    pub links: Vec<Link>,
    /// What pages may load from elsewhere.
    pub policy: ContentSecurityPolicy,
    /// What it adds to languages, by tag.
    pub languages: BTreeMap<String, Language>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    #[expect(
        dead_code,
        reason = "read before the rest, so that a later contract is named as such"
    )]
    contract: Spanned<i64>,
    product_name: Option<Spanned<String>>,
    logo: Option<Spanned<String>>,
    favicon: Option<Spanned<String>>,
    radius: Option<Spanned<String>>,
    font: Option<Spanned<String>>,
    #[serde(default)]
    light: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    dark: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    links: Vec<RawLink>,
    #[serde(default)]
    csp: RawPolicy,
    #[serde(default)]
    texts: BTreeMap<String, RawWords>,
    #[serde(default)]
    scopes: BTreeMap<String, RawWords>,
}

type RawWords = BTreeMap<String, Spanned<String>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLink {
    href: Spanned<String>,
    text: LinkText,
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "text must be one text, or a table of texts by language"
)]
enum LinkText {
    One(String),
    Each(Words),
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawPolicy {
    style: Vec<Spanned<String>>,
    image: Vec<Spanned<String>>,
    script: Vec<Spanned<String>>,
    font: Vec<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLanguage {
    name: Option<Spanned<String>>,
    direction: Option<Spanned<String>>,
    #[serde(default)]
    texts: RawWords,
    #[serde(default)]
    scopes: RawWords,
}

const MOST_LINKS: usize = 12;
const LONGEST_TEXT: usize = 1000;

/// Reads one file and keeps what is wrong with it.
struct Reader<'a> {
    file: &'a str,
    text: &'a str,
    faults: Vec<Finding>,
}

impl Reader<'_> {
    fn fault(&mut self, offset: usize, message: impl Into<String>) {
        let line = line_of(self.text, offset);
        self.faults
            .push(Finding::at_line(Severity::Refused, self.file, line, message));
    }

    fn parse<T: for<'de> Deserialize<'de>>(&mut self) -> Option<T> {
        toml::from_str(self.text)
            .map_err(|error| {
                let offset = error.span().map_or(0, |span| span.start);
                self.fault(offset, error.message());
            })
            .ok()
    }

    fn finish<T>(self, value: T) -> Result<T, Vec<Finding>> {
        if self.faults.is_empty() {
            Ok(value)
        } else {
            Err(self.faults)
        }
    }

    fn checked(
        &mut self,
        value: Spanned<String>,
        is_fit: impl Fn(&str) -> bool,
        wanted: &str,
    ) -> Option<String> {
        let offset = value.span().start;
        let value = value.into_inner();
        if is_fit(&value) {
            return Some(value);
        }
        self.fault(offset, format!("{value:?} is not {wanted}"));
        None
    }

    fn palette(
        &mut self,
        scheme: &str,
        base: Palette,
        colours: BTreeMap<String, Spanned<String>>,
    ) -> Palette {
        let mut palette = base;
        for (name, value) in colours {
            let offset = value.span().start;
            match value.get_ref().parse::<Colour>() {
                Err(problem) => self.fault(offset, format!("{scheme}.{name}: {problem}")),
                Ok(colour) => {
                    if !palette.set(&name, colour) {
                        let known = COLOURS.join(", ");
                        self.fault(
                            offset,
                            format!("{scheme}.{name} is no colour of the contract: {known}"),
                        );
                    }
                }
            }
        }
        palette
    }

    fn links(&mut self, links: Vec<RawLink>) -> Vec<Link> {
        if let Some(one_too_many) = links.get(MOST_LINKS) {
            self.fault(
                one_too_many.href.span().start,
                format!("more than {MOST_LINKS} links"),
            );
        }
        let wanted = "an address that begins with https://, http://, mailto: or /";
        links
            .into_iter()
            .filter_map(|link| {
                let href = self.checked(link.href, is_link, wanted)?;
                let texts = match link.text {
                    LinkText::One(text) => Words::from([(String::new(), text)]),
                    LinkText::Each(texts) => texts,
                };
                Some(Link { href, texts })
            })
            .collect()
    }

    fn policy(&mut self, raw: RawPolicy) -> ContentSecurityPolicy {
        let lists = [
            (Load::Style, raw.style),
            (Load::Image, raw.image),
            (Load::Script, raw.script),
            (Load::Font, raw.font),
        ];
        let mut policy = ContentSecurityPolicy::default();
        for (load, source) in lists
            .into_iter()
            .flat_map(|(load, sources)| sources.into_iter().map(move |source| (load, source)))
        {
            match policy.clone().allow(load, source.get_ref()) {
                Ok(wider) => policy = wider,
                Err(problem) => {
                    self.fault(
                        source.span().start,
                        format!("{:?} is {problem}", source.get_ref()),
                    );
                }
            }
        }
        policy
    }

    /// Texts whose names the pages have, with a place where the English text has one.
    fn texts(&mut self, raw: RawWords) -> Words {
        let mut texts = Words::new();
        for (name, value) in raw {
            let offset = value.span().start;
            let Some((_, english)) = text::EN.entries().find(|(known, _)| *known == name) else {
                self.fault(offset, format!("{name} is no text of the contract"));
                continue;
            };
            let value = value.into_inner();
            let (has, wants) = (value.matches(PLACE).count(), english.matches(PLACE).count());
            let is_left_out = has == 0 && PLACE_OPTIONAL.contains(&name.as_str());
            if has != wants && !is_left_out {
                self.fault(
                    offset,
                    format!("{name} has {PLACE} {has} times and needs it {wants} times"),
                );
            } else if value.trim().is_empty() || value.len() > LONGEST_TEXT {
                self.fault(offset, format!("{name} must have 1 to {LONGEST_TEXT} bytes"));
            } else {
                texts.insert(name, value);
            }
        }
        texts
    }

    fn scopes(&mut self, raw: RawWords) -> Words {
        let mut scopes = Words::new();
        for (name, value) in raw {
            let offset = value.span().start;
            let value = value.into_inner();
            if value.trim().is_empty() || value.len() > LONGEST_TEXT {
                self.fault(
                    offset,
                    format!("the words for {name} must have 1 to {LONGEST_TEXT} bytes"),
                );
            } else {
                scopes.insert(name, value);
            }
        }
        scopes
    }

    fn languages(
        &mut self,
        texts: BTreeMap<String, RawWords>,
        scopes: BTreeMap<String, RawWords>,
    ) -> BTreeMap<String, Language> {
        let mut languages: BTreeMap<String, Language> = BTreeMap::new();
        for tag in texts.keys().chain(scopes.keys()) {
            if !is_tag(tag) {
                self.fault(0, format!("{tag:?} is no language tag, as in de or pt-BR"));
            }
        }
        for (tag, words) in texts {
            languages.entry(tag).or_default().texts = self.texts(words);
        }
        for (tag, words) in scopes {
            languages.entry(tag).or_default().scopes = self.scopes(words);
        }
        languages
    }
}

/// Whether a link may lead there. A script is no place.
fn is_link(href: &str) -> bool {
    let is_near = href.starts_with('/') && !href.starts_with("//");
    let is_known = ["https://", "http://", "mailto:"]
        .iter()
        .any(|scheme| href.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty()));
    (is_near || is_known) && href.len() <= 2000 && href.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Which contract a theme was written for, before anything else of it is read.
fn check_contract(reader: &mut Reader<'_>) -> bool {
    #[derive(Deserialize)]
    struct Version {
        contract: Option<Spanned<i64>>,
    }
    let Some(version) = reader.parse::<Version>() else {
        return false;
    };
    let known = format!("this release knows contract {CONTRACT}");
    match version.contract {
        Some(version) if *version.get_ref() == CONTRACT => true,
        Some(version) => {
            reader.fault(
                version.span().start,
                format!("contract {}: {known}", version.get_ref()),
            );
            false
        }
        None => {
            reader.fault(0, format!("contract is missing: {known}"));
            false
        }
    }
}

/// Reads `theme.toml`. What it leaves out is as in `base`.
pub fn parse(text: &str, base: &Manifest) -> Result<Manifest, Vec<Finding>> {
    let mut reader = Reader {
        file: "theme.toml",
        text,
        faults: Vec::new(),
    };
    if !check_contract(&mut reader) {
        return Err(reader.faults);
    }
    let Some(raw) = reader.parse::<Raw>() else {
        return Err(reader.faults);
    };
    let is_name = |name: &str| !name.trim().is_empty() && name.len() <= 200;
    let product_name = raw
        .product_name
        .and_then(|name| reader.checked(name, is_name, "a name of 1 to 200 bytes"));
    let radius = raw
        .radius
        .and_then(|radius| reader.checked(radius, is_length, "a length such as 0, 12px or 0.75rem"));
    let font = raw
        .font
        .and_then(|font| reader.checked(font, is_font_stack, "a list of font names"));
    let tokens = Tokens {
        light: reader.palette("light", base.tokens.light, raw.light),
        dark: reader.palette("dark", base.tokens.dark, raw.dark),
        radius: radius.unwrap_or_else(|| base.tokens.radius.clone()),
        font: font.unwrap_or_else(|| base.tokens.font.clone()),
    };
    let manifest = Manifest {
        product_name: product_name.unwrap_or_else(|| base.product_name.clone()),
        logo: raw.logo.map(Spanned::into_inner),
        favicon: raw.favicon.map(Spanned::into_inner),
        tokens,
        links: reader.links(raw.links),
        policy: reader.policy(raw.csp),
        languages: reader.languages(raw.texts, raw.scopes),
    };
    reader.finish(manifest)
}

/// Reads a language's file, called `file` in what is said of it.
pub fn parse_language(file: &str, text: &str) -> Result<Language, Vec<Finding>> {
    let mut reader = Reader {
        file,
        text,
        faults: Vec::new(),
    };
    let Some(raw) = reader.parse::<RawLanguage>() else {
        return Err(reader.faults);
    };
    let direction = raw
        .direction
        .and_then(|given| reader.checked(given, |text| Direction::of(text).is_some(), "ltr or rtl"));
    let is_name = |name: &str| !name.trim().is_empty() && name.len() <= 100;
    let name = raw
        .name
        .and_then(|name| reader.checked(name, is_name, "a name of 1 to 100 bytes"));
    let language = Language {
        name,
        direction: direction.as_deref().and_then(Direction::of),
        texts: reader.texts(raw.texts),
        scopes: reader.scopes(raw.scopes),
    };
    reader.finish(language)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        let found = parse(text, &Manifest::default()).unwrap_err();
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_left_out_stays_as_it_was() {
        let base = parse(
            "contract = 1\nproduct_name = \"Base\"\nradius = \"1px\"\nfont = \"a\"\n[light]\nink = \"#000001\"",
            &Manifest::default(),
        )
        .unwrap();
        let theme = parse("contract = 1\n[light]\naccent = \"#000002\"", &base).unwrap();
        assert_eq!(
            (theme.product_name.as_str(), theme.tokens.radius.as_str()),
            ("Base", "1px")
        );
        let colour = |name: &str| theme.tokens.light.colour(name).unwrap().to_string();
        assert_eq!(
            (colour("ink"), colour("accent")),
            ("#000001".to_owned(), "#000002".to_owned())
        );
    }

    #[test]
    fn another_contract_is_named_before_anything_else() {
        assert_eq!(
            faults("future = true\ncontract = 2"),
            ["theme.toml line 2: contract 2: this release knows contract 1"]
        );
        assert_eq!(
            faults("product_name = \"x\""),
            ["theme.toml line 1: contract is missing: this release knows contract 1"]
        );
    }

    #[test]
    fn every_fault_is_told_with_its_line() {
        let text = "contract = 1\nradius = \"1rem;}\"\n[light]\nink = \"red\"\npink = \"#ff00ff\"\n\
                    [[links]]\nhref = \"javascript:alert(1)\"\ntext = \"x\"\n\
                    [csp]\nscript = [\"'unsafe-inline'\"]\n[texts.en]\nsign_in_to = \"go\"\nnonsense = \"x\"";
        let found = faults(text).join("\n");
        for part in [
            "line 2: \"1rem;}\" is not a length",
            "line 4: light.ink: a colour is written #rrggbb",
            "line 5: light.pink is no colour",
            "line 7: \"javascript:alert(1)\" is not an address",
            "line 10: \"'unsafe-inline'\" is not a source",
            "line 12: sign_in_to has {} 0 times and needs it 1 times",
            "line 13: nonsense is no text",
        ] {
            assert!(found.contains(part), "{part}\n{found}");
        }
    }

    #[test]
    fn a_language_file_says_how_it_is_written() {
        let language = parse_language(
            "fa.toml",
            "name = \"فارسی\"\ndirection = \"rtl\"\n[texts]\nsign_in = \"ورود\"",
        )
        .unwrap();
        assert_eq!(language.direction, Some(Direction::Rtl));
        assert_eq!(language.name.as_deref(), Some("فارسی"));
        assert_eq!(language.texts["sign_in"], "ورود");
        let found = parse_language("fa.toml", "direction = \"up\"").unwrap_err();
        assert_eq!(found[0].to_string(), "fa.toml line 1: \"up\" is not ltr or rtl");
    }

    /// A text that asks for a place, or for one more, refuses the files that were right before: a text may only be
    /// added to these two lists, and to the first only as a text that nobody has written yet.
    #[test]
    fn the_places_of_a_text_are_those_that_its_contract_began_with() {
        let wanted: Vec<_> = text::EN
            .entries()
            .filter(|(_, english)| english.contains(PLACE))
            .map(|(name, english)| (name, english.matches(PLACE).count()))
            .filter(|(name, _)| !PLACE_OPTIONAL.contains(name))
            .collect();
        let of_names = [
            "sign_in_to",
            "continue_as",
            "problem_elsewhere",
            "continue_with",
            "consent_lead",
            "consent_user",
            "logout_user",
            "home_user",
            "account_password_rule",
        ];
        assert_eq!(wanted, of_names.map(|name| (name, 1)));
        assert_eq!(PLACE_OPTIONAL, ["problem_too_long"]);
        for (written, is_right) in [("Te lang", true), ("Te lang: {}", true), ("{} {}", false)] {
            let read = parse_language("nl.toml", &format!("[texts]\nproblem_too_long = \"{written}\""));
            assert_eq!(read.is_ok(), is_right, "{written}");
        }
    }

    #[test]
    fn no_link_leads_to_a_script() {
        for href in ["https://a.example/p", "mailto:a@b.example", "/privacy"] {
            assert!(is_link(href), "{href}");
        }
        for href in [
            "javascript:x",
            "//evil.example",
            "data:text/html,x",
            "https://",
            "a b",
            "",
        ] {
            assert!(!is_link(href), "{href}");
        }
    }
}
