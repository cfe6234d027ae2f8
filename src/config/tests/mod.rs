mod accounts;
mod acme;
mod environment;
mod mail;
mod memory;
mod mtls;
mod network;
mod password;
mod paths;
mod settings_table;
mod store;

use std::path::Path;
use std::time::Duration;

use super::base_url::check_base_url;
use super::duration::{format_duration, parse_duration};
use super::resolve::{resolve, resolve_settings};
use super::*;
use crate::net::Limits;
use crate::net::acme::Plan;
use crate::oauth::policy::Lifetimes;

fn sources_of(flags: &[(&'static str, &str)], env: &[(&str, &str)], file: &str) -> Sources {
    let flags: Vec<_> = flags
        .iter()
        .map(|(key, value)| (*key, (*value).to_owned()))
        .collect();
    let env: Vec<_> = env
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let nowhere = Path::new("/nonexistent/idsvc.toml");
    let mut sources = Sources::collect(&flags, &env, Some(nowhere));
    sources.faults.clear();
    sources.unread.clear();
    sources.take(file::parse(file, Path::new("idsvc.toml")));
    sources
}

const WHOLE: &str = "base_url = \"https://id.example.com\"\n[tls]\ncert = \"c.pem\"\nkey = \"k.pem\"\n";

fn faults(sources: &Sources) -> String {
    resolve(sources).unwrap_err().to_string()
}

#[test]
fn a_flag_comes_before_the_environment_and_that_before_the_file() {
    let file = format!("organization = \"file\"\n{WHOLE}");
    let env = [("IDSVC_ORGANIZATION", "environment")];
    let organization = |sources: &Sources| resolve(sources).unwrap().policy().organization;
    assert_eq!(organization(&sources_of(&[], &[], WHOLE)), "default");
    assert_eq!(organization(&sources_of(&[], &[], &file)), "file");
    assert_eq!(organization(&sources_of(&[], &env, &file)), "environment");
    assert_eq!(
        organization(&sources_of(&[("organization", "flag")], &env, &file)),
        "flag"
    );
}

#[test]
fn every_environment_variable_reaches_its_setting() {
    let env = [
        ("IDSVC_TLS_MODE", "off"),
        ("IDSVC_BASE_URL", "http://localhost:8080"),
        ("IDSVC_LISTEN", "127.0.0.1:8080, [::1]:8080"),
        ("IDSVC_LIFETIMES_ACCESS_TOKEN", "15m"),
        ("IDSVC_PASSWORD_MIN_LENGTH", "12"),
        ("IDSVC_ID_TOKEN_ALIAS", "false"),
    ];
    let config = resolve(&sources_of(&[], &env, "")).unwrap();
    assert_eq!((config.tls.clone(), config.listen.len()), (Tls::Off, 2));
    assert_eq!(config.policy().lifetimes.access_token, Duration::from_mins(15));
    assert_eq!(config.policy().password.min_length, 12);
    assert!(!config.policy().id_token_alias);
}

#[test]
fn a_sign_in_at_a_public_client_can_be_refreshed_for_a_year_unless_the_operator_says_otherwise() {
    let bounds = |flags: &[(&'static str, &str)]| {
        let policy = resolve(&sources_of(flags, &[], WHOLE)).unwrap().policy();
        let Lifetimes {
            refresh_absolute,
            refresh_absolute_public,
            ..
        } = policy.lifetimes;
        (refresh_absolute, refresh_absolute_public)
    };
    let days = |days: u64| Some(Duration::from_hours(24 * days));
    assert_eq!(bounds(&[]), (None, days(365)));
    assert_eq!(bounds(&[("lifetimes.refresh_absolute", "off")]), (None, None));
    assert_eq!(
        bounds(&[("lifetimes.refresh_absolute", "30d")]),
        (days(30), days(30))
    );
}

#[test]
fn the_service_name_can_stand_in_a_urn() {
    let name = |name: &str| {
        resolve(&sources_of(&[("service_name", name)], &[], WHOLE)).map(|c| c.policy().service_name)
    };
    assert_eq!(
        resolve(&sources_of(&[], &[], WHOLE))
            .unwrap()
            .policy()
            .service_name,
        "service"
    );
    assert_eq!(name("Acme-2").unwrap(), "Acme-2");
    for unfit in [
        "a",
        "-acme",
        "acme-",
        "a:b",
        "acme tv",
        "urn",
        "é7",
        &"a".repeat(33),
    ] {
        assert!(
            name(unfit).unwrap_err().to_string().contains("service_name"),
            "{unfit}"
        );
    }
}

#[test]
fn the_documentation_is_at_the_address_of_a_page() {
    let page = |page: &str| {
        let config = resolve(&sources_of(&[("service_documentation", page)], &[], WHOLE));
        config.map(|config| config.policy().service_documentation)
    };
    let none = resolve(&sources_of(&[], &[], WHOLE)).unwrap().policy();
    assert_eq!(none.service_documentation, None);
    let fit = "https://docs.example.com/sign-in?lang=en#tokens";
    assert_eq!(page(fit).unwrap().as_deref(), Some(fit));
    for unfit in [
        "docs.example.com",
        "https:docs.example.com",
        "https://",
        "ftp://docs.example.com/",
        "javascript:alert(1)",
        "https://docs.example.com/a b",
    ] {
        let faults = page(unfit).unwrap_err().to_string();
        assert!(faults.contains("it is no address of a page"), "{faults}");
    }
}

#[test]
fn help_is_at_an_address_with_its_scheme() {
    let contact = |contact: &str| {
        let config = resolve(&sources_of(&[("support_contact", contact)], &[], WHOLE));
        config.map(|config| config.support_contact)
    };
    for fit in [
        "mailto:help@example.com",
        "https://example.com/help",
        "tel:+15550100",
    ] {
        assert_eq!(contact(fit).unwrap().as_deref(), Some(fit));
    }
    for unfit in [
        "help@example.com",
        "http://example.com/help",
        "javascript:alert(1)",
        "mailto:a b",
    ] {
        let faults = contact(unfit).unwrap_err().to_string();
        assert!(
            faults.contains("it is no address where people get help"),
            "{faults}"
        );
    }
}

#[test]
fn an_unknown_key_is_named_with_its_line_and_the_nearest_known_one() {
    let text = format!("{WHOLE}\n[lifetimes]\nacces_token = \"1h\"\n[nonsense]\nx = 1\n");
    let faults = faults(&sources_of(&[], &[], &text));
    assert_eq!(
        faults,
        "idsvc.toml line 7: unknown key lifetimes.acces_token: did you mean lifetimes.access_token?\n\
         idsvc.toml line 9: unknown key nonsense.x: idsvc config reference lists the known ones"
    );
}

#[test]
fn all_faults_are_reported_at_once() {
    let text = "region = \"eu\"\nbase_url = \"http://id.example.com\"\nlisten = [\"nowhere\"]\n\
                [lifetimes]\ncode = \"1h\"\nid_token = true\n[password]\nmemory_kib = 1\n";
    let faults = faults(&sources_of(&[], &[], text));
    for part in [
        "region = ",
        "base_url",
        "listen",
        "lifetimes.code",
        "lifetimes.id_token",
        "password",
        "tls.cert",
        "tls.key",
    ] {
        assert!(faults.contains(part), "{part} is not in\n{faults}");
    }
    assert_eq!(faults.lines().count(), 8, "{faults}");
}

#[test]
fn a_number_out_of_range_is_reported_once_and_where_it_stands() {
    let text = format!("{WHOLE}[password]\nmemory_kib = 1\niterations = 0\n[limits]\nconnections = -1\n");
    let faults = faults(&sources_of(&[("password.parallelism", "99")], &[], &text));
    let lines: Vec<_> = faults.lines().collect();
    assert_eq!(lines.len(), 4, "{faults}");
    for part in [
        "line 6: password.memory_kib must be 8 to 262144",
        "line 7: password.iterations must be 1 to 16",
        "line 9: limits.connections",
        "--password-parallelism: password.parallelism must be 1 to 16",
    ] {
        assert!(faults.contains(part), "{part} is not in\n{faults}");
    }
    let text = format!("{WHOLE}[password]\nmemory_kib = 16\nparallelism = 4\n");
    assert_eq!(
        super::tests::faults(&sources_of(&[], &[], &text)),
        "idsvc.toml line 7: password.memory_kib must be at least 8 for each of password.parallelism"
    );
}

#[test]
fn a_file_that_is_no_toml_is_refused_with_the_line() {
    let faults = faults(&sources_of(&[], &[], "listen = [\"0.0.0.0:443\"]\nregion us\n"));
    assert!(faults.starts_with("idsvc.toml line 2 column 8: "), "{faults}");
    let prose = "This is no TOML, on many lines.\n".repeat(300);
    let faults = super::tests::faults(&sources_of(&[], &[], &prose));
    assert!(faults.starts_with("idsvc.toml line 1 column "), "{faults}");
    assert_eq!(faults.lines().count(), 1, "{faults}");
}

#[test]
fn a_region_is_us_or_ap_and_fills_the_base_url() {
    let text = WHOLE.replace("id.example", "id.{region}.example");
    let issuer = |region| resolve(&sources_of(&[("region", region)], &[], &text)).map(|config| config.issuer);
    assert_eq!(issuer("us").unwrap(), "https://id.us.example.com");
    assert_eq!(issuer("ap").unwrap(), "https://id.ap.example.com");
    for unknown in ["eu", "US", ""] {
        assert!(issuer(unknown).is_err(), "{unknown}");
    }
    let missing = faults(&sources_of(&[], &[], &text));
    assert!(missing.contains("region is not set"), "{missing}");
}

#[test]
fn a_base_url_is_an_issuer() {
    for good in [
        "https://id.example.com",
        "https://id.example.com/tenant",
        "https://id.example.com:8443",
        "http://localhost:8080",
        "http://127.0.0.1",
        "http://[::1]:8080",
    ] {
        assert_eq!(check_base_url(good), Ok(()), "{good}");
    }
    for bad in [
        "id.example.com",
        "http://id.example.com",
        "ftp://id.example.com",
        "https://id.example.com/",
        "https://id.example.com/a/",
        "https://id.example.com?x",
        "https://id.example.com#x",
        "https://me@id.example.com",
        "https://@id.example.com",
        "https://ID.example.com",
        "https://id.example.com:443",
        "https://id.example.com/a/../b",
        "https://id.example.com/a//b",
        "https://id.example.com/a b",
        "",
    ] {
        assert!(check_base_url(bad).is_err(), "{bad}");
    }
}

#[test]
fn commands_need_no_base_url_and_no_certificate() {
    let settings = resolve_settings(&sources_of(
        &[],
        &[("STATE_DIRECTORY", "/var/lib/idsvc:/other")],
        "",
    ))
    .unwrap();
    assert_eq!(settings.base_url, None);
    assert_eq!(settings.data_dir, Path::new("/var/lib/idsvc"));
    let policy = settings.policy("https://id.example.com");
    assert_eq!(policy.issuer, "https://id.example.com");
    assert_eq!(policy.lifetimes.access_token, Duration::from_hours(24));
    assert_eq!(policy.lifetimes.refresh_token, Duration::from_hours(90 * 24));
    assert_eq!(policy.lifetimes.code, Duration::from_mins(1));
}

#[test]
fn a_list_of_commas_is_no_empty_list() {
    let base = "base_url = \"https://id.example.com\"\ntls.mode = \"self-signed\"\n";
    for key in ["trusted_proxies", "listen", "limits.exempt", "outbound.allow"] {
        for commas in [",", " , ,"] {
            let faults = faults(&sources_of(&[(key, commas)], &[], base));
            assert!(faults.contains("nothing beside a comma"), "{key}: {faults}");
            assert_eq!(faults.lines().count(), 1, "{faults}");
        }
    }
    assert!(resolve(&sources_of(&[], &[("IDSVC_TRUSTED_PROXIES", "")], base)).is_ok());
}

#[test]
fn a_number_beyond_what_toml_holds_is_named() {
    for (line, message) in [
        (
            "limits.connections = 9223372036854775808",
            "9223372036854775808 is not within -9223372036854775808 to 9223372036854775807",
        ),
        (
            "limits.connections = 0x1_0000_0000_0000_0000",
            "0x1_0000_0000_0000_0000 is not within",
        ),
        (
            "limits = { connections = 1e999 }",
            "1e999 is no number that can be kept",
        ),
        ("listen = [-inf]", "-inf is no number that can be kept"),
    ] {
        let faults = faults(&sources_of(&[], &[], &format!("\n{line}\n")));
        assert!(
            faults.contains("idsvc.toml line 2 column") && faults.contains(message),
            "{line}: {faults}"
        );
        assert_eq!(faults.lines().count(), 1, "{faults}");
    }
    let most = "base_url = \"https://id.example.com\"\ntls.mode = \"self-signed\"\nlimits.connections = 9223372036854775807\n";
    let faults = faults(&sources_of(&[], &[], most));
    assert!(
        faults.contains("limits.connections must be 1 to 1000000"),
        "{faults}"
    );
}

#[test]
fn a_byte_order_mark_is_passed_over() {
    let file = "\u{feff}base_url = \"https://id.example.com\"\ntls.mode = \"self-signed\"\n";
    assert_eq!(
        resolve(&sources_of(&[], &[], file)).unwrap().issuer,
        "https://id.example.com"
    );
}

#[test]
fn times_have_units() {
    for (text, seconds) in [
        ("60s", 60),
        ("30m", 1800),
        ("24h", 86_400),
        ("90d", 7_776_000),
        ("0s", 0),
    ] {
        assert_eq!(parse_duration(text), Some(Duration::from_secs(seconds)), "{text}");
    }
    for bad in [
        "",
        "5",
        "h",
        "1w",
        "-1h",
        "1.5h",
        "1h30m",
        "18446744073709551615d",
        "１h",
    ] {
        assert_eq!(parse_duration(bad), None, "{bad}");
    }
    for text in ["14d", "36h", "90m", "61s", "0s"] {
        assert_eq!(format_duration(parse_duration(text).unwrap()), text);
    }
    for text in [
        "lifetimes.access_token = 24\n",
        "lifetimes.access_token = \"24\"\n",
    ] {
        let faults = faults(&sources_of(&[], &[], &format!("{text}{WHOLE}")));
        assert!(
            faults.contains("lifetimes.access_token must be a time with its unit"),
            "{faults}"
        );
    }
}

#[test]
fn keys_are_not_replaced_faster_than_anybody_can_follow() {
    let keys = |text: &str| resolve(&sources_of(&[], &[], &format!("{WHOLE}[keys]\n{text}\n")));
    let said = |text: &str| keys(text).unwrap_err().to_string();
    assert_eq!(
        said("rotate_every = \"1s\""),
        "idsvc.toml line 6: keys.rotate_every must be at least 1h, or off"
    );
    assert!(said("rotate_every = \"7d\"").contains("longer than keys.announce, which is 14d"));
    assert_eq!(
        said("announce = \"0s\""),
        "idsvc.toml line 6: keys.announce must be at least 5m"
    );
    assert!(keys("rotate_every = \"1h\"\nannounce = \"5m\"").is_ok());
    assert!(keys("rotate_every = \"off\"").is_ok());
}

#[test]
fn nothing_is_concluded_from_what_could_not_be_read() {
    for file in ["base_url = \n", "= 1"] {
        let faults = faults(&sources_of(&[], &[], file));
        assert_eq!(faults.lines().count(), 1, "{faults}");
    }
    let unreadable = Sources::collect(&[], &[], Some(Path::new("/nonexistent/idsvc.toml")));
    assert!(faults(&unreadable).contains("cannot be read"));
    assert_eq!(faults(&unreadable).lines().count(), 1);
    let base_url = "base_url = \"https://id.example.com\"\n";
    for mode in [
        "tls.mode = \"fiels\"\n",
        "tls.mode = 1\n",
        "tls.mdoe = \"off\"\n",
        "tls.mode = \"\"\n",
        "tls.mode = \"off\"\ntrusted_proxies = [\"nowhere\"]\n",
        "tls.mode = \"off\"\ntrusted_proxies = 1\n",
    ] {
        let faults = faults(&sources_of(&[], &[], &format!("{base_url}{mode}")));
        assert_eq!(faults.lines().count(), 1, "{mode}: {faults}");
    }
    let dev = sources_of(&[("base_url", "http://localhost:1")], &[], "tls.mdoe = \"off\"").for_development();
    assert_eq!(faults(&dev).lines().count(), 1, "{}", faults(&dev));
    let faults = faults(&sources_of(
        &[],
        &[],
        "base_url = 1\ntls.cert = \"\"\ntls.key = \"k\"",
    ));
    assert!(faults.contains("tls.cert is empty"), "{faults}");
    assert_eq!(faults.lines().count(), 2, "{faults}");
}

#[test]
fn an_empty_value_is_said_to_be_empty() {
    let faults = faults(&sources_of(&[("data_dir", "")], &[], WHOLE));
    assert_eq!(
        faults,
        "--data-dir: data_dir is empty: give a value, as in \"/var/lib/idsvc\""
    );
}

#[test]
fn the_development_server_is_called_by_a_name_of_this_machine() {
    let dev = |base_url| sources_of(&[("base_url", base_url)], &[], "").for_development();
    for base_url in [
        "https://localhost:8443",
        "https://a.localhost",
        "https://127.0.0.1:1",
    ] {
        assert!(resolve(&dev(base_url)).is_ok(), "{base_url}");
    }
    let faults = faults(&dev("https://id.example.com"));
    assert!(faults.contains("loopback hosts only"), "{faults}");
}
