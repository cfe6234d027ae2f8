//! Reads themes from the operator's folder, and nothing from anywhere else.
//!
//! The folder may be written by people who may not read the rest of the machine: no link leads out of a theme,
//! nothing but regular files is opened, and no file, theme or folder is read beyond its bounds.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::language::parse_language;
use super::media::Media;
use super::theme_set::check_name;
use super::{Finding, LARGEST_FILE, LARGEST_THEME, MOST_FILES, Source};
use crate::pages::language::Language;
use crate::pages::locale::is_tag;

/// The folder of the languages that every theme gets.
pub const LANGUAGES: &str = "locales";

/// The largest text file.
const LARGEST_TEXT: u64 = 256 * 1024;
/// How deep folders of a theme may lie in each other.
const DEPTH: usize = 5;
/// How many faults of a theme are told. A theme that has so many is not read any further.
const MOST_FAULTS: usize = 20;
/// How many files the fingerprint looks at.
const MOST_SEEN: usize = 20_000;

/// What tells one state of a folder from another: its files with their sizes and the times of their last change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint(Vec<(PathBuf, u64, Option<SystemTime>)>);

/// Looks at every file below a folder without opening any.
pub fn fingerprint(folder: &Path) -> Fingerprint {
    fn look(folder: &Path, depth: usize, into: &mut Vec<(PathBuf, u64, Option<SystemTime>)>) {
        for path in entries(folder) {
            if into.len() >= MOST_SEEN {
                return;
            }
            let Ok(about) = fs::metadata(&path) else { continue };
            if about.is_dir() && depth > 0 {
                look(&path, depth - 1, into);
            }
            into.push((path, about.len(), about.modified().ok()));
        }
    }
    let mut seen = Vec::new();
    look(folder, DEPTH + 1, &mut seen);
    Fingerprint(seen)
}

/// What a folder held.
#[derive(Debug, Default)]
pub struct Read {
    /// The themes that could be read.
    pub sources: Vec<Source>,
    /// The languages for all themes, by tag.
    pub languages: BTreeMap<String, Language>,
    /// What could not be read, by the name of the theme.
    pub faults: Vec<(String, Finding)>,
}

/// Reads every theme and language of a folder. One that is not there holds nothing.
pub fn read(folder: &Path, most_themes: usize) -> Read {
    let mut read = Read::default();
    let Ok(root) = folder.canonicalize() else {
        return read;
    };
    for path in entries(folder).into_iter().filter(|path| path.is_dir()) {
        let name = file_name(&path);
        let mut fault = |name: &str, finding| read.faults.push((name.to_owned(), finding));
        if !path.canonicalize().is_ok_and(|path| path.starts_with(&root)) {
            fault(
                &name,
                Finding::refused(&name, "the folder is a link that leads out of theme_dir"),
            );
        } else if name == LANGUAGES {
            read_languages(&path, &mut read);
        } else if let Err(problem) = check_name(&name) {
            fault(&name, Finding::refused(&name, problem));
        } else if read.sources.len() >= most_themes {
            fault(
                &name,
                Finding::refused(&name, format!("more than {most_themes} themes are not read")),
            );
        } else {
            match read_theme(&path, &name) {
                Ok(source) => read.sources.push(source),
                Err(findings) => findings.into_iter().for_each(|finding| fault(&name, finding)),
            }
        }
    }
    read
}

fn read_languages(folder: &Path, read: &mut Read) {
    for path in entries(folder) {
        let name = file_name(&path);
        let Some(tag) = name.strip_suffix(".toml") else {
            continue;
        };
        let file = format!("theme_dir/{LANGUAGES}/{name}");
        let language = if is_tag(tag) {
            read_file(&path, folder, LARGEST_TEXT)
                .and_then(|bytes| String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned()))
                .map_err(|message| vec![Finding::refused(&file, message)])
                .and_then(|text| parse_language(&file, &text))
        } else {
            let message = "the name of the file is no language tag, as in pt-BR.toml";
            Err(vec![Finding::refused(&file, message)])
        };
        match language {
            Ok(language) => {
                read.languages.insert(tag.to_owned(), language);
            }
            Err(findings) => {
                let findings = findings.into_iter();
                read.faults
                    .extend(findings.map(|finding| (LANGUAGES.to_owned(), finding)));
            }
        }
    }
}

/// Reads one theme from its folder.
pub fn read_theme(folder: &Path, name: &str) -> Result<Source, Vec<Finding>> {
    let mut reader = Reader {
        root: folder.canonicalize().map_err(|error| {
            vec![Finding::refused(
                name,
                format!("the folder cannot be read: {error}"),
            )]
        })?,
        files: BTreeMap::new(),
        bytes: 0,
        faults: Vec::new(),
    };
    reader.folder(folder, "", DEPTH);
    if reader.faults.is_empty() {
        Ok(Source {
            name: name.to_owned(),
            files: reader.files,
            languages: BTreeMap::new(),
        })
    } else {
        Err(reader.faults)
    }
}

struct Reader {
    root: PathBuf,
    files: BTreeMap<String, Cow<'static, [u8]>>,
    bytes: u64,
    faults: Vec<Finding>,
}

impl Reader {
    fn folder(&mut self, folder: &Path, prefix: &str, depth: usize) {
        for path in entries(folder) {
            if self.faults.len() >= MOST_FAULTS {
                return;
            }
            let name = format!("{prefix}{}", file_name(&path));
            if !path.canonicalize().is_ok_and(|path| path.starts_with(&self.root)) {
                self.refuse(&name, "it is a link that leads nowhere, or out of the theme");
            } else if path.is_dir() && depth > 0 {
                self.folder(&path, &format!("{name}/"), depth - 1);
            } else if belongs(&name) {
                self.file(&path, name);
            }
        }
    }

    fn file(&mut self, path: &Path, name: String) {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/');
        if !name.bytes().all(is_plain) {
            return self.refuse(&name, "names of files are letters, digits and . - _");
        }
        if self.files.len() >= MOST_FILES {
            return self.refuse(&name, &format!("a theme has at most {MOST_FILES} files"));
        }
        let is_text = Media::of_name(&name).is_none();
        let largest = if is_text { LARGEST_TEXT } else { LARGEST_FILE };
        match read_file(path, &self.root, largest) {
            Err(message) => self.refuse(&name, &message),
            Ok(bytes) => {
                self.bytes = self.bytes.saturating_add(bytes.len() as u64);
                if self.bytes > LARGEST_THEME {
                    let most = LARGEST_THEME / 1024 / 1024;
                    return self.refuse(&name, &format!("a theme has at most {most} MiB"));
                }
                self.files.insert(name, Cow::Owned(bytes));
            }
        }
    }

    fn refuse(&mut self, name: &str, message: &str) {
        self.faults.push(Finding::refused(name, message));
    }
}

/// Whether a theme is made of files with that name; others are left alone.
fn belongs(name: &str) -> bool {
    let is_language = name.starts_with("locales/") && has_extension(name, "toml");
    name == "theme.toml" || is_language || has_extension(name, "html") || Media::of_name(name).is_some()
}

fn has_extension(name: &str, extension: &str) -> bool {
    Path::new(name)
        .extension()
        .is_some_and(|found| found == extension)
}

/// What some editors put before a text to say that it is UTF-8. No other kind of file begins with it.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Reads a regular file within `root`, up to `largest` bytes. A pipe is not opened: that would wait for ever. A byte
/// order mark is no part of a text, which may be put behind another.
fn read_file(path: &Path, root: &Path, largest: u64) -> Result<Vec<u8>, String> {
    let cannot = |error: std::io::Error| format!("it cannot be read: {error}");
    let root = root.canonicalize().map_err(cannot)?;
    let path = path.canonicalize().map_err(cannot)?;
    if !path.starts_with(&root) {
        return Err("it is a link that leads out of its folder".to_owned());
    }
    let about = fs::metadata(&path).map_err(cannot)?;
    if !about.is_file() {
        return Err("it is no regular file".to_owned());
    }
    let mut bytes = Vec::with_capacity(expected(&about, largest));
    let mut file = File::open(&path).map_err(cannot)?.take(largest.saturating_add(1));
    file.read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > largest {
        return Err(format!("it is larger than {} KiB", largest / 1024));
    }
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(bytes)
}

fn expected(about: &Metadata, largest: u64) -> usize {
    usize::try_from(about.len().min(largest)).unwrap_or(0)
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// What lies in a folder, in alphabetical order, without what is hidden.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|path| !file_name(path).starts_with('.'))
        .collect();
    paths.sort();
    paths
}
