//! The themes of one installation: the built-in ones, and those in the operator's folder, which is read again when it
//! changes.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use ring::digest;

use super::brand::Brand;
use super::folder::{Fingerprint, FolderContents, ThemeFolder};
use super::{DEFAULT, Finding, Severity, Source, built_in};
use crate::themes::Theme;

/// The most themes that are read from the operator's folder.
const MAX_THEMES: usize = 200;

/// All themes, as the folder was when it was last read.
#[derive(Debug)]
pub struct ThemeSet {
    default: Arc<Theme>,
    themes: HashMap<String, Arc<Theme>>,
    refused: BTreeMap<String, Vec<Finding>>,
    languages: Vec<Finding>,
    digest: [u8; 32],
}

impl ThemeSet {
    /// The theme of that name, if it can be used.
    pub fn theme(&self, name: &str) -> Option<&Arc<Theme>> {
        self.themes.get(name)
    }

    /// The names of all themes in alphabetical order, with the refused ones.
    pub fn names(&self) -> BTreeSet<&str> {
        let names = self.themes.keys().chain(self.refused.keys());
        names.map(String::as_str).collect()
    }

    /// Why a theme cannot be used; `None` if it can, or if there is none of that name.
    pub fn refused(&self, name: &str) -> Option<&[Finding]> {
        self.refused.get(name).map(Vec::as_slice)
    }

    /// Why languages for all themes could not be read.
    pub fn unread_languages(&self) -> &[Finding] {
        &self.languages
    }

    /// The findings about a theme, and about the languages for all themes.
    pub fn findings(&self, name: &str) -> Vec<Finding> {
        let used = || self.theme(name).map_or(&[][..], |theme| theme.findings());
        let own = self.refused(name).unwrap_or_else(used);
        own.iter().chain(&self.languages).cloned().collect()
    }

    /// The SHA-256 of all files of the operator's folder.
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// The theme that replaces others that cannot be used.
    pub fn default_theme(&self) -> &Arc<Theme> {
        &self.default
    }
}

/// The themes of one installation.
#[derive(Debug)]
pub struct Themes {
    base_path: String,
    chosen: String,
    folder: Option<ThemeFolder>,
    brand: Brand,
    current: ArcSwap<ThemeSet>,
    watch: Mutex<FolderWatch>,
}

/// The last states of the folder, and the faults that are in the log already.
#[derive(Debug, Default)]
struct FolderWatch {
    loaded: Fingerprint,
    last_seen: Fingerprint,
    reported: BTreeSet<String>,
}

impl Themes {
    /// Only the built-in themes, for an issuer with that path.
    pub fn built_in(base_path: &str) -> Self {
        Self::open(base_path, DEFAULT, None)
    }

    /// The built-in themes and those in `folder`, which may not exist yet. `chosen` is the theme of clients that name none.
    pub fn open(base_path: &str, chosen: &str, folder: Option<ThemeFolder>) -> Self {
        Self::open_branded(base_path, chosen, folder, Brand::default())
    }

    /// The same, with the operator's name, logo and accent.
    pub fn open_branded(base_path: &str, chosen: &str, folder: Option<ThemeFolder>, brand: Brand) -> Self {
        let mut watch = FolderWatch::default();
        let loaded = folder
            .as_ref()
            .map(super::folder::fingerprint)
            .unwrap_or_default();
        let themes = load(base_path, folder.as_ref(), &brand);
        watch.report(&themes);
        if themes.theme(chosen).is_none() {
            watch.log_missing(chosen);
        }
        watch.last_seen = loaded.clone();
        watch.loaded = loaded;
        Self {
            base_path: base_path.to_owned(),
            chosen: chosen.to_owned(),
            folder,
            brand,
            current: ArcSwap::from_pointee(themes),
            watch: Mutex::new(watch),
        }
    }

    /// The theme of that name. If there is none of that name, the chosen one; if a theme is refused, the default one. The
    /// log reports each missing theme once.
    pub fn theme(&self, name: Option<&str>) -> Arc<Theme> {
        let themes = self.current.load();
        for name in name.into_iter().chain([self.chosen.as_str()]) {
            if let Some(theme) = themes.theme(name) {
                return Arc::clone(theme);
            }
            if themes.refused(name).is_some() {
                break;
            }
            self.watch().log_missing(name);
        }
        Arc::clone(&themes.default)
    }

    /// All themes, as they were last read.
    pub fn current(&self) -> Arc<ThemeSet> {
        self.current.load_full()
    }

    /// Reads the folder again if it has changed since it was read, and is the same as at the previous call. So a theme is
    /// not read while it is being copied. Returns whether the folder was read. Blocks on the disk.
    pub fn refresh(&self) -> bool {
        let Some(folder) = &self.folder else { return false };
        let now = super::folder::fingerprint(folder);
        {
            let mut watch = self.watch();
            if now == watch.loaded || now != watch.last_seen {
                watch.last_seen = now;
                return false;
            }
        }
        let themes = load(&self.base_path, Some(folder), &self.brand);
        let mut watch = self.watch();
        watch.loaded = now;
        watch.report(&themes);
        self.current.store(Arc::new(themes));
        true
    }

    fn watch(&self) -> MutexGuard<'_, FolderWatch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FolderWatch {
    /// Logs the faults of themes, each one once while it lasts.
    fn report(&mut self, themes: &ThemeSet) {
        let mut present = BTreeSet::new();
        let used = themes.themes.iter().map(|(name, theme)| (name, theme.findings()));
        let refused = themes
            .refused
            .iter()
            .map(|(name, findings)| (name, findings.as_slice()));
        for (name, findings) in used.chain(refused) {
            let refusing = findings
                .iter()
                .filter(|finding| finding.severity == Severity::Refused);
            for finding in refusing {
                let line = format!("{name}: {finding}");
                if !self.reported.contains(&line) {
                    tracing::warn!(theme = %name, place = %finding.place, "a theme cannot be used as it is, the default one stands in: {}", finding.message);
                }
                present.insert(line);
            }
        }
        for finding in &themes.languages {
            let line = finding.to_string();
            if !self.reported.contains(&line) {
                tracing::warn!(place = %finding.place, "a language for all themes is not read: {}", finding.message);
            }
            present.insert(line);
        }
        self.reported = present;
    }

    fn log_missing(&mut self, name: &str) {
        if self.reported.len() < MAX_THEMES && self.reported.insert(format!("{name}: missing")) {
            tracing::warn!(theme = %name, "there is no such theme: the default theme stands in");
        }
    }
}

/// Loads the built-in themes and those of the folder.
fn load(base_path: &str, folder: Option<&ThemeFolder>, brand: &Brand) -> ThemeSet {
    let mut refused: BTreeMap<String, Vec<Finding>> = BTreeMap::new();
    let FolderContents {
        sources,
        languages,
        language_texts,
        faults,
    } = folder
        .map(|folder| super::folder::read(folder, MAX_THEMES))
        .unwrap_or_default();
    let digest = digest_of(&sources, &language_texts);
    let (of_languages, of_themes): (Vec<_>, Vec<_>) = faults
        .into_iter()
        .partition(|(name, _)| name == super::folder::LANGUAGES);
    for (name, finding) in of_themes {
        refused.entry(name).or_default().push(finding);
    }
    let mut themes = HashMap::new();
    let mut default: Option<Arc<Theme>> = None;
    let mut own = sources;
    own.retain(|source| !refused.contains_key(&source.name));
    let branded = built_in::sources().map(|mut source| {
        brand.apply_to(&mut source);
        source
    });
    for mut source in branded.chain(own) {
        source.languages.clone_from(&languages);
        let name = source.name.clone();
        let load = if built_in::is_built_in(&name) {
            Theme::read
        } else {
            Theme::load
        };
        match load(&source, base_path, default.clone()) {
            Ok(theme) => {
                let theme = Arc::new(theme);
                default.get_or_insert_with(|| Arc::clone(&theme));
                themes.insert(name, theme);
            }
            Err(findings) => {
                refused.insert(name, findings);
            }
        }
    }
    ThemeSet {
        default: default.unwrap_or_default(),
        themes,
        refused,
        languages: of_languages.into_iter().map(|(_, finding)| finding).collect(),
        digest,
    }
}

fn digest_of(sources: &[Source], languages: &BTreeMap<String, String>) -> [u8; 32] {
    let of_themes = sources.iter().flat_map(|source| {
        let files = source.files.iter();
        files.map(|(path, content)| (format!("{}/{path}", source.name), &**content))
    });
    let of_languages = languages
        .iter()
        .map(|(tag, text)| (format!("{tag}.toml"), text.as_bytes()));
    // Folders are read in any order.
    let files: BTreeMap<String, &[u8]> = of_themes.chain(of_languages).collect();
    let mut context = digest::Context::new(&digest::SHA256);
    for (path, content) in files {
        for part in [path.as_bytes(), content] {
            context.update(&part.len().to_be_bytes());
            context.update(part);
        }
    }
    context.finish().as_ref().try_into().unwrap_or_default()
}
