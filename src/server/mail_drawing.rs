//! Draws mails: the message of the outbox becomes a mail in the language of the reader and the theme of the client.

use uuid::Uuid;

use crate::clock::Timestamp;
use crate::config::mail::Mail as MailSettings;
use crate::flow::Core;
use crate::mail::{Content, Letter, MailParts, Message, NoticedFactor, Origin};
use crate::pages::mail::{Mail, MailFactor, MailKind};
use crate::themes::mail::RenderedMail;
use crate::themes::theme_set::Themes;

fn kind(content: &Content) -> MailKind {
    match content {
        Content::Test => MailKind::Test,
        Content::SignUp { .. } => MailKind::SignUp,
        Content::AlreadySignedUp { .. } => MailKind::AlreadySignedUp,
        Content::Invitation { .. } => MailKind::Invitation,
        Content::ResetPassword { .. } => MailKind::ResetPassword,
        Content::SignIn { .. } => MailKind::SignIn,
        Content::VerifyAddress { .. } => MailKind::VerifyAddress,
        Content::NewDevice { .. } => MailKind::NewDevice,
        Content::PasswordChanged { .. } => MailKind::PasswordChanged,
        Content::FactorAdded { .. } => MailKind::FactorAdded,
        Content::FactorRemoved { .. } => MailKind::FactorRemoved,
        Content::FactorsEnd { .. } => MailKind::FactorsEnd,
        Content::AddressChanged { .. } => MailKind::AddressChanged,
    }
}

/// Draws a mail. This may take milliseconds if a theme has templates.
pub(crate) fn draw(core: &Core, themes: &Themes, message: &Message) -> RenderedMail {
    let catalog = core.catalog();
    let client = message.client_id.as_deref().and_then(|id| catalog.client(id));
    let theme = themes.theme(client.as_ref().and_then(|client| client.theme.as_deref()));
    let languages = message.languages.as_deref();
    // Accept-Language has commas or weights, ui_locales has spaces.
    let is_header = languages.is_some_and(|languages| languages.contains([',', ';']));
    let locale = if is_header {
        theme.locale(None, languages)
    } else {
        theme.locale(languages, None)
    };
    theme.draw_mail(&mail_of(&message.content, message.zone.as_deref()), locale)
}

/// Writes the mail as it is sent.
pub(crate) fn compose(
    settings: &MailSettings,
    host: &str,
    id: Uuid,
    at: Timestamp,
    to: &str,
    drawn: RenderedMail,
) -> Result<Letter, String> {
    Letter::compose(MailParts {
        id,
        host,
        at,
        from: &settings.from,
        reply_to: settings.reply_to.as_ref(),
        to,
        subject: &drawn.subject,
        text: drawn.text,
        html: drawn.html,
    })
}

fn mail_of(content: &Content, zone: Option<&str>) -> Mail {
    let time_in_zone = |at: Timestamp| Some(at.in_zone(zone));
    let mail = Mail {
        kind: kind(content),
        ..Mail::default()
    };
    match content.clone() {
        Content::Test => mail,
        Content::AlreadySignedUp { link } => Mail {
            link: Some(link),
            ..mail
        },
        Content::VerifyAddress { account_id, link } => Mail {
            link: Some(link),
            account_id,
            ..mail
        },
        Content::SignUp {
            link,
            code,
            expires_at,
        }
        | Content::SignIn {
            link,
            code,
            expires_at,
        } => Mail {
            link: Some(link),
            code: Some(code),
            expires: expires_at.and_then(time_in_zone),
            ..mail
        },
        Content::Invitation { link, expires_at } => Mail {
            link: Some(link),
            expires: time_in_zone(expires_at),
            ..mail
        },
        Content::ResetPassword {
            link,
            code,
            expires_at,
        } => Mail {
            link: Some(link),
            code,
            expires: time_in_zone(expires_at),
            ..mail
        },
        Content::NewDevice {
            device,
            address,
            at,
            link,
        } => Mail {
            link: Some(link),
            device: Some(device.unwrap_or_default()),
            network: address.map(|address| address.to_string()),
            time: time_in_zone(at),
            ..mail
        },
        Content::PasswordChanged { at, from, link } => Mail {
            link: Some(link),
            time: time_in_zone(at),
            ..done_from(from, mail)
        },
        Content::FactorAdded {
            at,
            from,
            factors,
            link,
        }
        | Content::FactorRemoved {
            at,
            from,
            factors,
            link,
        } => Mail {
            link: Some(link),
            time: time_in_zone(at),
            factors: factors.into_iter().map(mail_factor).collect(),
            ..done_from(from, mail)
        },
        Content::FactorsEnd { at, link } => Mail {
            link,
            time: time_in_zone(at),
            ..mail
        },
        Content::AddressChanged { to, at, link } => Mail {
            link,
            time: time_in_zone(at),
            new_address: Some(to),
            ..mail
        },
    }
}

/// The mail, with the browser in which it was done.
fn done_from(from: Option<Origin>, mail: Mail) -> Mail {
    let Some(Origin { device, address }) = from else {
        return mail;
    };
    Mail {
        device: Some(device.unwrap_or_default()),
        network: address.map(|address| address.to_string()),
        ..mail
    }
}

fn mail_factor(factor: NoticedFactor) -> MailFactor {
    MailFactor {
        kind: factor.kind,
        name: factor.name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::tests::core;

    #[test]
    fn a_mail_and_its_templates_have_one_name() {
        let (link, code) = (String::new(), String::new());
        let at = Timestamp::from_seconds(0);
        for content in [
            Content::Test,
            Content::SignUp {
                link: link.clone(),
                code: code.clone(),
                expires_at: None,
            },
            Content::AlreadySignedUp { link: link.clone() },
            Content::Invitation {
                link: link.clone(),
                expires_at: at,
            },
            Content::ResetPassword {
                link: link.clone(),
                code: None,
                expires_at: at,
            },
            Content::SignIn {
                link: link.clone(),
                code,
                expires_at: Some(at),
            },
            Content::VerifyAddress {
                account_id: Some("alice".to_owned()),
                link: link.clone(),
            },
            Content::NewDevice {
                device: None,
                address: None,
                at,
                link: link.clone(),
            },
            Content::PasswordChanged {
                at,
                from: None,
                link: link.clone(),
            },
            Content::FactorAdded {
                at,
                from: None,
                factors: Vec::new(),
                link: link.clone(),
            },
            Content::FactorRemoved {
                at,
                from: None,
                factors: Vec::new(),
                link: link.clone(),
            },
            Content::FactorsEnd { at, link: None },
            Content::AddressChanged {
                to: String::new(),
                at,
                link: Some(link),
            },
        ] {
            assert_eq!(content.kind(), kind(&content).name());
        }
    }

    #[test]
    fn a_mail_is_in_the_language_of_its_reader_and_names_utc() {
        let (core, themes) = (core(), Themes::built_in(""));
        let message = |languages: Option<&str>| Message {
            to: "bob@example.com".to_owned(),
            languages: languages.map(str::to_owned),
            zone: None,
            client_id: Some("unknown".to_owned()),
            content: Content::NewDevice {
                device: None,
                address: "203.0.113.7".parse().ok(),
                at: Timestamp::from_seconds(1_800_000_000),
                link: "https://id.example.com/secure".to_owned(),
            },
        };
        for (languages, part) in [
            (None, "Secure the account"),
            (Some("fr-CA fr"), "Sécuriser le compte"),
            (Some("tlh, de;q=0.5"), "Konto sichern"),
        ] {
            let drawn = draw(&core, &themes, &message(languages));
            assert!(drawn.html.contains(part), "{}", drawn.html);
            for part in [
                "2027-01-15 08:00 UTC",
                "203.0.113.7",
                "https://id.example.com/secure",
            ] {
                assert!(
                    drawn.text.contains(part) && drawn.html.contains(part),
                    "{}",
                    drawn.text
                );
            }
        }
    }

    #[test]
    fn a_mail_that_was_stored_without_the_end_of_its_link_is_still_drawn() {
        let stored = r#"{"sign_in":{"link":"https://id.example/link","code":"402817"}}"#;
        let content: Content = serde_json::from_str(stored).unwrap();
        assert_eq!(mail_of(&content, None).expires, None);
        let expires_at = Some(Timestamp::from_seconds(3600));
        let (link, code) = (String::new(), String::new());
        let content = Content::SignUp {
            link,
            code,
            expires_at,
        };
        let expires = mail_of(&content, None).expires;
        assert_eq!(expires.as_deref(), Some("1970-01-01 01:00 UTC"));
    }
}
