//! The flags for the algorithms of what the service signs for a client.

use clap::Args;
use serde::Serialize;

use crate::cli::value_parsers::optional_algorithm;
use crate::jose::alg::Algorithm;
use crate::oauth::fields::Removable;

/// The algorithms of what the service signs for a client.
#[derive(Debug, Args, Serialize)]
#[expect(
    clippy::struct_field_names,
    reason = "a flag for a field has the name of the field"
)]
pub struct SigningFields {
    /// The algorithm of ID tokens [default: RS256, with a profile ES256]
    #[arg(long = "id-token-alg", value_name = "ALG", value_parser = optional_algorithm)]
    pub id_token_signed_response_alg: Option<Removable<Algorithm>>,
    /// The algorithm of signed answers from UserInfo [default: none, the answers are JSON]
    #[arg(long, value_name = "ALG", value_parser = optional_algorithm)]
    pub userinfo_signed_response_alg: Option<Removable<Algorithm>>,
    /// The algorithm of signed authorization responses [default: RS256, with a profile ES256]
    #[arg(long, value_name = "ALG", value_parser = optional_algorithm)]
    pub authorization_signed_response_alg: Option<Removable<Algorithm>>,
    /// The algorithm of signed introspection responses [default: RS256, with a profile ES256]
    #[arg(long, value_name = "ALG", value_parser = optional_algorithm)]
    pub introspection_signed_response_alg: Option<Removable<Algorithm>>,
    /// The algorithm of access tokens [default: as configured]
    #[arg(long, value_name = "ALG", value_parser = optional_algorithm)]
    pub access_token_alg: Option<Removable<Algorithm>>,
}
