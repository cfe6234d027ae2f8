//! Screens for people: pages with distinct paths and plain forms.

pub mod account;
pub mod asset;
pub mod consent;
pub mod csrf;
pub mod error;
pub mod federation;
pub mod home;
pub mod known;
pub mod login;
pub mod logout;
pub mod onward;
pub mod underway;

use crate::identity::User;
use crate::page::Person;

/// A user as pages name them.
pub fn person(user: &User) -> Person {
    Person {
        name: user.display_name().to_owned(),
        account_id: user.account_id.clone(),
    }
}
