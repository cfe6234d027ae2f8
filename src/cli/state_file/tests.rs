use std::io::Cursor;

use super::*;
use crate::cli::state_reader;
use crate::oauth::fault::RecordName;

/// Reads a text. Returns all faults at once.
pub(in crate::cli) fn parse(text: &str, sources: &Sources<'_>) -> Result<Declared, Vec<String>> {
    let (mut declared, mut faults) = (Declared::default(), Vec::new());
    let mut source = Cursor::new(text.as_bytes());
    let read = state_reader::read(&mut source, "file", &mut |parsed| {
        match parsed {
            Ok(section) => declared.add(section, sources, &mut faults),
            Err(fault) => faults.push(fault),
        }
        Ok(())
    });
    faults.extend(read.err().map(|error| error.to_string()));
    if faults.is_empty() {
        Ok(declared)
    } else {
        Err(faults)
    }
}

fn read(text: &str) -> Result<DeclaredState, String> {
    let sources = Sources {
        folder: Path::new("/nowhere"),
        variable: &|name| (name == "WEB_SECRET").then(|| "s".repeat(32)),
    };
    parse(text, &sources)
        .map(|declared| declared.state)
        .map_err(|faults| faults.join("\n"))
}

#[test]
fn an_entry_names_its_secret_by_a_variable() {
    let state = read("[[client]]\nclient_id = \"web\"\nsecret_env = \"WEB_SECRET\"\n").unwrap();
    let client = &state.client.unwrap()[0];
    assert_eq!(client.secret.as_ref().unwrap().reveal(), "s".repeat(32));
    assert!(state.user.is_none());
}

/// Reading it once for every key would take minutes here.
#[test]
fn a_file_of_many_users_is_read_in_one_pass() {
    const USERS: usize = 30_000;
    let entry = "[[user]]\naccount_id = \"";
    let users =
        (0..USERS).map(|user| format!("{entry}u{user}@example.com\"\npassword_hash = \"{user:0>100}\"\n"));
    let text = users.collect::<Vec<_>>().concat();
    let unknown = format!("{text}[[user]]\ntypo = 1\n");
    let refused = read(&unknown).unwrap_err();
    assert!(refused.contains(&format!("line {}", USERS * 3 + 2)), "{refused}");
    assert_eq!(read(&text).unwrap().user.unwrap().len(), USERS);
}

#[test]
fn every_fault_has_its_line_and_the_key_that_was_meant() {
    let text = "\
[[client]]
client_id = \"web\"
redirect_uri = [\"https://app.example/cb\"]
secret = \"in the clear\"
public = \"yes\"

[[user]]
email = \"a@example.com\"
emial = \"b@example.com\"
password_env = \"NO_SUCH\"

[[cleint]]
client_id = \"x\"
";
    let faults = read(text).unwrap_err();
    for part in [
        "line 3: unknown key redirect_uri of a client: did you mean redirect_uris?",
        "line 4: unknown key secret of a client: a secret must not be in the file: use secret_file or secret_env",
        "line 5: public must be true or false",
        "line 9: unknown key emial of a user: did you mean email?",
        "line 10: password_env: the environment has no variable NO_SUCH",
        "line 12: unknown section cleint: did you mean [[client]]?",
    ] {
        assert!(faults.contains(part), "{part}\n{faults}");
    }
    assert_eq!(faults.lines().count(), 6, "{faults}");
    assert!(read("[[client]\n").unwrap_err().starts_with("line 1 column "));
    assert_eq!(read(&"no TOML\n".repeat(100)).unwrap_err().lines().count(), 1);
    assert!(read("client = 1").unwrap_err().contains("below [[client]]"));
}

#[test]
fn a_value_of_another_form_is_told_in_the_words_of_the_file() {
    let text = "\
[[client]]
client_id = \"web\"
redirect_uris = \"https://app.example/cb\"
client_uuid = \"7\"
pkce = \"optinal\"
grant_types = [\"code\"]
scope_texts = [\"x\"]
keys = [\"x\"]

[[provider]]
id = 7
issuer = \"https://login.corp.example\"
max_age = -1
algs = [\"HS256\"]

[[user]]
email_verified = \"yes\"
";
    let faults = read(text).unwrap_err();
    for part in [
        "line 3: redirect_uris must be a list of texts, as in",
        "line 4: client_uuid must be a uuid, as in",
        "line 5: pkce: unknown value `optinal`, expected",
        "line 6: grant_types: unknown value `code`, expected one of",
        "line 7: scope_texts must be a table, as in",
        "line 8: keys must be a list of tables",
        "line 11: id must be a text",
        "line 13: max_age must be a whole number",
        "line 14: algs: ",
        "line 16: a user needs email or account_id",
        "line 17: email_verified must be true or false",
    ] {
        assert!(faults.contains(part), "{part}\n{faults}");
    }
    assert_eq!(faults.lines().count(), 11, "{faults}");
    for word in ["invalid type", "variant", "struct", "sequence", "u64", "Declared"] {
        assert!(!faults.contains(word), "{word}\n{faults}");
    }
}

#[test]
fn an_entry_without_a_name_has_its_place_and_every_other_has_one_for_later() {
    let text = "[[provider]]\nname = \"Corp\"\n\n[[client]]\nname = \"x\"\n\n[[user]]\n";
    assert_eq!(
        read(text).unwrap_err(),
        "line 1: a provider needs id\n\
         line 1: a provider needs issuer\n\
         line 4: a client needs client_id\n\
         line 7: a user needs email or account_id"
    );
    let sources = Sources {
        folder: Path::new("/nowhere"),
        variable: &|_| None,
    };
    let text = "[[client]]\nclient_id = \"a\"\n[[client]]\nclient_id = \"a:b\"\n[[user]]\nemail = \"A@example.com\"\n\
                [[client]]\nclient_id = \"a\"\n[[client]]\nclient_id = \"A\"\n";
    let places = parse(text, &sources).unwrap().places;
    for (kind, id, place) in [
        ("client", "a", Some("line 7")),
        ("client", "a:b", Some("line 3")),
        ("user", "a@example.com", Some("line 5")),
        ("client", "A", Some("line 9")),
        ("provider", "corp", None),
    ] {
        let (kind, id) = (kind.to_owned(), id.to_owned());
        let record = RecordName { kind, id };
        assert_eq!(places.of(&record), place, "{record}");
    }
}

#[test]
fn a_number_that_json_or_toml_cannot_hold_is_refused_where_it_stands() {
    for (number, message) in [
        ("9223372036854775808", "is not within"),
        ("-9223372036854775809", "is not within"),
        ("0xFFFFFFFFFFFFFFFF", "is not within"),
        ("inf", "is no number"),
        ("nan", "is no number"),
    ] {
        let user = format!("[[user]]\nemail = \"a@example.com\"\nclaims = {{ badges = [1, {number}] }}\n");
        let fault = read(&user).unwrap_err();
        assert_eq!(fault.lines().count(), 1, "{fault}");
        assert!(fault.starts_with("line 3 column 25: "), "{fault}");
        assert!(fault.contains(number) && fault.contains(message), "{fault}");
    }
    let most = "[[user]]\nemail = \"a@example.com\"\nclaims = { badge = 9223372036854775807 }\n";
    let user = &read(most).unwrap().user.unwrap()[0];
    assert_eq!(user.line.claims["badge"], i64::MAX);
}

#[test]
fn a_byte_order_mark_is_passed_over() {
    for text in [
        "\u{feff}{\"client\": [{\"client_id\": \"web\"}]}",
        "\u{feff}\n {\"client\": [{\"client_id\": \"web\"}]}",
        "\u{feff}[[client]]\nclient_id = \"web\"\n",
    ] {
        assert_eq!(read(text).unwrap().client.unwrap()[0].client_id, "web", "{text}");
    }
}

#[test]
fn json_does_too() {
    let state = read(r#"{"client": [{"client_id": "web"}], "user": []}"#).unwrap();
    assert_eq!((state.client.unwrap().len(), state.user.unwrap().len()), (1, 0));
    assert!(
        read(r#"{"client": [{"client_idd": "web"}]}"#)
            .unwrap_err()
            .contains("client 1: unknown key client_idd")
    );
    assert!(read("{").unwrap_err().starts_with("line 1"));
    let twice = read(r#"{"client": [{"client_id": "web"}], "client": []}"#).unwrap_err();
    assert!(twice.starts_with("line 1 column"), "{twice}");
    // A section of another form is refused. As an empty list it would prune all records.
    for text in [
        r#"{"client": {"client_id": "web"}}"#,
        r#"{"client": null}"#,
        r#"{"user": "x"}"#,
    ] {
        assert!(
            read(text).unwrap_err().contains("expected an array of objects"),
            "{text}"
        );
    }
}

/// A row of an array looks like the header of an entry.
#[test]
fn a_row_of_nested_arrays_begins_no_entry() {
    let state = read("[[user]]\nemail = \"q@x.example\"\n[user.claims]\nx = [\n  [[1]]\n]\n").unwrap();
    let user = &state.user.unwrap()[0];
    assert_eq!(user.line.claims["x"], serde_json::json!([[[1]]]));
}
