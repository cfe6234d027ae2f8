//! Reads the tags of a rendered page, and refuses HTML in which browsers could find other tags.
//!
//! Each `<` of a page begins a tag, a comment or the doctype, and none of these contains another `<`. A browser looks for
//! tags nowhere else. So this finds every tag that a browser finds, and no form is hidden from the check. It also finds
//! tags within elements such as `script`, where a browser finds none.
//!
//! An HTML parser would add 260 KB or more to the executable, most of it for a table of entities.

use std::borrow::Cow;

/// The known character references. The ampersand is replaced last.
const REFERENCES: [(&str, &str); 8] = [
    ("&lt;", "<"),
    ("&gt;", ">"),
    ("&quot;", "\""),
    ("&#39;", "'"),
    ("&#x27;", "'"),
    ("&#x2f;", "/"),
    ("&#x2F;", "/"),
    ("&amp;", "&"),
];

/// A start tag, an end tag or the doctype.
#[derive(Debug)]
pub(super) struct Tag<'a> {
    /// The name in lower case; `!doctype` for the doctype.
    pub name: String,
    pub is_end: bool,
    pub is_self_closing: bool,
    /// The names in lower case, with their values.
    pub attributes: Vec<(String, Cow<'a, str>)>,
}

impl Tag<'_> {
    /// The value of an attribute. If the name occurs twice, the first one counts, as in browsers.
    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_ref())
    }

    /// Whether it is the start tag of an element.
    pub(super) fn starts(&self, name: &str) -> bool {
        !self.is_end && self.name == name
    }
}

/// The tags of a page, or why the first invalid one is refused.
pub(super) fn read(page: &str) -> Result<Vec<Tag<'_>>, String> {
    let pieces = page.split('<').skip(1);
    let tags = pieces.filter(|piece| !(piece.starts_with("!--") && piece.contains("-->")));
    tags.map(|piece| {
        read_tag(piece).ok_or_else(|| {
            let start: String = piece.chars().take(20).collect();
            format!(
                "{:?} is no tag: a < begins a tag or a comment, which ends before the next <. Write &lt; elsewhere, and {{# #}} around code",
                format!("<{start}")
            )
        })
    })
    .collect()
}

/// Reads a tag after its `<`, as sections 13.2.5.6 and following of the HTML standard do.
fn read_tag(piece: &str) -> Option<Tag<'_>> {
    let is_space = |c: char| c.is_ascii_whitespace();
    let is_end = piece.starts_with('/');
    let (name, mut rest) = split(piece.strip_prefix('/').unwrap_or(piece), |c| {
        is_space(c) || matches!(c, '>' | '/')
    });
    let mut tag = Tag {
        name: name.to_ascii_lowercase(),
        is_end,
        is_self_closing: false,
        attributes: Vec::new(),
    };
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) && !tag.starts("!doctype") {
        return None;
    }
    loop {
        rest = rest.trim_start_matches(is_space);
        if rest.starts_with('>') {
            return Some(tag);
        }
        if let Some(after) = rest.strip_prefix('/') {
            tag.is_self_closing = after.starts_with('>');
            rest = after;
            continue;
        }
        let first = rest.chars().next()?.len_utf8();
        let (_, others) = rest.split_at_checked(first)?;
        // The first character is part of the name, even if it is `=`.
        let (_, after) = split(others, |c| is_space(c) || matches!(c, '=' | '>' | '/'));
        let name = rest.strip_suffix(after)?.to_ascii_lowercase();
        let after = after.trim_start_matches(is_space);
        let value = after
            .strip_prefix('=')
            .map(|value| value.trim_start_matches(is_space));
        let (value, after) = match value {
            None => ("", after),
            Some(value) => match value.strip_prefix('"') {
                Some(quoted) => quoted.split_once('"')?,
                None => match value.strip_prefix('\'') {
                    Some(quoted) => quoted.split_once('\'')?,
                    None => split(value, |c| is_space(c) || c == '>'),
                },
            },
        };
        tag.attributes.push((name, decode(value)));
        rest = after;
    }
}

fn split(text: &str, is_end: impl Fn(char) -> bool) -> (&str, &str) {
    let end = text.find(is_end).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

/// Replaces the known character references. A value with others is left as it is, and matches nothing that is compared.
fn decode(value: &str) -> Cow<'_, str> {
    let mut value = Cow::Borrowed(value);
    if value.contains('&') {
        for (reference, character) in REFERENCES {
            value = Cow::Owned(value.replace(reference, character));
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_read_however_they_are_written() {
        let page = "<!-- a > b --><!DOCTYPE html>a > b<INPUT name=a&amp;lt; VALUE='x\">y' =é disabled/><br/></Form >";
        let tags = read(page).unwrap();
        let names: Vec<_> = tags.iter().map(|tag| (tag.name.as_str(), tag.is_end)).collect();
        assert_eq!(
            names,
            [
                ("!doctype", false),
                ("input", false),
                ("br", false),
                ("form", true)
            ]
        );
        let value = |name: &str| tags[1].attribute(name);
        assert_eq!(
            (value("name"), value("value"), value("=é"), value("disabled")),
            (Some("a&lt;"), Some("x\">y"), Some(""), Some(""))
        );
        assert!(tags[1].is_self_closing && tags[2].is_self_closing);
    }

    /// Browsers read each of these differently in different contexts.
    #[test]
    fn what_is_no_tag_for_every_browser_is_refused() {
        let texts = "<|</|<a|<a b|<a b=|<a b='>|<a b=\"<\">|<!--|<!-- <p> -->|<!-- x --!>|< b|<1>|</>|<?x?>|<!x>|\
            <![CDATA[x]]>|</é>|<!DOCTYPE|</!doctype>|<a é=\"ü";
        for text in texts.split('|') {
            let said = read(text).unwrap_err();
            assert!(said.starts_with("\"<"), "{text}: {said}");
        }
    }
}
