//! What mails say, in every language.

use super::*;
use crate::pages::text::{BUILT_IN, BuiltIn, EN};

fn style() -> MailStyle {
    MailStyle {
        product: "<Acme>".to_owned(),
        ..MailStyle::default()
    }
}

#[test]
fn every_mail_has_its_link_and_code_in_both_parts_in_every_language() {
    for BuiltIn { tag, text, .. } in &BUILT_IN {
        let locale = Locale::new(tag, crate::pages::language::Language::default());
        for mail in Mail::samples() {
            let (plain, html) = (mail.text(text, "<Acme>"), mail.html(&locale, &style()));
            let parts = [
                &mail.link,
                &mail.code,
                &mail.expires,
                &mail.time,
                &mail.new_address,
                &mail.account_id,
            ];
            for part in parts.into_iter().flatten() {
                assert!(
                    plain.contains(part.as_str()) && html.contains(part.as_str()),
                    "{tag} {part}: {plain}"
                );
            }
            assert!(plain.contains("<Acme>") && !plain.contains(PLACE), "{plain}");
            assert!(
                html.contains("&lt;Acme&gt;") && !html.contains("<Acme>") && !html.contains(PLACE),
                "{html}"
            );
            let links = html.matches(" href=").count();
            assert_eq!(links, if mail.link.is_some() { 2 } else { 0 });
            assert!(
                !html.contains("src=") && !html.contains("url("),
                "it loads something: {html}"
            );
            let subject = mail.subject(text, "Acme");
            assert!(mail.code.is_none_or(|code| !subject.contains(&code)));
        }
    }
}

#[test]
fn a_mail_in_arabic_is_written_from_the_right() {
    let locale = Locale::new("ar", crate::pages::language::Language::default());
    let html = Mail::samples()[1].html(&locale, &style());
    assert!(
        html.contains("<html lang=\"ar\" dir=\"rtl\">") && html.contains("<p dir=\"ltr\""),
        "{html}"
    );
}

#[test]
fn a_notice_names_the_factors_in_the_language_of_the_reader() {
    let factor = |kind: &str, name: Option<&str>| MailFactor {
        kind: kind.to_owned(),
        name: name.map(str::to_owned),
    };
    let mail = Mail {
        kind: MailKind::FactorAdded,
        factors: vec![factor("totp", None), factor("passkey", Some("MacBook"))],
        ..Mail::default()
    };
    for BuiltIn { text, .. } in &BUILT_IN {
        let (label, app, passkey) = (text.mail_factor, text.factor_totp, text.factor_passkey);
        let plain = mail.text(text, "Acme");
        assert!(
            plain.contains(&format!("{label}: {app}, {passkey}: MacBook\n")),
            "{plain}"
        );
    }
}

#[test]
fn an_unknown_browser_is_called_so() {
    let mail = Mail {
        kind: MailKind::NewDevice,
        device: Some(String::new()),
        ..Mail::default()
    };
    let plain = mail.text(&EN, "Acme");
    assert!(plain.contains(EN.account_unknown_device), "{plain}");
}
