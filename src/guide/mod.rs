//! The guide, as `idsvc help` prints it. The handwritten pages are in the executable. The reference pages are made from
//! the code when they are read.

pub mod reference;
pub mod search;
mod synonyms;

use std::borrow::Cow;

use self::reference::{CommandLine, FOLDER};

/// The pages of `packaging/guide`, as `packaging/embed.rs` compresses them: names and texts, each followed by a zero.
const COMPRESSED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/guide"));

/// The name of the page that lists all pages.
const INDEX: &str = "README";

/// Pages that the index lists in one place.
pub struct Group<'a> {
    /// The heading in the index, with the line above the list if there is one.
    pub title: String,
    /// The names and titles of the pages.
    pub pages: Vec<(&'a str, &'a str)>,
}

/// The guide, decompressed.
pub struct Guide {
    text: String,
}

impl Guide {
    /// Decompresses the guide.
    pub fn open() -> Self {
        let bytes = miniz_oxide::inflate::decompress_to_vec(COMPRESSED).unwrap_or_default();
        Self {
            text: String::from_utf8(bytes).unwrap_or_default(),
        }
    }

    /// The names and texts of the handwritten pages.
    fn handwritten(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut parts = self.text.split_terminator('\0');
        std::iter::from_fn(move || parts.next().zip(parts.next()))
    }

    /// The page of this name, in Markdown. The name of a reference page may be given without its folder.
    pub fn page(&self, name: &str, command_line: &CommandLine) -> Option<Cow<'_, str>> {
        let handwritten = self.handwritten().find(|(known, _)| *known == name);
        let reference = || reference::page(name.strip_prefix(FOLDER).unwrap_or(name), command_line);
        handwritten
            .map(|(_, text)| Cow::Borrowed(text))
            .or_else(|| reference().map(Cow::Owned))
    }

    /// The title of the page of this name.
    fn title(&self, name: &str) -> Option<&str> {
        if let Some(name) = name.strip_prefix(FOLDER) {
            return reference::titles()
                .find(|(known, _)| *known == name)
                .map(|(_, title)| title);
        }
        let (_, text) = self.handwritten().find(|(known, _)| *known == name)?;
        Some(text.lines().next()?.trim_start_matches("# "))
    }

    /// All pages that the index links to, as it groups them.
    pub fn groups(&self) -> Vec<Group<'_>> {
        let mut groups: Vec<Group<'_>> = Vec::new();
        let mut heading = "";
        let index = self.handwritten().find(|(name, _)| *name == INDEX);
        for line in index.map(|(_, text)| text).unwrap_or_default().lines() {
            let title = if let Some(title) = line.strip_prefix("## ") {
                heading = title;
                Some(title.to_owned())
            } else {
                line.strip_suffix(':').map(|part| format!("{heading}: {part}"))
            };
            groups.extend(title.map(|title| Group {
                title,
                pages: Vec::new(),
            }));
            for link in line.split("](").skip(1) {
                let name = link.split_once(".md").map(|(name, _)| name);
                let page = name.and_then(|name| Some((name, self.title(name)?)));
                if let (Some(group), Some(page)) = (groups.last_mut(), page) {
                    group.pages.push(page);
                }
            }
        }
        groups.retain(|group| !group.pages.is_empty());
        groups
    }
}
