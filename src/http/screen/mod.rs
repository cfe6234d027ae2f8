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
