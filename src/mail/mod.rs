//! Mails: what they say, as data.

pub mod message;

pub use self::message::{Content, Message};
