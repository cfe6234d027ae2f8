//! The guide: its reference is what the code makes, its pages have one form, and its links lead somewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use idsvc::cli::help::command_line;
use idsvc::config::schema::schema;
use idsvc::guide::reference::{self, FOLDER};
use idsvc::oauth::error::Cause;

/// If this variable is set, the reference is written anew.
const UPDATE: &str = "GUIDE_UPDATE";
/// The most lines of the README.
const README_LINES: usize = 150;
/// The most words of a sentence.
const SENTENCE_WORDS: usize = 35;
/// The lines of a page by which it has shown a command.
const FIRST_LINES: usize = 12;
/// A page that is not about commands.
const WITHOUT_COMMANDS: &str = "your-account";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn guide() -> PathBuf {
    root().join("packaging/guide")
}

fn markdown_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<_> = entries
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    pages.sort();
    pages
}

fn name(page: &Path) -> &str {
    page.file_stem().unwrap().to_str().unwrap()
}

/// The handwritten pages, by name, without the one that lists them.
fn tasks() -> Vec<(String, String)> {
    let pages = markdown_in(&guide()).into_iter();
    let tasks = pages.filter(|page| name(page) != "README");
    tasks
        .map(|page| (name(&page).to_owned(), fs::read_to_string(&page).unwrap()))
        .collect()
}

fn reference_pages() -> Vec<PathBuf> {
    markdown_in(&guide().join(FOLDER))
}

/// All faults at once.
fn expect_none(faults: &[String]) {
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The lines outside blocks of code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        (!is_code && !is_fence).then_some((at + 1, line))
    })
}

/// The line, with `x` in place of each word of code.
fn without_code(line: &str) -> String {
    let parts = line.split('`').enumerate();
    parts
        .map(|(index, part)| if index % 2 == 0 { part } else { "x" })
        .collect()
}

/// The address of a heading in its page, as Markdown viewers make it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = kept
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Why a link of this page leads nowhere.
fn broken(page: &Path, link: &str) -> Option<&'static str> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, fragment) = link.split_once('#').unwrap_or((link, ""));
    let target = if path.is_empty() {
        page.to_owned()
    } else {
        page.parent().unwrap().join(path)
    };
    if !target.exists() {
        return Some("no such file");
    }
    if fragment.is_empty() {
        return None;
    }
    let text = fs::read_to_string(target).unwrap();
    let mut headings = prose(&text).filter(|(_, line)| line.starts_with('#'));
    let is_found = headings.any(|(_, line)| anchor(line) == fragment);
    (!is_found).then_some("no such heading")
}

/// The sentences of a line of prose.
fn sentences(line: &str) -> Vec<String> {
    let mut text = without_code(line).replace('*', "");
    while let Some((before, rest)) = text.split_once("](") {
        let after = rest.split_once(')').map_or("", |(_, after)| after);
        text = format!("{before}{after}");
    }
    let ends = text.replace(['!', '?'], ".");
    ends.split(". ").map(ToOwned::to_owned).collect()
}

#[test]
fn each_reference_page_is_what_the_code_makes() {
    let command_line = command_line();
    let mut stale = Vec::new();
    for (name, _) in reference::titles() {
        let path = guide().join(FOLDER).join(format!("{name}.md"));
        let made = reference::page(name, &command_line).unwrap();
        if fs::read_to_string(&path).is_ok_and(|page| page == made) {
            continue;
        }
        if std::env::var_os(UPDATE).is_some() {
            fs::write(&path, made).unwrap();
        } else {
            stale.push(name);
        }
    }
    assert!(
        stale.is_empty(),
        "{stale:?} differ from what the code makes; renew them with {UPDATE}=1 cargo test --test it guide::"
    );
    let made: BTreeSet<_> = reference::titles().map(|(name, _)| name.to_owned()).collect();
    let kept: BTreeSet<_> = reference_pages()
        .iter()
        .map(|page| name(page).to_owned())
        .collect();
    assert_eq!(kept, made);
}

/// The schema that editors read.
#[test]
fn the_schema_of_the_settings_is_what_the_code_makes() {
    let path = root().join("packaging/idsvc.schema.json");
    let made = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    if std::env::var_os(UPDATE).is_some() {
        fs::write(&path, &made).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap() == made,
        "{} differs from what the code makes; renew it with {UPDATE}=1 cargo test --test it guide::",
        path.display()
    );
}

#[test]
fn the_readme_is_short() {
    let lines = fs::read_to_string(root().join("README.md"))
        .unwrap()
        .lines()
        .count();
    assert!(lines <= README_LINES, "README.md has {lines} lines");
}

#[test]
fn each_page_is_in_the_index() {
    let index = fs::read_to_string(guide().join("README.md")).unwrap();
    let tasks = tasks().into_iter().map(|(name, _)| name);
    let reference = reference_pages()
        .into_iter()
        .map(|page| format!("{FOLDER}{}", name(&page)));
    let missing: Vec<_> = tasks
        .chain(reference)
        .filter(|name| !index.contains(&format!("]({name}.md)")))
        .collect();
    expect_none(&missing);
}

#[test]
fn each_page_begins_with_a_command_and_ends_with_what_can_go_wrong() {
    let mut faults = Vec::new();
    for (name, text) in tasks() {
        let mut must = |is_so: bool, what: &str| {
            if !is_so {
                faults.push(format!("{name}.md {what}"));
            }
        };
        must(text.starts_with("# "), "begins without a title");
        let mut first = text.lines().take(FIRST_LINES);
        let has_command = first.any(|line| line.starts_with("```sh"));
        must(
            has_command || name == WITHOUT_COMMANDS,
            "has no command within its first lines",
        );
        let last = prose(&text).filter(|(_, line)| line.starts_with("## ")).last();
        must(
            last.is_some_and(|(_, line)| line == "## What can go wrong"),
            "does not end with what can go wrong",
        );
    }
    expect_none(&faults);
}

#[test]
fn each_link_leads_to_a_file_and_a_heading() {
    let mut pages: Vec<_> = [
        "README.md",
        ".github/CONTRIBUTING.md",
        "packaging/README.md",
        "packaging/SECURITY.md",
        "themes/README.md",
    ]
    .map(|page| root().join(page))
    .into();
    pages.extend(markdown_in(&guide()));
    pages.extend(reference_pages());
    let mut faults = Vec::new();
    let mut count = 0;
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for (at, line) in prose(&text) {
            let line = without_code(line);
            let links = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
            for (link, _) in links {
                count += 1;
                if let Some(why) = broken(&page, link) {
                    faults.push(format!("{}:{at}: {link}: {why}", page.display()));
                }
            }
        }
    }
    assert!(count > 20);
    expect_none(&faults);
}

#[test]
fn no_sentence_is_long() {
    let mut pages = markdown_in(&guide());
    pages.extend(reference_pages());
    pages.push(root().join("README.md"));
    let mut faults = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for (at, line) in prose(&text) {
            if line.starts_with(['|', '#']) {
                continue;
            }
            for sentence in sentences(line) {
                let words = sentence
                    .split_whitespace()
                    .filter(|word| word.contains(char::is_alphanumeric))
                    .count();
                if words > SENTENCE_WORDS {
                    faults.push(format!("{}:{at}: {words} words: {sentence}", page.display()));
                }
            }
        }
    }
    expect_none(&faults);
}

/// The log has these words, and the page has the remedies.
#[test]
fn the_page_about_refusals_names_every_reason() {
    let page = guide().join("find-out-why-an-application-was-refused.md");
    let page = fs::read_to_string(page).unwrap();
    let missing: Vec<_> = Cause::ALL
        .map(|cause| format!("`{}`", cause.as_str()))
        .into_iter()
        .filter(|word| !page.contains(word))
        .collect();
    expect_none(&missing);
}

#[test]
fn the_checks_can_fail() {
    let readme = root().join("README.md");
    assert_eq!(broken(&readme, "no-such.md"), Some("no such file"));
    assert_eq!(
        broken(&readme, "themes/README.md#no-such"),
        Some("no such heading")
    );
    assert_eq!(broken(&readme, "themes/README.md#themetoml"), None);
    assert_eq!(sentences("One, [two](a.md#b) `three four`. Five? Six").len(), 3);
    assert_eq!(prose("a\n```sh\nb\n```\nc").count(), 2);
}
