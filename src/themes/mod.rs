//! Themes: the look of pages, for one installation or one client.
//!
//! A theme is a set of files ([`Source`]) without code. [`Theme::load`] reads an operator's theme and draws samples of
//! all pages. A page that cannot be used is reported ([`Finding`]), and the default theme draws it. [`check`] documents the checks.
//! `themes/README.md` is the contract for authors of themes.

mod accent;
pub mod brand;
pub mod built_in;
pub mod check;
pub mod finding;
pub mod grammar;
pub mod language;
mod load;
pub mod mail;
pub mod manifest;
pub mod media;
pub mod policy;
mod reader;
pub mod starter;
pub mod style;
mod tags;
pub mod template;
pub mod template_bounds;
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
pub use self::policy::{ContentSecurityPolicy, ResourceKind};
use self::template::Templates;
use crate::pages::language::Language;
pub use crate::pages::template_context::TemplateContext;
use crate::pages::{Locale, Page, asset, locale};

/// The version of the contract between the service and its themes.
pub const CONTRACT: i64 = 1;

/// The name of the default theme, which replaces others that cannot be used.
pub const DEFAULT: &str = "default";

/// The product name of the default theme.
const SERVICE_NAME: &str = "idsvc";

/// The path that the files of themes are served under, below the issuer's.
pub const PREFIX: &str = "/theme/";

/// The stylesheet of the service. A theme's own is appended to it.
const STYLE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/style.css"));

/// The template of pages without a template of their own.
const LAYOUT: &str = "layout.html";

/// The most files of one theme.
pub const MAX_FILES: usize = 200;
/// The most bytes of one file.
pub const MAX_FILE_BYTES: u64 = 2 * 1024 * 1024;
/// The most languages of one theme, and the most that the operator adds to all themes.
pub const MAX_LANGUAGES: usize = 100;
/// The most bytes of one theme.
pub const MAX_THEME_BYTES: u64 = 8 * 1024 * 1024;

/// The files of one theme, by their paths within it.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// The theme's name.
    pub name: String,
    /// The content of its files.
    pub files: BTreeMap<String, Cow<'static, [u8]>>,
    /// Languages that the operator adds to every theme by `locales/TAG.toml`, by tag.
    pub languages: BTreeMap<String, Arc<Language>>,
}

impl Source {
    /// The files whose names end with this extension, such as `.css`.
    fn with_extension(&self, extension: &str) -> impl Iterator<Item = (&String, &Cow<'static, [u8]>)> {
        let files = self.files.iter();
        files.filter(move |(name, _)| name.ends_with(extension))
    }

    fn templates(&self) -> impl Iterator<Item = (&String, &Cow<'static, [u8]>)> {
        self.with_extension(".html").chain(self.with_extension(".txt"))
    }
}

/// A file that is served.
#[derive(Clone, Debug)]
pub struct File {
    /// Its content.
    pub bytes: bytes::Bytes,
    /// Its media type.
    pub media: Media,
}

/// A page that was drawn.
#[derive(Debug)]
pub struct RenderedPage {
    /// The whole document.
    pub html: String,
    /// Why the theme's template was not used, if it was not and this is not reported yet.
    pub fault: Option<Finding>,
}

/// A loaded theme.
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
    /// Whether its style sheet has fonts of its own.
    brings_font: bool,
}

impl Theme {
    /// The theme's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn product_name(&self) -> &str {
        &self.manifest.product_name
    }

    /// The path of the issuer, with which our own addresses begin. It has no slash at its end.
    pub fn base_path(&self) -> &str {
        &self.base_path
    }

    /// What is wrong with it. The theme as a whole is used in spite of these findings.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Its languages, English first.
    pub fn locales(&self) -> &[Locale] {
        &self.locales
    }

    /// The best language for a reader: the first of `ui_locales` that is available, else the best of `Accept-Language`,
    /// else English.
    pub fn locale(&self, ui_locales: Option<&str>, accept_language: Option<&str>) -> &Locale {
        locale::choose(&self.locales, ui_locales, accept_language).unwrap_or_else(|| Locale::english())
    }

    /// The value of `Content-Security-Policy` for its pages.
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// A hash of the theme, which is part of the addresses of its files.
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

    /// The address of the logo; `None` if there is to be none.
    pub fn logo_url(&self) -> Option<String> {
        self.image_url(|manifest| &manifest.logo)
    }

    /// The address of the icon in the browser's tab; `None` if there is to be none.
    pub fn favicon_url(&self) -> Option<String> {
        self.image_url(|manifest| &manifest.favicon)
    }

    /// The address of an image of this theme, or of the default theme's if this one does not name any.
    fn image_url(&self, image: fn(&Manifest) -> &Option<String>) -> Option<String> {
        match (image(&self.manifest), &self.default) {
            (Some(file), _) => (!file.is_empty()).then(|| self.file_url(file)),
            (None, default) => default.as_ref()?.image_url(image),
        }
    }

    /// The name that somebody has given the service; `None` if it is the one that it brings.
    pub fn given_name(&self) -> Option<&str> {
        Some(self.product_name()).filter(|name| *name != SERVICE_NAME)
    }

    /// Whether its font is the one that the service brings.
    pub fn has_own_font(&self) -> bool {
        let first = self.manifest.tokens.font.split(',').next().unwrap_or_default();
        first.trim_matches(['"', '\'']) == asset::FONT && !self.brings_font
    }

    /// The operator's links in a language: address and text.
    pub fn links<'a>(&'a self, locale: &Locale) -> impl Iterator<Item = (&'a str, &'a str)> {
        let tag = locale.tag().to_owned();
        self.manifest.links.iter().filter_map(move |link| {
            let language = tag.split('-').next().unwrap_or_default();
            let mut tags = [tag.as_str(), language, "", "en"].into_iter();
            let text = tags.find_map(|tag| link.texts.get(tag));
            let text = text.or_else(|| link.texts.values().next());
            Some((link.href.as_str(), text?.as_str()))
        })
    }

    /// Whether it has templates, which take longer than the layout of the service.
    pub fn has_templates(&self) -> bool {
        self.templates.is_some()
    }

    /// Draws a page by the theme's template, or by the layout of the service if the theme has no template for it. If the
    /// template fails, the default theme draws the page.
    pub fn draw<P: Page>(&self, page: &P, locale: &Locale) -> RenderedPage {
        let faults = match self.draw_by_template(page, locale) {
            Ok(Some(html)) => return RenderedPage { html, fault: None },
            Ok(None) => {
                let html = layout::document(page, self, locale);
                return RenderedPage { html, fault: None };
            }
            Err(faults) => faults,
        };
        let html = layout::document(page, self.default.as_deref().unwrap_or(self), locale);
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = reported.insert(P::NAME) && !self.unusable.contains(P::NAME);
        RenderedPage {
            html,
            fault: faults.into_iter().next().filter(|_| is_new),
        }
    }

    /// Draws a page by the theme's template and checks it; `None` if the theme has no template for it.
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
        let shown = page.address().map(|address| address.path);
        let mut faults = check_forms(name, &html, &content, page.own_address(), shown);
        if !has_own && !html.contains(&content) {
            let message = "the content of the page is missing: print {{ content }}";
            faults.push(Finding::refused(name, message));
        }
        if faults.is_empty() {
            Ok(Some(html))
        } else {
            Err(faults)
        }
    }
}
