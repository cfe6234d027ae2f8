//! A theme: what one installation, or one client, makes of the pages.
//!
//! A theme is data. It is a handful of files ([`Source`]), read and tried out once by [`Theme::load`]. A page that
//! cannot be used is reported ([`Finding`]) and drawn as in the default theme. [`check`] says what is checked when.
//! `themes/README.md` is the contract that themes are written to.

pub mod built_in;
pub mod check;
pub mod finding;
pub mod grammar;
pub mod language;
mod load;
pub mod manifest;
pub mod media;
pub mod policy;
mod reader;
pub mod starter;
pub mod style;
mod tags;
pub mod template;
pub mod tokens;

pub mod folder;
pub mod layout;
pub mod preview;
pub mod sample;
#[cfg(test)]
mod tests;
pub mod theme_set;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use self::check::check_forms;
pub use self::finding::{Finding, Severity};
use self::manifest::Manifest;
use self::media::Media;
pub use self::policy::{ContentSecurityPolicy, Load};
use self::template::Templates;
use crate::pages::language::Language;
pub use crate::pages::template_context::TemplateContext;
use crate::pages::{Locale, Page, locale};

/// The version of the contract between the service and its themes.
pub const CONTRACT: i64 = 1;

/// The name of the theme that every other one falls back to.
pub const DEFAULT: &str = "default";

/// The path that the files of themes are served under, below the issuer's.
pub const PREFIX: &str = "/theme/";

/// The stylesheet that every theme's own is put behind.
const STYLE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/style.css"));

/// The template around the pages that have none of their own.
const LAYOUT: &str = "layout.html";

/// The most files of one theme.
pub const MOST_FILES: usize = 200;
/// The most bytes of one file.
pub const LARGEST_FILE: u64 = 2 * 1024 * 1024;
/// The most bytes of one theme.
pub const LARGEST_THEME: u64 = 8 * 1024 * 1024;

/// The files of one theme, by their paths within it.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// The theme's name.
    pub name: String,
    /// What its files hold.
    pub files: BTreeMap<String, Cow<'static, [u8]>>,
    /// Languages that the operator adds to every theme: what `locales/TAG.toml` holds, by tag.
    pub languages: BTreeMap<String, Language>,
}

/// A file that is served.
#[derive(Clone, Debug)]
pub struct File {
    /// What it holds.
    pub bytes: bytes::Bytes,
    /// Its kind.
    pub media: Media,
}

/// A page as it was drawn.
#[derive(Debug)]
pub struct Drawn {
    /// The whole document.
    pub html: String,
    /// Why the theme's own template was not used, when that was so and nobody has said it yet.
    pub fault: Option<Finding>,
}

/// The looks of one installation or client, ready to draw with.
#[derive(Debug, Default)]
pub struct Theme {
    name: String,
    base_path: String,
    manifest: Manifest,
    version: String,
    files: BTreeMap<String, File>,
    locales: Vec<Locale>,
    policy: String,
    templates: Option<Templates>,
    unusable: BTreeSet<&'static str>,
    reported: Mutex<BTreeSet<&'static str>>,
    default: Option<Arc<Theme>>,
    findings: Vec<Finding>,
}

impl Theme {
    /// The theme's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name that people know the product by.
    pub fn product_name(&self) -> &str {
        &self.manifest.product_name
    }

    /// The path of the issuer, before every address of our own. Without a slash at its end.
    pub fn base_path(&self) -> &str {
        &self.base_path
    }

    /// What is wrong with it; none of it keeps the theme as a whole from being used.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The languages it has, English first.
    pub fn locales(&self) -> &[Locale] {
        &self.locales
    }

    /// The language that suits a reader best: the first of `ui_locales` that is there, else the best of
    /// `Accept-Language`, else English.
    pub fn locale(&self, ui_locales: Option<&str>, accept_language: Option<&str>) -> &Locale {
        locale::choose(&self.locales, ui_locales, accept_language).unwrap_or_else(|| Locale::english())
    }

    /// The value of `Content-Security-Policy` for its pages.
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// What tells this state of the theme from every other: part of the addresses of its files.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// A file that it serves.
    pub fn file(&self, path: &str) -> Option<&File> {
        self.files.get(path)
    }

    fn file_url(&self, file: &str) -> String {
        format!("{}{PREFIX}{}/{}/{file}", self.base_path, self.name, self.version)
    }

    /// The address of its stylesheet.
    pub fn style_url(&self) -> String {
        self.file_url("theme.css")
    }

    /// The address of the mark beside the product's name; nothing when the theme has none.
    pub fn logo_url(&self) -> Option<String> {
        self.manifest.logo.as_deref().map(|file| self.file_url(file))
    }

    /// The address of the icon in a browser's tab; nothing when the theme has none.
    pub fn favicon_url(&self) -> Option<String> {
        self.manifest.favicon.as_deref().map(|file| self.file_url(file))
    }

    /// The operator's links in a language: address and text.
    pub fn links<'a>(&'a self, locale: &Locale) -> impl Iterator<Item = (&'a str, &'a str)> {
        let tag = locale.tag().to_owned();
        self.manifest.links.iter().filter_map(move |link| {
            let language = tag.split('-').next().unwrap_or_default();
            let mut texts = [tag.as_str(), language, "", "en"]
                .into_iter()
                .map(|tag| link.texts.get(tag));
            let text = texts.find_map(|text| text).or_else(|| link.texts.values().next());
            Some((link.href.as_str(), text?.as_str()))
        })
    }

    /// Draws a page: by the theme's own template where there is one and it works, else by the layout of the
    /// service, else as the default theme would.
    pub fn draw<P: Page>(&self, page: &P, locale: &Locale) -> Drawn {
        let faults = match self.draw_by_template(page, locale) {
            Ok(Some(html)) => return Drawn { html, fault: None },
            Ok(None) => {
                let html = layout::document(page, self, locale);
                return Drawn { html, fault: None };
            }
            Err(faults) => faults,
        };
        let html = layout::document(page, self.default.as_deref().unwrap_or(self), locale);
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = reported.insert(P::NAME) && !self.unusable.contains(P::NAME);
        Drawn {
            html,
            fault: faults.into_iter().next().filter(|_| is_news),
        }
    }

    /// Draws a page by the theme's template and checks it; nothing if the theme has no template for it.
    pub(crate) fn draw_by_template<P: Page>(
        &self,
        page: &P,
        locale: &Locale,
    ) -> Result<Option<String>, Vec<Finding>> {
        let Some(templates) = &self.templates else {
            return Ok(None);
        };
        let own = format!("{}.html", P::NAME);
        if self.unusable.contains(P::NAME) {
            return Err(vec![Finding::refused(own, "the template cannot be used")]);
        }
        let has_own = templates.has(&own);
        let name = match (has_own, templates.has(LAYOUT)) {
            (true, _) => own.as_str(),
            (false, true) => LAYOUT,
            (false, false) => return Ok(None),
        };
        let content = page.body(&locale.text()).into_string();
        let mut context = templates.context();
        layout::fill(page, self, locale, Some(&content), &mut context);
        let html = templates.draw(name, context).map_err(|fault| vec![fault])?;
        let mut faults = check_forms(name, &html, &content);
        if !has_own && !html.contains(&content) {
            let message = "the page leaves out what it is for: print its {{ content }}";
            faults.push(Finding::refused(name, message));
        }
        if faults.is_empty() {
            Ok(Some(html))
        } else {
            Err(faults)
        }
    }
}
