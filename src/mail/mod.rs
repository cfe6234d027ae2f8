//! Mails: what they say, as data, and the way to the mail server.

pub mod catcher;
pub mod connection;
pub mod fault;
pub mod letter;
pub mod message;
pub mod server;
pub mod starttls;

pub use self::fault::SendFault;
pub use self::letter::{Letter, MailParts};
pub use self::message::{Content, Message, NoticedFactor, Origin};
pub use self::server::{MailServer, MailTls};

/// A name and an address, as in `Acme <no-reply@acme.example>`.
pub use lettre::message::Mailbox;
