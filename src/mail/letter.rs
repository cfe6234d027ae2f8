//! A mail as it is sent: header and body (RFC 5322, RFC 2045).

use std::time::{Duration, UNIX_EPOCH};

use lettre::message::header::{HeaderName, HeaderValue};
use lettre::message::{Mailbox, MultiPart};
use lettre::{Address, Message};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::text;

pub struct MailParts<'a> {
    /// The id, by which a recipient tells a repeated mail.
    pub id: Uuid,
    /// The host of the issuer.
    pub host: &'a str,
    /// When the mail was caused.
    pub at: Timestamp,
    /// The sender.
    pub from: &'a Mailbox,
    /// Where replies go, if not to the sender.
    pub reply_to: Option<&'a Mailbox>,
    /// The address of the recipient.
    pub to: &'a str,
    pub subject: &'a str,
    pub text: String,
    pub html: String,
}

/// A mail to one recipient, ready to be sent.
#[derive(Clone, Debug)]
pub struct Letter {
    from: Address,
    to: Address,
    bytes: Vec<u8>,
}

impl Letter {
    /// Writes a mail. The error says why the recipient's address cannot be used.
    ///
    /// `Auto-Submitted` keeps other systems from answering (RFC 3834 section 5).
    pub fn compose(parts: MailParts<'_>) -> Result<Self, String> {
        let (to, from) = (recipient(parts.to)?, in_a_labels(parts.from));
        let subject: String = parts
            .subject
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let auto_submitted = HeaderName::new_from_ascii_str("Auto-Submitted");
        let mut builder = Message::builder()
            .message_id(Some(format!("<{}@{}>", parts.id, parts.host)))
            .date(UNIX_EPOCH + Duration::from_secs(parts.at.seconds()))
            .from(from.clone())
            .to(Mailbox::new(None, to.clone()))
            .subject(subject)
            .raw_header(HeaderValue::new(auto_submitted, "auto-generated".to_owned()));
        if let Some(reply_to) = parts.reply_to {
            builder = builder.reply_to(in_a_labels(reply_to));
        }
        let message = builder
            .multipart(MultiPart::alternative_plain_html(parts.text, parts.html))
            .map_err(|error| error.to_string())?;
        Ok(Self {
            from: from.email,
            to,
            bytes: message.formatted(),
        })
    }

    /// The sender's address.
    pub fn from(&self) -> &Address {
        &self.from
    }

    /// The recipient's address.
    pub fn to(&self) -> &Address {
        &self.to
    }

    /// Header and body.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether only a server with SMTPUTF8 takes it (RFC 6531).
    pub fn needs_utf8(&self) -> bool {
        let is_ascii = |address: &Address| AsRef::<str>::as_ref(address).is_ascii();
        !is_ascii(&self.from) || !is_ascii(&self.to)
    }
}

fn recipient(text: &str) -> Result<Address, String> {
    let unusable = || "it is no address that a mail can be sent to".to_owned();
    let is_plain = |c: char| !c.is_control() && !c.is_whitespace();
    let (user, domain) = text
        .rsplit_once('@')
        .filter(|_| text.chars().all(is_plain))
        .ok_or_else(unusable)?;
    let domain = text::a_labels(domain).ok_or_else(unusable)?;
    Address::new(user, domain).map_err(|_| unusable())
}

/// The mailbox with A-labels in its domain: every server takes these (RFC 5891 section 4.4).
fn in_a_labels(mailbox: &Mailbox) -> Mailbox {
    let domain = text::a_labels(mailbox.email.domain());
    let email = domain.and_then(|domain| Address::new(mailbox.email.user(), domain).ok());
    Mailbox::new(
        mailbox.name.clone(),
        email.unwrap_or_else(|| mailbox.email.clone()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(to: &str, subject: &str) -> Result<String, String> {
        let from: Mailbox = "Acme Ünited <no-reply@acme.example>".parse().unwrap();
        let letter = Letter::compose(MailParts {
            id: Uuid::nil(),
            host: "id.acme.example",
            at: Timestamp::from_seconds(1_790_000_000),
            from: &from,
            reply_to: Some(&"help@acme.example".parse().unwrap()),
            to,
            subject,
            text: "Grüße, https://id.acme.example/x".to_owned(),
            html: "<p>Grüße</p>".to_owned(),
        })?;
        String::from_utf8(letter.bytes).map_err(|error| error.to_string())
    }

    fn header(mail: &str) -> Vec<&str> {
        mail.split("\r\n\r\n").next().unwrap().split("\r\n").collect()
    }

    #[test]
    fn a_mail_has_both_parts_and_tells_other_systems_not_to_answer() {
        let mail = letter("bob@example.com", "Hello").unwrap();
        let header = header(&mail);
        for line in [
            "Message-ID: <00000000-0000-0000-0000-000000000000@id.acme.example>",
            "Date: Mon, 21 Sep 2026 14:13:20 +0000",
            "To: bob@example.com",
            "Reply-To: help@acme.example",
            "Subject: Hello",
            "Auto-Submitted: auto-generated",
            "MIME-Version: 1.0",
        ] {
            assert!(header.contains(&line), "{line}\n{mail}");
        }
        assert!(mail.is_ascii(), "{mail}");
        let (text, html) = (mail.find("text/plain").unwrap(), mail.find("text/html").unwrap());
        assert!(text < html && mail.contains("multipart/alternative"));
    }

    #[test]
    fn no_name_or_address_adds_a_header() {
        let mail = letter("bob@example.com", "Hi\r\nBcc: eve@example.com\r\n\r\nx").unwrap();
        assert!(
            !header(&mail)
                .iter()
                .any(|line| line.starts_with("Bcc") || *line == "x"),
            "{mail}"
        );
        for to in [
            "bob@example.com\r\nBcc: eve@example.com",
            "bob\r\nBcc:eve@example.com",
            "\"bob\r\n\"@example.com",
            "bob@example.com>\r\nRCPT TO:<eve@example.com",
            "bob@example.com> SIZE=1",
            "bob@example.com\u{0}",
            "bob@example.com,eve@example.com",
            "bob @example.com",
            "bob",
            "@example.com",
            "bob@",
            "",
        ] {
            assert!(letter(to, "Hi").is_err(), "{to:?}");
        }
    }

    #[test]
    fn a_domain_is_sent_in_a_labels() {
        let from: Mailbox = "Acme <no-reply@b\u{fc}cher.example>".parse().unwrap();
        let parts = MailParts {
            id: Uuid::nil(),
            host: "id.acme.example",
            at: Timestamp::from_seconds(0),
            from: &from,
            reply_to: Some(&from),
            to: "bob@K\u{d6}LN.example",
            subject: "Hi",
            text: String::new(),
            html: String::new(),
        };
        let letter = Letter::compose(parts).unwrap();
        assert!(!letter.needs_utf8());
        let mail = String::from_utf8(letter.bytes).unwrap();
        for line in [
            "From: Acme <no-reply@xn--bcher-kva.example>",
            "Reply-To: Acme <no-reply@xn--bcher-kva.example>",
            "To: bob@xn--kln-sna.example",
        ] {
            assert!(header(&mail).contains(&line), "{line}\n{mail}");
        }
    }

    #[test]
    fn an_international_address_needs_an_extension() {
        let from: Mailbox = "no-reply@acme.example".parse().unwrap();
        for (to, needs_utf8) in [
            ("bob@xn--kln-sna.example", false),
            ("bob@köln.example", false),
            ("jürgen@example.com", true),
        ] {
            let parts = MailParts {
                id: Uuid::nil(),
                host: "id.acme.example",
                at: Timestamp::from_seconds(0),
                from: &from,
                reply_to: None,
                to,
                subject: "Hi",
                text: String::new(),
                html: String::new(),
            };
            assert_eq!(Letter::compose(parts).unwrap().needs_utf8(), needs_utf8, "{to}");
        }
        assert!(letter("bob@ex\u{2029}ample.com", "Hi").is_err());
    }
}
