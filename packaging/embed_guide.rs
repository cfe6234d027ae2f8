//! Compresses the handwritten pages of the guide into one file, which becomes part of the executable.

use std::io::{self, Write};
use std::path::Path;
use std::{env, fs};

const FOLDER: &str = "packaging/guide";

fn main() -> io::Result<()> {
    let entries = fs::read_dir(FOLDER)?;
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
    writeln!(io::stdout(), "cargo::rerun-if-changed=packaging/embed_guide.rs")?;
    let compressed = miniz_oxide::deflate::compress_to_vec(text.as_bytes(), 10);
    fs::write(
        Path::new(&env::var_os("OUT_DIR").unwrap_or_default()).join("guide"),
        compressed,
    )
}
