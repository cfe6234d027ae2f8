use super::*;

fn select_one(registered: &str, requested: &str) -> Result<MatchedRedirectUri, Mismatch> {
    select(&[registered.to_owned()], Some(requested), true)
}

#[test]
fn an_origin_is_what_a_browser_sends() {
    for origin in [
        "https://app.example",
        "https://app.example:8443",
        "http://intranet",
        "http://[::1]:3000",
        "capacitor://localhost",
        "tauri://localhost",
        "app://.",
        "chrome-extension://abcdefghijklmnop",
    ] {
        assert!(is_origin(origin), "{origin}");
    }
    for other in [
        "https://*.app.example",
        "http://*.intranet",
        "capacitor://*",
        "https://app.example/",
        "https://app.example:443",
        "https://APP.example",
        "https://me@app.example",
        "capacitor://localhost/",
        "capacitor://me@localhost",
        "CAPACITOR://localhost",
        "capacitor://",
        "com.example.app:",
        "javascript://localhost",
        "ftp://app.example",
        "app.example",
        "null",
        "*",
        "",
    ] {
        assert!(!is_origin(other), "{other}");
    }
    for (uri, its) in [
        ("capacitor://localhost/cb?a=b", Some("capacitor://localhost")),
        ("com.example.app:/cb", None),
        ("com.example.app:///cb", None),
        ("https://app.example:443/cb", Some("https://app.example")),
    ] {
        assert_eq!(origin(uri).as_deref(), its, "{uri}");
    }
}

#[test]
fn only_an_equal_string_matches() {
    let registered = "https://app.example/cb?tenant=1";
    assert!(select_one(registered, registered).is_ok());
    for other in [
        "https://app.example/cb",
        "https://app.example/cb?tenant=1&x=2",
        "https://app.example/cb?tenant=1/",
        "https://app.example/cb/../cb?tenant=1",
        "https://APP.example/cb?tenant=1",
        "https://app.example:443/cb?tenant=1",
        "https://app.example/cb%3Ftenant=1",
        "https://app.example.evil.example/cb?tenant=1",
        "https://app.example@evil.example/cb?tenant=1",
        "",
    ] {
        assert_eq!(
            select_one(registered, other),
            Err(Mismatch::Unregistered),
            "{other}"
        );
    }
}

#[test]
fn the_port_of_a_loopback_address_is_free_for_public_clients() {
    let registered = "http://127.0.0.1/cb";
    assert_eq!(
        select_one(registered, "http://127.0.0.1:51234/cb").unwrap().uri(),
        "http://127.0.0.1:51234/cb"
    );
    assert!(select_one("http://[::1]:80/cb", "http://[::1]:9/cb").is_ok());
    for other in [
        "http://127.0.0.1:51234/other",
        "http://127.0.0.1:51234@evil.example/cb",
        "http://127.0.0.1.evil.example/cb",
        "http://127.0.0.1:99999/cb",
        "http://127.0.0.1:+1/cb",
        "http://127.0.0.2/cb",
        "https://127.0.0.1:51234/cb",
        "http://[::1]/cb",
        "http://127.0.0.1:1\\@evil.example/cb",
    ] {
        assert!(select_one(registered, other).is_err(), "{other}");
    }
    let by_name = "http://localhost/callback";
    let asked = "http://localhost:58135/callback";
    assert_eq!(select_one(by_name, asked).unwrap().uri(), asked);
    assert!(select_one("http://localhost:3000/cb", "http://localhost/cb").is_ok());
    for other in [
        "http://localhost:58135/cb",
        "http://127.0.0.1:58135/callback",
        "http://[::1]:58135/callback",
        "http://localhost.evil.example/callback",
        "http://app.localhost/callback",
        "http://localhost:1@evil.example/callback",
        "http://LOCALHOST/callback",
        "https://localhost/callback",
    ] {
        assert!(select_one(by_name, other).is_err(), "{other}");
        assert!(select_one(other, by_name).is_err(), "{other}");
    }
    assert!(select_one(registered, "http://localhost:51234/cb").is_err());
    assert!(select(&[registered.to_owned()], Some("http://127.0.0.1:5/cb"), false).is_err());
}

#[test]
fn a_request_may_leave_out_the_only_one() {
    let one = ["https://a.example/cb".to_owned()];
    assert!(!select(&one, None, false).unwrap().was_explicit());
    let two = [one[0].clone(), "https://b.example/cb".to_owned()];
    assert_eq!(select(&two, None, false), Err(Mismatch::Missing));
    assert_eq!(select(&[], None, false), Err(Mismatch::Missing));
}

#[test]
fn another_host_or_private_use_scheme_is_elsewhere_and_a_loopback_address_is_not() {
    let before = ["https://app.example/cb", "com.example.app:/cb"].map(ToOwned::to_owned);
    for (uri, is_elsewhere) in [
        ("https://app.example:8443/other", false),
        ("com.example.app:/other", false),
        ("http://127.0.0.1/cb", false),
        ("http://localhost:3000/cb", false),
        ("https://www.app.example/cb", true),
        ("com.example.other:/cb", true),
    ] {
        assert_eq!(lead_elsewhere(&before, &[uri.to_owned()]), is_elsewhere, "{uri}");
    }
}

#[test]
fn what_may_be_registered() {
    for fine in [
        "https://app.example/cb",
        "http://127.0.0.1/cb",
        "http://localhost:3000/",
        "http://[::1]/",
    ] {
        assert_eq!(check_registrable(fine, false), Ok(()), "{fine}");
    }
    assert_eq!(check_registrable("com.example.app:/oauth", true), Ok(()));
    assert_eq!(check_registrable("com.example.app:/oauth/@me", true), Ok(()));
    assert_eq!(check_registrable("https://app.example/@me?to=a@b", false), Ok(()));
    assert_eq!(
        check_registrable("com.example.app:/oauth", false),
        Err(RedirectUriProblem::PrivateUse)
    );
    assert_eq!(
        check_registrable("https://a.example/#x", true),
        Err(RedirectUriProblem::Fragment)
    );
    assert_eq!(
        check_registrable("http://app.example/cb", true),
        Err(RedirectUriProblem::PlainHttp)
    );
    for taken in [
        "javascript:alert(1)",
        "mailto:a@b.example",
        "tel:1",
        "SMS:1",
        "chrome://x",
        "jar:https://a.example",
        "view-source:https://a.example",
        "wss://a.example/",
    ] {
        assert_eq!(
            check_registrable(taken, true),
            Err(RedirectUriProblem::Scheme),
            "{taken}"
        );
        assert!(select_one(taken, taken).is_ok(), "as {taken} once could");
    }
    for relative in [
        "/cb",
        "//app.example/cb",
        "https:x",
        "https:app.example/cb",
        "https:/app.example/cb",
        "https:/u@a.example/",
        "https:///app.example/cb",
        "HTTPS:/app.example/cb",
        "http:/127.0.0.1/cb",
        "http:localhost:3000/cb",
        "https://",
        "https://?x",
    ] {
        for public in [false, true] {
            let verdict = check_registrable(relative, public);
            assert_eq!(verdict, Err(RedirectUriProblem::NotAbsolute), "{relative}");
        }
    }
    for unsafe_one in [
        "https://u:p@a.example/",
        "https://@a.example/",
        "com.example.app://@",
        "com.example.app://u@host/cb",
        "https://a.example/ b",
        "https://a\\b/",
    ] {
        assert_eq!(
            check_registrable(unsafe_one, true),
            Err(RedirectUriProblem::Unsafe),
            "{unsafe_one}"
        );
    }
}

#[test]
fn a_wildcard_is_refused_and_a_stored_one_matches_only_itself() {
    for uri in [
        "https://*.example/",
        "https://a.example/*",
        "https://a.example/cb?to=*",
        "http://127.0.0.1/*",
        "http://localhost:*/cb",
        "com.example.app:/*",
        "*",
    ] {
        assert_eq!(
            check_registrable(uri, true),
            Err(RedirectUriProblem::Wildcard),
            "{uri}"
        );
    }
    assert!(select_one("https://a.example/*", "https://a.example/*").is_ok());
    assert!(select_one("https://a.example/*", "https://a.example/cb").is_err());
}

#[test]
fn a_scheme_without_a_dot_may_be_registered_but_is_not_private() {
    for uri in ["myapp:/cb", "my-app://cb.example", "x:y"] {
        assert_eq!(check_registrable(uri, true), Ok(()), "{uri}");
        assert!(!is_private_by_name(uri), "{uri}");
    }
    for uri in ["com.example.app:/cb", "https://a.example/", "HTTP://localhost/"] {
        assert!(is_private_by_name(uri), "{uri}");
    }
}

#[test]
fn a_query_with_a_response_parameter_is_refused() {
    for name in RESPONSE_PARAMETERS {
        let uri = format!("https://app.example/cb?tenant=1&{name}=x");
        let verdict = check_query(&uri, RESPONSE_PARAMETERS);
        assert_eq!(verdict, Err(RedirectUriProblem::Parameter(name)), "{uri}");
    }
    for disguised in [
        "https://a/cb?c%6fde=1",
        "com.example.app:/cb?code",
        "https://a/cb?&code=%20",
    ] {
        let verdict = check_query(disguised, RESPONSE_PARAMETERS);
        assert_eq!(verdict, Err(RedirectUriProblem::Parameter("code")), "{disguised}");
    }
    for fine in [
        "https://a/code",
        "https://a/cb?Code=1&codes=2&to=code",
        "https://a/cb?",
        "app:/state",
    ] {
        assert_eq!(check_query(fine, RESPONSE_PARAMETERS), Ok(()), "{fine}");
    }
    assert_eq!(check_query("https://a/?code=1", LOGOUT_PARAMETERS), Ok(()));
    assert!(check_query("https://a/?state=1", LOGOUT_PARAMETERS).is_err());
}

#[test]
fn a_registered_query_is_kept() {
    assert_eq!(
        with_query("https://a/cb", &[("code", "x y")]),
        "https://a/cb?code=x+y"
    );
    assert_eq!(
        with_query("https://a/cb?t=1", &[("code", "x")]),
        "https://a/cb?t=1&code=x"
    );
    assert_eq!(
        with_query("https://a/cb?", &[("code", "x")]),
        "https://a/cb?code=x"
    );
    assert_eq!(with_query("app:/cb", &[("state", "a&b")]), "app:/cb?state=a%26b");
}
