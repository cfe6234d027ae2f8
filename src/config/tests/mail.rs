use std::fs;

use super::*;
use crate::mail::MailTls;

const BASE: &str = "base_url = \"https://id.example.com\"\ntls.mode = \"self-signed\"\n";
const URL: (&str, &str) = ("mail.url", "smtps://mail.example.com");
const FROM: (&str, &str) = ("mail.from", "Acme <no-reply@example.com>");

#[test]
fn no_mail_is_sent_until_there_is_a_server() {
    let off = resolve(&sources_of(&[], &[], BASE)).unwrap();
    assert_eq!(
        (off.settings.mail.clone(), off.policy().sends_mail),
        (None, false)
    );
    let on = resolve(&sources_of(&[URL, FROM], &[], BASE)).unwrap();
    let mail = on.settings.mail.clone().unwrap();
    assert_eq!(mail.from.to_string(), "Acme <no-reply@example.com>");
    assert_eq!(mail.server.unwrap().to_string(), "mail.example.com:465");
    assert!(on.policy().sends_mail);
    let dev = resolve(&sources_of(&[], &[], "").for_development()).unwrap();
    let mail = dev.settings.mail.clone().unwrap();
    assert!(mail.server.is_none() && dev.policy().sends_mail);
}

#[test]
fn settings_that_send_no_mail_are_faults() {
    let file = ("mail.password_file", "/nonexistent/password");
    for (flags, named) in [
        (
            vec![URL],
            "mail.url is set, and mails need a sender: set mail.from",
        ),
        (
            vec![("mail.url", "smtps://me@mail.example.com"), FROM],
            "mail.url names a user, who needs a password: set mail.password_file",
        ),
        (vec![URL, FROM, file], "mail.url names no user"),
        (
            vec![("mail.url", "https://mail.example.com"), FROM],
            "smtps:// or smtp://",
        ),
        (
            vec![URL, ("mail.from", "Acme")],
            "mail.from = \"Acme\" is no address",
        ),
        (
            vec![URL, FROM, ("mail.tls", "off")],
            "mail.example.com:465 is not on this machine",
        ),
        (
            vec![("mail.url", "smtps://localhost"), FROM, ("mail.tls", "off")],
            "write smtp://",
        ),
        (
            vec![URL, FROM, ("mail.tls", "maybe")],
            "the known ones are required, off",
        ),
        (
            vec![URL, FROM, ("mail.server_name", "a b")],
            "is no name of a host",
        ),
        (
            vec![URL, FROM, ("mail.ca_file", "/nonexistent/ca.pem")],
            "mail.ca_file: /nonexistent/ca.pem cannot be read",
        ),
        (
            vec![URL, FROM, ("mail.reply_to", "a@b\r\nBcc: c@d")],
            "is no address",
        ),
        (
            vec![("mail.url", "smtps://me@mail.example.com"), FROM, file],
            "/nonexistent/password cannot be read",
        ),
    ] {
        let told = faults(&sources_of(&flags, &[], BASE));
        assert!(told.contains(named), "{named}: {told}");
    }
}

#[test]
fn a_mail_server_on_this_machine_may_go_without_tls() {
    let off = ("mail.tls", "off");
    for url in ["smtp://localhost", "smtp://127.0.0.1:25", "smtp://[::1]:25"] {
        let resolved = resolve(&sources_of(&[("mail.url", url), FROM, off], &[], BASE)).unwrap();
        assert_eq!(resolved.settings.mail.clone().unwrap().tls, Some(MailTls::Off));
    }
}

#[test]
fn a_password_file_has_one_line_and_is_for_its_owner() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("password");
    let told = |text: &str| {
        fs::write(&path, text).unwrap();
        let path = path.to_str().unwrap();
        let server = ("mail.url", "smtps://me@mail.example.com");
        resolve(&sources_of(
            &[server, FROM, ("mail.password_file", path)],
            &[],
            BASE,
        ))
    };
    for wrong in ["", "\n", "one\ntwo\n", "a\u{0}b"] {
        assert!(
            told(wrong).unwrap_err().to_string().contains("one line"),
            "{wrong:?}"
        );
    }
    let warnings = told("secret word\n").unwrap().warnings;
    let warning = warnings
        .iter()
        .find(|warning| warning.message.contains("password for the mail server"));
    assert!(warning.unwrap().message.contains("chmod"), "{warnings:?}");
}

#[test]
fn a_sender_without_a_name_has_the_name_of_the_brand() {
    let from = |brand: &str, from: &str| {
        let mail = format!("[mail]\nurl = \"smtp://localhost\"\nfrom = \"{from}\"\n");
        let settings = resolve_settings(&sources_of(&[], &[], &format!("{brand}{mail}"))).unwrap();
        settings.mail.unwrap().from.to_string()
    };
    let brand = "[brand]\nname = \"Acme: Identity\"\n";
    assert_eq!(
        from(brand, "no-reply@example.com"),
        "\"Acme: Identity\" <no-reply@example.com>"
    );
    assert_eq!(
        from(brand, "Help <no-reply@example.com>"),
        "Help <no-reply@example.com>"
    );
    assert_eq!(from("", "no-reply@example.com"), "no-reply@example.com");
}
