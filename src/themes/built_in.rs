//! The themes inside the executable: the folders of `themes/`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::Source;

macro_rules! built_in {
    ($($name:literal: $($file:literal)*;)*) => {
        /// The files of every built-in theme, the default one first.
        const THEMES: &[(&str, &[(&str, &[u8])])] = &[$((
            $name,
            &[$((
                $file,
                include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/themes/", $name, "/", $file)),
            ),)*],
        ),)*];
    };
}

built_in! {
    "default": "theme.toml" "logo.svg" "favicon.svg";
    "split": "theme.toml" "theme.css" "layout.html" "picture.svg" "logo.svg" "favicon.svg";
}

/// The built-in themes, the default one first.
pub fn sources() -> impl Iterator<Item = Source> {
    THEMES.iter().map(|(name, files)| Source {
        name: (*name).to_owned(),
        files: files
            .iter()
            .map(|(file, bytes)| ((*file).to_owned(), Cow::Borrowed(*bytes)))
            .collect(),
        languages: BTreeMap::new(),
    })
}

/// Whether a built-in theme has that name.
pub fn is_built_in(name: &str) -> bool {
    THEMES.iter().any(|(known, _)| *known == name)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::themes::Theme;

    #[test]
    fn the_built_in_themes_draw_every_page_and_mail_and_nothing_is_found() {
        for base_path in ["", "/id"] {
            let mut default = None;
            for source in sources() {
                let theme = Theme::load(&source, base_path, default.clone()).unwrap();
                assert_eq!(theme.findings(), [], "{}", source.name);
                assert!(theme.unusable.is_empty(), "{}: {:?}", source.name, theme.unusable);
                default.get_or_insert(Arc::new(theme));
            }
        }
    }
}
