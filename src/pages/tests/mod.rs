//! Rules for every page, in every state and language.

mod hostile;
mod single_pages;

use std::sync::Arc;

use super::consent::RedirectTarget;
use super::dev::mail::{MailLine, ShownMail};
use super::dev::{DevClaim, DevDevice, DevMails, DevToken, DevTokens, Home};
use super::text::{BUILT_IN, BuiltIn, Form, SENTENCES};
use super::*;
use crate::themes::{self, ContentSecurityPolicy, Theme, sample};

const HOSTILE: &str = "\"><script>alert(1)</script>'&\u{202e}";
const VOID: [&str; 6] = ["meta", "link", "img", "input", "br", "hr"];

/// The whole document.
trait Render: Page + Sized {
    fn render(&self, theme: &Theme, locale: &Locale) -> String {
        theme.draw(self, locale).html
    }
}

impl<P: Page> Render for P {}

/// The theme of that name, for an issuer with a path.
fn built_in(name: &str) -> Theme {
    let mut sources = themes::built_in::sources();
    let default = Theme::load(&sources.next().unwrap(), "/id", None).unwrap();
    if name == themes::DEFAULT {
        return default;
    }
    let source = sources.find(|source| source.name == name).unwrap();
    Theme::load(&source, "/id", Some(Arc::new(default))).unwrap()
}

fn everywhere(check: impl Fn(&str, &Theme, &Locale, &str)) {
    for source in themes::built_in::sources() {
        let theme = built_in(&source.name);
        assert_eq!(theme.findings(), [], "{}", theme.name());
        for locale in theme.locales() {
            for sample in sample::all() {
                let in_english = [Home::NAME, DevTokens::NAME, DevDevice::NAME, DevMails::NAME];
                let is_english = in_english.contains(&sample.page.name());
                let locale = if is_english { Locale::english() } else { locale };
                let drawn = sample.page.draw(&theme, locale);
                assert_eq!(drawn.fault, None);
                check(sample.page.name(), &theme, locale, &drawn.html);
            }
        }
    }
}

fn render<P: Page>(page: &P) -> String {
    page.render(&built_in(themes::DEFAULT), Locale::english())
}

/// A start tag with its attributes, or an end tag.
struct Tag {
    name: String,
    closing: bool,
    attributes: Vec<(String, String)>,
}

impl Tag {
    fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes
            .iter()
            .find(|(found, _)| found == name)
            .map(|(_, value)| value.as_str())
    }
}

/// Reads the strict subset of HTML that the pages are written in, and refuses everything else.
fn tags(html: &str) -> Vec<Tag> {
    let mut rest = html.strip_prefix("<!DOCTYPE html>").expect("a document type");
    let mut tags = Vec::new();
    while let Some(at) = rest.find('<') {
        assert!(!rest[..at].contains('>'), "a stray > in {:?}", &rest[..at]);
        rest = &rest[at + 1..];
        let closing = rest.starts_with('/');
        rest = rest.trim_start_matches('/');
        let end = rest.find([' ', '>']).expect("the end of a tag's name");
        let name = rest[..end].to_owned();
        assert!(
            !name.is_empty()
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        );
        rest = &rest[end..];
        let mut attributes = Vec::new();
        while let Some(more) = rest.strip_prefix(' ') {
            let end = more
                .find(['=', ' ', '>'])
                .expect("the end of an attribute's name");
            let attribute = more[..end].to_owned();
            rest = &more[end..];
            let mut value = String::new();
            if let Some(quoted) = rest.strip_prefix("=\"") {
                let end = quoted.find('"').expect("a closing quote");
                quoted[..end].clone_into(&mut value);
                rest = &quoted[end + 1..];
            }
            assert!(
                !attributes.iter().any(|(name, _)| *name == attribute),
                "{attribute} twice"
            );
            attributes.push((attribute, value));
        }
        rest = rest.strip_prefix('>').expect("the end of a tag");
        tags.push(Tag {
            name,
            closing,
            attributes,
        });
    }
    assert!(!rest.contains('>'));
    tags
}

fn has(html: &str, name: &str, attributes: &[(&str, &str)]) -> bool {
    tags(html).iter().any(|tag| {
        !tag.closing
            && tag.name == name
            && attributes
                .iter()
                .all(|(name, value)| tag.attribute(name) == Some(value))
    })
}

#[test]
fn every_page_is_well_formed() {
    everywhere(|page, _, locale, html| {
        let mut open = Vec::new();
        let mut ids = Vec::new();
        for tag in tags(html) {
            if let Some(id) = tag.attribute("id") {
                assert!(!ids.contains(&id.to_owned()), "{page}: the id {id} twice");
                ids.push(id.to_owned());
            }
            if tag.closing {
                assert_eq!(open.pop().as_ref(), Some(&tag.name), "{page} {}", locale.tag());
            } else if !VOID.contains(&tag.name.as_str()) {
                open.push(tag.name);
            }
        }
        assert!(open.is_empty(), "{page} {}: {open:?} left open", locale.tag());
        for tag in tags(html) {
            let named = ["for", "aria-describedby", "aria-labelledby", "aria-controls"];
            let mut references: Vec<_> = named
                .into_iter()
                .filter_map(|name| tag.attribute(name))
                .flat_map(str::split_ascii_whitespace)
                .collect();
            references.extend(tag.attribute("href").and_then(|href| href.strip_prefix('#')));
            for reference in references {
                assert!(
                    ids.contains(&reference.to_owned()),
                    "{page}: nothing has the id {reference}"
                );
            }
        }
    });
}

#[test]
fn every_page_has_one_heading_a_language_and_a_direction() {
    everywhere(|page, _, locale, html| {
        assert_eq!(html.matches("<h1>").count(), 1, "{page}");
        assert_eq!(html.matches("<main ").count(), 1, "{page}");
        assert!(
            has(
                html,
                "html",
                &[("lang", locale.tag()), ("dir", locale.direction())]
            ),
            "{page} {}",
            locale.tag()
        );
    });
}

#[test]
fn a_policy_of_self_is_enough_for_every_page() {
    everywhere(|page, theme, _, html| {
        assert_eq!(theme.policy(), ContentSecurityPolicy::default().text());
        for tag in tags(html) {
            assert_ne!(tag.name, "style", "{page}");
            for (name, value) in &tag.attributes {
                assert!(name != "style" && !name.starts_with("on"), "{page}: {name}");
                if matches!(name.as_str(), "src" | "href") {
                    // A link loads nothing: it may lead to the application, to help, or to the service itself.
                    let is_link = tag.name == "a"
                        && ["https://", "mailto:"]
                            .iter()
                            .any(|start| value.starts_with(start));
                    let is_own = value.starts_with('/') && !value.starts_with("//");
                    assert!(value.starts_with('#') || is_own || is_link, "{page}: {value}");
                }
                if matches!(tag.name.as_str(), "script" | "link" | "img")
                    && matches!(name.as_str(), "src" | "href")
                {
                    let path = value.strip_prefix("/id").unwrap_or(value);
                    let of_theme = path
                        .strip_prefix(themes::PREFIX)
                        .and_then(|rest| rest.splitn(3, '/').nth(2))
                        .and_then(|file| theme.file(file));
                    let of_all = path.strip_prefix(asset::PREFIX).and_then(asset::find);
                    let is_logo = ["/federation/", "/logos/"]
                        .iter()
                        .any(|start| path.starts_with(start));
                    assert!(
                        of_theme.is_some() || of_all.is_some() || is_logo,
                        "{page}: {value}"
                    );
                }
            }
        }
        let scripts = html.matches("<script").count();
        let has_field = html.contains("type=\"password\"")
            || html.contains("data-passkey")
            || html.contains("data-print");
        assert_eq!(
            scripts,
            usize::from(
                has_field || [FormPost::NAME, Account::NAME, Home::NAME, DevTokens::NAME].contains(&page)
            ),
            "{page}"
        );
        assert_eq!(
            html.matches("\" defer blocking=\"render\"></script>").count(),
            scripts,
            "{page}"
        );
    });
}

#[test]
fn every_page_with_its_style_is_smaller_than_32_kb() {
    everywhere(|page, theme, locale, html| {
        let total = html.len() + theme.file("theme.css").unwrap().bytes.len();
        assert!(total < 32_000, "{page} {}: {total} bytes", locale.tag());
    });
}

#[test]
fn stylesheets_begin_with_the_tokens_and_load_only_fonts_and_pictures_of_ours() {
    for name in ["default", "split"] {
        let theme = built_in(name);
        let style = String::from_utf8(theme.file("theme.css").unwrap().bytes.to_vec()).unwrap();
        assert!(style.starts_with(":root{"), "{name}");
        for url in style.split("url(").skip(1) {
            let file = url.split(')').next().unwrap().trim_matches('"');
            let font = file
                .strip_prefix("../../../assets/")
                .and_then(asset::find)
                .is_some_and(|file| file.content_type == "font/woff2");
            assert!(font || theme.file(file).is_some(), "{name}: {file}");
        }
        assert!(!style.contains("@import") && !style.contains("//"), "{name}");
        for used in style.split("var(--").skip(1) {
            let property = &used[..used.find([')', ',']).unwrap()];
            assert!(
                style.contains(&format!("--{property}:")),
                "{name}: --{property} has no value"
            );
        }
    }
}

#[test]
fn images_of_the_built_in_themes_hold_no_script_and_refer_to_nothing() {
    for name in ["default", "split"] {
        let theme = built_in(name);
        for file in ["favicon.svg", "logo.svg"] {
            let image = String::from_utf8(theme.file(file).unwrap().bytes.to_vec()).unwrap();
            assert!(image.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
            assert!(!image.contains("<script") && !image.contains("href") && !image.contains("<style"));
        }
    }
}

#[test]
fn the_texts_of_every_language_have_names_in_the_same_places() {
    for BuiltIn { tag, text, .. } in &BUILT_IN {
        for sentence in SENTENCES {
            let (name, words) = (sentence.name, sentence.of(text));
            let places = match sentence.form {
                Form::Plain => 0,
                Form::Place | Form::OptionalPlace => 1,
                Form::Plural => words.matches(text::PLACE).count(),
            };
            assert_eq!(words.matches(text::PLACE).count(), places, "{tag}: {name}");
            assert!(!words.is_empty(), "{tag}: {name}");
        }
    }
}

#[test]
fn passwords_are_shown_by_a_button_that_a_script_brings_to_life() {
    everywhere(|page, _, _, html| {
        let buttons: Vec<_> = tags(html)
            .into_iter()
            .filter(|tag| tag.attribute("class") == Some("reveal"))
            .collect();
        // The rows of the account page repeat a field for the password, which has no room for the button.
        let in_rows = html.matches("<input id=\"proof-").count();
        let fields = html.matches("type=\"password\"").count();
        assert_eq!(buttons.len() + in_rows, fields, "{page}");
        // What is shown reads as it was typed, in Arabic too, and no keyboard mends it.
        for field in tags(html)
            .iter()
            .filter(|tag| tag.attribute("type") == Some("password"))
        {
            assert_eq!(field.attribute("dir"), Some("ltr"), "{page}");
            assert_eq!(field.attribute("autocorrect"), Some("off"), "{page}");
        }
        for button in buttons {
            assert_eq!(
                button.attribute("type"),
                Some("button"),
                "{page}: it sends nothing"
            );
            assert!(button.attribute("hidden").is_some() && button.attribute("aria-label").is_some());
        }
    });
}
