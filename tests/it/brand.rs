//! `brand.name`, `brand.logo`, `brand.accent`: the name of a company on pages and in mails, without a theme.

use std::fs;

use crate::harness::process::{Reply, Service, said, shown};

const LOGO: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\"><title>Acme</title></svg>";

/// A service with the name, the logo and the colour of a company.
fn branded() -> Service {
    let service = Service::new();
    let logo = service.folder.path().join("acme.svg");
    fs::write(&logo, LOGO).unwrap();
    service
        .with("IDSVC_BRAND_NAME", "Acme: Identity")
        .with("IDSVC_BRAND_LOGO", logo.to_str().unwrap())
        .with("IDSVC_BRAND_ACCENT", "#5a2a83")
}

/// The page of an authorization request without a client.
fn page(service: &Service) -> Reply {
    service.request("GET", "/oauth2/authorize", &[], "").unwrap()
}

/// What pages link to, by the end of its path.
fn linked(page: &Reply, end: &str) -> Option<String> {
    let paths = page.body.split('"').map(|part| part.replace("&#x2f;", "/"));
    paths
        .into_iter()
        .find(|path| path.starts_with('/') && path.ends_with(end))
}

fn write_theme(service: &Service, manifest: &str) {
    let folder = service.data().join("themes/own");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("own.svg"), "<svg/>").unwrap();
    fs::write(folder.join("theme.toml"), format!("contract = 1\n{manifest}")).unwrap();
}

#[test]
fn pages_have_the_name_the_logo_and_the_colour_of_the_company() {
    let service = branded();
    let _running = service.serve();
    let shown = page(&service);
    assert!(shown.body.contains(" · Acme: Identity</title>"), "{}", shown.body);
    assert!(!shown.body.contains(">idsvc<"), "{}", shown.body);
    let logo = linked(&shown, "/brand.svg").unwrap();
    assert_eq!(
        shown.body.replace("&#x2f;", "/").matches(&logo).count(),
        2,
        "the icon too"
    );
    let served = service.request("GET", &logo, &[], "").unwrap();
    assert_eq!(
        (served.header("content-type"), served.body.as_str()),
        (Some("image/svg+xml"), LOGO)
    );
    let style = service
        .request("GET", &linked(&shown, "/theme.css").unwrap(), &[], "")
        .unwrap();
    assert!(style.body.contains("--accent:#5a2a83"), "{}", &style.body[..600]);
}

#[test]
fn a_theme_counts_before_the_brand_and_inherits_what_it_leaves_out() {
    let service = branded().with("IDSVC_THEME", "own");
    write_theme(&service, "product_name = \"Notes\"");
    let mut running = service.serve();
    let named = page(&service);
    assert!(named.body.contains(" · Notes</title>"), "{}", named.body);
    let logo = linked(&named, "/brand.svg").unwrap();
    assert!(logo.starts_with("/theme/default/"), "{logo}");
    running.terminate();
    write_theme(
        &service,
        "logo = \"own.svg\"\nfavicon = \"\"\naccent = \"#123456\"",
    );
    let mut running = service.serve();
    let own = page(&service);
    assert!(own.body.contains(" · Acme: Identity</title>") && linked(&own, "/own.svg").is_some());
    assert!(linked(&own, "/brand.svg").is_none() && !own.body.contains("rel=\"icon\""));
    running.terminate();
    // The other built-in theme keeps its colours and gets the logo.
    let split = branded().with("IDSVC_THEME", "split");
    let _running = split.serve();
    let shown = page(&split);
    assert!(linked(&shown, "/brand.svg").unwrap().starts_with("/theme/split/"));
    let style = split
        .request("GET", &linked(&shown, "/theme.css").unwrap(), &[], "")
        .unwrap();
    assert!(!style.body.contains("#5a2a83"));
}

/// As the guide says: what a theme leaves out is as in the theme `default`.
#[test]
fn a_theme_with_only_a_name_keeps_logo_and_icon_of_the_default_theme() {
    let service = Service::new().with("IDSVC_THEME", "own");
    write_theme(&service, "product_name = \"Notes\"");
    let _running = service.serve();
    let shown = page(&service);
    for file in ["/logo.svg", "/favicon.svg"] {
        let path = linked(&shown, file).unwrap_or_else(|| panic!("{file}: {}", shown.body));
        assert_eq!(service.request("GET", &path, &[], "").unwrap().status, 200);
    }
}

#[test]
fn a_wrong_file_or_colour_is_refused_with_a_sentence() {
    let service = branded();
    let text = service.folder.path().join("logo.txt");
    fs::write(&text, "hello").unwrap();
    let lying = service.folder.path().join("logo.png");
    fs::write(&lying, LOGO).unwrap();
    let path = |name: &str| service.folder.path().join(name).to_str().unwrap().to_owned();
    for (flag, value, sentence) in [
        ("--brand-logo", path("logo.txt"), "a logo ends in .svg"),
        ("--brand-logo", path("logo.png"), "the content is not image/png"),
        ("--brand-logo", path("missing.svg"), "No such file"),
        (
            "--brand-accent",
            "red".to_owned(),
            "is no colour, written #rrggbb",
        ),
        ("--brand-name", " ".to_owned(), "brand.name is empty"),
    ] {
        let checked = service.run(&["config", "check", flag, &value]);
        assert_eq!(checked.status.code(), Some(1), "{flag} {value}");
        assert!(said(&checked).contains(sentence), "{flag}: {}", said(&checked));
    }
    assert!(service.run(&["config", "check"]).status.success());
}

#[test]
fn a_logo_that_cannot_be_read_stops_only_what_checks_pages() {
    let service = branded();
    let added = service.run(&["user", "add", "alice@example.com", "--no-password"]);
    assert!(added.status.success(), "{}", said(&added));
    fs::remove_file(service.folder.path().join("acme.svg")).unwrap();
    let locked = service.run(&["user", "lock", "alice@example.com"]);
    assert!(locked.status.success(), "{}", said(&locked));
    let why = "brand.logo: ";
    for command in [
        &["config", "check"][..],
        &["theme", "list"],
        &["theme", "check", "default"],
    ] {
        let refused = service.run(command);
        assert_eq!(refused.status.code(), Some(1), "{command:?}");
        assert!(said(&refused).contains(why), "{command:?}: {}", said(&refused));
    }
    let _running = service.serve();
    assert!(shown(&service.run(&["doctor"])).contains(why));
    let page = page(&service);
    assert!(page.body.contains("Acme: Identity"), "{}", page.body);
    assert!(linked(&page, "/brand.svg").is_none());
    let locked = service.run(&["user", "lock", "alice@example.com"]);
    assert!(locked.status.success(), "{}", said(&locked));
    assert!(service.run(&["health"]).status.success());
}

#[test]
fn doctor_advises_while_people_read_the_name_of_the_program() {
    let advice = "people read \"idsvc\"";
    let plain = Service::new();
    assert!(shown(&plain.run(&["doctor"])).contains(advice));
    let service = branded();
    assert!(!shown(&service.run(&["doctor"])).contains(advice));
    let named = Service::new().with("IDSVC_THEME", "own");
    write_theme(&named, "product_name = \"Notes\"");
    assert!(!shown(&named.run(&["doctor"])).contains(advice));
}
