//! Reads HTML as browsers do, as far as it takes to judge a page that a theme has drawn.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

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
/// Elements whose content is no markup, or is none for some browsers, or is markup by rules of its own.
const RAW: [&str; 13] = [
    "desc",
    "iframe",
    "math",
    "noembed",
    "noframes",
    "noscript",
    "plaintext",
    "script",
    "style",
    "template",
    "textarea",
    "title",
    "xmp",
];
/// What every page begins with.
pub(in crate::themes) const DOCTYPE: &str = "<!DOCTYPE html>";
/// The most bytes of a character reference, with its semicolon but without its ampersand.
const LONGEST_REFERENCE: usize = 10;

/// A start or end tag.
#[derive(Debug)]
pub(in crate::themes) struct Tag<'a> {
    pub name: Cow<'a, str>,
    pub is_end: bool,
    pub closes_itself: bool,
    pub attributes: Vec<Attribute<'a>>,
    /// The tag as it is written, from its name on.
    pub source: &'a str,
    /// Whether it ends before the page does. Browsers leave out one that does not.
    pub is_whole: bool,
    /// What follows it, for elements whose content is no markup.
    pub raw: &'a str,
}

/// An attribute of a tag.
#[derive(Debug)]
pub(in crate::themes) struct Attribute<'a> {
    pub name: Cow<'a, str>,
    pub value: Cow<'a, str>,
    /// Whether it has an ampersand that begins no character reference known here. Browsers know more of them.
    pub is_unclear: bool,
}

impl Tag<'_> {
    pub(in crate::themes) fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|known| known.name == name);
        found.map(|attribute| attribute.value.as_ref())
    }

    pub(in crate::themes) fn is(&self, name: &str) -> bool {
        !self.is_end && self.name == name
    }
}

/// Where the doctype of a page stands, if it is the right one. Comments may come before it, and nothing else does (HTML
/// standard, section 13.2.6.4.1).
fn doctype(html: &str) -> Option<usize> {
    let mut rest = html.trim_ascii_start();
    while let Some(comment) = rest.strip_prefix("<!--") {
        rest = after_comment(comment).trim_ascii_start();
    }
    let (doctype, _) = rest.split_at_checked(DOCTYPE.len())?;
    let at = html.len().checked_sub(rest.len());
    at.filter(|_| doctype.eq_ignore_ascii_case(DOCTYPE))
}

/// What stands from each `<` on that begins neither a tag nor a comment, nor the page. Browsers pass over some of it up
/// to the next `>`, whatever that belongs to (HTML standard, section 13.2.5.6 and after).
pub(in crate::themes) fn strays(html: &str) -> impl Iterator<Item = &str> {
    let doctype = doctype(html);
    html.match_indices('<').filter_map(move |(at, _)| {
        let found = html.get(at..).filter(|_| doctype != Some(at))?;
        let name = found.strip_prefix("</").or_else(|| found.strip_prefix('<'))?;
        let is_tag = name.starts_with(|c: char| c.is_ascii_alphabetic());
        (!is_tag && !found.starts_with("<!--")).then_some(found)
    })
}

/// The tags of a page.
pub(in crate::themes) fn tags(html: &str) -> Vec<Tag<'_>> {
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
        if !tag.is_end
            && RAW.contains(&tag.name.as_ref())
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
    let mut rests = comment.match_indices('>').filter_map(|(at, end)| {
        let (before, rest) = comment.split_at_checked(at)?;
        let is_end = matches!(before, "" | "-") || before.ends_with("--") || before.ends_with("--!");
        is_end.then(|| rest.strip_prefix(end))?
    });
    rests.next().unwrap_or_default()
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
        source: text,
        is_whole: false,
        raw: "",
    };
    loop {
        rest = rest.trim_start_matches(is_space);
        if let Some(after) = rest.strip_prefix('>') {
            tag.source = text.strip_suffix(after).unwrap_or(text);
            tag.is_whole = true;
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
        let (value, is_unclear) = decode(value);
        tag.attributes.push(Attribute {
            name: lower(name),
            value,
            is_unclear,
        });
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

/// Replaces the character references that the pages are written with, and numeric ones; says whether another ampersand
/// is left.
fn decode(text: &str) -> (Cow<'_, str>, bool) {
    if !text.contains('&') {
        return (text.into(), false);
    }
    let mut decoded = String::with_capacity(text.len());
    let mut is_unclear = false;
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        let known = reference(after);
        is_unclear |= known.is_none();
        let (c, after) = known.unwrap_or(('&', after));
        decoded.push_str(before);
        decoded.push(c);
        rest = after;
    }
    decoded.push_str(rest);
    (decoded.into(), is_unclear)
}

/// What a character reference means, read from behind its ampersand, and what follows it. Some numbers are not what
/// they say (HTML standard, section 13.2.5.84) and are not known here.
fn reference(text: &str) -> Option<(char, &str)> {
    let end = text
        .bytes()
        .take(LONGEST_REFERENCE)
        .position(|byte| byte == b';')?;
    let (name, after) = text.split_at_checked(end)?;
    let c = match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        _ => {
            let number = name.strip_prefix('#')?;
            let (digits, radix) = match number.strip_prefix(['x', 'X']) {
                Some(digits) => (digits, 16),
                None => (number, 10),
            };
            let is_number = digits.chars().all(|c| c.is_digit(radix));
            let code = u32::from_str_radix(digits, radix).ok().filter(|_| is_number)?;
            char::from_u32(code).filter(|c| !matches!(c, '\0' | '\u{80}'..='\u{9f}'))?
        }
    };
    Some((c, after.strip_prefix(';')?))
}

/// What visitors of a page would meet: things the browser blocks, elements that are not closed, and the like.
pub fn inspect(place: &str, page: &str, policy: &ContentSecurityPolicy) -> Vec<Finding> {
    let tags = tags(page);
    let mut findings = Vec::new();
    for tag in tags.iter().filter(|tag| !tag.is_end) {
        inspect_tag(place, tag, policy, &mut findings);
    }
    let mut fault = |message: String| findings.push(Finding::new(Severity::Fault, place, message));
    if doctype(page).is_none() {
        fault(format!("the page does not begin with {DOCTYPE}"));
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
        "video" | "audio" | "base" => {
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
    for Attribute { name, value, .. } in &tag.attributes {
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
    // How often each of them is open: who closes what is not must not have the whole page looked through for it.
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    let mut faults = Vec::new();
    for tag in tags {
        let name = tag.name.as_ref();
        if VOID.contains(&name) || tag.closes_itself {
            continue;
        }
        let known = times.entry(name).or_default();
        if !tag.is_end {
            *known = known.saturating_add(1);
            open.push(name);
        } else if *known == 0 {
            faults.push(format!("</{name}> closes nothing"));
        } else {
            while let Some(left) = open.pop() {
                let known = times.entry(left).or_default();
                *known = known.saturating_sub(1);
                if left == name {
                    break;
                }
                if !OPTIONAL.contains(&left) {
                    faults.push(format!("<{left}> is not closed"));
                }
            }
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

    /// HTML standard, section 13.2.6.4.1.
    #[test]
    fn comments_may_come_before_the_doctype() {
        let sound = page("<p>x");
        for before in ["", "<!-- (c) Acme -->\n", "<!---->\n<!-- <p> > --!> <!-->"] {
            let page = format!("{before}{sound}");
            assert_eq!(inspect("x", &page, &ContentSecurityPolicy::default()), []);
            assert_eq!(strays(&page).count(), 0);
        }
        for before in ["x", "<p>", "<!-- ", "<!-- --> x", "<?xml version=\"1.0\"?>"] {
            let page = format!("{before}{sound}");
            assert_ne!(inspect("x", &page, &ContentSecurityPolicy::default()), []);
            assert_ne!(strays(&page).count(), 0);
        }
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
            ("<video src=x></video>", "video"),
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
            "<a b='&é;&",
            "<a =é>",
            "<a /é/>",
        ] {
            inspect("x", text, &ContentSecurityPolicy::default());
        }
        assert_eq!(decode("&amp;&#x2F;&#39;&nope;&").0, "&/'&nope;&");
        for unclear in [
            "&",
            "&nope;",
            "&#101",
            "&#+101;",
            "&#;",
            "&#128;",
            "&#0;",
            "&#0000000101;",
            "&amp",
        ] {
            assert_eq!(decode(unclear), (unclear.into(), true));
        }
        assert_eq!(decode("&#101;&#X65;"), ("ee".into(), false));
    }
}
