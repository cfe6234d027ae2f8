use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::clock::Timestamp;

fn alice() -> User {
    User::local(
        Uuid::from_u128(1),
        "alice@example.com",
        "default",
        Timestamp::from_seconds(0),
    )
}

#[test]
fn every_standard_claim_has_its_type() {
    let mut user = alice();
    let standard = BY_SCOPE.iter().flat_map(|(_, claims)| *claims).copied();
    for name in standard.filter(|name| is_text(name)) {
        let value = match name {
            "birthdate" => "1990-04-01",
            "profile" | "picture" | "website" => "https://example.com/",
            _ => "12",
        };
        set(&mut user, name, value).unwrap();
        assert_eq!(user.claims.get(name), Some(&json!(value)), "{name}");
    }
    assert_eq!(user.claims.len(), 13);
    set(&mut user, "email_verified", "true").unwrap();
    set(&mut user, "phone_number", "+32 2 555 01 23").unwrap();
    set(&mut user, "phone_number_verified", "true").unwrap();
    assert!(user.email_verified && user.phone_number_verified);
    assert!(set(&mut user, "email_verified", "yes").is_err());
    assert!(!user.claims.contains_key("email_verified"));
}

#[test]
fn an_address_that_is_new_is_not_verified() {
    let mut user = alice();
    user.set_phone_number(Some("+32 2 555 01 23".to_owned()));
    (user.email_verified, user.phone_number_verified) = (true, true);
    let email = user.email.clone().unwrap();
    set(&mut user, "email", &email).unwrap();
    set(&mut user, "phone_number", "+32 2 555 01 23").unwrap();
    assert!(user.email_verified && user.phone_number_verified);
    set(&mut user, "email", "other@example.com").unwrap();
    set(&mut user, "phone_number", "+32 2 555 01 24").unwrap();
    assert!(!user.email_verified && !user.phone_number_verified);
}

#[test]
fn address_members_gather_in_one_object() {
    let mut user = alice();
    set(&mut user, "address.locality", "Ghent").unwrap();
    set(&mut user, "address.country", "Belgium").unwrap();
    assert_eq!(
        user.claims["address"],
        json!({"locality": "Ghent", "country": "Belgium"})
    );
    assert!(set(&mut user, "address.planet", "Earth").is_err());
    set(&mut user, "address.locality", "").unwrap();
    set(&mut user, "address.country", "").unwrap();
    assert!(!user.claims.contains_key("address"));
    assert!(set(&mut user, "address", r#"{"locality": 1}"#).is_err());
    set(&mut user, "address", r#"{"locality": "Ghent"}"#).unwrap();
    assert_eq!(user.claims["address"], json!({"locality": "Ghent"}));
}

#[test]
fn a_claim_is_nested_so_deep_and_no_deeper() {
    let mut user = alice();
    let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    set(&mut user, "deep", &nested(MAX_DEPTH)).unwrap();
    let known = user.clone();
    for depth in [MAX_DEPTH + 1, 120] {
        let value = serde_json::from_str(&nested(depth)).unwrap();
        assert!(set_value(&mut user, "deep", &value).is_err());
        assert!(set(&mut user, "deep", &nested(depth)).is_err());
    }
    assert_eq!(user, known);
}

#[test]
fn a_claim_that_says_nothing_is_refused() {
    let mut user = User::local(
        Uuid::from_u128(1),
        "a@example.com",
        "default",
        Timestamp::from_seconds(0),
    );
    for value in [" ", "null"] {
        let refused = set(&mut user, "name", value).unwrap_err();
        assert_eq!(refused.code, FaultCode::Invalid, "{value:?}");
    }
    assert!(user.claims.is_empty());
    set(&mut user, "name", "Null").unwrap();
    set(&mut user, "name", "").unwrap();
    assert!(user.claims.is_empty());
}

#[test]
fn other_claims_are_json_when_they_parse_as_json() {
    let mut user = alice();
    for (text, value) in [
        ("7", json!(7)),
        ("true", json!(true)),
        (r#"["a"]"#, json!(["a"])),
        ("plain text", json!("plain text")),
    ] {
        set(&mut user, "badge", text).unwrap();
        assert_eq!(user.claims["badge"], value);
    }
}

#[test]
fn no_claim_takes_the_place_of_the_services_own() {
    for name in [
        "sub",
        "iss",
        "exp",
        "account_id",
        "venueId",
        "scope",
        "access_token",
        "updated_at",
        "uuid",
        "grant_id",
        "groups",
        "roles",
    ] {
        assert!(set(&mut alice(), name, "x").is_err(), "{name}");
    }
    for name in ["", "a b", "a\nb"] {
        assert!(set(&mut alice(), name, "x").is_err(), "{name:?}");
    }
}

#[test]
fn a_claim_whose_name_was_reserved_later_can_be_removed() {
    let mut user = alice();
    user.claims.insert("groups".to_owned(), json!(["admins"]));
    assert!(set(&mut user, "groups", "x").is_err());
    set(&mut user, "groups", "").unwrap();
    assert!(user.claims.is_empty() && set(&mut user, "groups", "").is_err());
}

#[test]
fn what_is_refused_is_not_warned_of() {
    for name in ["sub", "", "a b", "a\nc", "address.planet", "given_name"] {
        assert!(!is_without_standard_scope(name), "{name:?}");
    }
    assert!(is_without_standard_scope("given_nmae"));
}

#[test]
fn a_birthdate_is_a_day_or_a_year() {
    for good in ["1990-04-01", "0000-02-29", "1990", "2024-02-29"] {
        assert!(is_birthdate(good), "{good}");
    }
    for bad in [
        "1990-4-1",
        "1990-02-30",
        "2023-02-29",
        "01.04.1990",
        "90",
        "1990-04",
        "199x",
        "1990-04-0é",
    ] {
        assert!(!is_birthdate(bad), "{bad}");
    }
}
