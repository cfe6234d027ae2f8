//! The flags for the addresses of a client that pages of the service link to.

use clap::Args;
use serde::Serialize;

/// The addresses of a client that pages of the service link to.
#[derive(Debug, Args, Serialize)]
#[expect(
    clippy::struct_field_names,
    reason = "a flag for a field has the name of the field"
)]
pub struct LinkFields {
    /// The address of its privacy policy, for the consent page
    #[arg(long, value_name = "URL")]
    pub policy_uri: Option<String>,
    /// The address of its terms of service, for the consent page
    #[arg(long, value_name = "URL")]
    pub tos_uri: Option<String>,
    /// Where a sign-in at the application begins. The account page links to it, with iss
    #[arg(long, value_name = "URL")]
    pub initiate_login_uri: Option<String>,
    /// The home page of the application. The account page lists the application for people to open: https, or http on a
    /// loopback address
    #[arg(long, value_name = "URL")]
    pub home_uri: Option<String>,
}
