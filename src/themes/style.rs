//! Checks what a stylesheet loads.

use super::finding::{Finding, Severity};
use super::policy::{ContentSecurityPolicy, ResourceKind};

/// Reports the addresses that a stylesheet cannot load: of origins that the policy does not allow, or files that the theme
/// does not have. `has` says whether the theme has the file of a path.
pub fn inspect(
    file: &str,
    css: &str,
    policy: &ContentSecurityPolicy,
    has: impl Fn(&str) -> bool,
) -> Vec<Finding> {
    let css = &without_comments(css);
    let urls = occurrences(css, "url(").filter_map(|found| {
        if found.before.trim_end().ends_with("@import") {
            return None;
        }
        let url = unquoted(found.after.split(')').next()?);
        Some((found.line, url, &[ResourceKind::Image, ResourceKind::Font][..]))
    });
    let imports = occurrences(css, "@import").filter_map(|found| {
        let rest = found.after.split(';').next()?.trim();
        let rest = rest.strip_prefix("url(").unwrap_or(rest);
        let url = unquoted(rest.split([')', ' ']).next()?);
        Some((found.line, url, &[ResourceKind::Style][..]))
    });
    let mut findings: Vec<Finding> = Vec::new();
    for (line, url, loads) in imports.chain(urls) {
        let first_part = url.split(['/', '?', '#']).next().unwrap_or_default();
        let is_far = url.starts_with("//") || first_part.contains(':');
        let is_allowed = loads.iter().any(|load| policy.allows(*load, url));
        let message = if url.is_empty() || url.starts_with('#') || is_allowed {
            continue;
        } else if is_far {
            format!("{url:?} is blocked unless theme.toml names its https:// origin under csp")
        } else if url.starts_with('/') {
            format!("{url:?} is no file of the theme: write its path from this stylesheet")
        } else {
            let path = url.split(['?', '#']).next().unwrap_or_default();
            if resolve(file, path).is_some_and(|path| has(&path)) {
                continue;
            }
            format!("{url:?} is no file of the theme that can be served")
        };
        findings.push(Finding::at_line(Severity::Fault, file, line, message));
    }
    findings
}

/// An occurrence of a mark, such as `url(`, in a stylesheet.
struct Occurrence<'a> {
    line: usize,
    /// The text between the previous mark and this one.
    before: &'a str,
    /// The text between this mark and the next.
    after: &'a str,
}

/// The occurrences of `mark`. Their texts do not overlap, so that the whole takes linear time.
fn occurrences<'a>(css: &'a str, mark: &'a str) -> impl Iterator<Item = Occurrence<'a>> {
    let mut line = 1_usize;
    css.split(mark)
        .zip(css.split(mark).skip(1))
        .map(move |(before, after)| {
            line = line.saturating_add(before.matches('\n').count());
            Occurrence { line, before, after }
        })
}

/// The text without comments. Line breaks in comments stay, so that line numbers stay right.
fn without_comments(css: &str) -> String {
    let mut clean = String::with_capacity(css.len());
    let mut rest = css;
    while let Some((before, after)) = rest.split_once("/*") {
        clean.push_str(before);
        let (comment, after) = after.split_once("*/").unwrap_or((after, ""));
        clean.extend(comment.chars().filter(|c| *c == '\n'));
        rest = after;
    }
    clean.push_str(rest);
    clean
}

fn unquoted(url: &str) -> &str {
    url.trim().trim_matches(['"', '\''])
}

/// The path within the theme that `path` means in the file `from`.
fn resolve(from: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(css: &str) -> Vec<String> {
        let policy = ContentSecurityPolicy::default()
            .allow(ResourceKind::Font, "https://fonts.example")
            .unwrap();
        let has = |path: &str| path == "img/a.svg";
        inspect("css/site.css", css, &policy, has)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn what_is_there_or_named_is_left_alone() {
        let css = "a{background:url(../img/a.svg)} b{background:url('../img/a.svg#x')}\n\
            @font-face{src:url(\"https://fonts.example/a.woff2\")} c{background:url(data:image/png;base64,AA)}\n\
            d{fill:url(#gradient)} /* url(gone.png) @import 'x'; */";
        assert_eq!(said(css), Vec::<String>::new());
    }

    /// If each occurrence had the whole rest of the text, this would read gigabytes.
    #[test]
    fn addresses_without_an_end_are_no_longer_than_the_stylesheet() {
        for mark in ["url(", "@import", "@import url("] {
            let said = said(&mark.repeat(65_000));
            let length: usize = said.iter().map(String::len).sum();
            assert!(length < 10_000_000, "{mark}: {length}");
        }
    }

    #[test]
    fn what_is_blocked_or_missing_is_said_with_its_line() {
        let css = "/*\n*/\n@import \"https://evil.example/a.css\";\na{background:url(//evil.example/x.png)}\n\
            b{background:url(gone.png)}\nc{background:url(/assets/x.png)}\nd{background:url(../../etc/passwd)}\n\
            @import url(https://fonts.example/a.css);";
        let said = said(css);
        for (line, part) in [
            (3, "https://evil.example/a.css"),
            (4, "//evil.example/x.png"),
            (5, "gone.png"),
            (6, "/assets/x.png"),
            (7, "../../etc/passwd"),
            (8, "https://fonts.example/a.css"),
        ] {
            let begins = format!("css/site.css line {line}: \"{part}\"");
            assert!(
                said.iter().any(|line| line.starts_with(&begins)),
                "{begins}: {said:?}"
            );
        }
        assert_eq!(said.len(), 6, "{said:?}");
    }
}
