//! Checks of the pages that a theme's templates render.
//!
//! [`check_forms`] runs when an operator's theme is loaded, on samples of every page in every state, and again each time such a page
//! is served, because a template can depend on its reader. It checks that all forms of the service are on the page, can be
//! sent, and are sent to the service only. A page that fails is not served: the default theme draws it. The content
//! security policy cannot do this: it has no `form-action`, and it finds no missing field.
//!
//! [`check_content`] runs when an operator's theme is loaded. It reports what browsers will block, and what readers will miss. Such a
//! page is served: the content security policy holds in any case.
//!
//! Neither checks style sheets, which can hide a form, nor links, which may lead anywhere.

use std::collections::BTreeSet;
use std::fmt;

use super::finding::{Finding, Severity};
use super::policy::{ContentSecurityPolicy, ResourceKind};
use super::tags::{Tag, read};

const FORM_ELEMENTS: [&str; 5] = ["button", "form", "input", "select", "textarea"];
/// Elements in which browsers find no forms, or find them by special rules.
const WITHOUT_FORMS: &str = "button math noembed noframes noscript plaintext script select style svg template textarea \
    title xmp";
/// Elements with a page of their own. The policy does not block a page in `srcdoc`.
const FRAMES: [&str; 5] = ["embed", "frame", "frameset", "iframe", "object"];
/// Attributes of a button that change where or how it sends a form.
const OVERRIDES: [&str; 3] = ["formaction", "formenctype", "formmethod"];

/// A part of a form that the service reads.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part<'a> {
    Hidden(&'a str, &'a str),
    Field(&'a str),
    Button(&'a str, &'a str),
    /// A button without a name.
    Submit,
}

impl<'a> Part<'a> {
    /// The part that a start tag makes, if it makes one.
    fn of(tag: &'a Tag<'_>) -> Option<Self> {
        let text = |name: &str| tag.attribute(name).unwrap_or_default();
        let has = |name: &str| tag.attribute(name).is_some();
        let (name, value, kind) = (text("name"), text("value"), text("type").to_ascii_lowercase());
        let is_excluded = has("disabled") || has("form") || has("data-optional") || kind.contains('&');
        let is_command = kind != "submit" && (has("command") || has("commandfor"));
        match (tag.name.as_str(), kind.as_str()) {
            _ if is_excluded => None,
            ("button" | "input", "button" | "reset") => None,
            ("button", _) if is_command => None,
            ("input", "image") => Some(Self::Submit),
            ("button", _) | ("input", "submit") if name.is_empty() => Some(Self::Submit),
            ("button", _) | ("input", "submit") => Some(Self::Button(name, value)),
            ("input" | "select" | "textarea", _) if name.is_empty() => None,
            ("input", "hidden") => Some(Self::Hidden(name, value)),
            ("input" | "select" | "textarea", _) => Some(Self::Field(name)),
            _ => None,
        }
    }
}

impl fmt::Display for Part<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hidden(name, _) => write!(f, "the hidden field {name}"),
            Self::Field(name) => write!(f, "the field {name}"),
            Self::Button(name, value) => write!(f, "the button {name}={value}"),
            Self::Submit => f.write_str("a button that sends it"),
        }
    }
}

/// The properties of a form that the service depends on.
#[derive(Debug)]
struct Form<'a> {
    action: &'a str,
    /// Whether pages got it after themes were written without it.
    is_optional: bool,
    /// Whether it is sent as the service reads forms: by POST and URL-encoded.
    is_readable: bool,
    /// Whether it is sent by GET, so that it can only show a page.
    is_shown: bool,
    parts: BTreeSet<Part<'a>>,
}

impl<'a> Form<'a> {
    fn new(tag: &'a Tag<'_>) -> Self {
        let is_urlencoded =
            |encoding: &str| encoding.eq_ignore_ascii_case("application/x-www-form-urlencoded");
        let method = tag.attribute("method").unwrap_or_default();
        Self {
            action: tag.attribute("action").unwrap_or_default(),
            is_optional: tag.attribute("data-optional").is_some(),
            is_readable: method.eq_ignore_ascii_case("post")
                && tag.attribute("enctype").is_none_or(is_urlencoded),
            is_shown: method.eq_ignore_ascii_case("get"),
            parts: BTreeSet::new(),
        }
    }

    /// Whether it only shows a page of the service again, such as in another language: nothing that was typed gets into
    /// an address.
    fn only_shows(&self, address: Option<&str>) -> bool {
        self.is_shown
            && address == Some(self.action)
            && !self.parts.iter().any(|part| matches!(part, Part::Field(_)))
    }

    /// Whether it sends all parts of another form to the same address. It may send more.
    fn replaces(&self, other: &Self) -> bool {
        self.action == other.action
            && self.is_readable == other.is_readable
            && other.parts.iter().all(|part| self.has(part))
    }

    fn has(&self, wanted: &Part<'_>) -> bool {
        let mut parts = self.parts.iter();
        match wanted {
            Part::Submit => parts.any(|part| matches!(part, Part::Button(..) | Part::Submit)),
            // The service reads the first of two values.
            Part::Hidden(name, _) => {
                let mut same = parts.filter(|part| matches!(part, Part::Hidden(other, _) if other == name));
                same.next() == Some(wanted) && same.next().is_none()
            }
            _ => self.parts.contains(wanted),
        }
    }
}

/// The forms of a page with their parts. A part belongs to the last form that is still open, also if other elements are
/// between them (HTML standard, section 13.2.4.4).
fn forms<'a>(tags: &'a [Tag<'_>], problems: &mut Vec<String>) -> Vec<Form<'a>> {
    let mut forms: Vec<Form<'a>> = Vec::new();
    let mut is_in_form = false;
    // The outermost open element in which browsers find no forms, and how many elements of its name are open.
    let mut outer: Option<(&str, usize)> = None;
    for tag in tags {
        let name = tag.name.as_str();
        let is_empty = tag.is_self_closing && matches!(name, "math" | "svg");
        let is_disabled = name == "fieldset" && tag.attribute("disabled").is_some();
        if let Some((element, depth)) = outer {
            let depth = match (name == element, tag.is_end) {
                (true, true) => depth.saturating_sub(1),
                (true, false) if !is_empty => depth.saturating_add(1),
                _ => depth,
            };
            outer = (depth > 0).then_some((element, depth));
            if outer.is_some() && FORM_ELEMENTS.contains(&name) {
                problems.push(format!("{name} within {element}: browsers do not find it there"));
            }
            continue;
        }
        match (name, tag.is_end) {
            ("form", false) if is_in_form => {
                problems.push("a form within a form: browsers leave the inner one out".to_owned());
            }
            ("form", false) => forms.push(Form::new(tag)),
            (_, false) if is_in_form => {
                if let (Some(form), Some(part)) = (forms.last_mut(), Part::of(tag)) {
                    form.parts.insert(part);
                }
            }
            _ => {}
        }
        if name == "form" {
            is_in_form = !tag.is_end;
        }
        if !tag.is_end && !is_empty && (is_disabled || WITHOUT_FORMS.split(' ').any(|known| known == name)) {
            outer = Some((name, 1));
        }
    }
    forms
}

/// The addresses of links within the service. Links that pages got after themes were written without them are optional.
fn links<'a>(tags: &'a [Tag<'_>]) -> BTreeSet<&'a str> {
    let is_required = |tag: &&Tag<'_>| tag.starts("a") && tag.attribute("data-optional").is_none();
    let links = tags.iter().filter(is_required);
    let hrefs = links.filter_map(|tag| tag.attribute("href"));
    hrefs.filter(|href| href.starts_with('/')).collect()
}

/// Reports why a page cannot be served: a form or link of the service's `content` is missing, a form cannot be sent, or it
/// is sent elsewhere.
///
/// Forms may also be sent to the `own` address of the page: an account page that was written before there were sections
/// has the forms of all of them. `shown` is the address that shows the page again, in another language.
pub fn check_forms(
    place: &str,
    page: &str,
    content: &str,
    own: Option<&str>,
    shown: Option<&str>,
) -> Vec<Finding> {
    let problems = match (read(page), read(content)) {
        (Ok(page), Ok(content)) => form_problems(&page, &content, own, shown),
        (Err(problem), _) | (_, Err(problem)) => vec![problem],
    };
    let problems = problems.into_iter();
    problems.map(|problem| Finding::refused(place, problem)).collect()
}

fn form_problems(
    page: &[Tag<'_>],
    content: &[Tag<'_>],
    own: Option<&str>,
    shown: Option<&str>,
) -> Vec<String> {
    let mut problems = Vec::new();
    let wanted = forms(content, &mut Vec::new());
    let found = forms(page, &mut problems);
    for tag in page {
        let name = &tag.name;
        if FRAMES.contains(&name.as_str()) {
            problems.push(format!("{name}: pages within the page are not allowed"));
        }
        for (attribute, _) in &tag.attributes {
            if OVERRIDES.contains(&attribute.as_str()) {
                problems.push(format!(
                    "{attribute}: only the form may say where and how it is sent"
                ));
            } else if attribute == "http-equiv" {
                problems.push("http-equiv: it could redirect users to another site".to_owned());
            }
        }
    }
    for form in &found {
        let Form {
            action, is_readable, ..
        } = form;
        if (own == Some(*action) && *is_readable) || form.only_shows(shown) {
            continue;
        }
        if !wanted.iter().any(|wanted| wanted.action == *action) {
            problems.push(format!(
                "a form is sent to {action:?}, which is no address of the service's forms: write action=\"{{{{ action }}}}\", and \
                 the form only if the service has one"
            ));
        } else if !wanted
            .iter()
            .any(|wanted| wanted.action == *action && wanted.is_readable == *is_readable)
        {
            problems.push(
                "a form is not sent as the service reads it: write method=\"post\" and no enctype".to_owned(),
            );
        }
    }
    for href in links(content).difference(&links(page)) {
        problems.push(format!(
            "the link to {href:?} is missing: print the variable that holds it, or write a link with this href"
        ));
    }
    for form in &wanted {
        let parts: Vec<String> = form.parts.iter().map(ToString::to_string).collect();
        let parts = parts.join(", ");
        match found.iter().filter(|other| other.replaces(form)).count() {
            0 if form.is_optional => {}
            0 => problems.push(format!(
                "a form is missing or incomplete: print the variable that holds it, or write a form with method=\"post\", \
                 action=\"{{{{ action }}}}\" and {parts}"
            )),
            1 => {}
            _ => problems.push(format!("a form is on the page twice: the one with {parts}")),
        }
    }
    problems
}

/// Reports what browsers will block of a page, and what readers will miss.
pub fn check_content(place: &str, page: &str, policy: &ContentSecurityPolicy) -> Vec<Finding> {
    let Ok(tags) = read(page) else {
        return Vec::new();
    };
    let has = |is_it: &dyn Fn(&Tag<'_>) -> bool| tags.iter().any(is_it);
    let html_has = |name: &str| {
        has(&|tag| tag.starts("html") && tag.attribute(name).is_some_and(|value| !value.is_empty()))
    };
    let has_viewport = has(&|tag| tag.starts("meta") && tag.attribute("name") == Some("viewport"));
    let begins_well = tags.first().is_some_and(|tag| tag.starts("!doctype"));
    let needs = [
        (begins_well, "the page does not begin with <!DOCTYPE html>"),
        (html_has("lang"), "html needs lang=\"{{ lang }}\""),
        (html_has("dir"), "html needs dir=\"{{ dir }}\""),
        (has_viewport, "the page has no meta viewport: print {{ head }}"),
        (
            has(&|tag| tag.starts("title")),
            "the page has no title: print {{ head }}",
        ),
    ];
    let missing = needs.iter().filter(|(is_met, _)| !is_met);
    let mut problems: Vec<String> = missing.map(|(_, problem)| (*problem).to_owned()).collect();
    for tag in tags.iter().filter(|tag| !tag.is_end) {
        content_problems(tag, policy, &mut problems);
    }
    let problems = problems.into_iter();
    problems
        .map(|problem| Finding::new(Severity::Fault, place, problem))
        .collect()
}

fn content_problems(tag: &Tag<'_>, policy: &ContentSecurityPolicy, problems: &mut Vec<String>) {
    const BLOCKED: &str = "the content security policy blocks it";
    let name = tag.name.as_str();
    for (load, url) in loads(tag) {
        let is_own = url.starts_with('/') && !url.starts_with("//");
        if is_own || policy.allows(load, url) {
            continue;
        }
        let remedy = if url.starts_with("//") || url.contains(':') {
            let key = load.key();
            format!("{BLOCKED} unless theme.toml names its https:// origin under csp.{key}")
        } else {
            format!("write {{{{ {url:?}|asset }}}} for a file of the theme")
        };
        problems.push(format!("{name} loads {url:?}: {remedy}"));
    }
    match name {
        "script" if tag.attribute("src").is_none() => problems.push(format!("an inline script: {BLOCKED}")),
        "style" => problems.push(format!("an inline style sheet: {BLOCKED}; use theme.css")),
        "video" | "audio" | "base" => problems.push(format!("{name}: {BLOCKED}")),
        "img" if tag.attribute("alt").is_none() => {
            problems.push("an img without alt: screen readers read its address instead".to_owned());
        }
        _ => {}
    }
    for (name, value) in &tag.attributes {
        if name == "style" {
            problems.push(format!("style={value:?}: {BLOCKED}; use theme.css"));
        } else if name.starts_with("on") {
            problems.push(format!("{name}: an inline script, {BLOCKED}"));
        } else if value.trim_start().to_ascii_lowercase().starts_with("javascript:") {
            problems.push(format!("{name}={value:?}: {BLOCKED}"));
        }
    }
}

/// The addresses that an element loads.
fn loads<'a>(tag: &'a Tag<'_>) -> Vec<(ResourceKind, &'a str)> {
    let is_link = |kind: &str| {
        let kinds = tag.attribute("rel").unwrap_or_default();
        kinds
            .split_ascii_whitespace()
            .any(|known| known.eq_ignore_ascii_case(kind))
    };
    let (load, name) = match tag.name.as_str() {
        "script" => (ResourceKind::Script, "src"),
        "img" | "source" => (ResourceKind::Image, "src"),
        "link" if is_link("stylesheet") => (ResourceKind::Style, "href"),
        "link" if is_link("icon") => (ResourceKind::Image, "href"),
        "link" if is_link("preload") => (ResourceKind::Font, "href"),
        _ => return Vec::new(),
    };
    let sources = tag.attribute("srcset").unwrap_or_default().split(',');
    let more = sources.filter_map(|source| source.split_ascii_whitespace().next());
    tag.attribute(name)
        .into_iter()
        .chain(more)
        .map(|url| (load, url))
        .collect()
}

#[cfg(test)]
mod tests;
