//! Turns the faults of a refusal into sentences, with the flags, the keys of a file or the commands that mend them.

use clap::CommandFactory;

use super::Cli;
use super::state_kinds::{Places, SOURCES, keys_of};
use crate::admin::provider::ProviderFields;
use crate::oauth::fields::Form;
use crate::oauth::{ApiFields, ClientFields, Fault, FaultCode, ScopeFields};

/// The file with the refused values.
pub(super) struct StateFile<'a> {
    /// Its name in messages.
    pub name: &'a str,
    /// The places of its entries.
    pub places: &'a Places,
}

/// One line for each fault. Values come from `file`, or else from flags.
pub(super) fn message(faults: &[Fault], file: Option<&StateFile<'_>>) -> String {
    let lines = faults.iter().map(|fault| {
        let place = file.map(|file| place(fault, file)).unwrap_or_default();
        place + &sentence(fault, file.is_some())
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// What else the operator can do, if there is anything.
pub(super) fn hint(faults: &[Fault], file: Option<&StateFile<'_>>) -> Option<String> {
    let mut hints: Vec<String> = Vec::new();
    for hint in faults.iter().filter_map(|fault| hint_for(fault, file.is_some())) {
        if !hints.contains(&hint) {
            hints.push(hint);
        }
    }
    (!hints.is_empty()).then(|| hints.join("; "))
}

/// The place of an entry in the file, and the record.
fn place(fault: &Fault, file: &StateFile<'_>) -> String {
    let Some(subject) = &fault.subject else {
        return String::new();
    };
    match file.places.of(subject) {
        Some(place) => format!("{}: {place}: {subject}: ", file.name),
        None => format!("{subject}: "),
    }
}

/// The detail of a fault, and the flags or keys of its fields if a change of them mends it.
pub(super) fn sentence(fault: &Fault, is_file: bool) -> String {
    let detail = &fault.detail;
    let verb = match fault.code {
        FaultCode::Required if is_file => "set",
        FaultCode::Required => "add",
        FaultCode::NotAllowed => "change",
        _ => return detail.clone(),
    };
    let names_of = if is_file { keys_of } else { flags_of };
    let names = fault.fields.iter().flat_map(|field| names_of(kind(fault), field));
    let mut names: Vec<_> = names.collect();
    match (names.pop(), names.join(", ")) {
        (None, _) => detail.clone(),
        (Some(last), others) if others.is_empty() => format!("{detail}: {verb} {last}"),
        (Some(last), others) => format!("{detail}: {verb} {others} or {last}"),
    }
}

/// The flags that set this field of a record. A flag has the name of its field, or of a file that is read into it.
pub(super) fn flags_of(kind: &str, field: &str) -> Vec<String> {
    let command = Cli::command();
    let verbs = command.find_subcommand(kind).into_iter();
    let arguments = verbs.flat_map(|noun| noun.get_subcommands().flat_map(clap::Command::get_arguments));
    let mut flags = Vec::new();
    for argument in arguments {
        let id = argument.get_id().as_str();
        if (id == field || SOURCES.contains(&(id, field)))
            && let Some(flag) = argument.get_long().map(|long| format!("--{long}"))
            && !flags.contains(&flag)
        {
            flags.push(flag);
        }
    }
    flags
}

fn kind(fault: &Fault) -> &str {
    fault.subject.as_ref().map_or("", |subject| &subject.kind)
}

/// The hint for one fault: of a special case, or by its code. Few of them are for values of a file.
fn hint_for(fault: &Fault, is_file: bool) -> Option<String> {
    let fields: Vec<&str> = fault.fields.iter().map(String::as_str).collect();
    let hint = match (fault.code, kind(fault), &fields[..]) {
        (FaultCode::NotFound, _, [field]) if field.ends_with("_alg") => {
            "idsvc key rotate --alg ALG makes one"
        }
        (FaultCode::Invalid, _, ["theme"]) => "idsvc theme list shows all",
        (FaultCode::Conflict, kind, _) if kind != "key" => "nothing was changed: run the command again",
        (FaultCode::Required, _, [.., "grant_types"]) if is_file => {
            "grant_types = [] is for an API that only introspects tokens"
        }
        _ if is_file => return None,
        (FaultCode::Invalid, "user", ["email"]) => {
            "an address is as in alice@example.com; --claim name='Alice Smith' is for the name"
        }
        (FaultCode::Required, _, [.., "grant_types"]) => {
            "--no-grants is for an API that only introspects tokens"
        }
        (FaultCode::Required, _, [.., "max_scope"]) => "--max-scope goes with --allow-secret-credentials",
        (FaultCode::TooMany, _, ["api_keys"]) => {
            "idsvc client api-key revoke removes those that are not used"
        }
        (FaultCode::NotFound, "session", _) => "idsvc session list WHO shows those of a user",
        (FaultCode::NotFound, "invitation", _) => "idsvc user invitations shows those that are open",
        (FaultCode::NotFound, "api_key", _) => "idsvc client api-key list ID shows all",
        (FaultCode::NotFound, "client_secret", _) => "idsvc client secret list ID shows all",
        (FaultCode::NotFound, "registration_token", _) => "idsvc client registration-token list shows all",
        (FaultCode::NotFound, _, ["apis"]) => "idsvc api list shows all",
        (FaultCode::NotFound, _, ["introspection_clients"]) => "idsvc client list shows all",
        (FaultCode::NotFound, _, ["groups" | "role_groups" | "allowed_groups"]) => {
            "idsvc group list shows all"
        }
        (FaultCode::NotFound, _, ["providers"]) => "idsvc provider list shows all",
        (FaultCode::AlreadyExists, "key", _) => "idsvc key list shows its state",
        (FaultCode::InUse, "key", _) => "idsvc key rotate --alg ALG --now replaces it",
        (FaultCode::InUse, "client_secret", _) => {
            "idsvc client rotate-secret ID replaces it; if the client has a key, idsvc client update ID --no-secret removes it with --max-scope"
        }
        (FaultCode::InUse, "provider", ["client_id"]) => {
            "idsvc client update ID --password-sign-in yes, or --provider with another one for sign-ins"
        }
        (FaultCode::InUse, "api", _) => "idsvc client update ID --remove-api API",
        (FaultCode::InUse, "group", ["allowed_groups"]) => {
            "idsvc client update ID --remove-allow-group GROUP, or --allow-group '' for everybody"
        }
        (FaultCode::InUse, "group", _) => "idsvc api update ID --remove-role-group ROLE=GROUP",
        (FaultCode::InUse, "provider", _) => "idsvc client update ID --remove-provider PROVIDER",
        (FaultCode::NotAllowed, _, fields) if fields.iter().any(|field| is_list(field)) => {
            "a flag of a list replaces the list: name all its values, or change single ones with --add- and --remove-"
        }
        (code, kind, []) => {
            let id = fault.subject.as_ref().map_or("", |subject| &subject.id);
            return match code {
                FaultCode::NotFound => Some(format!("idsvc {kind} list shows all")),
                FaultCode::AlreadyExists => Some(format!("idsvc {kind} update changes it")),
                FaultCode::Conflict => Some(format!(
                    "idsvc key retire {id} takes it back; with --now, the new key signs at once"
                )),
                _ => None,
            };
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

/// Whether a flag for this field replaces a list of texts.
fn is_list(field: &str) -> bool {
    let lists = [
        ClientFields::FIELDS,
        ProviderFields::FIELDS,
        ApiFields::FIELDS,
        ScopeFields::FIELDS,
    ];
    let mut fields = lists.into_iter().flatten();
    fields.any(|(name, form)| *name == field && *form == Form::Texts)
}

#[cfg(test)]
mod tests {
    use super::super::state_file::Sources;
    use super::super::state_file::tests::parse;
    use super::*;

    fn client(fault: Fault) -> Vec<Fault> {
        vec![fault.about("client", "web")]
    }

    #[test]
    fn a_fault_names_the_flags_that_mend_it() {
        let (required, not_allowed) = (FaultCode::Required, FaultCode::NotAllowed);
        for (fault, kind, expected) in [
            (
                required.at(["issuer"], "it is missing"),
                "provider",
                ": add --issuer",
            ),
            (
                required.at(["keys", "jwks_uri"], "it has no key"),
                "client",
                ": add --public-key-file, --jwks-file or --jwks-uri",
            ),
            (
                required.at(["client_secret"], "x"),
                "provider",
                ": add --client-secret-file",
            ),
            (not_allowed.at(["grant_types"], "x"), "client", ": change --grant"),
            (
                not_allowed.at(["claims", "venue_id"], "x"),
                "user",
                ": change --claim or --venue-id",
            ),
            (not_allowed.at([], "x"), "client", ""),
            (FaultCode::Invalid.at(["scope"], "x"), "client", ""),
        ] {
            let detail = fault.detail.clone();
            let said = message(&[fault.about(kind, "web")], None);
            assert_eq!(said, format!("{detail}{expected}"));
        }
    }

    #[test]
    fn a_fault_names_the_keys_that_mend_it_and_the_place_in_the_file() {
        let sources = Sources {
            folder: "".as_ref(),
            variable: &|_| None,
        };
        let text = "[[client]]\nclient_id = \"app\"\n\n[[client]]\nclient_id = \"web\"\n";
        let places = parse(text, &sources).ok().unwrap().places;
        let file = StateFile {
            name: "state.toml",
            places: &places,
        };
        let faults = client(FaultCode::Required.at(["keys"], "it needs a key"));
        assert_eq!(
            message(&faults, Some(&file)),
            "state.toml: line 4: client web: it needs a key: set public_key_file, jwks_file or keys"
        );
        assert_eq!(hint(&faults, Some(&file)), None);
        let elsewhere = vec![FaultCode::Conflict.of("user", "bob", "bob was added")];
        assert_eq!(message(&elsewhere, Some(&file)), "user bob: bob was added");
        assert!(
            hint(&elsewhere, Some(&file))
                .unwrap()
                .contains("run the command again")
        );
    }

    #[test]
    fn a_hint_names_the_command_that_helps_once() {
        let twice = [
            FaultCode::NotFound.at(["providers"], "there is no provider a"),
            FaultCode::NotFound.at(["providers"], "there is no provider b"),
        ];
        assert_eq!(hint(&twice, None).unwrap(), "idsvc provider list shows all");
        for (fault, expected) in [
            (FaultCode::NotFound.of("user", "bob", ""), "idsvc user list"),
            (
                FaultCode::NotFound.of("session", "1", ""),
                "idsvc session list WHO",
            ),
            (
                FaultCode::AlreadyExists.of("client", "web", ""),
                "idsvc client update",
            ),
            (FaultCode::Conflict.of("key", "k1", ""), "idsvc key retire k1"),
            (
                FaultCode::NotFound.at(["access_token_alg"], ""),
                "idsvc key rotate",
            ),
            (
                FaultCode::NotAllowed.at(["max_scope", "scope"], ""),
                "name all its values",
            ),
        ] {
            let said = hint(std::slice::from_ref(&fault), None).unwrap_or_default();
            assert!(said.contains(expected), "{fault:?}: {said}");
        }
    }
}
