//! Operator themes against the running service: `tests/themes` is copied in while it runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::harness::process::{Reply, Running, Service};

const REDIRECT_URI: &str = "https://app.example/cb";

fn themes(service: &Service) -> PathBuf {
    service.data().join("themes")
}

/// Copies a theme of `tests/themes` to where the service looks.
pub(crate) fn install(service: &Service, name: &str) {
    fn copy(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let path = entry.unwrap().path();
            let to = to.join(path.file_name().unwrap());
            if path.is_dir() {
                copy(&path, &to);
            } else {
                fs::copy(&path, &to).unwrap();
            }
        }
    }
    let from = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/themes")
        .join(name);
    copy(&from, &themes(service).join(name));
}

fn service_with_client(theme: &str) -> Service {
    let service = Service::new();
    service.json(&[
        "client",
        "add",
        "web",
        "--redirect-uri",
        REDIRECT_URI,
        "--pkce",
        "optional",
        "--theme",
        theme,
        "--consent",
        "require",
        "--scope",
        "openid",
        "--scope",
        "notes.write",
        "--name",
        "Acme Notes",
        "--json",
    ]);
    service
}

fn authorize(query: &str) -> String {
    format!(
        "/oauth2/authorize?response_type=code&client_id=web&redirect_uri=https%3A%2F%2Fapp.example%2Fcb&scope=openid%20notes.write{query}"
    )
}

/// The sign-in page, as a browser gets it that follows the redirect.
pub(crate) fn login_page(running: &Running<'_>, query: &str) -> Reply {
    let reply = running.request("GET", &authorize(query), &[], "").unwrap();
    let cookie = reply
        .header("set-cookie")
        .unwrap()
        .split(';')
        .next()
        .unwrap()
        .to_owned();
    let path = reply.header("location").unwrap();
    running.request("GET", path, &[("Cookie", &cookie)], "").unwrap()
}

/// Asks again until the answer is as it should be: the service looks at themes every second.
fn eventually(ask: impl Fn() -> Reply, is_so: impl Fn(&Reply) -> bool) -> Reply {
    let start = Instant::now();
    loop {
        let reply = ask();
        if is_so(&reply) {
            return reply;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{reply:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn wait_for_log(service: &Service, part: &str) {
    let start = Instant::now();
    while !service.log().contains(part) {
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "no {part:?} in {}",
            service.log()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The path of the file that the page loads and that ends so.
fn linked(page: &Reply, end: &str) -> String {
    let found = page.body.split('"').map(|part| part.replace("&#x2f;", "/"));
    found
        .into_iter()
        .find(|part| part.ends_with(end))
        .unwrap_or_else(|| panic!("{page:?}"))
}

#[test]
fn a_foreign_page_is_picked_up_while_the_service_runs_and_signs_people_in() {
    let service = service_with_client("foreign");
    let alice = service.json(&[
        "user",
        "add",
        "alice@example.com",
        "--generate-password",
        "--json",
    ]);
    let password = alice["password"].as_str().unwrap();
    let running = service.serve();
    assert!(login_page(&running, "").body.contains("card page-login"));
    install(&service, "foreign");
    let page = eventually(|| login_page(&running, ""), |page| page.body.contains("masthead"));
    assert!(page.body.contains("<title>Log on - Meridian Bank</title>"));
    assert!(
        page.body
            .contains("https:&#x2f;&#x2f;meridian.example&#x2f;privacy\">Privacy</a>")
    );
    let policy = page.header("content-security-policy").unwrap();
    assert!(
        policy.contains("font-src 'self' https://fonts.meridian.example;"),
        "{policy}"
    );
    assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("form-action"));
    assert_eq!(page.header("cache-control"), Some("no-store"));

    let german = login_page(&running, "&ui_locales=de");
    assert!(german.body.contains("<html lang=\"de\"") && german.body.contains(">Datenschutz</a>"));
    let dutch = login_page(&running, "&ui_locales=nl-BE");
    assert!(
        dutch.body.contains("<html lang=\"nl\" dir=\"ltr\">") && dutch.body.contains("<h1>Inloggen</h1>")
    );

    let style = running
        .request("GET", &linked(&page, "site.css"), &[], "")
        .unwrap();
    assert_eq!(style.header("content-type"), Some("text/css; charset=utf-8"));
    assert_eq!(
        style.header("cache-control"),
        Some("public, max-age=31536000, immutable")
    );
    assert!(style.body.contains(".masthead"));

    let failed = running.type_in(&authorize(""), "alice@example.com", "wrong").0;
    assert!(failed.body.contains("masthead") && failed.body.contains("role=\"alert\""));
    let (signed_in, browser) = running.type_in(&authorize(""), "alice@example.com", password);
    let session = signed_in
        .headers("set-cookie")
        .into_iter()
        .find(|cookie| cookie.starts_with("__Host-idsvc_session"))
        .unwrap()
        .split(';')
        .next()
        .unwrap();
    let cookies = format!("{browser}; {session}");
    let consent = running
        .request(
            "GET",
            signed_in.header("location").unwrap(),
            &[("Cookie", &cookies)],
            "",
        )
        .unwrap();
    assert!(
        consent.body.contains("<td>Write down what you tell us</td>"),
        "{consent:?}"
    );
    let (transaction, csrf) = (consent.hidden("transaction"), consent.hidden("csrf"));
    let form = [
        ("transaction", transaction.as_str()),
        ("csrf", &csrf),
        ("decision", "allow"),
    ];
    let answer = running
        .post_form("/consent", &[("Cookie", &cookies)], &form)
        .unwrap();
    assert!(
        answer.header("location").unwrap().starts_with(REDIRECT_URI),
        "{answer:?}"
    );

    let wrong = running
        .request(
            "GET",
            "/oauth2/authorize?client_id=web&redirect_uri=https%3A%2F%2Fother.example&ui_locales=de",
            &[],
            "",
        )
        .unwrap();
    assert!(
        wrong.body.contains("masthead") && wrong.body.contains("<html lang=\"de\""),
        "{wrong:?}"
    );
}

#[test]
fn a_broken_theme_takes_no_page_down_and_the_log_says_why_once() {
    let service = service_with_client("broken");
    install(&service, "broken");
    let running = service.serve();
    for _ in 0..3 {
        let page = login_page(&running, "");
        assert!(
            page.body.contains("card page-login") && !page.body.contains("Broken"),
            "{page:?}"
        );
    }
    for part in ["login.html", "consent.html line", "error.html line 3"] {
        service.logged(part);
    }
    let parts = "the field password, the field username, a button that sends it";
    let log = service.logged(parts);
    assert_eq!(log.matches(parts).count(), 1, "{log}");

    let broken = themes(&service).join("broken");
    fs::write(broken.join("theme.toml"), "contract = 1\nnonsense = 1").unwrap();
    wait_for_log(&service, "theme.toml line 2");
    assert!(
        login_page(&running, "")
            .body
            .contains("<bdi class=\"brand-name\">idsvc</bdi>")
    );

    fs::write(
        broken.join("theme.toml"),
        "contract = 1\nproduct_name = \"Mended\"",
    )
    .unwrap();
    fs::remove_file(broken.join("login.html")).unwrap();
    eventually(
        || login_page(&running, ""),
        |page| page.body.contains("<bdi class=\"brand-name\">Mended</bdi>"),
    );
    fs::remove_dir_all(&broken).unwrap();
    eventually(
        || login_page(&running, ""),
        |page| page.body.contains(">idsvc</bdi>"),
    );
    wait_for_log(&service, "there is no such theme");
}

#[test]
fn a_hostile_theme_runs_nothing_leads_nowhere_and_costs_little() {
    let service = service_with_client("hostile");
    install(&service, "hostile");
    let secret = service.folder.path().join("secret.css");
    fs::write(&secret, "the secret of another user").unwrap();
    let running = service.serve();
    let start = Instant::now();
    let pages = [
        login_page(&running, ""),
        running
            .request(
                "GET",
                "/oauth2/authorize?client_id=web&redirect_uri=https%3A%2F%2Fother.example",
                &[],
                "",
            )
            .unwrap(),
        running
            .request("GET", "/oauth2/authorize?client_id=web&redirect_uri=x", &[], "")
            .unwrap(),
    ];
    assert!(start.elapsed() < Duration::from_secs(10));
    for page in &pages {
        assert!(
            page.body.starts_with("<!DOCTYPE html>") && page.body.ends_with("</html>"),
            "{page:?}"
        );
        for part in ["hostile.example", "root:", "http-equiv"] {
            assert!(!page.body.contains(part), "{part}: {page:?}");
        }
        let scripts = page.body.matches("<script").count();
        let ours = page.body.matches("<script src=\"/assets/").count();
        assert_eq!(scripts, ours, "{page:?}");
    }
    let policy = pages[0].header("content-security-policy").unwrap();
    assert!(
        policy.starts_with("default-src 'none'; style-src 'self'; img-src 'self' data:; script-src 'self';")
    );

    let hostile = themes(&service).join("hostile");
    for name in [
        "theme.toml",
        "../hostile/theme.toml",
        "..%2f..%2fidsvc.redb",
        "x/../../../master.key",
    ] {
        let path = format!("/theme/hostile/0/{name}");
        let reply = running.request("GET", &path, &[], "");
        assert!(reply.is_none_or(|reply| reply.status == 404), "{path}");
    }
    fs::remove_dir_all(&hostile).unwrap();
    fs::create_dir(&hostile).unwrap();
    fs::write(hostile.join("theme.toml"), "contract = 1").unwrap();
    std::os::unix::fs::symlink(&secret, hostile.join("secret.css")).unwrap();
    wait_for_log(&service, "secret.css");
    let reply = running
        .request("GET", "/theme/hostile/0/secret.css", &[], "")
        .unwrap();
    assert_eq!(reply.status, 404);
    fs::remove_file(hostile.join("secret.css")).unwrap();
    fs::write(hostile.join("big.css"), vec![b'a'; 3 * 1024 * 1024]).unwrap();
    wait_for_log(&service, "it is larger than 2048 KiB");
    fs::remove_file(hostile.join("big.css")).unwrap();
    fs::write(hostile.join("logo.png"), "<script>alert(1)</script>").unwrap();
    wait_for_log(&service, "the content is not image/png");
    assert!(login_page(&running, "").body.contains("card page-login"));
}

/// A picture can hold scripts, and a browser that opens it directly runs them with the origin of the service.
#[test]
fn what_a_theme_brings_can_do_nothing_by_itself() {
    let service = service_with_client("split");
    let running = service.serve();
    let logo = linked(&login_page(&running, ""), "logo.svg");
    let (before, _) = logo.rsplit_once('/').unwrap();
    let (theme, _) = before.rsplit_once('/').unwrap();
    for path in [logo.clone(), format!("{theme}/0/logo.svg")] {
        let reply = running.request("GET", &path, &[], "").unwrap();
        assert_eq!(
            (reply.status, reply.header("content-type")),
            (200, Some("image/svg+xml"))
        );
        let policy = reply.header("content-security-policy").unwrap_or_default();
        assert!(
            policy.starts_with("default-src 'none';") && policy.contains("; sandbox;"),
            "{path}: {policy}"
        );
    }
}

#[test]
fn a_language_of_the_operators_is_offered_by_every_theme_and_named_in_discovery() {
    let service = service_with_client("split");
    let running = service.serve();
    assert!(login_page(&running, "").body.contains("split-picture"));
    let locales = themes(&service).join("locales");
    fs::create_dir_all(&locales).unwrap();
    fs::write(locales.join("pt-BR.toml"), "[texts]\nsign_in = \"Entrar\"").unwrap();
    let page = eventually(
        || login_page(&running, "&ui_locales=pt-BR"),
        |page| page.body.contains("<h1>Entrar</h1>"),
    );
    assert!(page.body.contains("<html lang=\"pt-BR\""));
    let discovery = running
        .request("GET", "/.well-known/openid-configuration", &[], "")
        .unwrap()
        .json();
    let languages = discovery["ui_locales_supported"].as_array().unwrap();
    assert!(languages.contains(&"pt-BR".into()) && languages.contains(&"ar".into()));
}

#[test]
fn a_client_says_what_its_scopes_mean_and_how_its_pages_look() {
    let service = service_with_client("split");
    let shown = service.json(&[
        "client",
        "update",
        "web",
        "--theme",
        "",
        "--scope-text",
        "notes.write=Keep a diary",
        "--json",
    ]);
    assert!(shown["theme"].is_null());
    assert_eq!(shown["scope_texts"]["notes.write"], "Keep a diary");
    let cleared = service.json(&[
        "client",
        "update",
        "web",
        "--scope-text",
        "notes.write=",
        "--json",
    ]);
    assert_eq!(cleared["scope_texts"], serde_json::json!({}));
    for wrong in [["--theme", "../x"], ["--scope-text", "other=x"]] {
        let refused = service.run(&[&["client", "update", "web"][..], &wrong].concat());
        assert_eq!(refused.status.code(), Some(1), "{wrong:?}");
    }
}
