//! Reads HTML as browsers do, as far as it takes to judge a page that a theme has drawn.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::finding::{Finding, Severity};
use super::policy::{ContentSecurityPolicy, Load};

/// Elements without an end tag.
const VOID: [&str; 13] = [
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr",
];
/// Elements whose end tag may be left out.
const OPTIONAL: [&str; 13] = [
    "body", "dd", "dt", "head", "html", "li", "option", "p", "tbody", "td", "th", "thead", "tr",
];
/// Elements whose content is no markup.
const RAW: [&str; 9] = [
    "iframe",
    "noembed",
    "noframes",
    "plaintext",
    "script",
    "style",
    "textarea",
    "title",
    "xmp",
];
/// The element whose content is markup for browsers without scripts only.
pub(super) const NO_SCRIPT: &str = "noscript";

/// A start or end tag.
#[derive(Debug)]
pub(super) struct Tag<'a> {
    pub name: Cow<'a, str>,
    pub is_end: bool,
    closes_itself: bool,
    attributes: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// What follows it, for elements whose content is no markup.
    pub raw: &'a str,
}

impl Tag<'_> {
    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_ref())
    }

    pub(super) fn is(&self, name: &str) -> bool {
        !self.is_end && self.name == name
    }
}

/// The tags of a page for browsers that run scripts, or for those that do not.
pub(super) fn tags(html: &str, with_scripts: bool) -> Vec<Tag<'_>> {
    let mut tags = Vec::new();
    let mut rest = html;
    while let Some((_, after)) = rest.split_once('<') {
        if let Some(comment) = after.strip_prefix("!--") {
            rest = after_comment(comment);
            continue;
        }
        let is_end = after.starts_with('/');
        let after = after.strip_prefix('/').unwrap_or(after);
        if !after.starts_with(|c: char| c.is_ascii_alphabetic()) {
            rest = after;
            continue;
        }
        let (mut tag, after) = tag(after, is_end);
        rest = after;
        let is_raw = RAW.contains(&tag.name.as_ref()) || with_scripts && tag.name == NO_SCRIPT;
        if !tag.is_end
            && is_raw
            && let Some((content, after)) = rest.split_at_checked(end_of_raw(rest, &tag.name))
        {
            tag.raw = content;
            rest = after;
        }
        tags.push(tag);
    }
    tags
}

/// Where the content of an element ends whose content is no markup: at its end tag, if it ever does.
fn end_of_raw(rest: &str, name: &str) -> usize {
    let is_end = |at: usize| {
        let found = rest.get(at..).and_then(|tag| tag.strip_prefix("</"));
        let (found, after) = found
            .and_then(|tag| tag.split_at_checked(name.len()))
            .unwrap_or_default();
        found.eq_ignore_ascii_case(name)
            && after.starts_with(|c: char| c.is_ascii_whitespace() || matches!(c, '/' | '>'))
    };
    let mut ends = rest.match_indices("</").map(|(at, _)| at);
    ends.find(|at| name != "plaintext" && is_end(*at))
        .unwrap_or(rest.len())
}

/// What follows a comment, read from behind its `<!--`. It ends where browsers end it (HTML standard, section 13.2.5.43
/// and after), which is not at `-->` alone.
fn after_comment(comment: &str) -> &str {
    if let Some(after) = comment.strip_prefix('>').or_else(|| comment.strip_prefix("->")) {
        return after;
    }
    let end = |mark: &str| comment.find(mark).map(|at| at + mark.len());
    let ends = [end("-->"), end("--!>")];
    let end = ends.into_iter().flatten().min();
    end.and_then(|end| comment.get(end..)).unwrap_or_default()
}

/// Reads a tag from its name on; returns it and what follows its `>`.
fn tag(text: &str, is_end: bool) -> (Tag<'_>, &str) {
    let is_space = |c: char| c.is_ascii_whitespace();
    let end = text
        .find(|c: char| is_space(c) || c == '>' || c == '/')
        .unwrap_or(text.len());
    let (name, mut rest) = text.split_at_checked(end).unwrap_or((text, ""));
    let mut tag = Tag {
        name: lower(name),
        is_end,
        closes_itself: false,
        attributes: Vec::new(),
        raw: "",
    };
    loop {
        rest = rest.trim_start_matches(is_space);
        if let Some(after) = rest.strip_prefix('>') {
            return (tag, after);
        }
        if let Some(after) = rest.strip_prefix('/') {
            tag.closes_itself = after.starts_with('>');
            rest = after;
            continue;
        }
        if rest.is_empty() {
            return (tag, "");
        }
        let first = rest.chars().next().map_or(0, char::len_utf8);
        let end = rest
            .char_indices()
            .find(|(at, c)| *at >= first && (is_space(*c) || matches!(c, '=' | '>' | '/')))
            .map_or(rest.len(), |(at, _)| at);
        let (name, after) = rest.split_at_checked(end).unwrap_or((rest, ""));
        let after = after.trim_start_matches(is_space);
        let (value, after) = match after.strip_prefix('=') {
            None => ("", after),
            Some(value) => attribute_value(value.trim_start_matches(is_space)),
        };
        tag.attributes.push((lower(name), decode(value)));
        rest = after;
    }
}

fn lower(name: &str) -> Cow<'_, str> {
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        name.to_ascii_lowercase().into()
    } else {
        name.into()
    }
}

fn attribute_value(text: &str) -> (&str, &str) {
    for quote in ['"', '\''] {
        if let Some(quoted) = text.strip_prefix(quote) {
            return quoted.split_once(quote).unwrap_or((quoted, ""));
        }
    }
    let end = text
        .find(|c: char| c.is_ascii_whitespace() || c == '>')
        .unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

/// Replaces the character references that the pages are written with, and numeric ones.
fn decode(text: &str) -> Cow<'_, str> {
    if !text.contains('&') {
        return text.into();
    }
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        decoded.push_str(before);
        let known = after.split_once(';').and_then(|(name, after)| {
            let c = match name {
                "amp" => '&',
                "lt" => '<',
                "gt" => '>',
                "quot" => '"',
                "apos" => '\'',
                _ => {
                    let number = name.strip_prefix('#')?;
                    let code = match number.strip_prefix(['x', 'X']) {
                        Some(digits) => u32::from_str_radix(digits, 16).ok()?,
                        None => number.parse().ok()?,
                    };
                    char::from_u32(code)?
                }
            };
            Some((c, after))
        });
        let (c, after) = known.unwrap_or(('&', after));
        decoded.push(c);
        rest = after;
    }
    decoded.push_str(rest);
    decoded.into()
}

/// What visitors of a page would meet: things the browser blocks, elements that are not closed, and the like.
pub fn inspect(place: &str, page: &str, policy: &ContentSecurityPolicy) -> Vec<Finding> {
    let tags = tags(page, false);
    let mut findings = Vec::new();
    for tag in tags.iter().filter(|tag| !tag.is_end) {
        inspect_tag(place, tag, policy, &mut findings);
    }
    let mut fault = |message: String| findings.push(Finding::new(Severity::Fault, place, message));
    if !page
        .trim_start()
        .get(..14)
        .is_some_and(|start| start.eq_ignore_ascii_case("<!doctype html"))
    {
        fault("the page does not begin with <!DOCTYPE html>".to_owned());
    }
    let html = tags.iter().find(|tag| tag.is("html"));
    for (attribute, value) in [("lang", "{{ lang }}"), ("dir", "{{ dir }}")] {
        if html.is_none_or(|html| html.attribute(attribute).is_none_or(str::is_empty)) {
            fault(format!("html needs {attribute}=\"{value}\""));
        }
    }
    let has_viewport = tags
        .iter()
        .any(|tag| tag.is("meta") && tag.attribute("name") == Some("viewport"));
    if !has_viewport {
        fault("the page has no meta viewport: print {{ head }} or write one".to_owned());
    }
    if !tags
        .iter()
        .any(|tag| tag.is("title") && !tag.raw.trim().is_empty())
    {
        fault("the page has no title: print {{ head }} or write one".to_owned());
    }
    let mut ids = BTreeSet::new();
    for id in tags.iter().filter_map(|tag| tag.attribute("id")) {
        if !ids.insert(id) {
            fault(format!("the id {id:?} is there twice"));
        }
    }
    for message in unclosed(&tags) {
        fault(message);
    }
    findings
}

fn inspect_tag(place: &str, tag: &Tag<'_>, policy: &ContentSecurityPolicy, findings: &mut Vec<Finding>) {
    let mut find = |severity: Severity, message: String| {
        findings.push(Finding::new(severity, place, message));
    };
    let blocked = "the content security policy blocks it";
    let mut load = |load: Load, key: &str, url: Option<&str>| {
        let Some(url) = url else { return };
        let is_own = url.starts_with('/') && !url.starts_with("//");
        if is_own || policy.allows(load, url) {
            return;
        }
        let remedy = if url.starts_with("//") || url.contains(':') {
            format!("{blocked} unless theme.toml names its https:// origin under csp.{key}")
        } else {
            format!("a file of the theme is written {{{{ {url:?}|asset }}}}")
        };
        find(Severity::Fault, format!("{} loads {url:?}: {remedy}", tag.name));
    };
    match tag.name.as_ref() {
        "script" => load(Load::Script, "script", tag.attribute("src")),
        "img" | "source" => {
            load(Load::Image, "image", tag.attribute("src"));
            let sources = tag.attribute("srcset").unwrap_or_default().split(',');
            for url in sources.filter_map(|source| source.split_ascii_whitespace().next()) {
                load(Load::Image, "image", Some(url));
            }
        }
        "link" => {
            let kinds = tag.attribute("rel").unwrap_or_default().to_ascii_lowercase();
            let mut kinds = kinds.split_ascii_whitespace();
            match kinds.find(|kind| matches!(*kind, "stylesheet" | "icon" | "preload")) {
                Some("stylesheet") => load(Load::Style, "style", tag.attribute("href")),
                Some("icon") => load(Load::Image, "image", tag.attribute("href")),
                Some(_) => load(Load::Font, "font", tag.attribute("href")),
                None => {}
            }
        }
        _ => {}
    }
    match tag.name.as_ref() {
        "script" if tag.attribute("src").is_none() => {
            find(Severity::Fault, format!("an inline script: {blocked}"));
        }
        "style" => find(
            Severity::Fault,
            format!("an inline style sheet: {blocked}; use theme.css"),
        ),
        "iframe" | "object" | "embed" | "frame" | "video" | "audio" | "base" => {
            find(Severity::Fault, format!("{}: {blocked}", tag.name));
        }
        "img" if tag.attribute("alt").is_none() => {
            find(
                Severity::Fault,
                "an img without alt: readers who do not see it hear its address".to_owned(),
            );
        }
        _ => {}
    }
    for (name, value) in &tag.attributes {
        if name == "style" {
            find(
                Severity::Fault,
                format!("style=\"{value}\": {blocked}; use theme.css"),
            );
        } else if name.starts_with("on") {
            find(Severity::Fault, format!("{name}: an inline script, {blocked}"));
        } else if value.trim_start().to_ascii_lowercase().starts_with("javascript:") {
            find(Severity::Fault, format!("{name}=\"{value}\": {blocked}"));
        }
    }
}

/// Elements that are opened and not closed, or closed and not opened.
fn unclosed(tags: &[Tag<'_>]) -> Vec<String> {
    let mut open: Vec<&str> = Vec::new();
    let mut faults = Vec::new();
    for tag in tags {
        let name = tag.name.as_ref();
        if VOID.contains(&name) || tag.closes_itself {
            continue;
        }
        if !tag.is_end {
            open.push(name);
            continue;
        }
        let Some(at) = open.iter().rposition(|other| *other == name) else {
            faults.push(format!("</{name}> closes nothing"));
            continue;
        };
        for left in open.drain(at..).skip(1).filter(|left| !OPTIONAL.contains(left)) {
            faults.push(format!("<{left}> is not closed"));
        }
    }
    let left = open.into_iter().filter(|left| !OPTIONAL.contains(left));
    faults.extend(left.map(|left| format!("<{left}> is not closed")));
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(body: &str) -> String {
        format!(
            "<!DOCTYPE html><html lang=en dir='ltr'><head><meta name=viewport content=x><title>t</title></head>\
             <body>{body}</body></html>"
        )
    }

    fn messages(body: &str) -> Vec<String> {
        let policy = ContentSecurityPolicy::default()
            .allow(Load::Font, "https://fonts.example")
            .unwrap();
        inspect("login.html", &page(body), &policy)
            .into_iter()
            .map(|finding| finding.message)
            .collect()
    }

    #[test]
    fn a_sound_page_is_left_alone() {
        let body = "<img src=/id/theme/x/logo.svg alt=''><p>one<p>two<ul><li>a<li>b</ul><br/><svg><path d=x /></svg>\
            <link rel=preload href=https://fonts.example/a.woff2><a href=https://elsewhere.example>x</a>";
        assert_eq!(messages(body), Vec::<String>::new());
    }

    #[test]
    fn what_the_browser_blocks_or_readers_stumble_over_is_said() {
        for (body, said) in [
            ("<script>alert(1)</script>", "an inline script"),
            (
                "<script src=//evil.example/x.js></script>",
                "script loads \"//evil.example/x.js\"",
            ),
            ("<script src=https://evil.example/x.js></script>", "csp.script"),
            (
                "<link rel=stylesheet href=https://fonts.example/a.css>",
                "csp.style",
            ),
            ("<img alt='' srcset='https://cdn.example/a.png 2x'>", "csp.image"),
            ("<img alt='' src=logo.png>", "{{ \"logo.png\"|asset }}"),
            ("<style>p{}</style>", "an inline style sheet"),
            ("<p style='color:red'>", "style=\"color:red\""),
            ("<p onclick=x()>", "onclick"),
            ("<a href=' JavaScript:x()'>x</a>", "href"),
            ("<iframe src=x></iframe>", "iframe"),
            ("<img src=/id/a.png>", "alt"),
            ("<div><span></div>", "<span> is not closed"),
            ("<div>", "<div> is not closed"),
            ("</main>", "</main> closes nothing"),
            ("<p id=a><p id=a>", "the id \"a\" is there twice"),
        ] {
            let found = messages(body);
            assert!(
                found.iter().any(|message| message.contains(said)),
                "{body}: {found:?}"
            );
        }
        let bare = inspect("login.html", "<p>", &ContentSecurityPolicy::default());
        assert_eq!(bare.len(), 5);
    }

    #[test]
    fn no_text_makes_the_reader_fail() {
        for text in [
            "<",
            "</",
            "<a",
            "<a b",
            "<a b=",
            "<a b='",
            "<a é=\"ü",
            "<!--",
            "<script>",
            "&",
            "&#x110000;",
            "<a =é>",
            "<a /é/>",
        ] {
            inspect("x", text, &ContentSecurityPolicy::default());
        }
        assert_eq!(decode("&amp;&#x2F;&#39;&nope;&"), "&/'&nope;&");
    }
}
