//! Answers a wrong word on the command line with the right one.

use clap::error::{ContextKind, ContextValue};
use clap::{Command, CommandFactory, Error};

use super::Cli;

/// Words of other programs, and the commands that do the same here. The first one that exists at that place is named.
const SYNONYMS: [(&[&str], &[&str]); 11] = [
    (
        &["delete", "del", "rm", "remove", "revoke", "end"],
        &["remove", "revoke", "retire"],
    ),
    (
        &["create", "new", "add", "register", "generate"],
        &["add", "new", "rotate"],
    ),
    (&["edit", "modify", "change", "set"], &["update"]),
    (&["ls", "all"], &["list"]),
    (&["info", "get", "view", "describe", "show"], &["show", "list"]),
    (&["passwd", "password", "reset-password"], &["set-password"]),
    (&["lock", "block", "suspend"], &["disable"]),
    (&["unlock", "unblock"], &["enable"]),
    (&["start", "run", "init"], &["serve"]),
    (
        &["validate", "verify", "status", "health"],
        &["check", "test", "doctor"],
    ),
    (&["log", "logs", "audit"], &["events"]),
];

/// Flags that do not exist, the command that they are given to, and what to do instead.
const WRONG_FLAGS: [(&str, &str, &str); 1] = [(
    "--no-secret",
    "idsvc client add",
    "a client without a secret is public (--public), or has a key (--public-key-file, --jwks-file or --jwks-uri)",
)];

/// Names the right command or flag in the error about a wrong one. `words` is the command line.
pub(super) fn improve(mut error: Error, words: &[String]) -> Error {
    let root = Cli::command();
    let tip = if let Some(ContextValue::String(wrong)) = error.get(ContextKind::InvalidSubcommand) {
        let (path, command) = command_before(wrong, words, &root);
        synonym(wrong, command).map(|verb| format!("the command is '{path} {verb}'"))
    } else if let Some(ContextValue::String(wrong)) = error.get(ContextKind::InvalidArg) {
        let (path, _) = command_before(wrong, words, &root);
        let known = WRONG_FLAGS
            .iter()
            .find(|(flag, at, _)| flag == wrong && *at == path);
        known.map(|(.., tip)| (*tip).to_owned())
    } else {
        None
    };
    if let Some(tip) = tip {
        // Words that are spelled alike do not mean the same. The usage would name such a word as well.
        for kind in [
            ContextKind::SuggestedSubcommand,
            ContextKind::SuggestedArg,
            ContextKind::Usage,
        ] {
            error.remove(kind);
        }
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// The command in front of the wrong word, and its words.
fn command_before<'a>(wrong: &str, words: &[String], root: &'a Command) -> (String, &'a Command) {
    let (mut path, mut command) = (root.get_name().to_owned(), root);
    for word in words.iter().take_while(|word| *word != wrong) {
        if let Some(next) = command.find_subcommand(word) {
            command = next;
            path = format!("{path} {word}");
        }
    }
    (path, command)
}

fn synonym(wrong: &str, command: &Command) -> Option<&'static str> {
    let groups = SYNONYMS.iter().filter(|(words, _)| words.contains(&wrong));
    let mut verbs = groups.flat_map(|(_, verbs)| verbs.iter().copied());
    verbs.find(|verb| command.find_subcommand(verb).is_some())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn answer(line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let error = Cli::try_parse_from(&words).unwrap_err();
        improve(error, &words).to_string()
    }

    #[test]
    fn a_word_of_another_program_gets_the_command_for_it() {
        for (line, command) in [
            ("user delete alice", "user remove"),
            ("user rm alice --yes", "user remove"),
            ("user del alice", "user remove"),
            ("user create alice", "user add"),
            ("user edit alice", "user update"),
            ("user ls", "user list"),
            ("user info alice", "user show"),
            ("--json client get web", "client show"),
            ("user passwd alice", "user set-password"),
            ("session delete 1", "session revoke"),
            ("key remove k", "key retire"),
            ("key add", "key rotate"),
            ("key show k", "key list"),
            ("client api-key delete web 1", "client api-key revoke"),
            ("theme create mine", "theme new"),
            ("config validate", "config check"),
            ("start", "serve"),
            ("logs", "events"),
        ] {
            let answer = answer(&format!("idsvc {line}"));
            assert!(
                answer.contains(&format!("tip: the command is 'idsvc {command}'")),
                "{line}: {answer}"
            );
            assert_eq!(answer.matches("tip:").count(), 1, "{line}: {answer}");
        }
        assert!(!answer("idsvc user nonsense").contains("tip:"));
    }

    #[test]
    fn a_client_without_a_secret_is_not_told_to_allow_secrets() {
        let wrong = answer("idsvc client add web --no-secret --redirect-uri https://app.example/cb");
        assert!(
            wrong.contains("--public") && !wrong.contains("allow-secret"),
            "{wrong}"
        );
    }
}
