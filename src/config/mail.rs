//! The settings for mail.

use std::path::PathBuf;

use super::form::{File, Parsed};
use super::reader::{Read, Reader};
use super::setting::{Literal, Setting};
use crate::mail::connection::{MailConnector, Timeouts, read_password};
use crate::mail::{MailServer, Mailbox};
use crate::net::certificate::exposure_warning;
use crate::net::outbound::{OutboundPolicy, SetupError, tls_config};

/// The development server needs no settings.
const DEV_SENDER: Literal = Literal::Text("idsvc <idsvc@localhost>");

pub(super) const SETTINGS: &[&Setting] = &[&URL, &PASSWORD_FILE, &FROM, &REPLY_TO];

pub(super) static URL: Setting<Parsed<MailServer>> = Setting {
    key: "mail.url",
    doc: "The server that takes mails by SMTP, with the name that the service signs in with: smtps:// for TLS, smtp:// for\n\
     STARTTLS. Only a server on this machine may go without TLS. Left out: no mail is sent.",
    default: None,
    example: Literal::Text("smtps://idsvc@mail.example.com:465"),
    value_name: "URL",
    help: Some("The mail server"),
    form: Parsed(parse_server),
};

pub(super) static PASSWORD_FILE: Setting<File> = Setting {
    key: "mail.password_file",
    doc: "The file of the password for mail.url, on one line; read for each connection.",
    default: None,
    example: Literal::Text("/etc/idsvc/mail-password"),
    value_name: "FILE",
    help: Some("The file of the password for the mail server"),
    form: File,
};

pub(super) static FROM: Setting<Parsed<Mailbox>> = Setting {
    key: "mail.from",
    doc: "The sender of mails, an address with or without a name.",
    default: None,
    example: Literal::Text("Acme <no-reply@example.com>"),
    value_name: "ADDRESS",
    help: Some("The sender of mails"),
    form: Parsed(parse_mailbox),
};

pub(super) static REPLY_TO: Setting<Parsed<Mailbox>> = Setting {
    key: "mail.reply_to",
    doc: "The address that replies to mails go to. Left out: mail.from.",
    default: None,
    example: Literal::Text("help@example.com"),
    value_name: "ADDRESS",
    help: Some("Where replies to mails go"),
    form: Parsed(parse_mailbox),
};

/// How mails are sent, if they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mail {
    /// The server. The development server can do without: it catches mails.
    pub server: Option<MailServer>,
    pub password_file: Option<PathBuf>,
    /// The sender.
    pub from: Mailbox,
    /// Where replies go.
    pub reply_to: Option<Mailbox>,
}

impl Mail {
    /// Connects to the server, if there is one. `host` is the host of the issuer.
    pub fn connector(
        &self,
        host: &str,
        outbound: &OutboundPolicy,
    ) -> Result<Option<MailConnector>, SetupError> {
        let Some(server) = self.server.clone() else {
            return Ok(None);
        };
        let tls = std::sync::Arc::new(tls_config(outbound)?);
        Ok(Some(MailConnector {
            server,
            password_file: self.password_file.clone(),
            tls: tls.into(),
            host: host.to_owned(),
            timeouts: Timeouts::default(),
        }))
    }
}

/// The settings. `None` if no mail is sent.
pub(super) fn mail(reader: &mut Reader<'_>) -> Read<Option<Mail>> {
    reader.check(SETTINGS);
    let server = reader.read_if_set(&URL)?;
    if let Some(server) = &server {
        let has_password_file = reader.is_set(&PASSWORD_FILE);
        if server.user.is_some() && !has_password_file {
            reader.missing(&PASSWORD_FILE, "mail.url names a user, who needs a password");
        }
        if server.user.is_none() && has_password_file {
            let message = "mail.password_file is set, and mail.url names no user: write it as smtps://USER@HOST, or take the file out";
            reader.fault(&PASSWORD_FILE, message);
        }
    } else if !reader.sources.is_dev {
        return Ok(None);
    }
    let from = match reader.read_if_set(&FROM)? {
        Some(from) => from,
        None if server.is_some() => {
            return Err(reader.missing(&FROM, "mail.url is set, and mails need a sender"));
        }
        None => reader.read_or(&FROM, DEV_SENDER)?,
    };
    Ok(Some(Mail {
        server,
        password_file: reader.read_if_set(&PASSWORD_FILE)?,
        from,
        reply_to: reader.read_if_set(&REPLY_TO)?,
    }))
}

/// Reads the password, as a start would.
pub(super) fn check(reader: &mut Reader<'_>) {
    let Ok(Some(file)) = reader.read_if_set(&PASSWORD_FILE) else {
        return;
    };
    let file = &file;
    if let Err(error) = read_password(file) {
        let message = format!("mail.password_file: {} cannot be read: {error}", file.display());
        reader.fault(&PASSWORD_FILE, message);
    } else if let Some(message) = exposure_warning(file, "the password for the mail server") {
        reader.warn(&PASSWORD_FILE, message);
    }
}

fn parse_server(text: &str) -> Result<MailServer, String> {
    text.parse().map_err(|problem| format!(": {problem}"))
}

fn parse_mailbox(text: &str) -> Result<Mailbox, String> {
    let mailbox = text.parse().ok().filter(|_| !text.chars().any(char::is_control));
    mailbox.ok_or_else(|| "is no address, as in Acme <no-reply@example.com>".to_owned())
}
