//! `theme.toml`: the settings of a theme.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::accent;
use super::finding::Finding;
use super::language::RawWords;
use super::policy::{ContentSecurityPolicy, ResourceKind};
use super::reader::Reader;
use super::tokens::{COLOURS, Colour, Palette, Tokens, is_font_stack, is_length};
use super::{CONTRACT, MAX_LANGUAGES};
use crate::pages::language::{Language, Words};
use crate::pages::locale::is_tag;

/// A link of the operator's, such as one to the privacy policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Where it leads.
    pub href: String,
    /// Its text by language tag; under the empty tag for all other languages.
    pub texts: Words,
}

/// The checked content of `theme.toml`.
#[derive(Clone, Debug, Default)]
pub struct Manifest {
    pub product_name: String,
    /// The file of the logo. An empty text is for none, and `None` for that of the default theme.
    pub logo: Option<String>,
    /// The file of the icon in the browser's tab, in the same way.
    pub favicon: Option<String>,
    /// The file of the picture behind the pages.
    pub picture: Option<String>,
    /// Colours, corners and font.
    pub tokens: Tokens,
    /// Links below every page.
    pub links: Vec<Link>,
    /// The other origins that pages may load from.
    pub policy: ContentSecurityPolicy,
    /// Texts of languages, by tag.
    pub languages: BTreeMap<String, Language>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    #[expect(dead_code, reason = "check_contract reads it before the rest")]
    contract: Spanned<i64>,
    product_name: Option<Spanned<String>>,
    logo: Option<Spanned<String>>,
    favicon: Option<Spanned<String>>,
    accent: Option<Spanned<String>>,
    picture: Option<Spanned<String>>,
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

const MAX_LINKS: usize = 12;

impl Reader<'_> {
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
                Ok(colour) if palette.set(&name, colour) => {}
                Ok(_) => {
                    let known = COLOURS.join(", ");
                    self.fault(
                        offset,
                        format!("{scheme}.{name} is unknown; the colours are {known}"),
                    );
                }
            }
        }
        palette
    }

    fn links(&mut self, links: Vec<RawLink>) -> Vec<Link> {
        if let Some(link) = links.get(MAX_LINKS) {
            self.fault(link.href.span().start, format!("more than {MAX_LINKS} links"));
        }
        let wanted = "an address that begins with https://, http://, mailto: or /";
        links
            .into_iter()
            .filter_map(|link| {
                let href = self.checked(Some(link.href), is_link, wanted)?;
                let texts = match link.text {
                    LinkText::One(text) => Words::from([(String::new(), text)]),
                    LinkText::Each(texts) => texts,
                };
                Some(Link { href, texts })
            })
            .collect()
    }

    fn policy(&mut self, raw: RawPolicy) -> ContentSecurityPolicy {
        let mut policy = ContentSecurityPolicy::default();
        for (load, sources) in [
            (ResourceKind::Style, raw.style),
            (ResourceKind::Image, raw.image),
            (ResourceKind::Script, raw.script),
            (ResourceKind::Font, raw.font),
        ] {
            for source in sources {
                match policy.clone().allow(load, source.get_ref()) {
                    Ok(wider) => policy = wider,
                    Err(problem) => {
                        let message = format!("{:?} is {problem}", source.get_ref());
                        self.fault(source.span().start, message);
                    }
                }
            }
        }
        policy
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
        // By their places in the file: the first one too many is named.
        let first_word = |words: &RawWords| words.values().map(|word| word.span().start).min();
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        for (tag, words) in texts.iter().chain(&scopes) {
            let place = first_word(words).unwrap_or(0);
            let known = places.entry(tag).or_insert(place);
            *known = place.min(*known);
        }
        let mut places: Vec<usize> = places.into_values().collect();
        places.sort_unstable();
        if let Some(place) = places.get(MAX_LANGUAGES) {
            self.fault(*place, format!("a theme has at most {MAX_LANGUAGES} languages"));
            return BTreeMap::new();
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

/// Whether a link may have this address. `javascript:` is refused.
fn is_link(href: &str) -> bool {
    let is_own = href.starts_with('/') && !href.starts_with("//");
    let is_known = ["https://", "http://", "mailto:"]
        .iter()
        .any(|scheme| href.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty()));
    (is_own || is_known) && href.len() <= 2000 && href.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Checks the version of the contract before the rest is read.
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

/// Reads `theme.toml`. Missing values come from `base`.
pub fn parse(text: &str, base: &Manifest) -> Result<Manifest, Vec<Finding>> {
    let mut reader = Reader::new("theme.toml", text);
    if !check_contract(&mut reader) {
        return reader.finish(Manifest::default());
    }
    let Some(raw) = reader.parse::<Raw>() else {
        return reader.finish(Manifest::default());
    };
    let is_name = |name: &str| !name.trim().is_empty() && name.len() <= 200;
    let product_name = reader.checked(raw.product_name, is_name, "a name of 1 to 200 bytes");
    let radius = reader.checked(raw.radius, is_length, "a length such as 0, 12px or 0.75rem");
    let font = reader.checked(raw.font, is_font_stack, "a list of font names");
    let is_colour = |colour: &str| colour.parse::<Colour>().is_ok();
    let accent = reader.checked(raw.accent, is_colour, "a colour, written #rrggbb");
    let accent = accent.and_then(|accent| accent.parse().ok());
    let [light, dark] = accent.map_or([base.tokens.light, base.tokens.dark], accent::palettes);
    let tokens = Tokens {
        light: reader.palette("light", light, raw.light),
        dark: reader.palette("dark", dark, raw.dark),
        radius: radius.unwrap_or_else(|| base.tokens.radius.clone()),
        font: font.unwrap_or_else(|| base.tokens.font.clone()),
    };
    let manifest = Manifest {
        product_name: product_name.unwrap_or_else(|| base.product_name.clone()),
        logo: raw.logo.map(Spanned::into_inner),
        favicon: raw.favicon.map(Spanned::into_inner),
        picture: raw.picture.map(Spanned::into_inner),
        tokens,
        links: reader.links(raw.links),
        policy: reader.policy(raw.csp),
        languages: reader.languages(raw.texts, raw.scopes),
    };
    reader.finish(manifest)
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
        for (text, named) in [
            ("future = true\ncontract = 2", "theme.toml line 2: contract 2: "),
            ("product_name = \"x\"", "theme.toml line 1: contract is missing"),
        ] {
            let found = faults(text);
            assert!(found.len() == 1 && found[0].starts_with(named), "{found:?}");
        }
    }

    #[test]
    fn every_fault_is_told_with_its_line() {
        let text = "contract = 1\nradius = \"1rem;}\"\n[light]\nink = \"red\"\npink = \"#ff00ff\"\n\
                    [[links]]\nhref = \"javascript:alert(1)\"\ntext = \"x\"\n\
                    [csp]\nscript = [\"'unsafe-inline'\"]\n[texts.en]\nsign_in_to = \"go\"\nnonsense = \"x\"";
        let found = faults(text).join("\n");
        for part in [
            "line 2: \"1rem;}\" ",
            "line 4: light.ink: ",
            "line 5: light.pink ",
            "line 7: \"javascript:alert(1)\" ",
            "line 10: \"'unsafe-inline'\" ",
            "line 12: sign_in_to ",
            "line 13: nonsense ",
        ] {
            assert!(found.contains(part), "{part}\n{found}");
        }
    }

    #[test]
    fn a_hundred_languages_are_read_and_one_more_is_named_with_its_line() {
        let letters = || (b'a'..=b'z').map(char::from);
        let tags: Vec<_> = letters()
            .flat_map(|first| letters().map(move |second| format!("{first}{second}")))
            .collect();
        let text = |count: usize| {
            let texts = tags[..count]
                .iter()
                .map(|tag| format!("[texts.{tag}]\nsign_in = \"x\"\n[scopes.{tag}]\na = \"x\"\n"));
            format!("contract = 1\n{}", texts.collect::<String>())
        };
        let read = parse(&text(MAX_LANGUAGES), &Manifest::default()).unwrap();
        assert_eq!(read.languages.len(), MAX_LANGUAGES);
        let place = format!("theme.toml line {}: ", 1 + 4 * MAX_LANGUAGES + 2);
        for count in [MAX_LANGUAGES + 1, tags.len()] {
            let found = faults(&text(count));
            assert!(found.len() == 1 && found[0].starts_with(&place), "{found:?}");
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
