//! Puts into the executable what is written as text: the handwritten pages of the guide, and the texts of the pages.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::{env, fs};

use serde::Deserialize;

const GUIDE: &str = "packaging/guide";
/// The built-in languages, in the order of menus. Each is a file in `assets/locales`.
const LANGUAGES: [&str; 6] = ["en", "de", "fr", "es", "ja", "ar"];

/// A file of a language, in the format of `locales/TAG.toml` of a theme.
#[derive(Deserialize)]
struct Locale {
    name: String,
    texts: BTreeMap<String, String>,
}

fn main() -> io::Result<()> {
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    writeln!(io::stdout(), "cargo::rerun-if-changed=packaging/embed.rs")?;
    embed_guide(&out)?;
    embed_locales(&out)
}

/// Compresses the pages of the guide into one file.
fn embed_guide(out: &Path) -> io::Result<()> {
    let entries = fs::read_dir(GUIDE)?;
    let mut pages = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<Vec<_>>>()?;
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    let mut text = String::new();
    for page in pages {
        // Not the folder: the reference pages in it follow from the code, and renewing them would compile it again.
        writeln!(io::stdout(), "cargo::rerun-if-changed={}", page.display())?;
        text += &page.file_stem().unwrap_or_default().to_string_lossy();
        text.push('\0');
        text += &fs::read_to_string(&page)?;
        text.push('\0');
    }
    let compressed = miniz_oxide::deflate::compress_to_vec(text.as_bytes(), 10);
    fs::write(out.join("guide"), compressed)
}

/// Writes the texts of each language as Rust. The compiler compares those in English with the list in
/// `src/pages/text.rs`. In another language, a missing text is English and an unknown one is left out, and a test names it.
fn embed_locales(out: &Path) -> io::Result<()> {
    let english = read_locale("en")?.texts;
    let (mut code, mut list) = (Vec::new(), Vec::new());
    for tag in LANGUAGES {
        let Locale { name, texts } = read_locale(tag)?;
        let constant = tag.to_uppercase();
        writeln!(
            code,
            "/// {name}.\npub static {constant}: Text<'static> = Text {{"
        )?;
        for (sentence, english) in &english {
            writeln!(code, "{sentence}: {:?},", texts.get(sentence).unwrap_or(english))?;
        }
        writeln!(code, "}};")?;
        writeln!(
            list,
            "BuiltIn {{ tag: {tag:?}, name: {name:?}, text: &{constant} }},"
        )?;
    }
    let count = LANGUAGES.len();
    writeln!(code, "/// The languages of the service itself, English first.")?;
    writeln!(code, "pub static BUILT_IN: [BuiltIn; {count}] = [")?;
    code.extend(list);
    writeln!(code, "];")?;
    fs::write(out.join("locales.rs"), code)
}

fn read_locale(tag: &str) -> io::Result<Locale> {
    let path = format!("assets/locales/{tag}.toml");
    writeln!(io::stdout(), "cargo::rerun-if-changed={path}")?;
    toml::from_str(&fs::read_to_string(&path)?).map_err(|error| io::Error::other(format!("{path}: {error}")))
}
