//! The steps of a sign-in, from the authorization request to the code: one verb a file, one transaction each.

pub mod anonymous_upgrade;
pub mod authorize;
pub mod begin_federation;
pub mod consent;
pub mod destination;
mod drawn_code;
pub mod enrol;
pub mod federated_user;
pub mod finish_federation;
pub mod passkey;
pub mod passkey_offer;
pub mod password;
pub mod pending_sign_in;
pub mod push_request;
mod pushed_use;
mod read_hint;
mod read_request;
pub mod redeem_upstream_code;
pub mod remembered_device;
pub(super) mod sealed;
pub mod second_factor;
mod second_factor_rule;
pub mod session;
pub mod sign_out;
pub mod sign_response;
pub mod start_session;
pub mod transaction;
