//! Values that travel together have names: no tuple in the signature of a function.
//!
//! The standard library has tuples that everybody knows, and these may stay: a list of pairs, each a key and its value, as
//! a map yields them (`Vec<(Uuid, Factor)>`, `&[(&str, &str)]`); what was read and the rest of the text or of the bytes,
//! as `split_once` returns them; and what [`AS_IN_STD`] names.

use std::collections::BTreeSet;

use super::tokens::{Token, shipped_tokens};
use super::{is_test_file, sources};

/// Functions whose tuple is that of a function of the standard library or of a trait: file and function.
const AS_IN_STD: &[(&str, &str)] = &[
    // The two ends of a channel.
    ("net/drain.rs", "channel"),
    ("store/engine/postgres/queue.rs", "queue"),
    // A connection and its peer, as a listener accepts them.
    ("net/accept_queue.rs", "accept"),
    // A name and what belongs to it, as serde has it.
    ("store/message_pack.rs", "variant_seed"),
    // The two bounds of a range.
    ("store/table.rs", "bounds"),
    ("store/table.rs", "prefix"),
];

/// Signatures with a tuple that are still to be mended: file and function.
const STILL_TO_BE_MENDED: &[(&str, &str)] = &[
    ("admin/import/mod.rs", "decide"),
    ("cli/admin_connection.rs", "open"),
    ("cli/api.rs", "role_group"),
    ("cli/backup.rs", "copy"),
    ("cli/backup.rs", "write_file"),
    ("cli/backup.rs", "write_plain"),
    ("cli/events/time.rs", "parse"),
    ("cli/import.rs", "pass"),
    ("cli/import.rs", "survey"),
    ("cli/provider.rs", "into_fields"),
    ("cli/provider.rs", "mapping"),
    ("cli/suggestions.rs", "command_before"),
    ("cli/user.rs", "claim"),
    ("cli/value_parsers.rs", "scope_text"),
    ("config/file.rs", "unusable_number"),
    ("control/server.rs", "accept"),
    ("control/wire.rs", "short_path"),
    ("flow/account/factors.rs", "draw_codes"),
    ("flow/authenticate_client.rs", "published_keys"),
    ("flow/catalog.rs", "api_key"),
    ("flow/deliver.rs", "queue"),
    ("flow/factors.rs", "matching"),
    ("flow/login/federated_user.rs", "find"),
    ("flow/login/finish_federation.rs", "use_key"),
    ("flow/login/session.rs", "of_browser"),
    ("flow/login/session.rs", "presented"),
    ("flow/login/session.rs", "start"),
    ("flow/login/transaction.rs", "begin_transaction"),
    ("flow/one_time_link/change_email.rs", "draw_notice"),
    ("flow/register_client.rs", "check_initial_token"),
    ("flow/register_client.rs", "draw_secret"),
    ("flow/rotate_keys/refresh_keys.rs", "newest"),
    ("flow/sweep.rs", "consents"),
    ("flow/token/introspect.rs", "live_grant"),
    ("flow/token/issue.rs", "embedded_token"),
    ("flow/token/refresh_token.rs", "admit"),
    ("flow/token/token_exchange.rs", "target"),
    ("http/language.rs", "own_page"),
    ("themes/folder.rs", "collect"),
    ("themes/template.rs", "compile"),
];

/// What counts as the value inside of it.
const HOLDERS: &[&str] = &["Arc", "Box", "Option", "Result"];

/// The functions of a file that have a tuple in their signature, with their lines.
fn with_tuples(tokens: &[Token]) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let Some(name) = tokens.get(at + 1).filter(|name| token.is("fn") && name.is_word()) else {
            continue;
        };
        if Signature::after_name(&tokens[at + 2..]).has_tuple() {
            found.push((name.text.clone(), name.line));
        }
    }
    found
}

struct Signature<'a> {
    parameters: Vec<&'a [Token]>,
    returned: &'a [Token],
}

impl<'a> Signature<'a> {
    fn after_name(tokens: &'a [Token]) -> Self {
        let generics = if tokens[0].is("<") {
            group(tokens).len() + 2
        } else {
            0
        };
        let parameters = group(&tokens[generics..]);
        let after = &tokens[generics + parameters.len() + 2..];
        let mut depth = 0_i32;
        let end = after.iter().position(|token| {
            let is_end = depth == 0 && ["{", ";", "where"].contains(&token.text.as_str());
            depth += step(token);
            is_end
        });
        let type_of = |parameter: &'a [Token]| {
            let colon = parameter.iter().position(|token| token.is(":"))?;
            Some(&parameter[colon + 1..])
        };
        Self {
            parameters: list(parameters).into_iter().filter_map(type_of).collect(),
            returned: after[..end.unwrap()].get(1..).unwrap_or_default(),
        }
    }

    fn has_tuple(&self) -> bool {
        let mut taken = self.parameters.iter().flat_map(|parameter| tuples(parameter));
        let is_rest_of = |tuple: &Vec<&[Token]>| matches!(tuple[..], [_, rest] if is_text_or_bytes(rest));
        taken.next().is_some() || tuples(self.returned).iter().any(|tuple| !is_rest_of(tuple))
    }
}

fn is_text_or_bytes(of: &[Token]) -> bool {
    let kept = of.iter().filter(|token| !token.text.starts_with('\''));
    ["&str", "&[u8]"].contains(&kept.map(|token| token.text.as_str()).collect::<String>().as_str())
}

/// What is between the bracket that comes first and the one that closes it.
fn group(tokens: &[Token]) -> &[Token] {
    let mut depth = 0_i32;
    let end = tokens.iter().position(|token| {
        depth += step(token);
        depth == 0
    });
    &tokens[1..end.unwrap()]
}

fn step(token: &Token) -> i32 {
    match token.text.as_str() {
        "(" | "[" | "{" | "<" => 1,
        ")" | "]" | "}" | ">" => -1,
        _ => 0,
    }
}

fn list(tokens: &[Token]) -> Vec<&[Token]> {
    let mut depth = 0_i32;
    let parts = tokens.split(|token| {
        depth += step(token);
        depth == 0 && token.is(",")
    });
    parts.filter(|part| !part.is_empty()).collect()
}

/// The members of each tuple that a type is, or that it has inside as an option, a result or a list.
fn tuples(of: &[Token]) -> Vec<Vec<&[Token]>> {
    let is_prefix = |token: &Token| token.is("&") || token.is("mut") || token.text.starts_with('\'');
    let start = of.iter().position(|token| !is_prefix(token)).unwrap_or(of.len());
    let of = &of[start..];
    let entries_aside = |member| {
        let mut found = tuples(member);
        found.retain(|tuple| tuple.len() != 2);
        found
    };
    match of {
        [first, ..] if first.is("(") => Some(list(group(of)))
            .filter(|all| all.len() > 1)
            .into_iter()
            .collect(),
        [first, ..] if first.is("[") => entries_aside(group(of)),
        [name, bracket, ..] if name.is("Vec") && bracket.is("<") => entries_aside(group(&of[1..])),
        [name, bracket, ..] if bracket.is("<") && HOLDERS.contains(&name.text.as_str()) => {
            list(group(&of[1..])).into_iter().flat_map(tuples).collect()
        }
        [_, path, ..] if path.is("::") => tuples(&of[2..]),
        _ => Vec::new(),
    }
}

#[test]
fn no_signature_has_a_tuple() {
    let mut found = Vec::new();
    let mut unused = BTreeSet::from_iter([AS_IN_STD, STILL_TO_BE_MENDED].concat());
    for source in sources().into_iter().filter(|source| !is_test_file(&source.path)) {
        for (name, line) in with_tuples(&shipped_tokens(&source.text)) {
            let entry = (source.path.as_str(), name.as_str());
            let is_allowed = AS_IN_STD.contains(&entry) || STILL_TO_BE_MENDED.contains(&entry);
            unused.retain(|allowed| *allowed != entry);
            if !is_allowed {
                found.push(format!("src/{}:{line}: {name}", source.path));
            }
        }
    }
    assert!(
        found.is_empty(),
        "{} tuples in signatures:\n{}",
        found.len(),
        found.join("\n")
    );
    assert!(unused.is_empty(), "mended: take these off the list: {unused:?}");
}

#[test]
fn the_check_tells_a_tuple_from_a_list_of_entries() {
    let tuples = |code: &str| with_tuples(&shipped_tokens(code)).len();
    for code in [
        "fn f((a, b): (A, B)) {}",
        "fn f<T: Fn(A) -> B>(a: &'a (A, B), c: T) where A: B {}",
        "fn f() -> Result<Option<(A, B)>, E>;",
        "fn f(list: Vec<(A, B, C)>) -> u8 {}",
    ] {
        assert_eq!(tuples(code), 1, "{code}");
    }
    for code in [
        "fn f(entries: &[(A, B)], act: impl Fn(A, B)) -> Vec<(A, B)> {}",
        "fn f(text: &str) -> Option<(&str, &'a str)> {}",
        "fn f(map: BTreeMap<(A, B), C>) -> [u8; 2] { let g = (1, 2); }",
        "// fn f(a: (A, B))\nfn f() -> () {}",
    ] {
        assert_eq!(tuples(code), 0, "{code}");
    }
}
