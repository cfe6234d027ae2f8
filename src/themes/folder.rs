//! Reads themes from the operator's folder.
//!
//! The folder may be writable for users who may not read the rest of the machine, and may change it while it is read. So
//! it is walked by descriptors, which follow no link. What is checked is the open file: it is regular, and has no other
//! name, which could stand outside. Files, themes and folders have size limits.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, Stat};

use super::built_in;
use super::language::parse_language;
use super::media::Media;
use super::{Finding, MAX_FILE_BYTES, MAX_FILES, MAX_LANGUAGES, MAX_THEME_BYTES, Source};
use crate::files::Folder;
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

/// Why a link is not read.
const LINK: &str = "it is a link, and none is followed: put what it leads to in its place";

/// The operator's folder of themes. It may be missing.
#[derive(Clone, Debug)]
pub struct ThemeFolder {
    path: PathBuf,
    data_dir: PathBuf,
}

impl ThemeFolder {
    /// The folder at a path. Below the data directory, the path must not lead through links.
    pub fn new(path: &Path, data_dir: &Path) -> Self {
        Self {
            path: path.to_owned(),
            data_dir: data_dir.to_owned(),
        }
    }

    fn open(&self) -> io::Result<Folder> {
        Folder::open_below(&self.data_dir, &self.path)
    }
}

/// The state of a folder: its files with their sizes and modification times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint(Vec<(PathBuf, i64, (i64, i64))>);

/// Takes the fingerprint of a folder. No file is opened.
pub fn fingerprint(folder: &ThemeFolder) -> Fingerprint {
    fn collect(folder: &Folder, depth: usize, into: &mut Vec<(PathBuf, i64, (i64, i64))>) {
        for (name, stat) in entries(folder) {
            if into.len() >= MAX_FINGERPRINT_FILES {
                return;
            }
            if is_folder(&stat)
                && depth > 0
                && let Ok(inner) = folder.folder(&name)
            {
                collect(&inner, depth - 1, into);
            }
            let changed = (stat.st_mtime, stat.st_mtime_nsec.cast_signed());
            into.push((folder.path().join(name), stat.st_size, changed));
        }
    }
    let mut files = Vec::new();
    if let Ok(folder) = folder.open() {
        collect(&folder, MAX_DEPTH + 1, &mut files);
    }
    Fingerprint(files)
}

/// The themes and languages of a folder.
#[derive(Debug, Default)]
pub struct FolderContents {
    /// The themes that could be read.
    pub sources: Vec<Source>,
    /// The languages for all themes, by tag.
    pub languages: BTreeMap<String, Arc<Language>>,
    /// The texts of the languages, by tag.
    pub language_texts: BTreeMap<String, String>,
    /// What could not be read: the name of the theme and why.
    pub faults: Vec<(String, Finding)>,
}

/// Reads every theme and language of a folder. A missing folder is empty.
pub fn read(folder: &ThemeFolder, most_themes: usize) -> FolderContents {
    let mut read = FolderContents::default();
    let Ok(folder) = folder.open() else {
        return read;
    };
    for (name, stat) in entries(&folder) {
        let mut refuse = |message: &str| {
            read.faults.push((name.clone(), Finding::refused(&name, message)));
        };
        if is_link(&stat) {
            refuse(LINK);
            continue;
        }
        if !is_folder(&stat) {
            continue;
        }
        let inner = match folder.folder(&name) {
            Ok(inner) => inner,
            Err(error) => {
                refuse(&read_error(&error));
                continue;
            }
        };
        if name == LANGUAGES {
            read_languages(&inner, &mut read);
        } else if let Err(problem) = check_name(&name) {
            refuse(problem);
        } else if read.sources.len() >= most_themes {
            refuse(&format!("more than {most_themes} themes are not read"));
        } else {
            match read_theme(&inner, &name) {
                Ok(source) => read.sources.push(source),
                Err(findings) => {
                    let faults = findings.into_iter().map(|finding| (name.clone(), finding));
                    read.faults.extend(faults);
                }
            }
        }
    }
    read
}

fn read_languages(folder: &Folder, read: &mut FolderContents) {
    for (name, _) in entries(folder) {
        let Some(tag) = name.strip_suffix(".toml") else {
            continue;
        };
        let file = format!("theme_dir/{LANGUAGES}/{name}");
        let language = if read.languages.len() >= MAX_LANGUAGES {
            let message = format!("more than {MAX_LANGUAGES} languages are not read");
            Err(vec![Finding::refused(&file, message)])
        } else if is_tag(tag) {
            read_file(folder, &name, MAX_TEXT_FILE_BYTES)
                .and_then(|bytes| String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned()))
                .map_err(|message| vec![Finding::refused(&file, message)])
                .and_then(|text| {
                    let parsed = parse_language(&file, &text);
                    read.language_texts.insert(tag.to_owned(), text);
                    parsed
                })
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

fn read_theme(folder: &Folder, name: &str) -> Result<Source, Vec<Finding>> {
    let mut reader = ThemeReader::default();
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

#[derive(Default)]
struct ThemeReader {
    files: BTreeMap<String, Cow<'static, [u8]>>,
    bytes: u64,
    faults: Vec<Finding>,
}

impl ThemeReader {
    fn folder(&mut self, folder: &Folder, prefix: &str, depth: usize) {
        for (own_name, stat) in entries(folder) {
            if self.faults.len() >= MAX_FAULTS {
                return;
            }
            let name = format!("{prefix}{own_name}");
            if is_link(&stat) {
                self.refuse(&name, LINK);
            } else if is_folder(&stat) && depth > 0 {
                match folder.folder(&own_name) {
                    Ok(inner) => self.folder(&inner, &format!("{name}/"), depth - 1),
                    Err(error) => self.refuse(&name, &read_error(&error)),
                }
            } else if is_theme_file(&name) {
                self.file(folder, &own_name, name);
            }
        }
    }

    fn file(&mut self, folder: &Folder, own_name: &str, name: String) {
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
        match read_file(folder, own_name, largest) {
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
    let is_mail = name.starts_with(super::mail::FOLDER) && has_extension(name, "txt");
    name == "theme.toml"
        || is_language
        || is_mail
        || has_extension(name, "html")
        || Media::of_name(name).is_some()
}

fn has_extension(name: &str, extension: &str) -> bool {
    Path::new(name)
        .extension()
        .is_some_and(|found| found == extension)
}

/// Some editors write it at the beginning of a UTF-8 text. No other kind of file begins with it.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Reads a regular file, up to `largest` bytes. A byte order mark is removed, because the text may be appended to another.
fn read_file(folder: &Folder, name: &str, largest: u64) -> Result<Vec<u8>, String> {
    let file = folder.file(name).map_err(|error| read_error(&error))?;
    let metadata = file.metadata().map_err(|error| read_error(&error))?;
    if metadata.nlink() != 1 {
        return Err(
            "it has another name too, which may be outside of the theme: copy it instead of linking it"
                .to_owned(),
        );
    }
    let expected = usize::try_from(metadata.len().min(largest)).unwrap_or(0);
    let mut bytes = Vec::with_capacity(expected);
    file.take(largest.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|error| read_error(&error))?;
    if bytes.len() as u64 > largest {
        return Err(format!("it is larger than {} KiB", largest / 1024));
    }
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(bytes)
}

fn read_error(error: &io::Error) -> String {
    format!("it cannot be read: {error}")
}

fn is_folder(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode).is_dir()
}

fn is_link(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode).is_symlink()
}

/// The names in a folder in alphabetical order, without hidden ones. A name that is not UTF-8 is refused later: no theme
/// or file may have it.
fn entries(folder: &Folder) -> impl Iterator<Item = (String, Stat)> + use<> {
    let entries = folder.entries().unwrap_or_default().into_iter();
    let named = entries.map(|(name, stat)| (name.to_string_lossy().into_owned(), stat));
    named.filter(|(name, _)| !name.starts_with('.'))
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
