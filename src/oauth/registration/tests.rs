use super::*;

fn parse(body: &Value) -> Result<RequestedMetadata, Refusal> {
    RequestedMetadata::parse(body.to_string().as_bytes())
}

fn code_of(body: &Value) -> ErrorCode {
    parse(body).unwrap_err().code
}

#[test]
fn what_is_left_out_has_the_defaults_of_rfc_7591() {
    let requested = parse(&json!({ "redirect_uris": ["https://app.example/cb"] })).unwrap();
    assert_eq!(requested.auth_method, AuthMethod::ClientSecretBasic);
    let fields = requested.fields(&Scope::empty());
    assert_eq!(fields.grant_types, Some(vec![GrantType::AuthorizationCode]));
    assert_eq!(fields.default_scope, Some(vec!["openid".to_owned()]));
}

#[test]
fn unknown_members_and_other_languages_are_ignored_and_unusable_ones_are_refused() {
    let with = |name: &str, value: Value| json!({ "redirect_uris": ["https://app.example/cb"], name: value });
    for (name, value) in [
        ("client_name#de", json!(7)),
        ("software_id", json!({ "any": "thing" })),
        ("subject_type", json!("public")),
        ("dpop_bound_access_tokens", json!(true)),
        ("request_object_signing_alg", json!("Ed25519")),
        ("require_signed_request_object", json!(true)),
        ("tls_client_certificate_bound_access_tokens", json!(true)),
        ("userinfo_signed_response_alg", Value::Null),
        ("userinfo_signed_response_alg", json!("RS256")),
        ("default_max_age", json!(0)),
        ("response_types", json!(["code", "id_token"])),
        ("grant_types", json!(["authorization_code", "client_credentials"])),
        ("grant_types", json!(["implicit", "authorization_code"])),
        ("scope", json!("openid unknown")),
    ] {
        assert!(parse(&with(name, value)).is_ok(), "{name}");
    }
    for (name, value) in [
        ("subject_type", json!("pairwise")),
        ("application_type", json!("desktop")),
        ("dpop_bound_access_tokens", json!("yes")),
        ("userinfo_signed_response_alg", json!("none")),
        ("userinfo_signed_response_alg", json!("HS256")),
        ("userinfo_signed_response_alg", json!(["RS256"])),
        ("default_max_age", json!("3600")),
        ("default_max_age", json!(-1)),
        ("tos_uri", json!(["https://app.example/"])),
        ("id_token_signed_response_alg", json!("none")),
        ("request_object_signing_alg", json!("none")),
        ("authorization_signed_response_alg", json!("none")),
        ("authorization_encrypted_response_alg", json!("RSA-OAEP")),
        ("request_object_encryption_alg", json!("RSA-OAEP")),
        ("token_endpoint_auth_method", json!("client_secret_jwt")),
        ("token_endpoint_auth_method", json!("tls_client_auth")),
        ("token_endpoint_auth_method", json!("self_signed_tls_client_auth")),
        ("response_types", json!(["id_token"])),
        ("response_types", json!([])),
        ("response_types", json!("code")),
        ("grant_types", json!([])),
        ("grant_types", json!(["refresh_token"])),
        ("grant_types", json!(["client_credentials", "implicit"])),
        ("grant_types", json!(["authorization_code", 7])),
        ("grant_types", json!("authorization_code")),
        ("client_name", json!(["a"])),
        ("scope", json!("a\"b")),
        ("jwks", json!([])),
    ] {
        let code = code_of(&with(name, value));
        assert_eq!(code, ErrorCode::InvalidClientMetadata, "{name}");
    }
    assert_eq!(
        code_of(&with("redirect_uris", json!("x"))),
        ErrorCode::InvalidRedirectUri
    );
}

#[test]
fn a_change_names_the_client_and_nothing_that_the_service_decides() {
    let change = |body: Value| RequestedChange::parse(body.to_string().as_bytes(), "a");
    let RequestedChange { secret, .. } = change(json!({ "client_id": "a", "client_secret": "s" })).unwrap();
    assert_eq!(secret.as_deref(), Some("s"));
    for wrong in [
        json!({}),
        json!({ "client_id": "b" }),
        json!({ "client_id": "a", "registration_access_token": "t" }),
        json!({ "client_id": "a", "client_id_issued_at": 1 }),
    ] {
        assert!(change(wrong).is_err());
    }
}

#[test]
fn metadata_are_one_short_object() {
    for body in ["", "[]", "{\"scope\":\"a\",\"scope\":\"b\"}", "null"] {
        assert!(RequestedMetadata::parse(body.as_bytes()).is_err(), "{body}");
    }
    let long = json!({ "client_name": "n".repeat(MAX_METADATA) });
    assert!(code_of(&long) == ErrorCode::InvalidClientMetadata);
}

/// What an object in a key says, no standard defines. Many small ones take a hundred times their length in memory.
#[test]
fn a_key_is_kept_without_objects_and_with_all_that_standards_define() {
    let key = json!({
        "kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo", "kid": "a",
        "use": "sig", "key_ops": ["verify"], "alg": "EdDSA", "x5c": ["MIIB", "MIIC"], "x5t#S256": "b", "exp": 7,
        "ext": true,
    });
    let mut sent = key.clone();
    for (name, value) in [
        ("objects", json!([{ "": 0 }, { "": 0 }])),
        ("object", json!({ "a": 1 })),
        ("lists", json!([[], []])),
        ("numbers", json!([1, 2])),
    ] {
        sent[name] = value;
    }
    let metadata = json!({
        "redirect_uris": ["https://app.example/cb"],
        "token_endpoint_auth_method": "private_key_jwt",
        "jwks": { "keys": [sent] },
    });
    let fields = parse(&metadata).unwrap().fields(&Scope::empty());
    assert_eq!(fields.jwks, Some(vec![key]));
}
