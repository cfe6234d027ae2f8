//! `idsvc theme …`: what a designer types.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::process::{Service, request};

fn sample(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/themes")
        .join(name);
    path.to_str().unwrap().to_owned()
}

/// What `theme check` found, one line each, and whether it was content.
fn check(service: &Service, theme: &str) -> (bool, Vec<String>) {
    let output = service.run(&["theme", "check", theme, "--json"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let ok = document["ok"].as_bool().unwrap();
    assert_eq!(output.status.code(), Some(i32::from(!ok)));
    let line = |finding: &Value| {
        let text = |name: &str| finding[name].as_str().unwrap();
        format!("{} {}: {}", text("severity"), text("place"), text("message"))
    };
    (
        ok,
        document["findings"]
            .as_array()
            .unwrap()
            .iter()
            .map(line)
            .collect(),
    )
}

#[test]
fn a_new_theme_is_sound_from_the_beginning() {
    let service = Service::empty();
    let made = service.json(&["theme", "new", "acme", "--html", "--language", "nl", "--json"]);
    assert!(
        made["files"]
            .as_array()
            .unwrap()
            .contains(&"locales/nl.toml".into())
    );
    assert_eq!(check(&service, "acme"), (true, vec![]));
    let listed = service.json(&["theme", "list", "--json"]);
    let rows = listed.as_array().unwrap();
    let names: Vec<_> = rows.iter().map(|row| row["theme"].as_str().unwrap()).collect();
    assert_eq!(names, ["acme", "default", "split"]);
    assert_eq!(
        (&rows[0]["product_name"], &rows[0]["usable"]),
        (&"My product".into(), &true.into())
    );
    assert_eq!(
        (&rows[1]["built_in"], &rows[1]["chosen"]),
        (&true.into(), &true.into())
    );

    let mode = fs::metadata(service.data()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "the data directory is nobody else's");
    let folder = service.data().join("themes/acme");
    assert!(
        fs::read_to_string(folder.join("locales/nl.toml"))
            .unwrap()
            .contains("sign_in = \"Sign in\"")
    );
    let warned = |theme: &str| {
        let output = service
            .command(&["config", "check"])
            .env("IDSVC_THEME", theme)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(warned("acme").is_empty() && warned("nobody").contains("the default theme is used"));
    let add = [
        "client",
        "add",
        "web",
        "--redirect-uri",
        "https://app.example/cb",
        "--theme",
    ];
    let added = service.run(&[&add[..], &["nobody"]].concat());
    assert!(String::from_utf8_lossy(&added.stderr).contains("there is no theme nobody,"));
    let again = service.run(&["theme", "new", "acme"]);
    assert_eq!(again.status.code(), Some(1));
    for wrong in ["default", "Acme", "locales", "-x", "../evil", "./acme", "/acme"] {
        let refused = service.run(&["theme", "new", "--", wrong]);
        assert_eq!(refused.status.code(), Some(2), "{wrong}");
    }
    let wrong = service.run(&["theme", "new", "b", "--language", "../x"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(!service.data().join("themes/b").exists());
    assert!(!service.data().join("evil").exists());
}

#[test]
fn a_check_says_what_visitors_would_meet() {
    let service = Service::new();
    let (ok, found) = check(&service, &sample("foreign"));
    assert!(ok, "{found:?}");
    assert!(
        found.iter().all(|line| line.starts_with("note language nl")),
        "{found:?}"
    );

    let (ok, found) = check(&service, &sample("broken"));
    assert!(!ok);
    for said in [
        "refused login.html: a form is missing or incomplete",
        "refused consent.html line",
        "refused error.html line 3: undefined value",
        "fault theme.toml: light.muted on light.surface has a contrast of",
        "fault logged-out.html: img loads \"logo.png\"",
        "fault logged-out.html: an img without alt",
    ] {
        assert!(
            found.iter().any(|line| line.starts_with(said)),
            "{said}: {found:#?}"
        );
    }

    let (ok, found) = check(&service, &sample("hostile"));
    assert!(!ok);
    for said in [
        "refused login.html: a form is sent to \"https://hostile.example/steal\"",
        "refused consent.html line 4: the page takes too long to draw",
        "refused error.html line 2: an operation that makes a new value",
        "refused error.html line 3: set",
        "refused error.html line 4: a call",
        "refused logged-out.html line 2:",
        "refused logout.html: http-equiv",
        "refused logout.html: formaction",
        "fault layout.html: an inline script",
        "fault layout.html: onload",
        "fault layout.html: base",
        "fault layout.html: script loads \"https://hostile.example/x.js\"",
        "fault theme.css line 2: \"https://hostile.example/track.css\"",
        "fault theme.css line 3: \"https://hostile.example/track.png\"",
    ] {
        assert!(
            found.iter().any(|line| line.starts_with(said)),
            "{said}: {found:#?}"
        );
    }
    let missing = service.run(&["theme", "check", "nobody"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("idsvc theme new nobody"));
}

#[test]
fn a_language_for_all_themes_that_is_not_read_is_said_of_each_of_them() {
    let service = Service::with_client();
    service.json(&["theme", "new", "acme", "--json"]);
    let file = service.data().join("themes/locales/nl.toml");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, "[texts]\nsign_in_to = \"Aanmelden\"").unwrap();
    let (ok, found) = check(&service, "acme");
    let named = "refused theme_dir/locales/nl.toml line 2: sign_in_to ";
    assert!(
        !ok && found.len() == 1 && found[0].starts_with(named),
        "{found:?}"
    );
    let listed = service.json(&["theme", "list", "--json"]);
    for row in listed.as_array().unwrap() {
        assert_eq!(
            (&row["usable"], &row["faults"]),
            (&true.into(), &1.into()),
            "{row}"
        );
    }
    let folder = service.run(&["theme", "check", "locales"]);
    assert_eq!(folder.status.code(), Some(1));
    let hint = String::from_utf8_lossy(&folder.stderr).into_owned();
    assert!(
        hint.contains("idsvc theme check NAME looks at") && !hint.contains("theme new"),
        "{hint}"
    );
    let doctor = service.run(&["doctor", "--backup-interval", "off"]);
    let told = String::from_utf8_lossy(&doctor.stdout).into_owned();
    for part in ["advice  language locales: ", "idsvc theme check default"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!told.contains("the default theme is used"), "{told}");
    fs::write(&file, "[texts]\nsign_in = \"Aanmelden\"").unwrap();
    let (_, found) = check(&service, "acme");
    assert!(
        found.iter().all(|line| line.starts_with("note language nl")),
        "{found:?}"
    );
}

/// A preview that runs; dropping it ends it.
struct Preview {
    child: Child,
    port: u16,
}

impl Drop for Preview {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Preview {
    fn start(service: &Service, theme: &str) -> Self {
        let mut child = service
            .command(&["theme", "preview", theme, "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let port = line.trim().trim_end_matches('/').rsplit(':').next().unwrap();
        Self {
            child,
            port: port.parse().unwrap_or_else(|_| panic!("no address: {line}")),
        }
    }

    fn get(&self, path: &str) -> crate::harness::process::Reply {
        request(self.port, "GET", path, &[], "").unwrap()
    }
}

#[test]
fn a_preview_shows_every_page_in_every_language_and_follows_the_files() {
    let service = Service::new();
    service.json(&["theme", "new", "acme", "--html", "--json"]);
    let preview = Preview::start(&service, "acme");
    let frame = preview.get("/");
    let pages: Vec<_> = frame
        .body
        .split("href=\"/?page=")
        .skip(1)
        .filter_map(|rest| rest.split("&amp;locale=en").next())
        .filter(|page| !page.contains('"'))
        .collect();
    assert!(
        pages.len() > 15
            && ["/pages/login/credentials", "/mails/sign-up.html"]
                .iter()
                .all(|page| pages.contains(page)),
        "{pages:?}"
    );
    let for_developers = [
        "/pages/home",
        "/pages/tokens",
        "/pages/dev-device",
        "/pages/dev-mail",
    ];
    for page in pages {
        let is_english = for_developers.iter().any(|start| page.starts_with(start));
        for locale in ["en", "ar"] {
            let shown = preview.get(&format!("{page}?locale={locale}"));
            assert_eq!(shown.status, 200, "{page}");
            assert!(shown.body.contains("My product"), "{page}: {}", shown.body);
            let language = if is_english { "en" } else { locale };
            let is_document = shown.body.contains(&format!("<html lang=\"{language}\""));
            let is_text = page.rsplit('.').next() == Some("txt");
            assert_eq!(is_document, !is_text, "{page}");
            let policy = shown.header("content-security-policy").unwrap();
            let is_right = if page.starts_with("/mails/") {
                policy.starts_with("default-src 'none'; style-src")
                    && policy.ends_with("sandbox allow-popups")
            } else {
                policy.contains("script-src 'self';") && policy.ends_with("frame-ancestors 'self'")
            };
            assert!(is_right, "{page}: {policy}");
        }
    }
    let style = preview.get("/pages/login/first").body;
    let style = style
        .split('"')
        .find(|part| part.ends_with("theme.css"))
        .unwrap()
        .to_owned();
    assert_eq!(preview.get(&style).status, 200);
    assert_eq!(
        preview.get("/preview.js").header("content-type"),
        Some("text/javascript; charset=utf-8")
    );
    for path in [
        "/pages/nothing",
        "/oauth2/authorize",
        "/theme/acme/0/theme.toml",
        "/../theme.toml",
    ] {
        assert_eq!(preview.get(path).status, 404, "{path}");
    }
    let posted = request(preview.port, "POST", "/login", &[], "username=x").unwrap();
    assert_eq!((posted.status, posted.header("location")), (303, Some("/")));

    let before = preview.get("/state").body;
    let folder = service.data().join("themes/acme");
    fs::write(folder.join("login.html"), "<p>\n{{ oops }}").unwrap();
    let start = Instant::now();
    while preview.get("/state").body == before {
        assert!(start.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(20));
    }
    let frame = preview.get("/");
    assert!(
        frame.body.contains("login.html line 2") && frame.body.contains("undefined value"),
        "{}",
        frame.body
    );
    assert!(
        preview
            .get("/pages/login/first")
            .body
            .contains("name=\"password\"")
    );

    let public = service.run(&["theme", "preview", "acme", "--listen", "0.0.0.0:0"]);
    assert_eq!(public.status.code(), Some(2));
}
