//! `idsvc help`: the help of commands, and the pages of the guide.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::harness::process::{run_with_closed_output, said, shown};
use crate::harness::terminal::open_terminal;

fn idsvc(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_idsvc"));
    command.args(words).stdin(Stdio::null());
    command
}

fn output(words: &[&str]) -> Output {
    idsvc(words).output().unwrap()
}

fn help(words: &[&str]) -> String {
    let output = output(words);
    assert!(output.status.success(), "{words:?}: {}", said(&output));
    shown(&output)
}

fn page(name: &str) -> String {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/guide");
    fs::read_to_string(guide.join(format!("{name}.md"))).unwrap()
}

#[test]
fn help_lists_the_commands_and_the_pages_of_the_guide() {
    let listed = help(&["help"]);
    let lines: Vec<_> = listed
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .collect();
    for (name, title) in [
        ("serve", "Run"),
        ("help", "Print"),
        ("back-up-and-restore", "Back"),
        ("reference/events", "Events"),
    ] {
        assert!(
            lines.iter().any(|line| line.starts_with(&[name, title])),
            "{listed}"
        );
    }
}

#[test]
fn help_of_a_command_is_what_its_flag_prints() {
    for words in [&["serve"][..], &["client", "add"], &["client", "api-key", "list"]] {
        assert_eq!(
            help(&[&["help"], words].concat()),
            help(&[words, &["--help"]].concat())
        );
    }
    let help_of_events = format!(
        "{}\nmore: idsvc help reference/events\n",
        help(&["events", "--help"])
    );
    assert_eq!(help(&["help", "events"]), help_of_events);
}

#[test]
fn help_of_a_task_is_its_page() {
    for name in ["back-up-and-restore", "reference/events", "reference/settings"] {
        assert_eq!(help(&["help", name]), page(name));
    }
    assert_eq!(help(&["help", "settings"]), page("reference/settings"));
}

#[test]
fn an_unknown_topic_brings_similar_ones() {
    for (topic, similar) in [
        (&["bakcup"][..], "backup"),
        (&["client", "ad"], "client add"),
        (&["pasword"], "reset-a-password"),
        (&["zzzzzzzz"], "idsvc help"),
    ] {
        let output = output(&[&["help"], topic].concat());
        assert_eq!(output.status.code(), Some(2));
        assert!(said(&output).contains(similar), "{topic:?}: {}", said(&output));
    }
}

#[test]
fn words_lead_to_the_pages_and_commands_that_have_them() {
    for (words, name, title) in [
        (&["mfa"][..], "second-factors", "Ask for a second factor"),
        (&["2FA"], "second-factors", "Ask for a second factor"),
        (&["totp"], "second-factors", "Ask for a second factor"),
        (
            &["rotate", "secret"],
            "client rotate-secret",
            "Give a client a new secret",
        ),
        (
            &["rotate secret"],
            "client rotate-secret",
            "Give a client a new secret",
        ),
        (
            &["sso"],
            "sign-in-at-another-provider",
            "Let people sign in at another provider",
        ),
        (&["webauthn"], "passkeys", "Let people sign in with passkeys"),
        (&["docker"], "run-it-in-containers", "Run it in containers"),
        (&["letsencrypt"], "get-certificates", "Get certificates"),
        (&["high availability"], "run-several-nodes", "Run several nodes"),
        (&["metric"], "reference/metrics", "Metrics"),
        (
            &["how", "to", "forget", "a", "person"],
            "erase-a-person",
            "Erase a person",
        ),
    ] {
        let found = help(&[&["help"], words].concat());
        let best: Vec<_> = found.lines().take(9).collect();
        let is_named = |line: &&str| line.starts_with(name) && line.contains(title);
        assert!(best.iter().any(is_named), "{words:?}: {found}");
    }
    let found = help(&["help", "oidc"]);
    assert!(found.lines().count() > 2, "{found}");
}

#[test]
fn a_page_is_shown_with_the_line_that_fits_best() {
    let found = help(&["help", "MFA.require"]);
    let page = found.lines().position(|line| line.starts_with("second-factors "));
    let line = found.lines().nth(page.unwrap() + 1).unwrap();
    assert!(
        line.starts_with("    ") && line.contains("mfa.require"),
        "{found}"
    );
}

#[test]
fn help_has_no_json_form() {
    for words in [&["help", "--json"][..], &["help", "events", "--json"]] {
        assert_eq!(output(words).status.code(), Some(2));
    }
}

#[test]
fn a_reader_who_leaves_is_no_error() {
    for topic in ["commands", "events"] {
        let output = run_with_closed_output(&mut idsvc(&["help", topic]));
        assert!(output.status.success(), "{}", said(&output));
    }
}

#[test]
fn a_terminal_gets_pages_through_the_pager() {
    let folder = TempDir::new().unwrap();
    let (_outer, inner) = open_terminal();
    let status = idsvc(&["help", "metrics"])
        .env("PAGER", "cat >paged")
        .current_dir(folder.path())
        .stdout(inner)
        .status()
        .unwrap();
    assert!(status.success());
    let paged = fs::read_to_string(folder.path().join("paged")).unwrap();
    assert_eq!(paged, page("reference/metrics"));
}

#[test]
fn without_a_pager_the_terminal_gets_the_page_itself() {
    for pager in ["", "/no/such/pager"] {
        let (mut outer, inner) = open_terminal();
        let mut child = idsvc(&["help", "metrics"])
            .env("PAGER", pager)
            .stdout(inner)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut title = [0; 9];
        outer.read_exact(&mut title).unwrap();
        assert_eq!(&title, b"# Metrics");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
