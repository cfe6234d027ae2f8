//! The settings for mail.

use std::path::PathBuf;

use super::reader::Reader;
use super::setting::{Kind, Setting, setting};
use super::{Config, Fault};
use crate::mail::connection::{MailConnector, Timeouts, read_password};
use crate::mail::{MailServer, Mailbox};
use crate::net::certificate::exposure_warning;
use crate::net::outbound::{OutboundPolicy, SetupError, tls_config};

pub(super) const URL: Setting = setting(
    "mail.url",
    Kind::Text,
    ("URL", "The mail server"),
    None,
    r#""smtps://idsvc@mail.example.com:465""#,
    "The server that takes mails by SMTP, with the name that the service signs in with: smtps:// for TLS, smtp:// for\n\
     STARTTLS. Only a server on this machine may go without TLS. Left out: no mail is sent.",
);

pub(super) const PASSWORD_FILE: Setting = setting(
    "mail.password_file",
    Kind::Text,
    ("FILE", "The file of the password for the mail server"),
    None,
    r#""/etc/idsvc/mail-password""#,
    "The file of the password for mail.url, on one line; read for each connection.",
);

pub(super) const FROM: Setting = setting(
    "mail.from",
    Kind::Text,
    ("ADDRESS", "The sender of mails"),
    None,
    r#""Acme <no-reply@example.com>""#,
    "The sender of mails, an address with or without a name.",
);

pub(super) const REPLY_TO: Setting = setting(
    "mail.reply_to",
    Kind::Text,
    ("ADDRESS", "Where replies to mails go"),
    None,
    r#""help@example.com""#,
    "The address that replies to mails go to. Left out: mail.from.",
);

/// How mails are sent, if they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mail {
    /// The server. The development server can do without: it catches mails.
    pub server: Option<MailServer>,
    /// The file of the password.
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
pub(super) fn mail(reader: &mut Reader<'_>) -> Option<Mail> {
    let server = set(reader, URL.key).and_then(|()| reader.parsed::<MailServer>(URL.key));
    let from = set(reader, FROM.key).and_then(|()| mailbox(reader, FROM.key));
    let reply_to = set(reader, REPLY_TO.key).and_then(|()| mailbox(reader, REPLY_TO.key));
    let password_file = set(reader, PASSWORD_FILE.key).and_then(|()| reader.path(PASSWORD_FILE.key));
    if let Some(server) = &server {
        if reader.explicit(FROM.key).is_none() {
            reader.missing(FROM.key, "mail.url is set, and mails need a sender");
        }
        if server.user.is_some() && reader.explicit(PASSWORD_FILE.key).is_none() {
            reader.missing(PASSWORD_FILE.key, "mail.url names a user, who needs a password");
        }
        if let (None, Some((_, origin))) = (&server.user, &password_file) {
            let message = "mail.password_file is set, and mail.url names no user: write it as smtps://USER@HOST, or take the file out";
            reader.fault(origin, message);
        }
    }
    let sender = match from {
        Some(from) => Some(from),
        // The development server needs no settings.
        None if reader.sources.is_dev => "idsvc <idsvc@localhost>".parse().ok(),
        None => None,
    };
    let is_used = server.is_some() || reader.sources.is_dev;
    let from = sender.filter(|_| is_used)?;
    Some(Mail {
        server,
        password_file: password_file.map(|(file, _)| file),
        from,
        reply_to,
    })
}

fn set(reader: &Reader<'_>, key: &str) -> Option<()> {
    reader.explicit(key).map(|_| ())
}

fn mailbox(reader: &mut Reader<'_>, key: &str) -> Option<Mailbox> {
    let (text, origin) = reader.text(key)?;
    let mailbox = text.parse().ok().filter(|_| !text.chars().any(char::is_control));
    if mailbox.is_none() {
        let message = format!("{key} = {text:?} is no address, as in Acme <no-reply@example.com>");
        reader.fault(&origin, message);
    }
    mailbox
}

/// Reads the password, as a start would.
pub(super) fn check(reader: &mut Reader<'_>, config: &Config) {
    let Some(file) = config
        .settings
        .mail
        .as_ref()
        .and_then(|mail| mail.password_file.as_deref())
    else {
        return;
    };
    match read_password(file) {
        Ok(_) => {
            let place = reader
                .value(PASSWORD_FILE.key)
                .map(|(_, origin)| origin.to_string());
            let warning = exposure_warning(file, "the password for the mail server").map(|message| Fault {
                place: place.unwrap_or_default(),
                message,
            });
            reader.warnings.extend(warning);
        }
        Err(error) => {
            let file = file.display();
            reader.fault_at(
                PASSWORD_FILE.key,
                format!("mail.password_file: {file} cannot be read: {error}"),
            );
        }
    }
}
