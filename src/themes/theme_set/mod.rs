//! The themes of one installation: those inside the executable, and those in the operator's folder, which are
//! read again when they change.
//!
//! [`crate::themes`] knows what a theme is. This room reads them from the disk and hands them out.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;

use super::folder::{Fingerprint, Read};
use super::{DEFAULT, Finding, Severity, Source, built_in};
use crate::oauth::client::is_theme_name;
use crate::themes::Theme;

/// The most themes that are read from the operator's folder.
const MOST_THEMES: usize = 200;

/// Every theme there is, as of the last look at the folder.
#[derive(Debug)]
pub struct ThemeSet {
    default: Arc<Theme>,
    themes: HashMap<String, Arc<Theme>>,
    refused: BTreeMap<String, Vec<Finding>>,
    languages: Vec<Finding>,
}

impl ThemeSet {
    /// The theme of that name, where it can be used.
    pub fn theme(&self, name: &str) -> Option<&Arc<Theme>> {
        self.themes.get(name)
    }

    /// The names of all themes, the refused ones too, in alphabetical order.
    pub fn names(&self) -> BTreeSet<&str> {
        let names = self.themes.keys().chain(self.refused.keys());
        names.map(String::as_str).collect()
    }

    /// Why a theme cannot be used; nothing when it can, or when there is none of that name.
    pub fn refused(&self, name: &str) -> Option<&[Finding]> {
        self.refused.get(name).map(Vec::as_slice)
    }

    /// Why files with a language for all themes are not read.
    pub fn unread_languages(&self) -> &[Finding] {
        &self.languages
    }

    /// What is wrong with a theme, and with the languages that every theme is given.
    pub fn findings(&self, name: &str) -> Vec<Finding> {
        let used = || self.theme(name).map_or(&[][..], |theme| theme.findings());
        let own = self.refused(name).unwrap_or_else(used);
        own.iter().chain(&self.languages).cloned().collect()
    }

    /// The theme that stands in for every other.
    pub fn default_theme(&self) -> &Arc<Theme> {
        &self.default
    }
}

/// The themes of one installation.
#[derive(Debug)]
pub struct Themes {
    base_path: String,
    chosen: String,
    folder: Option<PathBuf>,
    current: ArcSwap<ThemeSet>,
    watch: Mutex<Watch>,
}

/// What was seen of the folder, and what was said about it.
#[derive(Debug, Default)]
struct Watch {
    loaded: Fingerprint,
    seen: Fingerprint,
    said: BTreeSet<String>,
}

impl Themes {
    /// The built-in themes alone, for an issuer with that path.
    pub fn built_in(base_path: &str) -> Self {
        Self::open(base_path, DEFAULT, None)
    }

    /// The built-in themes and those in `folder`, which need not be there yet. `chosen` is the theme of all
    /// clients that name none.
    pub fn open(base_path: &str, chosen: &str, folder: Option<&Path>) -> Self {
        let mut watch = Watch::default();
        let loaded = folder.map(super::folder::fingerprint).unwrap_or_default();
        let themes = load(base_path, folder);
        watch.report(&themes);
        if themes.theme(chosen).is_none() {
            watch.say_missing(chosen);
        }
        watch.seen = loaded.clone();
        watch.loaded = loaded;
        Self {
            base_path: base_path.to_owned(),
            chosen: chosen.to_owned(),
            folder: folder.map(Path::to_owned),
            current: ArcSwap::from_pointee(themes),
            watch: Mutex::new(watch),
        }
    }

    /// The theme of that name, or the chosen one; the default theme where that cannot be used. The log says
    /// once of each theme that it is not there.
    pub fn theme(&self, name: Option<&str>) -> Arc<Theme> {
        let themes = self.current.load();
        for name in name.into_iter().chain([self.chosen.as_str()]) {
            if let Some(theme) = themes.theme(name) {
                return Arc::clone(theme);
            }
            if themes.refused(name).is_none() {
                self.watch().say_missing(name);
            } else {
                break;
            }
        }
        Arc::clone(&themes.default)
    }

    /// All themes as of the last look.
    pub fn current(&self) -> Arc<ThemeSet> {
        self.current.load_full()
    }

    /// Looks at the folder and reads it anew when it has changed and has not changed again since the look
    /// before, so that no theme is read while somebody copies it. Says whether it was read. Blocks on the disk.
    pub fn refresh(&self) -> bool {
        let Some(folder) = &self.folder else { return false };
        let now = super::folder::fingerprint(folder);
        {
            let mut watch = self.watch();
            if now == watch.loaded {
                watch.seen = now;
                return false;
            }
            if now != watch.seen {
                watch.seen = now;
                return false;
            }
        }
        let themes = load(&self.base_path, Some(folder));
        let mut watch = self.watch();
        watch.loaded = now;
        watch.report(&themes);
        self.current.store(Arc::new(themes));
        true
    }

    fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    /// Says what is wrong with themes, each fault once for as long as it stays.
    fn report(&mut self, themes: &ThemeSet) {
        let mut standing = BTreeSet::new();
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
                if !self.said.contains(&line) {
                    tracing::warn!(theme = %name, place = %finding.place, "a theme cannot be used as it is, the default one stands in: {}", finding.message);
                }
                standing.insert(line);
            }
        }
        for finding in &themes.languages {
            let line = finding.to_string();
            if !self.said.contains(&line) {
                tracing::warn!(place = %finding.place, "a language for all themes is not read: {}", finding.message);
            }
            standing.insert(line);
        }
        self.said = standing;
    }

    fn say_missing(&mut self, name: &str) {
        if self.said.len() < MOST_THEMES && self.said.insert(format!("{name}: missing")) {
            tracing::warn!(theme = %name, "there is no such theme: the default theme stands in");
        }
    }
}

/// Reads everything.
fn load(base_path: &str, folder: Option<&Path>) -> ThemeSet {
    let mut refused: BTreeMap<String, Vec<Finding>> = BTreeMap::new();
    let Read {
        sources,
        languages,
        faults,
    } = folder
        .map(|folder| super::folder::read(folder, MOST_THEMES))
        .unwrap_or_default();
    let (of_languages, of_themes): (Vec<_>, Vec<_>) = faults
        .into_iter()
        .partition(|(name, _)| name == super::folder::LANGUAGES);
    for (name, finding) in of_themes {
        refused.entry(name).or_default().push(finding);
    }
    let with_languages = |mut source: Source| {
        source.languages.clone_from(&languages);
        source
    };
    let mut themes = HashMap::new();
    let mut default: Option<Arc<Theme>> = None;
    let own = sources
        .into_iter()
        .filter(|source| !refused.contains_key(&source.name));
    for source in built_in::sources()
        .chain(own.collect::<Vec<_>>())
        .map(with_languages)
    {
        let name = source.name.clone();
        match Theme::load(&source, base_path, default.clone()) {
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
    }
}

/// Whether an operator's theme may have that name: it is a plain word, and no built-in theme has it.
pub fn check_name(name: &str) -> Result<(), &'static str> {
    if built_in::is_built_in(name) {
        return Err("a built-in theme has this name: choose another");
    }
    if name == super::folder::LANGUAGES {
        return Err("this folder is for languages: choose another name");
    }
    if is_theme_name(name) {
        Ok(())
    } else {
        Err("use 1 to 64 lower-case letters, digits and hyphens, no hyphen first")
    }
}
