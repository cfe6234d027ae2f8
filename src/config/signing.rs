//! How tokens are signed, and when keys change.

use std::time::Duration;

use super::duration::format_duration;
use super::form::{Time, TimeOrOff, Words};
use super::reader::{Read, Reader};
use super::setting::{Literal, Setting};
use crate::jose::alg::Algorithm;
use crate::oauth::access_token::AccessTokenTyp;
use crate::oauth::policy::KeyRotation;

pub(super) const SETTINGS: &[&Setting] = &[&ACCESS_TOKEN_ALG, &ACCESS_TOKEN_TYP, &ROTATE_EVERY, &ANNOUNCE];

pub(super) static ACCESS_TOKEN_ALG: Setting<Words<Algorithm>> = Setting {
    key: "signing.access_token_alg",
    doc: "The algorithm of access tokens, unless the client's record names one: RS256, PS256, ES256 or EdDSA.",
    default: Some(Literal::Text("ES256")),
    example: Literal::Text("RS256"),
    value_name: "ALG",
    help: Some("The algorithm of access tokens"),
    form: Words(&[
        (Algorithm::Rs256.as_str(), Algorithm::Rs256),
        (Algorithm::Ps256.as_str(), Algorithm::Ps256),
        (Algorithm::Es256.as_str(), Algorithm::Es256),
        (Algorithm::EdDsa.as_str(), Algorithm::EdDsa),
    ]),
};

pub(super) static ACCESS_TOKEN_TYP: Setting<Words<AccessTokenTyp>> = Setting {
    key: "signing.access_token_typ",
    doc: "The typ of access tokens: at+jwt (RFC 9068), or JWT for older resource servers.",
    default: Some(Literal::Text("at+jwt")),
    example: Literal::Text("JWT"),
    value_name: "TYP",
    help: Some("The typ of access tokens"),
    form: Words(&[
        (AccessTokenTyp::AtJwt.as_str(), AccessTokenTyp::AtJwt),
        (AccessTokenTyp::Jwt.as_str(), AccessTokenTyp::Jwt),
    ]),
};

// Keys stay published while their signatures are in use. Shorter rotations would pile them up in the key set.
pub(super) static ROTATE_EVERY: Setting<TimeOrOff> = Setting {
    key: "keys.rotate_every",
    doc: "How long a signing key signs before a new one takes its place by itself: an hour or more, and longer than\n\
         keys.announce; off for never. Keys of refresh tokens change as often.",
    default: Some(Literal::Text("90d")),
    example: Literal::Text("off"),
    value_name: "TIME",
    help: Some("How long a key signs before a new one takes its place"),
    form: TimeOrOff(Time::at_least(Duration::from_hours(1))),
};

pub(super) static ANNOUNCE: Setting<Time> = Setting {
    key: "keys.announce",
    doc: "How long a new signing key is published before it signs, so that verifiers have fetched it: five minutes or\n\
         more, for so long they may keep the key set.",
    default: Some(Literal::Text("14d")),
    example: Literal::Text("24h"),
    value_name: "TIME",
    help: Some("How long new keys are published before they sign"),
    form: Time::at_least(KeyRotation::KEPT_BY_VERIFIERS),
};

/// How keys are replaced.
pub(super) fn key_rotation(reader: &mut Reader<'_>) -> Read<KeyRotation> {
    let (every, announce) = (reader.read(&ROTATE_EVERY), reader.read(&ANNOUNCE));
    let (every, announce) = (every?, announce?);
    if every.is_some_and(|every| every <= announce) {
        let message = format!(
            "keys.rotate_every must be longer than keys.announce, which is {}: a key is announced while the one before it signs",
            format_duration(announce)
        );
        return Err(reader.fault(&ROTATE_EVERY, message));
    }
    Ok(KeyRotation { every, announce })
}
