use super::*;

#[test]
fn plain_http_is_for_loopback_or_behind_a_proxy() {
    let base = [
        ("IDSVC_BASE_URL", "https://id.example.com"),
        ("IDSVC_TLS_MODE", "off"),
    ];
    assert!(faults(&sources_of(&[], &base, "")).contains("trusted_proxies"));
    assert!(resolve(&sources_of(&[("trusted_proxies", "10.0.0.0/8")], &base, "")).is_ok());
    assert!(resolve(&sources_of(&[("listen", "127.0.0.1:80")], &base, "")).is_ok());
    assert!(
        faults(&sources_of(&[("listen", "127.0.0.1:80,0.0.0.0:80")], &base, "")).contains("trusted_proxies")
    );
    let unknown = faults(&sources_of(&[("tls.mode", "none")], &[], WHOLE));
    assert!(
        unknown.contains("the known ones are files, acme, self-signed, off"),
        "{unknown}"
    );
}

#[test]
fn the_development_server_stays_on_loopback_and_follows_its_port() {
    let config = resolve(&sources_of(&[], &[], "").for_development()).unwrap();
    assert_eq!(config.issuer, "https://localhost:8443");
    assert_eq!((config.tls, config.is_dev), (Tls::SelfSigned, true));
    assert_eq!(config.settings.data_dir, Path::new("./idsvc-data/dev"));
    let moved = resolve(&sources_of(&[("listen", "127.0.0.1:9443")], &[], "").for_development()).unwrap();
    assert_eq!(moved.issuer, "https://localhost:9443");
    for open in ["0.0.0.0:8443", "192.0.2.1:8443", "[::]:8443"] {
        assert!(
            resolve(&sources_of(&[("listen", open)], &[], "").for_development()).is_err(),
            "{open}"
        );
    }
}

#[test]
fn nobody_trusts_everybody_for_a_proxy() {
    let base = "base_url = \"https://id.example.com\"\ntls.mode = \"off\"\n";
    for all in ["0.0.0.0/0", "::/0", "::ffff:0.0.0.0/96"] {
        let told = faults(&sources_of(
            &[("trusted_proxies", &format!("10.0.0.0/8,{all}"))],
            &[],
            base,
        ));
        assert!(
            told.contains("is everybody") && told.contains("name the addresses of your proxies"),
            "{told}"
        );
        assert_eq!(told.lines().count(), 1, "{told}");
    }
}

/// The fixed limits, which the guide promises.
#[test]
fn what_a_connection_may_take_is_what_the_guide_says() {
    let base = "base_url = \"https://id.example.com\"\ntls.mode = \"self-signed\"\n";
    let Limits {
        max_connections,
        max_connections_per_address,
        uncounted,
        handshake_timeout,
        header_timeout,
        idle_timeout,
        request_timeout,
        max_header_bytes,
        max_concurrent_streams,
        drain_timeout,
    } = resolve(&sources_of(&[], &[], base)).unwrap().connection_limits();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/guide/limit-requests.md");
    let guide = std::fs::read_to_string(page).unwrap();
    let seconds = Duration::from_secs;
    for (is_so, said) in [
        (max_connections == 10_000, "| `limits.connections` | 10000 |"),
        (
            max_connections_per_address == 256,
            "| `limits.connections_per_address` | 256 |",
        ),
        (uncounted.is_empty(), "| `limits.exempt` | `[]` |"),
        (
            handshake_timeout == seconds(10),
            "A TLS handshake has ten seconds",
        ),
        (
            header_timeout == seconds(10) && max_header_bytes == 16 * 1024,
            "Its header has at most 16 KiB and 100 fields (431), and ten seconds to arrive",
        ),
        (
            header_timeout == seconds(10) && idle_timeout == seconds(60),
            "A connection without any request is ended after ten seconds, and one without further requests after a minute",
        ),
        (
            request_timeout == seconds(30),
            "The answer has thirty seconds (503)",
        ),
        (
            max_concurrent_streams == 32,
            "an HTTP/2 connection carries 32 requests at once",
        ),
        (
            drain_timeout == seconds(30),
            "answers the requests that have begun (within 30 seconds)",
        ),
    ] {
        assert!(guide.contains(said), "{said}");
        assert!(is_so, "{said}");
    }
}

#[test]
fn limits_are_on_and_can_be_lifted_for_a_network_or_altogether() {
    let base = "base_url = \"https://id.example.com\"\ntls.mode = \"self-signed\"\n";
    let usual = resolve(&sources_of(&[], &[], base)).unwrap();
    assert!(usual.limits.enabled && usual.limits.exempt.is_empty());
    let limits = usual.connection_limits();
    assert_eq!(
        (limits.max_connections, limits.max_connections_per_address),
        (10_000, 256)
    );
    let lines = "trusted_proxies = [\"::ffff:10.0.0.1\"]\n[limits]\nexempt = [\"192.0.2.0/24\", \"2001:db8::1\", \"::ffff:10.1.0.0/112\"]\n\
                 anonymous_per_address = 1000\nconnections = 7\nconnections_per_address = 3\n";
    let lifted = resolve(&sources_of(&[], &[], &format!("{base}{lines}"))).unwrap();
    assert!(lifted.limits.enabled);
    assert_eq!(lifted.limits.anonymous_per_address, 1000);
    let limits = lifted.connection_limits();
    assert_eq!(
        (limits.max_connections, limits.max_connections_per_address),
        (7, 3)
    );
    let uncounted: Vec<_> = limits.uncounted.iter().map(ToString::to_string).collect();
    assert_eq!(
        uncounted,
        ["10.0.0.1/32", "192.0.2.0/24", "2001:db8::1/128", "10.1.0.0/16"]
    );
    let off = resolve(&sources_of(&[], &[("IDSVC_LIMITS_ENABLED", "false")], base)).unwrap();
    assert_eq!(off.connection_limits().max_connections_per_address, usize::MAX);
    let wrong = "limits.exempt = [\"everybody\"]\nlimits.connections = 0\n";
    let faults = resolve(&sources_of(&[], &[], &format!("{base}{wrong}"))).unwrap_err();
    assert_eq!(
        faults.to_string(),
        "idsvc.toml line 3: limits.exempt = \"everybody\" is no network, as in 10.0.0.0/8 or 192.0.2.1\n\
         idsvc.toml line 4: limits.connections must be 1 to 1000000"
    );
}

#[test]
fn the_metrics_have_an_address_of_their_own() {
    let base = format!("listen = [\"0.0.0.0:443\", \"[::1]:8443\"]\n{WHOLE}");
    for taken in [
        "0.0.0.0:443",
        "[::ffff:127.0.0.1]:443",
        "[::1]:8443",
        "[::]:8443",
        "[::]:443",
    ] {
        let said = faults(&sources_of(&[("metrics.listen", taken)], &[], &base));
        assert!(said.contains("is taken by listen"), "{taken}: {said}");
    }
    for free in ["127.0.0.1:9464", "127.0.0.1:8443", "[::1]:443", "0.0.0.0:0"] {
        assert!(
            resolve(&sources_of(&[("metrics.listen", free)], &[], &base)).is_ok(),
            "{free}"
        );
    }
}

#[test]
fn no_address_is_listened_on_twice_and_one_of_ipv4_may_be_written_in_ipv6() {
    let listen = |addresses: &str| sources_of(&[("listen", addresses)], &[], WHOLE);
    for both in ["0.0.0.0:443,127.0.0.1:443", "[::]:443,[::]:443"] {
        assert!(faults(&listen(both)).contains("leave one of them out"), "{both}");
    }
    let free = resolve(&listen("127.0.0.2:443,[::ffff:127.0.0.1]:443,[::]:443")).unwrap();
    assert_eq!(free.listen[1].to_string(), "127.0.0.1:443");
}

#[test]
fn the_redirect_has_a_port_of_its_own_on_the_addresses_of_the_service() {
    let base = format!("listen = [\"[::]:443\", \"0.0.0.0:443\", \"[::]:8443\"]\n{WHOLE}");
    let redirect = |port: &str, file: &str| resolve(&sources_of(&[("redirect_port", port)], &[], file));
    assert!(
        resolve(&sources_of(&[], &[], &base))
            .unwrap()
            .redirect_listen
            .is_empty()
    );
    let addresses: Vec<_> = ["[::]:80", "0.0.0.0:80"].map(|text| text.parse().unwrap()).into();
    assert_eq!(redirect("80", &base).unwrap().redirect_listen, addresses);
    for (port, file, reason) in [
        ("443", base.clone(), "is taken by listen"),
        ("0", base.clone(), "must be 1 to 65535"),
        (
            "80",
            format!("{base}[metrics]\nlisten = \"127.0.0.1:80\"\n"),
            "is taken by redirect_port",
        ),
        (
            "8080",
            "base_url = \"https://id.example.com\"\nlisten = [\"127.0.0.1:80\"]\ntls.mode = \"off\"\n"
                .to_owned(),
            "tls.mode is",
        ),
    ] {
        let said = redirect(port, &file).unwrap_err().to_string();
        assert!(said.contains(reason), "{port}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}
