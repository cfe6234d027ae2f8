//! One file for each document, or for each part of a long one; every test says which section it holds the
//! service to.

mod anonymous;
mod client_id_metadata_document;
mod form_post;
mod grants;
mod jwks_uri;
mod openid_core;
mod openid_core_consent;
mod openid_core_sign_in;
mod openid_core_tokens;
mod openid_discovery;
mod refresh_by_api_key;
mod rfc6749;
mod rfc6749_authorization;
mod rfc6749_client;
mod rfc6749_refresh;
mod rfc6750;
mod rfc7009;
mod rfc7519;
mod rfc7523;
mod rfc7523_exchange;
mod rfc7523_meanwhile;
mod rfc7523_replay;
mod rfc7591;
mod rfc7592;
mod rfc7636;
mod rfc7662;
mod rfc8252;
mod rfc8414;
mod rfc8707;
mod rfc9126;
mod rfc9207;
mod rfc9449;
mod rfc9449_proofs;
mod rfc9700_retry;
mod rp_initiated_logout;
