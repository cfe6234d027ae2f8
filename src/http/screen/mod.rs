//! Screens for people: pages with distinct paths and plain forms.

pub mod account;
mod account_factors;
mod account_notice;
mod account_passkeys;
mod account_self_service;
mod address_request;
pub mod asset;
pub mod browser_redirect;
pub mod check_mail;
mod confirm_link;
pub mod consent;
pub mod csrf;
pub mod dev;
pub mod device;
pub mod device_cookie;
mod enrol;
pub mod error;
pub mod federation;
mod kept_sign_in;
pub mod link;
pub mod login;
pub mod login_context;
pub mod logout;
mod passkey;
pub mod passkey_offer;
pub mod request_mail;
pub mod second_factor;

use crate::http::context::RequestContext;
use crate::identity::User;
use crate::oauth::Client;
use crate::pages::{Mark, Person};
use crate::route::Route;

/// The user's names, as pages show them.
pub fn person(user: &User) -> Person {
    Person {
        name: user.display_name().to_owned(),
        account_id: user.account_id.clone(),
    }
}

/// The client, as pages show it.
pub fn mark(context: &RequestContext, client: &Client) -> Mark {
    let address = |version| {
        let logo = Route::ClientLogo(format!("{}.{version}", client.client_uuid));
        context.app.path(&logo)
    };
    Mark {
        name: client.display_name().to_owned(),
        logo: client.logo.as_ref().map(|logo| address(logo.version())),
    }
}
