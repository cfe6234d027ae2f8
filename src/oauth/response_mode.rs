//! How an authorization response is sent: OAuth 2.0 Multiple Response Types 2.1, OAuth 2.0 Form Post Response Mode, and JWT
//! Secured Authorization Response Mode (JARM).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::clock::Timestamp;
use crate::jose::alg::Algorithm;
use crate::oauth::client::Client;

/// How the response parameters are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResponseMode {
    /// In the query of a redirect.
    #[default]
    Query,
    /// In a form that the browser posts.
    FormPost,
}

impl ResponseMode {
    /// The values of `response_mode` that discovery lists.
    pub const SUPPORTED: [&'static str; 5] = ["query", "form_post", "jwt", "query.jwt", "form_post.jwt"];
}

/// What a request asks for with `response_mode`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RequestedMode {
    pub(super) mode: ResponseMode,
    /// Whether the parameters are in a signed JWT.
    pub(super) is_signed: bool,
}

impl RequestedMode {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (mode, is_signed) = match text {
            "query" => (ResponseMode::Query, false),
            "form_post" => (ResponseMode::FormPost, false),
            // The default mode of the response type code (JARM section 2.3.4).
            "jwt" | "query.jwt" => (ResponseMode::Query, true),
            "form_post.jwt" => (ResponseMode::FormPost, true),
            _ => return None,
        };
        Some(Self { mode, is_signed })
    }
}

/// How long a signed response is valid. JARM section 2.1 recommends ten minutes at most, and a code lasts for one.
const LIFETIME: Duration = Duration::from_mins(5);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponseSigning {
    /// The `client_id` of the client that it is for.
    pub audience: String,
    pub algorithm: Algorithm,
}

impl ResponseSigning {
    /// How responses to this client are signed (JARM section 3).
    pub fn of(client: &Client) -> Self {
        Self {
            audience: client.client_id.clone(),
            algorithm: client.allowed_algorithm(
                client
                    .authorization_signed_response_alg
                    .unwrap_or(Algorithm::Rs256),
            ),
        }
    }

    /// The claims of the signed response (JARM section 2.1). The response parameters contain `iss`.
    pub fn claims(&self, parameters: &[(&'static str, String)], now: Timestamp) -> Map<String, Value> {
        let parameters = parameters.iter();
        let mut claims: Map<_, _> = parameters
            .map(|(name, value)| ((*name).to_owned(), json!(value)))
            .collect();
        claims.insert("aud".to_owned(), json!(self.audience));
        claims.insert("exp".to_owned(), json!(now + LIFETIME));
        claims
    }
}
