//! The theme of the pages.

use std::path::{Path, PathBuf};

use super::form::{File, Parsed};
use super::reader::{Read, Reader};
use super::setting::{Literal, Setting};
use crate::oauth::client::is_theme_name;

pub(super) const SETTINGS: &[&Setting] = &[&THEME, &THEME_DIR];

pub(super) static THEME: Setting<Parsed<String>> = Setting {
    key: "theme",
    doc: "The theme of the pages, for clients that name none: a built-in one, or a folder of theme_dir.",
    default: Some(Literal::Text("default")),
    example: Literal::Text("acme"),
    value_name: "NAME",
    help: Some("The theme of the pages"),
    form: Parsed(parse_theme),
};

pub(super) static THEME_DIR: Setting<File> = Setting {
    key: "theme_dir",
    doc: "Where the operator's themes are, one folder each; read again when something in it changes.\nLeft out: themes in data_dir.",
    default: None,
    example: Literal::Text("/etc/idsvc/themes"),
    value_name: "DIR",
    help: Some("Where the operator's themes are"),
    form: File,
};

/// Where the theme of the pages is found.
#[derive(Clone, Debug)]
pub struct ThemeSettings {
    pub name: String,
    /// The folder of the operator's themes. It may be missing.
    pub folder: PathBuf,
}

pub(super) fn theme(reader: &mut Reader<'_>, data_dir: Read<&Path>) -> Read<ThemeSettings> {
    reader.check(SETTINGS);
    let folder = match reader.read_if_set(&THEME_DIR)? {
        Some(folder) => folder,
        None => data_dir?.join("themes"),
    };
    let name = reader.read(&THEME)?;
    Ok(ThemeSettings { name, folder })
}

fn parse_theme(text: &str) -> Result<String, String> {
    if is_theme_name(text) {
        Ok(text.to_owned())
    } else {
        Err(": names of themes are lower-case letters, digits and hyphens".to_owned())
    }
}
