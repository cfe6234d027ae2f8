//! A theme: what one installation, or one client, makes of the pages.
//!
//! A theme is data. It is a handful of files, wherever they come from ([`Source`]), read and tried out once by
//! [`Theme::load`]. What cannot be used is said ([`Finding`]) and stands back for the default theme.
//! `themes/README.md` is the contract that themes are written to.

pub mod built_in;
pub mod finding;
pub mod forms;
pub mod grammar;
pub mod manifest;
pub mod markup;
pub mod media;
pub mod policy;
pub mod starter;
pub mod style;
pub mod template;
pub mod template_context;
pub mod tokens;

pub mod folder;
#[cfg(test)]
mod tests;
pub mod theme_set;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use ring::digest;

pub use self::finding::{Finding, Severity};
use self::manifest::{Language, Manifest};
use self::media::Media;
pub use self::policy::{ContentSecurityPolicy, Load};
use self::template::Templates;
pub use self::template_context::TemplateContext;
use crate::hex;
use crate::pages::locale;
use crate::pages::locale::is_tag;
use crate::pages::{Locale, Page, layout, sample};

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
    /// Reads a theme and draws every page once to see whether it can. `base_path` is the path of the issuer,
    /// empty or with a slash at its start only. Without a `default` this is the default theme itself.
    pub fn load(source: &Source, base_path: &str, default: Option<Arc<Self>>) -> Result<Self, Vec<Finding>> {
        let base = default
            .as_ref()
            .map(|theme| theme.manifest.clone())
            .unwrap_or_default();
        let mut findings = Vec::new();
        let text = |name: &str| {
            let bytes = source.files.get(name).map(AsRef::as_ref);
            bytes.map(|bytes| {
                std::str::from_utf8(bytes).map_err(|_| vec![Finding::refused(name, "it is not UTF-8")])
            })
        };
        let missing = || {
            vec![Finding::refused(
                "theme.toml",
                "the file is missing: every theme has one",
            )]
        };
        let mut manifest = manifest::parse(text("theme.toml").ok_or_else(missing)??, &base)?;
        let languages = languages(&manifest, source)?;
        let mut files = served(source)?;
        let own_style = text("theme.css").transpose()?.unwrap_or_default();
        let style = format!("{}{STYLE}{own_style}", manifest.tokens.css());
        let version = version(source, &style);
        if let Some(media) = Media::of_name("theme.css") {
            let bytes = style.into();
            files.insert("theme.css".to_owned(), File { bytes, media });
        }
        for (what, file) in [("logo", &mut manifest.logo), ("favicon", &mut manifest.favicon)] {
            let is_image = |file: &String| {
                let served = files.get(file);
                served.is_some_and(|file| file.media.content_type.starts_with("image/"))
            };
            if let Some(named) = file.as_ref().filter(|file| !is_image(file)) {
                return Err(vec![Finding::refused(
                    "theme.toml",
                    format!("{what} = {named:?}: the theme has no image of that name"),
                )]);
            }
        }
        findings.extend(weak_contrast(&manifest));
        findings.extend(foreign_scripts(&manifest.policy));
        for (file, bytes) in source
            .files
            .iter()
            .filter(|(name, _)| name.strip_suffix(".css").is_some())
        {
            let has = |path: &str| files.contains_key(path);
            let css = String::from_utf8_lossy(bytes);
            findings.extend(style::inspect(file, &css, &manifest.policy, has));
        }
        let mut theme = Self {
            name: source.name.clone(),
            base_path: base_path.trim_end_matches('/').to_owned(),
            version,
            locales: locales(languages, &mut findings),
            policy: manifest.policy.text(),
            manifest,
            files,
            templates: None,
            unusable: BTreeSet::new(),
            reported: Mutex::default(),
            default,
            findings,
        };
        theme.add_templates(source)?;
        Ok(theme)
    }

    fn add_templates(&mut self, source: &Source) -> Result<(), Vec<Finding>> {
        let mut sources = BTreeMap::new();
        for (name, bytes) in source.files.iter().filter(|(name, _)| is_template(name)) {
            let text =
                std::str::from_utf8(bytes).map_err(|_| vec![Finding::refused(name, "it is not UTF-8")])?;
            sources.insert(name.clone(), text.to_owned());
        }
        if sources.is_empty() {
            return Ok(());
        }
        let names: BTreeSet<String> = sources.keys().cloned().collect();
        let assets = self.files.keys().map(|name| (name.clone(), self.file_url(name)));
        let (templates, findings) = Templates::compile(sources, Arc::new(assets.collect()));
        self.findings.extend(findings);
        self.templates = Some(templates);
        self.try_out(&names);
        Ok(())
    }

    /// Draws every page in every state. Pages that cannot be used are left to the default theme.
    fn try_out(&mut self, names: &BTreeSet<String>) {
        let english = Locale::english();
        let mut found: BTreeSet<(Severity, String, String)> = BTreeSet::new();
        let mut unusable = BTreeSet::new();
        for sample in sample::all() {
            let own = format!("{}.html", sample.page.name());
            let place = if names.contains(&own) {
                own.as_str()
            } else {
                LAYOUT
            };
            if !names.contains(place) {
                continue;
            }
            if !self
                .templates
                .as_ref()
                .is_some_and(|templates| templates.has(place))
            {
                unusable.insert(sample.page.name());
                continue;
            }
            let findings = match sample.page.draw_by_template(self, english) {
                Err(findings) => findings,
                Ok(html) => html.map_or_else(Vec::new, |html| {
                    markup::inspect(place, &html, &self.manifest.policy)
                }),
            };
            for finding in findings {
                if finding.severity == Severity::Refused {
                    unusable.insert(sample.page.name());
                }
                found.insert((finding.severity, finding.place, finding.message));
            }
        }
        self.unusable = unusable;
        let known: BTreeSet<String> = self.findings.iter().map(ToString::to_string).collect();
        let found = found
            .into_iter()
            .rev()
            .map(|(severity, place, message)| Finding::new(severity, place, message));
        self.findings
            .extend(found.filter(|finding| !known.contains(&finding.to_string())));
    }

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
        let language = locale.tag().split('-').next().unwrap_or_default().to_owned();
        let tag = locale.tag().to_owned();
        self.manifest.links.iter().filter_map(move |link| {
            let in_language = |tag: &str| link.texts.get(tag);
            let text = in_language(&tag)
                .or_else(|| in_language(&language))
                .or_else(|| in_language(""))
                .or_else(|| in_language("en"))
                .or_else(|| link.texts.values().next());
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
        let is_first = self
            .reported
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(P::NAME);
        let is_news = is_first && !self.unusable.contains(P::NAME);
        Drawn {
            html,
            fault: faults.into_iter().next().filter(|_| is_news),
        }
    }

    /// Draws a page by the theme's template; nothing where the theme has none for it. What is drawn is compared with
    /// the page of the service each time: a template can ask who reads it, and in which language.
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
        let names = templates.names(name);
        let content = page.body(&locale.text()).into_string();
        let mut slots = TemplateContext::wanted(names);
        layout::fill(page, self, locale, Some(&content), &mut slots);
        let html = templates.draw(name, slots).map_err(|fault| vec![fault])?;
        let mut faults = forms::compare(name, &html, &content);
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

fn is_template(name: &str) -> bool {
    name.strip_suffix(".html").is_some()
}

/// The languages that a theme has something for: its own words first, then its files, then the operator's.
fn languages(manifest: &Manifest, source: &Source) -> Result<BTreeMap<String, Language>, Vec<Finding>> {
    let mut languages = manifest.languages.clone();
    for (name, bytes) in &source.files {
        let Some(tag) = name
            .strip_prefix("locales/")
            .and_then(|file| file.strip_suffix(".toml"))
        else {
            continue;
        };
        let text = std::str::from_utf8(bytes).map_err(|_| vec![Finding::refused(name, "it is not UTF-8")])?;
        if !is_tag(tag) {
            let message = "the name of the file is no language tag, as in locales/pt-BR.toml";
            return Err(vec![Finding::refused(name, message)]);
        }
        let language = manifest::parse_language(name, text)?;
        languages.entry(tag.to_owned()).or_default().underlay(&language);
    }
    for (tag, language) in &source.languages {
        languages.entry(tag.clone()).or_default().underlay(language);
    }
    Ok(languages)
}

fn locales(mut languages: BTreeMap<String, Language>, findings: &mut Vec<Finding>) -> Vec<Locale> {
    let mut make = |tag: &str, language: Language| {
        let locale = Locale::new(tag, language);
        let missing = locale.missing();
        if !missing.is_empty() {
            let message = format!(
                "{} texts are missing and are English: {}",
                missing.len(),
                missing.join(", ")
            );
            findings.push(Finding::new(Severity::Note, format!("language {tag}"), message));
        }
        locale
    };
    let mut locales: Vec<Locale> = Locale::BUILT_IN
        .iter()
        .map(|(tag, _)| make(tag, languages.remove(*tag).unwrap_or_default()))
        .collect();
    locales.extend(languages.into_iter().map(|(tag, language)| make(&tag, language)));
    locales
}

/// The files that browsers may load, each what its name says.
fn served(source: &Source) -> Result<BTreeMap<String, File>, Vec<Finding>> {
    let mut faults = Vec::new();
    let mut files = BTreeMap::new();
    for (name, bytes) in &source.files {
        let Some(media) = Media::of_name(name) else {
            continue;
        };
        if !media.fits(bytes) {
            faults.push(Finding::refused(
                name,
                format!(
                    "the content is not {}: it is not served under that name",
                    media.content_type
                ),
            ));
        }
        let bytes = match bytes {
            Cow::Borrowed(bytes) => bytes::Bytes::from_static(bytes),
            Cow::Owned(bytes) => bytes::Bytes::copy_from_slice(bytes),
        };
        files.insert(name.clone(), File { bytes, media });
    }
    if faults.is_empty() { Ok(files) } else { Err(faults) }
}

fn weak_contrast(manifest: &Manifest) -> Vec<Finding> {
    let schemes = [("light", manifest.tokens.light), ("dark", manifest.tokens.dark)];
    schemes
        .into_iter()
        .flat_map(|(scheme, palette)| {
            let pairs = palette.weak_pairs().into_iter();
            pairs.map(move |(front, behind, ratio, wanted)| {
                let message = format!(
                    "{scheme}.{front} on {scheme}.{behind} has a contrast of {ratio:.2}; WCAG 2.2 AA asks for {wanted}"
                );
                Finding::new(Severity::Fault, "theme.toml", message)
            })
        })
        .collect()
}

/// Says which strangers a theme trusts with what is typed.
fn foreign_scripts(policy: &ContentSecurityPolicy) -> impl Iterator<Item = Finding> {
    policy.sources(Load::Script).map(|source| {
        let message = format!(
            "csp.script: what {source} serves runs in these pages and can read passwords as they are typed"
        );
        Finding::new(Severity::Note, "theme.toml", message)
    })
}

/// Twelve digits that change with every file.
fn version(source: &Source, style: &str) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(style.as_bytes());
    for (name, bytes) in &source.files {
        context.update(&(name.len() as u64).to_be_bytes());
        context.update(name.as_bytes());
        context.update(&(bytes.len() as u64).to_be_bytes());
        context.update(bytes);
    }
    let mut version = String::new();
    hex::push(&mut version, context.finish().as_ref().iter().take(6));
    version
}
