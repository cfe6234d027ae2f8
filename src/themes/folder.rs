//! Reads themes from the operator's folder.
//!
//! The folder may be writable for users who may not read the rest of the machine. So links out of a theme are refused,
//! only regular files are opened, and files, themes and folders have size limits.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use super::built_in;
use super::language::parse_language;
use super::media::Media;
use super::{Finding, MAX_FILE_BYTES, MAX_FILES, MAX_THEME_BYTES, Source};
use crate::oauth::client::is_theme_name;
use crate::pages::language::Language;
use crate::pages::locale::is_tag;

/// The folder of the languages that every theme gets.
pub const LANGUAGES: &str = "locales";

/// The largest text file.
const MAX_TEXT_FILE_BYTES: u64 = 256 * 1024;
/// How deep the folders of a theme may be nested.
const MAX_DEPTH: usize = 5;
/// The most faults of a theme that are reported. After so many, the theme is not read any further.
const MAX_FAULTS: usize = 20;
/// The most files in a fingerprint.
const MAX_FINGERPRINT_FILES: usize = 20_000;

/// The state of a folder: its files with their sizes and modification times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint(Vec<(PathBuf, u64, Option<SystemTime>)>);

/// Takes the fingerprint of a folder. No file is opened.
pub fn fingerprint(folder: &Path) -> Fingerprint {
    fn collect(folder: &Path, depth: usize, into: &mut Vec<(PathBuf, u64, Option<SystemTime>)>) {
        for path in entries(folder) {
            if into.len() >= MAX_FINGERPRINT_FILES {
                return;
            }
            let Ok(metadata) = fs::metadata(&path) else {
                continue;
            };
            if metadata.is_dir() && depth > 0 {
                collect(&path, depth - 1, into);
            }
            into.push((path, metadata.len(), metadata.modified().ok()));
        }
    }
    let mut files = Vec::new();
    collect(folder, MAX_DEPTH + 1, &mut files);
    Fingerprint(files)
}

/// The themes and languages of a folder.
#[derive(Debug, Default)]
pub struct FolderContents {
    /// The themes that could be read.
    pub sources: Vec<Source>,
    /// The languages for all themes, by tag.
    pub languages: BTreeMap<String, Arc<Language>>,
    /// What could not be read: the name of the theme and why.
    pub faults: Vec<(String, Finding)>,
}

/// Reads every theme and language of a folder. A missing folder is empty.
pub fn read(folder: &Path, most_themes: usize) -> FolderContents {
    let mut read = FolderContents::default();
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

fn read_languages(folder: &Path, read: &mut FolderContents) {
    for path in entries(folder) {
        let name = file_name(&path);
        let Some(tag) = name.strip_suffix(".toml") else {
            continue;
        };
        let file = format!("theme_dir/{LANGUAGES}/{name}");
        let language = if is_tag(tag) {
            read_file(&path, folder, MAX_TEXT_FILE_BYTES)
                .and_then(|bytes| String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned()))
                .map_err(|message| vec![Finding::refused(&file, message)])
                .and_then(|text| parse_language(&file, &text))
        } else {
            let message = "the name of the file is no language tag, as in pt-BR.toml";
            Err(vec![Finding::refused(&file, message)])
        };
        match language {
            Ok(language) => {
                read.languages.insert(tag.to_owned(), Arc::new(language));
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
    let mut reader = ThemeReader {
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
    reader.folder(folder, "", MAX_DEPTH);
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

struct ThemeReader {
    root: PathBuf,
    files: BTreeMap<String, Cow<'static, [u8]>>,
    bytes: u64,
    faults: Vec<Finding>,
}

impl ThemeReader {
    fn folder(&mut self, folder: &Path, prefix: &str, depth: usize) {
        for path in entries(folder) {
            if self.faults.len() >= MAX_FAULTS {
                return;
            }
            let name = format!("{prefix}{}", file_name(&path));
            if !path.canonicalize().is_ok_and(|path| path.starts_with(&self.root)) {
                self.refuse(&name, "it is a link to a missing file, or out of the theme");
            } else if path.is_dir() && depth > 0 {
                self.folder(&path, &format!("{name}/"), depth - 1);
            } else if is_theme_file(&name) {
                self.file(&path, name);
            }
        }
    }

    fn file(&mut self, path: &Path, name: String) {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/');
        if !name.bytes().all(is_plain) {
            return self.refuse(&name, "names of files are letters, digits and . - _");
        }
        if self.files.len() >= MAX_FILES {
            return self.refuse(&name, &format!("a theme has at most {MAX_FILES} files"));
        }
        let is_text = Media::of_name(&name).is_none();
        let largest = if is_text {
            MAX_TEXT_FILE_BYTES
        } else {
            MAX_FILE_BYTES
        };
        match read_file(path, &self.root, largest) {
            Err(message) => self.refuse(&name, &message),
            Ok(bytes) => {
                self.bytes = self.bytes.saturating_add(bytes.len() as u64);
                if self.bytes > MAX_THEME_BYTES {
                    let most = MAX_THEME_BYTES / 1024 / 1024;
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

/// Whether a file with this name belongs to a theme. Other files are ignored.
fn is_theme_file(name: &str) -> bool {
    let is_language = name.starts_with("locales/") && has_extension(name, "toml");
    name == "theme.toml" || is_language || has_extension(name, "html") || Media::of_name(name).is_some()
}

fn has_extension(name: &str, extension: &str) -> bool {
    Path::new(name)
        .extension()
        .is_some_and(|found| found == extension)
}

/// Some editors write it at the beginning of a UTF-8 text. No other kind of file begins with it.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Reads a regular file within `root`, up to `largest` bytes. A pipe is not opened: opening it could wait for ever. A byte
/// order mark is removed, because the text may be appended to another.
fn read_file(path: &Path, root: &Path, largest: u64) -> Result<Vec<u8>, String> {
    let read_error = |error: std::io::Error| format!("it cannot be read: {error}");
    let root = root.canonicalize().map_err(read_error)?;
    let path = path.canonicalize().map_err(read_error)?;
    if !path.starts_with(&root) {
        return Err("it is a link that leads out of its folder".to_owned());
    }
    let metadata = fs::metadata(&path).map_err(read_error)?;
    if !metadata.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let expected = usize::try_from(metadata.len().min(largest)).unwrap_or(0);
    let mut bytes = Vec::with_capacity(expected);
    let mut file = File::open(&path)
        .map_err(read_error)?
        .take(largest.saturating_add(1));
    file.read_to_end(&mut bytes).map_err(read_error)?;
    if bytes.len() as u64 > largest {
        return Err(format!("it is larger than {} KiB", largest / 1024));
    }
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(bytes)
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// The paths in a folder in alphabetical order, without hidden ones.
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
