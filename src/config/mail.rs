//! The settings for mail.

use std::path::PathBuf;

use rustls::pki_types::ServerName;

use super::form::{File, Parsed, Words};
use super::reader::{Read, Reader};
use super::setting::{Literal, Setting};
use crate::mail::connection::{MailConnector, Timeouts, read_password};
use crate::mail::{MailServer, MailTls, Mailbox};
use crate::net::certificate::exposure_warning;
use crate::net::outbound::{OutboundPolicy, SetupError, tls_config};
use crate::net::own_certificate::trusting;

/// The development server needs no settings.
const DEV_SENDER: Literal = Literal::Text("idsvc <idsvc@localhost>");

pub(super) const SETTINGS: &[&Setting] = &[
    &URL,
    &PASSWORD_FILE,
    &TLS,
    &CA_FILE,
    &SERVER_NAME,
    &FROM,
    &REPLY_TO,
];

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

pub(super) static TLS: Setting<Words<MailTls>> = Setting {
    key: "mail.tls",
    doc: "required: each connection to mail.url has TLS.\n\
     off: none has, for a server on this machine only.\n\
     Left out: required, unless a server on this machine offers no STARTTLS.",
    default: None,
    example: Literal::Text("required"),
    value_name: "USE",
    help: Some("required, or off for a mail server on this machine"),
    form: Words(&[("required", MailTls::Required), ("off", MailTls::Off)]),
};

pub(super) static CA_FILE: Setting<File> = Setting {
    key: "mail.ca_file",
    doc: "A PEM file with the certificate of the mail server, or with the authorities that issued it, to trust beside\n\
     those of the web. If the certificate of the server itself is in the file, its names and its expiry do not count.",
    default: None,
    example: Literal::Text("/etc/idsvc/mail-server.pem"),
    value_name: "FILE",
    help: Some("The certificate of the mail server, or its authority"),
    form: File,
};

pub(super) static SERVER_NAME: Setting<Parsed<ServerName<'static>>> = Setting {
    key: "mail.server_name",
    doc: "The name that the certificate of the mail server has. Left out: the host of mail.url.",
    default: None,
    example: Literal::Text("mail.example.com"),
    value_name: "NAME",
    help: Some("The name in the certificate of the mail server"),
    form: Parsed(parse_server_name),
};

pub(super) static FROM: Setting<Parsed<Mailbox>> = Setting {
    key: "mail.from",
    doc: "The sender of mails, an address with or without a name. Without one, it has brand.name.",
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
    /// Whether connections have TLS, if the operator says so.
    pub tls: Option<MailTls>,
    /// The certificates that the server may have, or their authorities.
    pub ca_file: Option<PathBuf>,
    /// The name in its certificate, if it is not the host.
    pub server_name: Option<ServerName<'static>>,
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
        let tls = match &self.ca_file {
            Some(file) => trusting(outbound, CA_FILE.key, file)?,
            None => tls_config(outbound)?,
        };
        Ok(Some(MailConnector {
            server,
            password_file: self.password_file.clone(),
            tls: std::sync::Arc::new(tls).into(),
            tls_use: self.tls,
            server_name: self.server_name.clone(),
            host: host.to_owned(),
            timeouts: Timeouts::default(),
        }))
    }
}

/// The settings. `None` if no mail is sent. `brand` is the name of a sender who has none.
pub(super) fn mail(reader: &mut Reader<'_>, brand: Option<&str>) -> Read<Option<Mail>> {
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
        if reader.read_if_set(&TLS)? == Some(MailTls::Off) {
            if !server.is_loopback() {
                let message = format!(
                    "mail.tls is off, and {server} is not on this machine: leave it out, or set required"
                );
                reader.fault(&TLS, message);
            } else if server.has_implicit_tls {
                let message = "mail.tls is off, and mail.url begins with smtps://: write smtp://, or leave mail.tls out";
                reader.fault(&TLS, message);
            }
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
    let brand = brand.map(str::to_owned);
    let from = match from.name {
        Some(_) if reader.is_set(&FROM) => from,
        name => Mailbox::new(brand.or(name), from.email),
    };
    Ok(Some(Mail {
        server,
        password_file: reader.read_if_set(&PASSWORD_FILE)?,
        tls: reader.read_if_set(&TLS)?,
        ca_file: reader.read_if_set(&CA_FILE)?,
        server_name: reader.read_if_set(&SERVER_NAME)?,
        from,
        reply_to: reader.read_if_set(&REPLY_TO)?,
    }))
}

/// Reads the password and the certificates, as a start would.
pub(super) fn check(reader: &mut Reader<'_>) {
    if let Ok(Some(file)) = reader.read_if_set(&CA_FILE)
        && let Err(error) = trusting(&OutboundPolicy::default(), CA_FILE.key, &file)
    {
        reader.fault(&CA_FILE, error.to_string());
    }
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

fn parse_server_name(text: &str) -> Result<ServerName<'static>, String> {
    let name = ServerName::try_from(text.to_owned());
    name.map_err(|_| "is no name of a host, as in mail.example.com".to_owned())
}

fn parse_mailbox(text: &str) -> Result<Mailbox, String> {
    let mailbox = text.parse().ok().filter(|_| !text.chars().any(char::is_control));
    mailbox.ok_or_else(|| "is no address, as in Acme <no-reply@example.com>".to_owned())
}
