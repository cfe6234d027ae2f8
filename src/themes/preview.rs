//! The page around the preview of a theme: a list of pages and a frame that shows one of them.

use maud::{DOCTYPE, html};

use crate::themes::Finding;

/// The preview's own stylesheet.
pub const STYLE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/preview.css"));
/// The preview's own script: it changes the frame's width, and reloads the frame when the theme has changed.
pub const SCRIPT: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/preview.js"));

/// The preview of one theme.
#[derive(Clone, Debug)]
pub struct Preview<'a> {
    pub theme: &'a str,
    /// The pages: address without language, and name.
    pub pages: &'a [(String, String)],
    /// The language tags.
    pub locales: &'a [String],
    /// What is wrong with the theme.
    pub findings: &'a [Finding],
    /// The page in the frame.
    pub shown: &'a str,
    /// Its language.
    pub locale: &'a str,
    /// Changes when the theme or its findings change.
    pub state: &'a str,
}

impl Preview<'_> {
    /// The whole document. Without its script, it does not reload and has no widths.
    pub fn render(&self) -> String {
        let address = |page: &str, locale: &str| format!("/?page={page}&locale={locale}");
        let here = |yes: bool| yes.then_some("page");
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (self.theme) " · preview" }
                    link rel="stylesheet" href="/preview.css";
                    script src="/preview.js" defer {}
                }
                body data-state=(self.state) {
                    nav {
                        h1 { (self.theme) }
                        ul {
                            @for (page, name) in self.pages {
                                li { a href=(address(page, self.locale)) aria-current=[here(page == self.shown)] { (name) } }
                            }
                        }
                        p.locales {
                            @for locale in self.locales {
                                a href=(address(self.shown, locale)) aria-current=[here(locale == self.locale)] { (locale) } " "
                            }
                        }
                        p.widths {
                            @for width in ["320", "768", "1280"] { button type="button" data-width=(width) { (width) } " " }
                            button type="button" data-width="" { "full" }
                        }
                        @if self.findings.is_empty() {
                            p.sound { "Nothing is wrong with this theme." }
                        } @else {
                            h2 { "Findings" }
                            ul.findings {
                                @for finding in self.findings {
                                    li.{ (finding.severity.as_str()) } { strong { (finding.place) } " " (finding.message) }
                                }
                            }
                        }
                    }
                    iframe title=(self.shown) src={ (self.shown) "?locale=" (self.locale) } {}
                }
            }
        }
        .into_string()
    }
}
