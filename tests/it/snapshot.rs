//! Every command's help, tables and JSON documents, as they are printed.
//!
//! A scenario is a list of commands. It is played twice against the real executable, once beside a running service
//! and once without one: both must print the same, and what `tests/it/snapshots` holds. `INSTA_UPDATE=always cargo test
//! snapshot` writes it anew; what changed is then read like code.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use tempfile::TempDir;

use crate::harness::process::{Service, said, shown};

const PASSWORD: &str = "correct horse battery staple";

/// Files that the commands name.
const FILES: [(&str, &str); 6] = [
    ("password", PASSWORD),
    ("short", "short"),
    ("secret", "0123456789abcdef0123456789abcdef01234567"),
    (
        "users.jsonl",
        "{\"email\": \"carol@example.com\", \"claims\": {\"given_name\": \"Carol\"}}\n{\"email\": \"dave@example.com\"}\n",
    ),
    (
        "bad.jsonl",
        "{\"email\": \"erin@example.com\"}\n{\"emial\": \"x\"}\n",
    ),
    (
        "state.toml",
        "[[client]]\nclient_id = \"declared\"\npublic = true\nredirect_uris = [\"com.example.app:/cb\"]\n",
    ),
];

/// What differs from run to run, in words.
#[derive(Default)]
struct Plain {
    named: HashMap<String, String>,
    after_bytes: bool,
}

impl Plain {
    /// Identifiers, keys and secrets by the order in which they were first seen; times, places and ports by name.
    fn of(&mut self, text: &str, service: &Service) -> String {
        let text = text
            .replace(&service.folder.path().display().to_string(), "[folder]")
            .replace(&service.port.to_string(), "[port]");
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
        let (mut plain, mut word) = (String::new(), String::new());
        for letter in text.chars().chain(['\n']) {
            if is_part(letter) {
                word.push(letter);
                continue;
            }
            plain.push_str(&self.word(&word));
            word.clear();
            plain.push(letter);
        }
        plain.pop();
        without_moments(&plain)
    }

    fn word(&mut self, word: &str) -> String {
        let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        let is_uuid = word.len() == 36 && word.matches('-').count() == 4 && is_hex(word);
        // The length of a backup depends on the port in it.
        let is_length = self.after_bytes && word.parse::<u64>().is_ok();
        self.after_bytes = word == "bytes" || (self.after_bytes && word.is_empty());
        let is_moment = word.len() == 10 && word.starts_with('1') && word.parse::<u64>().is_ok();
        let has = |kind: fn(&u8) -> bool| word.bytes().any(|byte| kind(&byte));
        let is_mixed = has(u8::is_ascii_digit) && has(u8::is_ascii_uppercase);
        let is_name = word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        let is_random = !is_name && (word.len() >= 40 || (word.len() >= 20 && is_mixed));
        if is_length {
            return "[length]".to_owned();
        }
        let kind = match (is_uuid, is_moment, is_random) {
            (true, _, _) => "uuid",
            (_, true, _) => return "[moment]".to_owned(),
            (_, _, true) => "random",
            _ => return word.to_owned(),
        };
        let next = self.named.len() + 1;
        let name = self
            .named
            .entry(word.to_owned())
            .or_insert_with(|| format!("[{kind} {next}]"));
        name.clone()
    }
}

/// `2026-11-21T14:05:09Z` and its like, with a blank or a `T`, become `[moment]`.
fn without_moments(text: &str) -> String {
    const SHAPE: &str = "dddd-dd-dd_dd:dd";
    let letters: Vec<char> = text.chars().collect();
    let (mut plain, mut at) = (String::new(), 0);
    while at < letters.len() {
        let here = letters.get(at..at + SHAPE.len()).unwrap_or_default();
        let fits = here.len() == SHAPE.len()
            && here.iter().zip(SHAPE.chars()).all(|(letter, shape)| match shape {
                'd' => letter.is_ascii_digit(),
                '_' => matches!(letter, ' ' | 'T'),
                _ => *letter == shape,
            });
        if fits {
            plain.push_str("[moment]");
            at += SHAPE.len();
            while letters
                .get(at)
                .is_some_and(|letter| letter.is_ascii_digit() || matches!(letter, ':' | 'Z'))
            {
                at += 1;
            }
        } else {
            plain.push(letters[at]);
            at += 1;
        }
    }
    plain
}

/// Plays a scenario. A line is a command; behind `<` stands the file that it reads from standard input.
fn play(service: &Service, lines: &[&str]) -> String {
    for (name, text) in FILES {
        fs::write(service.folder.path().join(name), text).unwrap();
    }
    let (mut plain, mut transcript) = (Plain::default(), String::new());
    for line in lines {
        let (command, input) = line.split_once(" <").unwrap_or((line, "/dev/null"));
        let arguments: Vec<_> = command.split(' ').map(|word| word.replace('+', " ")).collect();
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let input = fs::File::open(service.folder.path().join(input)).unwrap();
        let output = service.command(&arguments).stdin(input).output().unwrap();
        let code = output.status.code().unwrap();
        let _ = writeln!(transcript, "$ idsvc {line}");
        transcript.push_str(&plain.of(&shown(&output), service));
        for line in plain.of(&said(&output), service).lines() {
            let _ = writeln!(transcript, "| {line}");
        }
        if code != 0 {
            let _ = writeln!(transcript, "[exit code {code}]");
        }
        transcript.push('\n');
    }
    transcript
}

/// Plays it both ways and compares.
fn check(name: &str, lines: &[&str]) {
    let (alone, beside) = (Service::empty(), Service::empty());
    // The first start makes the keys and the database; the commands are what is compared.
    alone.serve().terminate();
    let offline = play(&alone, lines);
    let running = beside.serve();
    let online = play(&beside, lines);
    drop(running);
    assert_eq!(offline, online, "a service that runs makes a difference");
    insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!(name, offline);
    });
}

#[test]
fn the_help_of_every_command() {
    fn help(folder: &TempDir, path: &[&str], text: &mut String) {
        let output = Command::new(env!("CARGO_BIN_EXE_idsvc"))
            .args(path)
            .arg("--help")
            .env_clear()
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{path:?}");
        let page = shown(&output);
        let _ = writeln!(text, "$ idsvc {}\n{page}", [path, &["--help"]].concat().join(" "));
        let commands = page
            .split("\nCommands:\n")
            .nth(1)
            .and_then(|rest| rest.split("\n\n").next());
        let names = commands.unwrap_or_default().lines().filter_map(|line| {
            let name = line.strip_prefix("  ")?;
            (!name.starts_with(' ')).then(|| name.split(' ').next().unwrap())
        });
        for name in names {
            help(folder, &[path, &[name]].concat(), text);
        }
    }
    let mut text = String::new();
    help(&TempDir::new().unwrap(), &[], &mut text);
    insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!("help", text);
    });
}

#[test]
fn the_commands_of_clients() {
    check(
        "client",
        &[
            "client list",
            "client list --json",
            "client add web --name Web --redirect-uri https://app.example/cb",
            "client add phone --public --redirect-uri com.example.app:/cb --json",
            "client add robot --grant client_credentials --scope a --scope b --allow-secret-credentials --max-scope a --secret-file secret",
            "client add web --redirect-uri https://app.example/cb",
            "client add bad --redirect-uri http://app.example/cb --redirect-uri https://app.example/#x",
            "client list",
            "client list --json",
            "client show web",
            "client show web --json",
            "client show nobody",
            "client update web --pkce required --scope openid --scope email",
            "client update web",
            "client rotate-secret web",
            "client rotate-secret web --keep-old 24h --json",
            "client registration-token list",
            "client registration-token add --expires 7d --uses 2",
            "client registration-token add --json",
            "client registration-token list --json",
            "client registration-token remove 0193b2a4-7a10-7cc0-8000-000000000001 --yes",
            "client api-key add web",
            "client api-key add web --json",
            "client api-key list web",
            "client api-key list web --json",
            "client disable web",
            "client disable web --json",
            "client enable web",
            "client remove web",
            "client remove web --yes",
            "client remove phone --yes --json",
        ],
    );
}

#[test]
fn the_commands_of_users() {
    check(
        "user",
        &[
            "user list",
            "user add alice@example.com --password-stdin --email-verified --name Alice+Example --claim given_name=Alice <password",
            "user add bob@example.com --no-password --json",
            "user add bob@example.com --no-password",
            "user add carl@example.com --password-stdin <short",
            "user add not-an-address --no-password",
            "user list",
            "user list --json",
            "user list --search ALICE",
            "user list --limit 1",
            "user list --disabled",
            "user show alice@example.com",
            "user show alice@example.com --json",
            "user show nobody@example.com",
            "user update alice@example.com --venue-id 7 --claim address.locality=Ghent --json",
            "user update alice@example.com",
            "user set-password alice@example.com --password-stdin <password",
            "user disable bob@example.com",
            "user enable bob@example.com --json",
            "user unlink bob@example.com corp",
            "user import users.jsonl --dry-run",
            "user import users.jsonl",
            "user import users.jsonl --existing skip --json",
            "user import bad.jsonl",
            "user import bad.jsonl --skip-bad --json",
            "session list alice@example.com",
            "session list alice@example.com --json",
            "session revoke alice@example.com --yes",
            "session revoke --user alice@example.com",
            "session revoke --user alice@example.com --yes",
            "user remove bob@example.com",
            "user remove bob@example.com --yes",
        ],
    );
}

#[test]
fn the_commands_of_providers() {
    check(
        "provider",
        &[
            "provider list",
            "provider add corp --issuer https://login.corp.invalid --client-id us --client-secret-file secret --domain corp.example",
            "provider add partner --issuer https://partner.invalid --exchange --audience us --json",
            "provider add Corp --issuer http://login.corp.invalid",
            "provider list",
            "provider list --json",
            "provider show corp",
            "provider update corp --create-users true --claim given_name=firstName",
            "provider update corp --disable --json",
            "provider show nobody",
            "provider remove corp --yes",
            "provider remove partner --yes --json",
        ],
    );
}

#[test]
fn the_commands_of_scopes_and_groups() {
    check(
        "scope-and-group",
        &[
            "scope list",
            "scope add staff --claim badge --text See+your+badge",
            "scope add email --claim sub",
            "scope update staff --claim badge --claim desk --json",
            "scope update staff",
            "scope list",
            "scope show nothing",
            "scope remove staff",
            "scope remove staff --yes",
            "group list",
            "group add admins --text People+who+may+do+anything",
            "group add admins --json",
            "group update admins --text +",
            "group list --json",
            "user add alice@example.com --no-password --group admins --group stuff",
            "user add alice@example.com --no-password --group admins",
            "api add notes --identifier https://api.example --role owner --role-group owner=admins",
            "api update notes --role-group editor=admins --json",
            "group remove admins --yes",
            "export",
        ],
    );
}

#[test]
fn the_commands_of_access() {
    check(
        "access",
        &[
            "group add staff",
            "user add alice@example.com --no-password --group staff",
            "user add bob@example.com --no-password",
            "client add payroll --name Payroll --redirect-uri https://payroll.example/cb --allow-group STAFF",
            "client update payroll --groups-claim allowed --scope openid --scope groups",
            "client update payroll --allow-group stuff",
            "client access payroll",
            "client access payroll --json",
            "client access nobody",
            "client add open --public --redirect-uri https://open.example/cb --json",
            "client access open --limit 1",
            "client access open --limit 1 --json",
            "user access bob@example.com",
            "user access bob@example.com --json",
            "user access nobody",
            "group remove staff --yes",
        ],
    );
}

#[test]
fn the_commands_of_keys_and_state() {
    check(
        "key-and-state",
        &[
            "key list",
            "key list --json",
            "key rotate",
            "key rotate",
            "key rotate --now --alg EdDSA --json",
            "key list",
            "key retire nothing --yes",
            "key import secret",
            "apply -f state.toml --dry-run --json",
            "apply -f state.toml",
            "apply -f state.toml",
            "apply -f missing.toml",
            "export",
            "export --json",
        ],
    );
}

#[test]
fn the_commands_of_operation() {
    check(
        "operation",
        &[
            "backup copy.backup",
            "backup copy.backup",
            "backup copy.backup --replace --json",
            "restore copy.backup",
            "config check",
            "config check --json",
            "config set-issuer https://other.example",
            "theme list",
            "theme list --json",
            "mail list",
            "mail list --json",
            "mail test bob@example.com",
            "theme new mine",
            "theme check mine",
            "events --limit 2 --event code_replayed",
            "doctor --backup-interval off",
            "nonsense",
            "client",
        ],
    );
}

#[test]
fn what_needs_no_data_is_printed_whole() {
    let folder = TempDir::new().unwrap();
    for arguments in [
        &["completions", "bash"][..],
        &["completions", "zsh"],
        &["completions", "fish"],
        &["man"],
        &["config", "reference"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_idsvc"))
            .args(arguments)
            .env_clear()
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(
            output.status.success() && shown(&output).lines().count() > 20,
            "{arguments:?}"
        );
        let output = Command::new(env!("CARGO_BIN_EXE_idsvc"))
            .args(arguments)
            .arg("--json")
            .env_clear()
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
    // A reader that stops early is no failure to make noise about.
    let mut shell = Command::new("sh")
        .args([
            "-c",
            "\"$0\" config reference | head -n 1",
            env!("CARGO_BIN_EXE_idsvc"),
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    shell.stdin.take().unwrap().flush().unwrap();
    let output = shell.wait_with_output().unwrap();
    assert_eq!(said(&output), "");
}
