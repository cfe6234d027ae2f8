use std::collections::HashSet;

use super::*;

fn all() -> Vec<Route> {
    let mut all = FIXED.to_vec();
    all.push(Route::Asset("login-0123abcd.css".to_owned()));
    all.push(Route::Asset("icons/logo.svg".to_owned()));
    all.push(Route::ThemeFile("acme/0123456789ab/img/logo.svg".to_owned()));
    all.push(Route::ClientLogo(
        "0193b2a4-7a10-7cc0-8000-000000000001.0123456789ab".to_owned(),
    ));
    all.push(Route::OpenApplication(
        "0193b2a4-7a10-7cc0-8000-000000000001".to_owned(),
    ));
    all.push(Route::FederationStart("google".to_owned()));
    all.push(Route::FederationCallback("google".to_owned()));
    all.push(Route::FederationLogo("my-idp-2".to_owned()));
    all.push(Route::ClientConfiguration(
        "0193b2a4-7a10-7cc0-8000-000000000001".to_owned(),
    ));
    all
}

#[test]
fn every_route_is_recognised_by_its_path() {
    for route in all() {
        assert_eq!(Route::recognise(&route.path()), Some(route));
    }
}

#[test]
fn no_two_routes_share_a_path_or_a_label() {
    let paths: HashSet<_> = FIXED.iter().map(Route::path).collect();
    let labels: HashSet<_> = FIXED.iter().map(Route::label).collect();
    assert_eq!(paths.len(), FIXED.len());
    assert_eq!(labels.len(), FIXED.len());
    assert!(!labels.contains("asset") && !labels.contains("theme_file"));
}

#[test]
fn every_route_is_reached_through_the_address_it_publishes() {
    for (issuer, issuer_path) in [
        ("https://id.example.com", ""),
        ("https://id.example.com/", "/"),
        ("https://id.example.com:8443/tenant/a", "/tenant/a"),
        ("https://id.example.com/tenant/", "/tenant/"),
    ] {
        for route in all() {
            let url = route.url(issuer);
            let path_at = url.find('/').map(|at| at + 2).unwrap();
            let path = &url[path_at + url[path_at..].find('/').unwrap()..];
            let stripped = strip_issuer_path(issuer_path, path).unwrap();
            assert_eq!(Route::recognise(stripped), Some(route), "{url}");
        }
    }
}

#[test]
fn the_authorization_server_metadata_goes_before_the_issuers_path() {
    assert_eq!(
        Route::OauthAuthorizationServer.url("https://example.com/issuer1"),
        "https://example.com/.well-known/oauth-authorization-server/issuer1"
    );
    assert_eq!(
        Route::OpenidConfiguration.url("https://example.com/issuer1"),
        "https://example.com/issuer1/.well-known/openid-configuration"
    );
}

#[test]
fn a_path_beside_the_issuers_is_not_ours() {
    assert_eq!(strip_issuer_path("/tenant", "/tenant2/login"), None);
    assert_eq!(strip_issuer_path("/tenant", "/login"), None);
    assert_eq!(
        strip_issuer_path("/tenant", CHANGE_PASSWORD),
        Some(CHANGE_PASSWORD)
    );
    assert_eq!(strip_issuer_path("/tenant", "/tenant"), Some("/"));
}

#[test]
fn no_asset_climbs_out_of_its_directory() {
    for path in [
        "",
        "..",
        "a/../b",
        "/etc/passwd",
        "a//b",
        "a/",
        ".hidden",
        "a%2fb",
        "a\\b",
        "a\0",
    ] {
        assert_eq!(Route::recognise(&format!("/assets/{path}")), None, "{path}");
        assert_eq!(Route::recognise(&format!("/theme/{path}")), None, "{path}");
    }
}

#[test]
fn a_path_that_is_nearly_a_route_is_none() {
    for path in [
        "",
        "/login/",
        "//login",
        "/Login",
        "/oauth2/token?",
        "/oauth2%2ftoken",
        "/assets",
        "/oauth2/register/",
        "/oauth2/register/0193b2a4-7a10-7cc0-8000-00000000000/",
    ] {
        assert_eq!(Route::recognise(path), None, "{path}");
    }
}
