//! Reads a theme and draws samples with it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use ring::digest;

use super::check::check_content;
use super::finding::{Finding, Severity};
use super::language::parse_language;
use super::mail;
use super::manifest;
use super::manifest::Manifest;
use super::media::Media;
use super::policy::{ContentSecurityPolicy, ResourceKind};
use super::sample;
use super::template::Templates;
use super::{File, LAYOUT, MAX_LANGUAGES, STYLE, Source, Theme, style};
use crate::hex;
use crate::pages::Locale;
use crate::pages::asset;
use crate::pages::language::Language;
use crate::pages::locale::is_tag;
use crate::pages::text::BUILT_IN;

impl Theme {
    /// Reads a theme and draws every page and mail with it as a test. `base_path` is the path of the issuer: empty, or
    /// with a slash at its start only. `default` is `None` for the default theme itself.
    pub fn load(source: &Source, base_path: &str, default: Option<Arc<Self>>) -> Result<Self, Vec<Finding>> {
        let mut theme = Self::read(source, base_path, default)?;
        if theme.templates.is_none() {
            return Ok(theme);
        }
        theme.findings.extend(unknown_templates(source));
        theme.draw_samples(source);
        let of_mails = theme.check_mails();
        theme.findings.extend(of_mails);
        Ok(theme)
    }

    /// Reads a theme without drawing anything. The built-in themes need no more: a test draws them.
    pub fn read(source: &Source, base_path: &str, default: Option<Arc<Self>>) -> Result<Self, Vec<Finding>> {
        let base = default
            .as_ref()
            .map(|theme| theme.manifest.clone())
            .unwrap_or_default();
        let mut findings = Vec::new();
        let manifest = source.files.get("theme.toml").ok_or_else(|| {
            let message = "the file is missing: every theme has one";
            vec![Finding::refused("theme.toml", message)]
        })?;
        let mut manifest = manifest::parse(text("theme.toml", manifest)?, &base)?;
        let languages = languages(std::mem::take(&mut manifest.languages), source)?;
        let mut files = served_files(source)?;
        let own_style = source.files.get("theme.css");
        let own_style = own_style.map_or(Ok(""), |style| text("theme.css", style))?;
        let style = format!(
            "{}{}{STYLE}{}{own_style}",
            manifest.tokens.css(),
            asset::font_css(),
            picture_css(manifest.picture.as_deref())
        );
        let version = version(source, &style);
        if let Some(media) = Media::of_name("theme.css") {
            let bytes = style.into();
            files.insert("theme.css".to_owned(), File { bytes, media });
        }
        for (what, file) in [
            ("logo", &manifest.logo),
            ("favicon", &manifest.favicon),
            ("picture", &manifest.picture),
        ] {
            let Some(file) = file else { continue };
            if file.is_empty() && what != "picture" {
                continue;
            }
            let served = files.get(file);
            if served.is_none_or(|file| !file.media.content_type.starts_with("image/")) {
                let message = format!("{what} = {file:?}: the theme has no image of that name");
                return Err(vec![Finding::refused("theme.toml", message)]);
            }
        }
        findings.extend(weak_contrast(&manifest));
        findings.extend(foreign_scripts(&manifest.policy));
        let has = |path: &str| files.contains_key(path);
        for (file, bytes) in source.with_extension(".css") {
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
            brings_font: own_style.contains("@font-face"),
        };
        theme.add_templates(source)?;
        Ok(theme)
    }

    fn add_templates(&mut self, source: &Source) -> Result<(), Vec<Finding>> {
        let mut sources = BTreeMap::new();
        for (name, bytes) in source.templates() {
            sources.insert(name.clone(), text(name, bytes)?.to_owned());
        }
        if sources.is_empty() {
            return Ok(());
        }
        let assets = self.files.keys().map(|name| (name.clone(), self.file_url(name)));
        let (templates, findings) = Templates::compile(sources, Arc::new(assets.collect()));
        self.findings.extend(findings);
        self.templates = Some(templates);
        Ok(())
    }

    /// Draws every page in every state. If one fails, the default theme draws that page.
    fn draw_samples(&mut self, source: &Source) {
        let (mut found, mut failed) = (BTreeSet::new(), BTreeSet::new());
        for sample in sample::all() {
            let name = sample.page.name();
            let own = format!("{name}.html");
            let mut files = [own.as_str(), LAYOUT].into_iter();
            let Some(file) = files.find(|file| source.files.contains_key(*file)) else {
                continue;
            };
            let is_compiled = |templates: &Templates| templates.has(file);
            if !self.templates.as_ref().is_some_and(is_compiled) {
                self.unusable.insert(name);
                continue;
            }
            match sample.page.draw_by_template(self, Locale::english()) {
                Ok(Some(html)) => found.extend(check_content(file, &html, &self.manifest.policy)),
                Ok(None) => {}
                Err(findings) => {
                    found.extend(findings);
                    failed.insert(name);
                }
            }
        }
        self.unusable.extend(failed);
        found.retain(|finding| !self.findings.contains(finding));
        self.findings.extend(found.into_iter().rev());
    }
}

/// Notes the templates that no page and no mail has.
fn unknown_templates(source: &Source) -> Vec<Finding> {
    let pages = sample::all().into_iter().map(|sample| sample.page.name());
    let mut known: BTreeSet<String> = pages.map(|page| format!("{page}.html")).collect();
    known.insert(LAYOUT.to_owned());
    known.extend(mail::template_names());
    let unknown = source.templates().filter(|(name, _)| !known.contains(*name));
    let note = |(name, _)| {
        let message = "no page or mail has this name: it is used only if another template includes it";
        Finding::new(Severity::Note, name, message)
    };
    unknown.map(note).collect()
}

/// The picture behind the pages, on screens that show more than the card.
fn picture_css(file: Option<&str>) -> String {
    file.map_or_else(String::new, |file| {
        format!("@media(min-width:30rem){{body{{background:var(--ground) url(\"{file}\") center/cover no-repeat fixed}}}}\n")
    })
}

/// A file as text.
fn text<'a>(name: &str, bytes: &'a [u8]) -> Result<&'a str, Vec<Finding>> {
    std::str::from_utf8(bytes).map_err(|_| vec![Finding::refused(name, "it is not UTF-8")])
}

/// The languages of a theme. `theme.toml` overrides the theme's language files, and these override the operator's.
fn languages(
    mut languages: BTreeMap<String, Language>,
    source: &Source,
) -> Result<BTreeMap<String, Arc<Language>>, Vec<Finding>> {
    for (name, bytes) in &source.files {
        let Some(tag) = name
            .strip_prefix("locales/")
            .and_then(|file| file.strip_suffix(".toml"))
        else {
            continue;
        };
        if !is_tag(tag) {
            let message = "the name of the file is no language tag, as in locales/pt-BR.toml";
            return Err(vec![Finding::refused(name, message)]);
        }
        let language = parse_language(name, text(name, bytes)?)?;
        languages.entry(tag.to_owned()).or_default().underlay(&language);
        if languages.len() > MAX_LANGUAGES {
            let message = format!("a theme has at most {MAX_LANGUAGES} languages");
            return Err(vec![Finding::at_line(Severity::Refused, name, 1, message)]);
        }
    }
    let own = languages
        .into_iter()
        .map(|(tag, language)| (tag, Arc::new(language)));
    let mut languages: BTreeMap<String, Arc<Language>> = own.collect();
    for (tag, language) in &source.languages {
        languages
            .entry(tag.clone())
            .and_modify(|own| Arc::make_mut(own).underlay(language))
            .or_insert_with(|| Arc::clone(language));
    }
    Ok(languages)
}

fn locales(mut languages: BTreeMap<String, Arc<Language>>, findings: &mut Vec<Finding>) -> Vec<Locale> {
    let mut make = |tag: &str, language: Arc<Language>| {
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
    let mut locales: Vec<Locale> = BUILT_IN
        .iter()
        .map(|known| make(known.tag, languages.remove(known.tag).unwrap_or_default()))
        .collect();
    locales.extend(languages.into_iter().map(|(tag, language)| make(&tag, language)));
    locales
}

/// The files that browsers may load. The content of each must match its extension.
fn served_files(source: &Source) -> Result<BTreeMap<String, File>, Vec<Finding>> {
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
    let mut findings = Vec::new();
    for (scheme, palette) in [("light", manifest.tokens.light), ("dark", manifest.tokens.dark)] {
        for pair in palette.weak_pairs() {
            let message = format!(
                "{scheme}.{} on {scheme}.{} has a contrast of {:.2}; WCAG 2.2 AA asks for {}",
                pair.front, pair.behind, pair.ratio, pair.required
            );
            findings.push(Finding::new(Severity::Fault, "theme.toml", message));
        }
    }
    findings
}

/// Notes the foreign origins whose scripts can read what users type.
fn foreign_scripts(policy: &ContentSecurityPolicy) -> impl Iterator<Item = Finding> {
    policy.sources(ResourceKind::Script).map(|source| {
        let message = format!(
            "csp.script: what {source} serves runs in these pages and can read passwords as they are typed"
        );
        Finding::new(Severity::Note, "theme.toml", message)
    })
}

/// Twelve hexadecimal digits, a hash of all files.
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
