//! The pages of the development server. They are for developers, and in English only.

mod commands;
pub mod device;
pub mod home;
pub mod mail;
pub mod tokens;

pub use self::device::DevDevice;
pub use self::home::Home;
pub use self::mail::DevMails;
pub use self::tokens::{DevClaim, DevToken, DevTokens};
