//! Connects to the mail server and sends mails over the connection (RFC 5321, RFC 6409).
//!
//! Each step has a time limit, so that a slow or silent server holds only mails up.

use std::fmt::Display;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::AsyncSmtpConnection;
use lettre::transport::smtp::commands::{Data, Mail, Rcpt, Rset};
use lettre::transport::smtp::extension::{ClientId, Extension, MailBodyParameter, MailParameter};
use lettre::transport::smtp::response::Response;
use rustls::CertificateError;
use rustls::pki_types::ServerName;
use tokio::io::BufReader;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use zeroize::Zeroizing;

use super::starttls::{Reply, Stream, exchange};
use super::{Letter, MailServer, MailTls, SendFault};
use crate::net::tls_problem::{is_of_an_authority, tls_problem};
use crate::text;

/// Addresses of one name that are tried, in the order of the resolver.
const MAX_ADDRESSES: usize = 3;
/// Replies that refuse a mail because the service is not signed in as the server wants (RFC 4954 section 6). They say
/// nothing about the mail.
const SIGN_IN_CODES: [u16; 4] = [530, 534, 535, 538];
/// The part of the time for a reply after which a silent server may be one that begins with TLS. Others may pause
/// before their greeting.
const GREETING_SHARE: u32 = 6;
/// The server ends the connection (RFC 5321 section 3.8).
const CLOSING: u16 = 421;

/// How long each step may take.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// To connect to one address.
    pub connect: Duration,
    /// The TLS handshake.
    pub tls: Duration,
    pub reply: Duration,
    /// The reply to a whole mail, which some servers examine first (RFC 5321 section 4.5.3.2.6).
    pub delivery: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            tls: Duration::from_secs(10),
            reply: Duration::from_secs(30),
            delivery: Duration::from_mins(10),
        }
    }
}

/// Connects to one mail server.
#[derive(Clone)]
pub struct MailConnector {
    pub server: MailServer,
    pub password_file: Option<PathBuf>,
    /// The trusted authorities.
    pub tls: TlsConnector,
    /// Whether a connection has TLS, if the operator says so.
    pub tls_use: Option<MailTls>,
    /// The name in the certificate of the server, if it is not the host.
    pub server_name: Option<ServerName<'static>>,
    /// The name of this host: that of the issuer.
    pub host: String,
    /// How long each step may take.
    pub timeouts: Timeouts,
}

/// A connection on which mails can be sent.
pub struct MailConnection {
    smtp: AsyncSmtpConnection,
    server: MailServer,
    timeouts: Timeouts,
    is_encrypted: bool,
    is_broken: bool,
    /// Whether the whole mail was sent. Then the server may have taken it, although its answer is missing.
    has_sent_mail: bool,
}

impl MailConnector {
    /// Connects and signs in.
    pub async fn connect(&self) -> Result<MailConnection, SendFault> {
        let server = &self.server;
        let fault = |problem: &dyn Display| SendFault::Server(format!("{server} {problem}"));
        let stream = if server.has_implicit_tls {
            Stream::fresh(self.begin_tls(self.reach().await?).await?)
        } else {
            self.upgrade(self.reach().await?).await?
        };
        let is_encrypted = stream.is_encrypted();
        let hello = self.hello();
        let greeted = timeout(
            2 * self.timeouts.reply,
            AsyncSmtpConnection::connect_with_transport(Box::new(stream), &hello),
        );
        let smtp = greeted
            .await
            .map_err(|_| self.silent())?
            .map_err(|error| fault(&format_args!("does not greet: {}", text_of(&error))))?;
        let mut connection = MailConnection {
            smtp,
            server: server.clone(),
            timeouts: self.timeouts,
            is_encrypted,
            is_broken: false,
            has_sent_mail: false,
        };
        if let Some(user) = &server.user {
            let password = self.password().await?;
            let credentials = Credentials::new(user.clone(), password.to_string());
            let mechanisms = [Mechanism::Plain, Mechanism::Login];
            if connection
                .smtp
                .server_info()
                .get_auth_mechanism(&mechanisms)
                .is_none()
            {
                return Err(fault(&"offers no sign-in by PLAIN or LOGIN"));
            }
            let signed_in = timeout(
                self.timeouts.reply,
                connection.smtp.auth(&mechanisms, &credentials),
            );
            signed_in.await.map_err(|_| self.silent())?.map_err(|error| {
                fault(&format_args!(
                    "refuses the sign-in of {user}: {}",
                    text_of(&error)
                ))
            })?;
        }
        Ok(connection)
    }

    /// The name of this host (RFC 5321 section 4.1.3).
    fn hello(&self) -> ClientId {
        match self.host.parse() {
            Ok(IpAddr::V4(address)) => ClientId::Ipv4(address),
            Ok(IpAddr::V6(address)) => ClientId::Ipv6(address),
            Err(_) => ClientId::Domain(self.host.clone()),
        }
    }

    /// The password. It is read for each connection, so that a new one counts at once.
    async fn password(&self) -> Result<Zeroizing<String>, SendFault> {
        let Some(file) = self.password_file.clone() else {
            return Ok(Zeroizing::default());
        };
        let shown = file.display().to_string();
        let read = tokio::task::spawn_blocking(move || read_password(&file)).await;
        let problem = |error: &dyn Display| SendFault::Server(format!("{shown} cannot be read: {error}"));
        read.map_err(|error| problem(&error))?
            .map_err(|error| problem(&error))
    }

    fn silent(&self) -> SendFault {
        SendFault::Server(format!("{} does not answer in time", self.server))
    }

    async fn reach(&self) -> Result<TcpStream, SendFault> {
        let server = &self.server;
        let name = server.host_name();
        let resolved = timeout(
            self.timeouts.connect,
            tokio::net::lookup_host((name.as_str(), server.port)),
        )
        .await;
        let Ok(Ok(addresses)) = resolved else {
            return Err(SendFault::Server(format!("{} cannot be resolved", server.host)));
        };
        for address in addresses.take(MAX_ADDRESSES) {
            if let Ok(Ok(stream)) = timeout(self.timeouts.connect, TcpStream::connect(address)).await {
                // The end of a mail is a write of its own, and Nagle's algorithm would hold it back.
                drop(stream.set_nodelay(true));
                return Ok(stream);
            }
        }
        Err(SendFault::Server(format!("{server} does not accept connections")))
    }

    async fn begin_tls(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>, SendFault> {
        let server = &self.server;
        match timeout(self.timeouts.tls, self.tls.connect(self.name()?, stream)).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(SendFault::Server(format!(
                "{server}: TLS failed: {}",
                self.tls_problem(&error)
            ))),
            Err(_) => Err(self.silent()),
        }
    }

    /// The name that the certificate has to have.
    fn name(&self) -> Result<ServerName<'static>, SendFault> {
        if let Some(name) = &self.server_name {
            return Ok(name.clone());
        }
        let host = &self.server.host;
        ServerName::try_from(self.server.host_name())
            .map_err(|_| SendFault::Server(format!("{host} cannot be named by a certificate")))
    }

    /// What is wrong and, if that is known, what to do.
    fn tls_problem(&self, error: &io::Error) -> String {
        use CertificateError::{
            Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet, NotValidYetContext,
        };
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref());
        let remedy = match tls {
            Some(tls) if is_of_an_authority(tls) => {
                let otherwise = if self.server.is_loopback() {
                    "mail.tls to off on this machine"
                } else {
                    "give the server one of its own"
                };
                return format!(
                    "the certificate is that of a certificate authority: set mail.ca_file to it, or {otherwise}"
                );
            }
            Some(rustls::Error::InvalidCertificate(Expired | ExpiredContext { .. })) => {
                ": renew it at the mail server"
            }
            Some(rustls::Error::InvalidCertificate(NotValidYet | NotValidYetContext { .. })) => {
                ": see that the clocks of both machines are right"
            }
            Some(rustls::Error::InvalidMessage(_)) if self.server.has_implicit_tls => {
                ": it does not begin with TLS: write smtp:// in mail.url, for STARTTLS"
            }
            Some(rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
                ": set mail.server_name to the name in its certificate"
            }
            Some(rustls::Error::InvalidCertificate(_)) if self.server.is_loopback() => {
                ": set mail.ca_file to its certificate or authority, or mail.tls to off on this machine"
            }
            Some(rustls::Error::InvalidCertificate(_)) => {
                ": if it has a certificate of its own, set mail.ca_file to that or to its authority"
            }
            _ => "",
        };
        format!("{}{remedy}", tls_problem(error))
    }

    /// Begins TLS by STARTTLS. A server on this machine may go on without it.
    async fn upgrade(&self, stream: TcpStream) -> Result<Stream, SendFault> {
        let server = &self.server;
        let mut stream = BufReader::new(stream);
        let hello = format!("EHLO {}", self.hello());
        self.greet(&mut stream).await?;
        let offer = self.expect(&mut stream, Some(&hello), 250).await?;
        let offers_tls = offer
            .lines
            .iter()
            .any(|line| line.eq_ignore_ascii_case("STARTTLS"));
        let goes_without = match self.tls_use {
            Some(MailTls::Off) => true,
            Some(MailTls::Required) => false,
            None => !offers_tls && server.is_loopback(),
        };
        if goes_without {
            return Ok(Stream::plain(stream.into_inner()));
        }
        if !offers_tls {
            return Err(SendFault::Server(format!(
                "{server} offers no STARTTLS, and nothing is sent without TLS: somebody on the way may have removed the \
                 offer, or the server needs smtps://"
            )));
        }
        self.expect(&mut stream, Some("STARTTLS"), 220).await?;
        if !stream.buffer().is_empty() {
            return Err(SendFault::Server(format!(
                "{server} sent more than its reply to STARTTLS: somebody on the way may have added it"
            )));
        }
        Ok(Stream::upgraded(self.begin_tls(stream.into_inner()).await?))
    }

    /// Waits for the greeting. A server that begins with TLS sends none, so after a while a second connection tries
    /// TLS.
    async fn greet(&self, stream: &mut BufReader<TcpStream>) -> Result<Reply, SendFault> {
        let begins_with_tls = async {
            tokio::time::sleep(self.timeouts.reply / GREETING_SHARE).await;
            self.begins_with_tls().await
        };
        tokio::select! {
            greeting = self.expect(stream, None, 220) => greeting,
            true = begins_with_tls => Err(SendFault::Server(format!(
                "{} begins with TLS, and does not offer STARTTLS: write smtps:// in mail.url",
                self.server
            ))),
        }
    }

    async fn begins_with_tls(&self) -> bool {
        let (Ok(name), Ok(stream)) = (self.name(), self.reach().await) else {
            return false;
        };
        match timeout(self.timeouts.tls, self.tls.connect(name, stream)).await {
            Ok(Ok(_)) => true,
            Ok(Err(error)) => {
                let tls = error.get_ref().and_then(|inner| inner.downcast_ref());
                matches!(tls, Some(rustls::Error::InvalidCertificate(_)))
            }
            Err(_) => false,
        }
    }

    async fn expect(
        &self,
        stream: &mut BufReader<TcpStream>,
        command: Option<&str>,
        code: u16,
    ) -> Result<Reply, SendFault> {
        let server = &self.server;
        match timeout(self.timeouts.reply, exchange(stream, command)).await {
            Ok(Ok(reply)) if reply.code == code => Ok(reply),
            Ok(Ok(reply)) => Err(SendFault::Server(format!("{server} is not ready: {reply}"))),
            Ok(Err(error)) => Err(SendFault::Server(format!("{server}: {error}"))),
            Err(_) => Err(self.silent()),
        }
    }
}

impl MailConnection {
    pub fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }

    /// Whether the connection can be used for another mail.
    pub fn is_usable(&self) -> bool {
        !self.is_broken
    }

    /// Whether the server cannot have the mail that was sent last.
    pub fn cannot_have_mail(&self) -> bool {
        !self.has_sent_mail
    }

    /// Sends a mail. Returns the server's answer.
    pub async fn send(&mut self, letter: &Letter) -> Result<String, SendFault> {
        self.has_sent_mail = false;
        let sent = self.transfer(letter).await;
        if sent.is_err() && !self.is_broken {
            // The next mail begins anew.
            self.is_broken = !matches!(
                timeout(self.timeouts.reply, self.smtp.command(Rset)).await,
                Ok(Ok(_))
            );
        }
        sent
    }

    async fn transfer(&mut self, letter: &Letter) -> Result<String, SendFault> {
        let info = self.smtp.server_info();
        let mut options = Vec::new();
        if letter.needs_utf8() {
            if !info.supports_feature(Extension::SmtpUtfEight) {
                return Err(SendFault::Unsendable(format!(
                    "{} does not take addresses with such characters (SMTPUTF8, RFC 6531)",
                    self.server
                )));
            }
            options.push(MailParameter::SmtpUtfEight);
            options.push(MailParameter::Body(MailBodyParameter::EightBitMime));
        }
        let reply = self.timeouts.reply;
        let mail = Mail::new(Some(letter.from().clone()), options);
        self.step(reply, async |smtp| smtp.command(mail).await).await?;
        let recipient = Rcpt::new(letter.to().clone(), Vec::new());
        self.step(reply, async |smtp| smtp.command(recipient).await)
            .await?;
        self.step(reply, async |smtp| smtp.command(Data).await).await?;
        self.has_sent_mail = true;
        let answer = self
            .step(self.timeouts.delivery, async |smtp| {
                smtp.message(letter.bytes()).await
            })
            .await?;
        let lines: Vec<&str> = answer.message().collect();
        Ok(format!("{} {}", answer.code(), lines.join(" ")))
    }

    async fn step(
        &mut self,
        limit: Duration,
        command: impl AsyncFnOnce(&mut AsyncSmtpConnection) -> Result<Response, lettre::transport::smtp::Error>,
    ) -> Result<Response, SendFault> {
        let error = match timeout(limit, command(&mut self.smtp)).await {
            Ok(Ok(response)) => return Ok(response),
            Ok(Err(error)) => error,
            Err(_) => {
                self.is_broken = true;
                return Err(SendFault::Deferred(format!(
                    "{} does not answer in time",
                    self.server
                )));
            }
        };
        let text = text_of(&error);
        let code = error.status().map(u16::from);
        self.is_broken |= code.is_none_or(|code| code == CLOSING);
        Err(match code {
            Some(code) if SIGN_IN_CODES.contains(&code) => {
                SendFault::Server(format!("{} wants another sign-in ({code})", self.server))
            }
            Some(_) if error.is_permanent() => SendFault::Refused(text),
            Some(_) => SendFault::Deferred(text),
            None => SendFault::Deferred(format!("{}: {text}", self.server)),
        })
    }

    /// Ends the connection.
    pub async fn quit(mut self) {
        if !self.is_broken {
            drop(timeout(self.timeouts.reply, self.smtp.quit()).await);
        }
    }
}

/// The code and the text of a refusal on one line, or the problem of the connection.
fn text_of(error: &lettre::transport::smtp::Error) -> String {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    let text = match (error.status(), cause) {
        (Some(code), Some(cause)) => format!("{code} {cause}"),
        (Some(code), None) => code.to_string(),
        (None, Some(cause)) => cause,
        (None, None) => error.to_string(),
    };
    let words: Vec<&str> = text
        .split(|c: char| c.is_whitespace() || c.is_control())
        .collect();
    let text = words
        .into_iter()
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ");
    text.chars().take(300).collect()
}

/// Reads a file with a password on its only line.
pub fn read_password(file: &std::path::Path) -> io::Result<Zeroizing<String>> {
    let text = Zeroizing::new(std::fs::read_to_string(file)?);
    let password = text::secret_line(&text);
    if password.is_empty() || password.chars().any(char::is_control) {
        let problem = "it has to be one line with the password";
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    Ok(Zeroizing::new(password.to_owned()))
}
