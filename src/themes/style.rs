//! What a stylesheet loads, as far as it takes to say what would be blocked or missing.

use super::finding::{Finding, Severity};
use super::policy::{ContentSecurityPolicy, Load};

/// The addresses that a stylesheet loads and that nobody will answer: from elsewhere without the theme naming the
/// origin, or files that the theme does not have. `has` says whether it has one, by its path from the stylesheet's.
pub fn inspect(
    file: &str,
    css: &str,
    policy: &ContentSecurityPolicy,
    has: impl Fn(&str) -> bool,
) -> Vec<Finding> {
    let css = &without_comments(css);
    let urls = each(css, "url(").filter_map(|found| {
        let is_import = found.before.trim_end().ends_with("@import");
        let url = unquoted(found.after.split(')').next()?);
        (!is_import).then_some((found.line, url, &[Load::Image, Load::Font][..]))
    });
    let imports = each(css, "@import").filter_map(|found| {
        let rest = found.after.split(';').next()?.trim();
        let rest = rest.strip_prefix("url(").unwrap_or(rest);
        Some((
            found.line,
            unquoted(rest.split([')', ' ']).next()?),
            &[Load::Style][..],
        ))
    });
    let mut findings: Vec<Finding> = Vec::new();
    for (line, url, loads) in imports.chain(urls) {
        let is_far = url.starts_with("//")
            || url
                .split(['/', '?', '#'])
                .next()
                .is_some_and(|start| start.contains(':'));
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

/// A place where a mark stands in a stylesheet.
struct Found<'a> {
    line: usize,
    /// What stands between the mark before and this one.
    before: &'a str,
    /// What stands between this mark and the next.
    after: &'a str,
}

/// Where `mark` stands. No part of the text belongs to two places, so that all of them are read in the time of one.
fn each<'a>(css: &'a str, mark: &'a str) -> impl Iterator<Item = Found<'a>> {
    let mut line = 1_usize;
    css.split(mark)
        .zip(css.split(mark).skip(1))
        .map(move |(before, after)| {
            line = line.saturating_add(before.matches('\n').count());
            Found { line, before, after }
        })
}

/// The text with comments blanked out, so that every place stays where it is.
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
            .allow(Load::Font, "https://fonts.example")
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

    /// Each of them with all that follows it would be gigabytes.
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
