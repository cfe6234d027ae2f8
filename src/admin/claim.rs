//! Claims as an operator types them, `name=value`, and their JSON types.
//!
//! OpenID Connect Core 5.1 defines the types of the standard claims. Other claims may be any JSON value.

use serde_json::{Map, Value};

use crate::identity::User;
use crate::identity::claim::{MAX_DEPTH, is_shallow_enough, parse_email};
use crate::oauth::openid::claims::{BY_SCOPE, standard_scope_of};
use crate::oauth::{Fault, FaultCode};

/// Whether the claim is a text: all claims of the scope `profile` are, except `updated_at`.
fn is_text(name: &str) -> bool {
    let profile = BY_SCOPE.iter().find(|(scope, _)| *scope == "profile");
    name != "updated_at" && profile.is_some_and(|(_, claims)| claims.contains(&name))
}

/// The members of the address claim (OpenID Connect Core 5.1.1).
const ADDRESS: [&str; 6] = [
    "formatted",
    "street_address",
    "locality",
    "region",
    "postal_code",
    "country",
];

/// Names that have a meaning in tokens or in the token response, and that no claim of a user may have.
pub(super) const RESERVED: [&str; 42] = [
    "iss",
    "sub",
    "aud",
    "exp",
    "nbf",
    "iat",
    "jti",
    "auth_time",
    "nonce",
    "acr",
    "amr",
    "azp",
    "at_hash",
    "c_hash",
    "s_hash",
    "sid",
    "sub_jwk",
    "cnf",
    "act",
    "may_act",
    "client_id",
    "scope",
    "events",
    "_claim_names",
    "_claim_sources",
    "access_token",
    "refresh_token",
    "id_token",
    "idtoken",
    "token_type",
    "expires_in",
    "account_id",
    "user_type",
    "venueId",
    "organization",
    "source",
    "uuid",
    "groups",
    "roles",
    "updated_at",
    "upstream_access_token",
    "grant_id",
];

const MAX_VALUE_BYTES: usize = 4096;

/// The fault of a claim. Some claims are members of the record, the others are in its member `claims`.
fn fault(name: &str, rule: impl std::fmt::Display) -> Fault {
    FaultCode::Invalid.at([member_of(name)], format!("claim {name} {rule}"))
}

/// The member of the record that a claim is in.
fn member_of(name: &str) -> &str {
    match name {
        "email" | "email_verified" | "phone_number" | "phone_number_verified" => name,
        _ => "claims",
    }
}

/// Sets one claim of the user; an empty value removes it.
pub fn set(user: &mut User, name: &str, value: &str) -> Result<(), Fault> {
    // An earlier release may have allowed the name.
    if value.is_empty() && RESERVED.contains(&name) && user.claims.remove(name).is_some() {
        return Ok(());
    }
    refuse_reserved(name)?;
    check_claim_name(name)?;
    if value.len() > MAX_VALUE_BYTES {
        let detail = format!("claim {name} is longer than {MAX_VALUE_BYTES} bytes");
        return Err(FaultCode::TooLong.at([member_of(name)], detail));
    }
    match name {
        "email" => set_email(user, value),
        "email_verified" => {
            user.email_verified = boolean(name, value)?;
            Ok(())
        }
        "phone_number" => {
            user.set_phone_number((!value.is_empty()).then(|| value.to_owned()));
            Ok(())
        }
        "phone_number_verified" => {
            user.phone_number_verified = boolean(name, value)?;
            Ok(())
        }
        "address" => set_whole_address(user, value),
        _ => match name.split_once('.') {
            Some(("address", member)) => set_address_member(user, member, value),
            _ => set_other(user, name, value),
        },
    }
}

/// Whether a claim can be stored but no standard scope value includes it.
pub fn is_without_standard_scope(name: &str) -> bool {
    may_be_released(name) && standard_scope_of(name).is_none()
}

/// Whether a registered scope value may release the claim: a claim that the operator may set, or a standard claim.
pub(super) fn may_be_released(name: &str) -> bool {
    let can_be_stored = !RESERVED.contains(&name) && check_claim_name(name).is_ok();
    can_be_stored && !name.starts_with("address.")
}

/// Clears `email_verified` and `phone_number_verified` if the user has no such address.
pub(super) fn clear_unfounded_verification(user: &mut User) {
    user.email_verified &= user.email.is_some();
    user.phone_number_verified &= user.phone_number.is_some();
}

/// The faults of a user with a verified address that the user does not have.
pub(super) fn unfounded_verification(user: &User) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut refuse = |fields| {
        let [verified, address] = fields;
        let detail = format!("{verified} is true, and the user has no {address}");
        faults.push(FaultCode::NotAllowed.at(fields, detail));
    };
    if user.email_verified && user.email.is_none() {
        refuse(["email_verified", "email"]);
    }
    if user.phone_number_verified && user.phone_number.is_none() {
        refuse(["phone_number_verified", "phone_number"]);
    }
    faults
}

/// Refuses a name that no claim can have.
pub(super) fn check_claim_name(name: &str) -> Result<(), Fault> {
    if name.is_empty() || name.len() > 128 || name.chars().any(|c| c.is_control() || c.is_whitespace()) {
        let detail = "a claim has a name of up to 128 characters without spaces";
        return Err(FaultCode::Invalid.at(["claims"], detail));
    }
    Ok(())
}

/// Sets one claim to a JSON value of a file. A text stays a text.
pub fn set_value(user: &mut User, name: &str, value: &Value) -> Result<(), Fault> {
    refuse_reserved(name)?;
    let must_be_text = is_text(name) || matches!(name, "email" | "phone_number");
    match value {
        Value::Null => Err(fault(name, "is null: leave it out")),
        Value::String(text) if must_be_text => set(user, name, text),
        Value::Bool(_) if matches!(name, "email_verified" | "phone_number_verified") => {
            set(user, name, &value.to_string())
        }
        Value::Object(_) if name == "address" => set(user, name, &value.to_string()),
        _ if must_be_text => Err(fault(name, "must be a text")),
        _ if matches!(name, "email_verified" | "phone_number_verified") => {
            Err(fault(name, "must be true or false"))
        }
        _ if name == "address" || name.starts_with("address.") => Err(fault("address", "must be an object")),
        _ => {
            // This checks the name and the length. Then the value is stored as it is.
            set(user, name, &value.to_string())?;
            user.claims.insert(name.to_owned(), value.clone());
            Ok(())
        }
    }
}

/// Refuses a claim that the service sets, and names the member of the record that sets it.
fn refuse_reserved(name: &str) -> Result<(), Fault> {
    if !RESERVED.contains(&name) {
        return Ok(());
    }
    let detail = format!("claim {name} belongs to the service");
    Err(match name {
        "venueId" => FaultCode::NotAllowed.at(["claims", "venue_id"], detail),
        "user_type" | "organization" => FaultCode::NotAllowed.at(["claims", name], detail),
        _ => FaultCode::NotAllowed.at(["claims"], detail),
    })
}

fn set_email(user: &mut User, value: &str) -> Result<(), Fault> {
    let is_kept = value.is_empty() || user.email.as_deref() == Some(value);
    if let Some(problem) = parse_email(value).err().filter(|_| !is_kept) {
        return Err(fault("email", format!("= {value:?} {problem}")));
    }
    user.set_email((!value.is_empty()).then(|| value.to_owned()));
    Ok(())
}

fn set_other(user: &mut User, name: &str, value: &str) -> Result<(), Fault> {
    if value.is_empty() {
        user.claims.remove(name);
        return Ok(());
    }
    let typed = if is_text(name) {
        check_standard(name, value)?;
        Value::from(value)
    } else {
        serde_json::from_str(value).unwrap_or_else(|_| Value::from(value))
    };
    if !is_shallow_enough(&typed) {
        return Err(fault(name, format!("is nested more than {MAX_DEPTH} deep")));
    }
    user.claims.insert(name.to_owned(), typed);
    Ok(())
}

fn check_standard(name: &str, value: &str) -> Result<(), Fault> {
    let rule = match name {
        _ if value.trim().is_empty() || value == "null" => "says nothing: leave it out",
        "birthdate" if !is_birthdate(value) => "must be YYYY-MM-DD, or YYYY for the year alone",
        "profile" | "picture" | "website" if url::Url::parse(value).is_err() => "must be a URL",
        _ => return Ok(()),
    };
    Err(fault(name, format!("= {value:?} {rule}")))
}

/// ISO 8601-1 `YYYY-MM-DD`, with the year 0000 if it is omitted, or `YYYY` (OpenID Connect Core 5.1).
fn is_birthdate(value: &str) -> bool {
    let number = |range: std::ops::Range<usize>| {
        let digits = value.get(range)?;
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        digits.parse::<u16>().ok()
    };
    let Some(year) = number(0..4) else { return false };
    match value.len() {
        4 => true,
        10 => {
            let is_dashed = value.get(4..5) == Some("-") && value.get(7..8) == Some("-");
            let (Some(month), Some(day)) = (number(5..7), number(8..10)) else {
                return false;
            };
            is_dashed && is_day(year, month, day)
        }
        _ => false,
    }
}

/// Whether the date exists. Without a year, the 29th of February does.
fn is_day(year: u16, month: u16, day: u16) -> bool {
    let year = if year == 0 { 2000 } else { year };
    let (Ok(month), Ok(day)) = (u8::try_from(month), u8::try_from(day)) else {
        return false;
    };
    time::Month::try_from(month)
        .is_ok_and(|month| time::Date::from_calendar_date(i32::from(year), month, day).is_ok())
}

fn boolean(name: &str, value: &str) -> Result<bool, Fault> {
    match value {
        "true" => Ok(true),
        "false" | "" => Ok(false),
        _ => Err(fault(name, format!("= {value:?} must be true or false"))),
    }
}

fn set_whole_address(user: &mut User, value: &str) -> Result<(), Fault> {
    if value.is_empty() {
        user.claims.remove("address");
        return Ok(());
    }
    let problem = || {
        let rule = format!("must be a JSON object with strings as {}", ADDRESS.join(", "));
        fault("address", rule)
    };
    let Ok(Value::Object(members)) = serde_json::from_str(value) else {
        return Err(problem());
    };
    let is_member = |(name, value): (&String, &Value)| ADDRESS.contains(&name.as_str()) && value.is_string();
    if !members.iter().all(is_member) {
        return Err(problem());
    }
    user.claims.insert("address".to_owned(), Value::Object(members));
    Ok(())
}

fn set_address_member(user: &mut User, member: &str, value: &str) -> Result<(), Fault> {
    if !ADDRESS.contains(&member) {
        let rule = format!("is unknown: the address has {}", ADDRESS.join(", "));
        return Err(fault(&format!("address.{member}"), rule));
    }
    let address = user
        .claims
        .entry("address".to_owned())
        .or_insert_with(|| Value::Object(Map::new()));
    if !address.is_object() {
        *address = Value::Object(Map::new());
    }
    let Some(members) = address.as_object_mut() else {
        return Ok(());
    };
    if value.is_empty() {
        members.remove(member);
    } else {
        members.insert(member.to_owned(), Value::from(value));
    }
    if members.is_empty() {
        user.claims.remove("address");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
