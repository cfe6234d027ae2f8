use super::*;

fn acme(sources: &Sources) -> (Config, Plan) {
    let config = resolve(sources).unwrap();
    match config.tls.clone() {
        Tls::Acme(plan) => (config, plan),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_domain_is_all_that_a_public_service_needs() {
    let (config, plan) = acme(&sources_of(&[("acme.domains", "ID.example.com")], &[], ""));
    assert_eq!(config.issuer, "https://id.example.com");
    assert!(config.issuer_is_derived);
    assert_eq!(config.listen, ["0.0.0.0:443".parse().unwrap()]);
    assert_eq!(plan.domains, ["id.example.com"]);
    assert_eq!(
        (plan.directory.as_str(), plan.contact),
        (crate::net::acme::LETS_ENCRYPT, None)
    );

    let file = "base_url = \"https://id.example.com/auth\"\n[tls]\nmode = \"acme\"\n[acme]\ncontact = \"a@example.com\"\n";
    let (config, plan) = acme(&sources_of(&[], &[], file));
    assert_eq!(
        (config.issuer.as_str(), config.issuer_is_derived),
        ("https://id.example.com/auth", false)
    );
    assert_eq!(plan.domains, ["id.example.com"]);
    assert_eq!(plan.contact.as_deref(), Some("mailto:a@example.com"));
}

#[test]
fn the_source_that_names_domains_decides_about_the_mode() {
    let domains = "[acme]\ndomains = [\"id.example.com\"]\n";
    let files = format!("{WHOLE}mode = \"files\"\n");
    let flag = [("tls.mode", "files")];
    let config = resolve(&sources_of(&flag, &[], &format!("{WHOLE}{domains}"))).unwrap();
    assert!(matches!(config.tls, Tls::Files { .. }));
    let warnings: Vec<_> = config.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "idsvc.toml line 6: acme.domains has no effect, because tls.mode is \"files\" (--tls-mode): \
          take tls.mode out to have the certificate by ACME, or else acme.domains"
        ]
    );
    acme(&sources_of(&[("acme.domains", "id.example.com")], &[], &files));
    acme(&sources_of(
        &[],
        &[("IDSVC_ACME_DOMAINS", "id.example.com")],
        &files,
    ));
    let (config, _) = acme(&sources_of(&[], &[], domains));
    assert_eq!(config.warnings, []);
}

/// A flag or a variable may override the file, but one source does not name two certificates.
#[test]
fn one_source_does_not_say_two_things_about_the_certificate() {
    let base = "base_url = \"https://id.example.com\"\nlisten = [\"127.0.0.1:1\"]\n[tls]\n";
    let (domains, files) = (
        "[acme]\ndomains = [\"id.example.com\"]\n",
        "cert = \"c.pem\"\nkey = \"k.pem\"\n",
    );
    let is_by_mode = |mode: &str| {
        format!(
            "idsvc.toml line 6: acme.domains is set, and tls.mode is {mode:?} (idsvc.toml line 4): \
             take tls.mode out to have the certificate by ACME, or else acme.domains"
        )
    };
    for mode in ["self-signed", "off"] {
        let file = format!("{base}mode = {mode:?}\n{domains}");
        assert_eq!(faults(&sources_of(&[], &[], &file)), is_by_mode(mode));
    }
    let file = format!("{base}mode = \"files\"\n{files}{domains}");
    let said = faults(&sources_of(&[], &[], &file));
    assert_eq!(said, is_by_mode("files").replace("line 6", "line 8"));
    for (mode, lines) in [("self-signed", [5, 6]), ("off", [5, 6]), ("acme", [5, 6])] {
        let said = faults(&sources_of(&[], &[], &format!("{base}mode = {mode:?}\n{files}")));
        for (key, line) in ["cert", "key"].into_iter().zip(lines) {
            let expected = format!(
                "idsvc.toml line {line}: tls.{key} is set, and tls.mode is {mode:?} (idsvc.toml line 4)"
            );
            assert!(said.contains(&expected), "{said}");
        }
    }
    let said = faults(&sources_of(&[], &[], &format!("{base}{files}{domains}")));
    assert!(
        said.contains("tls.cert is set, and acme.domains is set"),
        "{said}"
    );
    let flags = [("acme.domains", "id.example.com"), ("tls.mode", "files")];
    let said = faults(&sources_of(&flags, &[], WHOLE));
    assert!(
        said.starts_with("--acme: acme.domains is set, and tls.mode is \"files\" (--tls-mode)"),
        "{said}"
    );
    resolve(&sources_of(
        &[("tls.mode", "off")],
        &[],
        &format!("{base}mode = \"files\"\n{files}"),
    ))
    .unwrap();
}

#[test]
fn what_no_authority_would_take_is_refused_at_once() {
    let fault = |key: &'static str, value: &str| {
        let flags = [("acme.domains", "id.example.com"), (key, value)];
        faults(&sources_of(
            if key == "acme.domains" {
                &flags[1..]
            } else {
                &flags
            },
            &[],
            "",
        ))
    };
    for (domain, part) in [
        ("*.example.com", "wildcard"),
        ("192.0.2.1", "an address is no domain"),
        ("[::1]", "an address is no domain"),
        ("a b", "no domain"),
        ("id_1.example.com", "no domain"),
        ("-id.example.com", "no domain"),
        ("https://id.example.com", "no domain"),
        ("localhost", "own name for itself"),
        ("id.localhost", "own name for itself"),
        (",", "nothing beside a comma"),
        ("id.example.com,,login.example.com", "nothing beside a comma"),
        ("id.example.com,", "nothing beside a comma"),
    ] {
        let faults = fault("acme.domains", domain);
        assert!(faults.contains(part), "{domain}: {faults}");
        assert_eq!(faults.lines().count(), 1, "{domain}: {faults}");
    }
    for contact in [
        "admin",
        "a@b c",
        "a@",
        "@example.com",
        "a,b@example.com",
        "tel:+1",
        "mailto:",
        "mailto:mailto:a@example.com",
    ] {
        assert!(
            fault("acme.contact", contact).contains("no mail address"),
            "{contact}"
        );
    }
    for directory in [
        "http://ca.example/directory",
        "ca.example",
        "https://me@ca.example/",
    ] {
        assert!(
            fault("acme.directory", directory).contains("no https address"),
            "{directory}"
        );
    }
    assert!(fault("base_url", "https://other.example").contains("acme.domains lacks other.example"));
    let nameless = faults(&sources_of(&[("tls.mode", "acme")], &[], ""));
    assert!(nameless.contains("IDSVC_ACME_DOMAINS or --acme"), "{nameless}");
    let address = faults(&sources_of(
        &[("tls.mode", "acme"), ("base_url", "https://192.0.2.1")],
        &[],
        "",
    ));
    assert!(address.contains("an address is no domain"), "{address}");
    let dev = sources_of(&[("acme.domains", "localhost")], &[], "").for_development();
    assert!(faults(&dev).contains("leave --dev out"));
}
