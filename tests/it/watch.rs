//! What the service tells its operator: `doctor`, `events` and the metrics.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Output, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use idsvc::admin::Actor;
use idsvc::data_dir::DataDirError;
use serde_json::Value;

use crate::harness::port::free_port;
use crate::harness::process::{Service, request, said, shown};
use crate::harness::tls;

const TARGET: &str = "/oauth2/authorize?response_type=code&client_id=web&redirect_uri=https://app.example/cb";

#[test]
fn the_doctor_says_the_same_with_a_service_and_without_one() {
    let service = Service::with_client();
    let mut running = service.serve();
    let words = ["doctor", "--backup-interval", "off", "--profile", "fapi2"];
    let online = service.run(&words);
    running.kill();
    let offline = service.run(&words);
    let without_count = |output: &Output| {
        shown(output)
            .lines()
            .filter(|line| !line.contains("in order"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        online.status.code(),
        Some(0),
        "{}{}",
        shown(&online),
        said(&online)
    );
    assert_eq!(without_count(&online), without_count(&offline));
    assert!(
        shown(&online).contains("idsvc client update web --pkce required"),
        "{}",
        shown(&online)
    );
    assert!(shown(&online).contains("FAPI 2.0 Security Profile section 5.3.2.1"));
    let without_profile = shown(&service.run(&words[..3]));
    assert!(!without_profile.contains("client web"), "{without_profile}");
}

/// The configuration of the packages has a self-signed certificate until the operator sets another mode.
#[test]
fn a_self_signed_certificate_for_a_public_host_is_warned_of() {
    let packaged = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/idsvc.toml");
    let service = Service::new()
        .without("IDSVC_BASE_URL")
        .without("IDSVC_LISTEN")
        .without("IDSVC_TLS_MODE");
    for command in ["config check", "doctor"] {
        for (url, is_warned) in [
            ("https://id.example.com", true),
            ("https://192.0.2.1", false),
            ("https://1.1.1.1", true),
            ("https://id.internal", false),
            ("https://localhost", false),
        ] {
            let words = format!("{command} --config {packaged} --base-url {url}");
            let output = service.run(&words.split(' ').collect::<Vec<_>>());
            let told = shown(&output) + &said(&output);
            assert_eq!(told.contains("self-signed\""), is_warned, "{words}: {told}");
        }
    }
}

#[test]
fn the_doctor_names_clients_that_ask_for_scopes_that_do_not_exist() {
    let service = Service::with_client();
    let mut running = service.serve();
    let findings = || {
        let report = service.json(&["doctor", "--backup-interval", "off", "--json"]);
        let findings = report["findings"].as_array().unwrap().clone();
        let about_unknown = |finding: &Value| finding["message"].as_str().unwrap().contains("opnid");
        findings.into_iter().filter(about_unknown).collect::<Vec<_>>()
    };
    for scope in ["openid", "opnid+email+openid", "opnid+documents:read"] {
        running.request("GET", &format!("{TARGET}&scope={scope}"), &[], "");
    }
    let [finding] = &findings()[..] else {
        panic!("{:?}", findings())
    };
    assert_eq!(
        (finding["subject"].as_str(), finding["level"].as_str()),
        (Some("web"), Some("advice"))
    );
    assert!(
        finding["message"]
            .as_str()
            .unwrap()
            .ends_with(": opnid documents:read"),
        "{finding}"
    );
    assert!(
        finding["remedy"]
            .as_str()
            .unwrap()
            .contains("openid is probably meant"),
        "{finding}"
    );

    for number in 0..20 {
        running.request("GET", &format!("{TARGET}&scope=invented{number}"), &[], "");
    }
    assert_eq!(findings(), [] as [Value; 0], "the last ones replace the first");
    running.kill();
}

#[test]
fn the_doctor_asks_every_provider_that_is_enabled() {
    let service = Service::new();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    fs::write(service.folder.path().join("secret"), "s".repeat(40)).unwrap();
    for id in ["corp", "asleep"] {
        let issuer = format!("https://{id}.localhost:{}", nobody.port());
        service.json(&[
            "provider",
            "add",
            id,
            "--issuer",
            &issuer,
            "--client-id",
            "us",
            "--client-secret-file",
            "secret",
            "--json",
        ]);
    }
    service.json(&["provider", "update", "asleep", "--disable", "--json"]);
    let mut outputs = Vec::new();
    let mut running = service.serve();
    outputs.push(service.run(&["doctor", "--backup-interval", "off"]));
    running.kill();
    outputs.push(service.run(&["doctor", "--backup-interval", "off"]));
    for output in outputs {
        assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
        assert!(
            shown(&output).contains("MEND  provider corp: discovery: "),
            "{}",
            shown(&output)
        );
        assert!(!shown(&output).contains("asleep"));
        assert!(
            said(&output).contains("1 thing must be mended"),
            "{}",
            said(&output)
        );
    }
}

#[test]
fn the_doctor_lets_a_group_read_the_key_of_the_certificate_and_nobody_else() {
    let service = Service::with_client();
    let key = service.folder.path().join("tls.key");
    fs::write(&key, "no key").unwrap();
    let doctor = |mode: u32| {
        fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
        let flags = "--tls-mode files --tls-cert tls.pem --tls-key tls.key --base-url https://id.example.com";
        let words = "doctor --all".split(' ').chain(flags.split(' '));
        shown(&service.run(&words.collect::<Vec<_>>()))
    };
    for mode in [0o600, 0o640, 0o440] {
        let said = doctor(mode);
        assert!(said.contains("good  permissions tls.key: "), "{mode:o}: {said}");
    }
    for (mode, remedy) in [
        (0o644, "chmod 640 tls.key"),
        (0o660, "chmod 640 tls.key"),
        (0o604, "chmod 600 tls.key"),
    ] {
        let said = doctor(mode);
        assert!(
            said.contains("MEND  permissions tls.key") && said.contains(remedy),
            "{mode:o}: {said}"
        );
    }
}

#[test]
fn a_private_key_that_is_open_to_others_is_told_by_the_check_and_by_a_start() {
    let service = tls::service(10);
    tls::issue(&service);
    let key = service.folder.path().join("key.pem");
    let check = |mode: u32| {
        fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
        let checked = service.run(&["config", "check"]);
        assert!(checked.status.success(), "{checked:?}");
        said(&checked)
    };
    for mode in [0o600, 0o640] {
        assert_eq!(check(mode), "");
    }
    let warning = check(0o666);
    let named = format!("{}: ", key.display());
    assert!(
        warning.contains(&named) && warning.contains("(666): chmod 640"),
        "{warning}"
    );
    let _running = service.launch();
    service.logged(warning.trim().trim_start_matches("warning: "));
}

#[test]
fn a_certificate_for_another_host_is_told_by_the_check_and_the_doctor() {
    let service = tls::service(10);
    tls::issue(&service);
    let told = |words: &str| {
        let output = service.run(&words.split(' ').collect::<Vec<_>>());
        shown(&output) + &said(&output)
    };
    for words in ["config check", "doctor --all"] {
        assert!(
            !told(words).contains("the certificate is not for"),
            "{}",
            told(words)
        );
        let elsewhere = told(&format!("{words} --base-url https://id.example.com"));
        assert!(
            elsewhere.contains("the certificate is not for id.example.com"),
            "{elsewhere}"
        );
        assert!(!elsewhere.contains("MEND  certificate"), "{elsewhere}");
    }
}

#[test]
fn the_doctor_says_once_that_data_is_for_development_and_asks_no_more_of_it() {
    let service = Service::empty()
        .without("IDSVC_BASE_URL")
        .without("IDSVC_LISTEN")
        .without("IDSVC_TLS_MODE");
    let address = format!("127.0.0.1:{}", service.port);
    let mut running = service.start(&["serve", "--dev", "--listen", &address]);
    running.until(|_| service.log().contains("\"ready\""));
    let online = service.run(&["doctor", "--listen", &address]);
    running.kill();
    let offline = service.run(&["doctor", "--listen", &address]);
    let elsewhere = service.run(&["doctor"]);
    for output in [&online, &offline, &elsewhere] {
        let text = shown(output);
        assert_eq!(output.status.code(), Some(0), "{text}{}", said(output));
        assert_eq!(text.matches("serve --dev").count(), 1, "{text}");
        assert!(!text.contains("MEND") && !text.contains("self-signed"), "{text}");
    }
    assert!(!shown(&offline).contains("base_url"), "{}", shown(&offline));
    assert!(
        shown(&elsewhere).contains("start it with the --listen"),
        "{}",
        shown(&elsewhere)
    );
    let moved = service.run(&["serve", "--dev", "--listen", "127.0.0.1:9"]);
    assert_eq!(moved.status.code(), Some(1));
    assert!(
        said(&moved).contains("name another --data-dir") && !said(&moved).contains("set-issuer"),
        "{}",
        said(&moved)
    );
    let foreign = service.run(&["doctor", "--base-url", "https://id.example.com"]);
    assert_eq!(foreign.status.code(), Some(1));
    assert!(
        shown(&foreign).contains("loopback hosts only"),
        "{}",
        shown(&foreign)
    );
}

#[test]
fn the_doctor_names_what_must_be_mended_and_the_command_that_does() {
    let service = Service::with_client();
    service.serve().kill();
    let data = service.data();
    fs::set_permissions(data.join("master.key"), fs::Permissions::from_mode(0o644)).unwrap();
    let sick = service
        .command(&[
            "doctor",
            "--json",
            "--tls-mode",
            "files",
            "--tls-cert",
            "no.pem",
            "--tls-key",
            "no.key",
        ])
        .env("IDSVC_REGOIN", "us")
        .output()
        .unwrap();
    assert_eq!(sick.status.code(), Some(1));
    let document: serde_json::Value = serde_json::from_slice(&sick.stdout).unwrap();
    assert_eq!(document["ok"], false);
    let findings = document["findings"].as_array().unwrap();
    let remedy = |check: &str, level: &str| {
        let found = findings
            .iter()
            .filter(|finding| finding["check"] == check && finding["level"] == level);
        let texts: Vec<_> = found
            .map(|finding| finding["message"].to_string() + &finding["remedy"].to_string())
            .collect();
        texts.join("\n")
    };
    assert!(
        remedy("permissions", "mend").contains(&format!("chmod 600 {}", data.join("master.key").display())),
        "{document}"
    );
    assert!(
        remedy("settings", "mend").contains("base_url") || remedy("certificate", "mend").contains("no.pem"),
        "{document}"
    );
    assert!(
        remedy("settings", "advice").contains("did you mean IDSVC_REGION?"),
        "{document}"
    );
}

#[test]
fn the_doctor_advises_against_settings_that_weaken_the_service() {
    let service = Service::with_client();
    let advice = |service: &Service| {
        let document = service.json(&["doctor", "--json"]);
        let found = document["findings"].as_array().unwrap().iter();
        found
            .filter(|finding| finding["check"] == "settings" && finding["level"] == "advice")
            .map(|finding| finding["subject"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(advice(&service), [""; 0]);
    let service = service
        .with("IDSVC_LIMITS_ENABLED", "false")
        .with("IDSVC_LIMITS_EXEMPT", "192.0.2.0/24,0.0.0.0/0,::/0")
        .with("IDSVC_PASSWORD_MEMORY_KIB", "19456")
        .with("IDSVC_PASSWORD_ITERATIONS", "1")
        .with("IDSVC_LIFETIMES_SESSION_IDLE", "8d");
    assert_eq!(
        advice(&service),
        [
            "limits.enabled",
            "limits.exempt",
            "limits.exempt",
            "password",
            "lifetimes.session_idle",
        ]
    );
}

#[test]
fn the_doctor_notices_what_only_the_next_start_would_miss() {
    let service = Service::with_client();
    let mut running = service.serve();
    let data = service.data();
    let (key, database) = (data.join("master.key"), data.join("idsvc.redb"));
    let mended = || {
        let output = service.run(&["doctor"]);
        let printed = shown(&output);
        let found: Vec<_> = printed.lines().filter(|line| line.starts_with("MEND")).collect();
        assert_eq!(
            output.status.code(),
            Some(i32::from(!found.is_empty())),
            "{printed}"
        );
        found.join("\n")
    };
    assert_eq!(mended(), "");
    let aside = data.join("aside");
    fs::rename(&key, &aside).unwrap();
    assert!(mended().contains("master.key is missing"), "{}", mended());
    fs::write(&key, "00".repeat(32)).unwrap();
    assert!(
        mended().contains("is not the key that this database was sealed with"),
        "{}",
        mended()
    );
    fs::write(&key, "no key").unwrap();
    assert!(mended().contains("is not a master key"), "{}", mended());
    fs::rename(&aside, &key).unwrap();

    let copy = data.join("copy");
    fs::copy(&database, &copy).unwrap();
    fs::rename(&copy, &database).unwrap();
    assert!(
        mended().contains("it is not the file that the service has open"),
        "{}",
        mended()
    );
    fs::remove_file(&database).unwrap();
    assert!(mended().contains("idsvc.redb: it is not there"), "{}", mended());

    service.json(&["user", "add", "alice@example.com", "--no-password", "--json"]);
    service.json(&["backup", "saved", "--json"]);
    running.terminate();
    service.json(&["restore", "saved", "--json"]);
    let _again = service.serve();
    assert_eq!(mended(), "");
    service.json(&["user", "show", "alice@example.com", "--json"]);
}

#[test]
fn what_happened_can_be_read_with_a_service_and_without_one() {
    let service = Service::with_client();
    let running = service.serve();
    service.json(&["user", "add", "alice@example.com", "--no-password", "--json"]);
    running.type_in(TARGET, "alice@example.com", "a wrong password");
    terminate(running);
    let events = service.json(&["events", "--json"]);
    let events = events.as_array().unwrap();
    let told: Vec<_> = events
        .iter()
        .filter(|event| event["event"] != "backed_up")
        .map(|event| {
            assert!(event["time"].as_u64().is_some());
            if event["event"] == "administered" {
                assert_eq!(event["actor"], Actor::of_process().to_string());
            }
            (
                event["event"].as_str().unwrap(),
                event["command"].as_str().unwrap_or_default(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("administered", "client add"),
            ("administered", "user add"),
            ("sign_in_failed", "")
        ],
        "a command without a service is accounted for too"
    );
    let failed = service.run(&[
        "events",
        "--event",
        "sign_in_failed",
        "--about",
        "web",
        "--since",
        "1h",
    ]);
    let line = shown(&failed);
    assert!(
        line.contains("sign_in_failed  client_id=web  from=127.0.0.1"),
        "{line}"
    );
    assert_eq!(line.lines().count(), 1);
    assert!(!line.contains("wrong password"));
    let about = |who: &str| shown(&service.run(&["events", "--about", who]));
    let alice = service.json(&["user", "show", "alice@example.com", "--json"]);
    let line = about("alice@example.com");
    assert!(line.contains("command=\"user add\""), "{line}");
    assert_eq!(line, about(alice["uuid"].as_str().unwrap()));
    let running = service.serve();
    assert!(about("ALICE@example.com").contains(&line));
    terminate(running);
    let nobody = service.run(&["events", "--about", "bob@example.com"]);
    assert!(
        said(&nobody).contains("a removed user by its uuid"),
        "{}",
        said(&nobody)
    );
    let mode = fs::metadata(service.data().join("events/events.jsonl"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let none = service.run(&["events", "--event", "code_replayed"]);
    assert!(none.status.success() && none.stdout.is_empty());
    let misspelt = service.run(&["events", "--event", "signed_inn"]);
    assert_eq!(misspelt.status.code(), Some(2));
    assert!(said(&misspelt).contains("'signed_in'"), "{}", said(&misspelt));
}

/// A client that gives the same token up twice has given up one.
#[test]
fn a_token_is_revoked_once() {
    let service = Service::new();
    let kiosk = service.json(&[
        "client",
        "add",
        "kiosk",
        "--grant",
        "anonymous",
        "--grant",
        "refresh_token",
        "--json",
    ]);
    let credentials = STANDARD.encode(format!("kiosk:{}", kiosk["client_secret"].as_str().unwrap()));
    let authorization = format!("Basic {credentials}");
    let running = service.serve();
    let ask = |path: &str, form: &[(&str, &str)]| {
        let headers = [("Authorization", authorization.as_str())];
        running.post_form(path, &headers, form).unwrap()
    };
    let grant = "urn:service:oauth2:grant-type:anonymous";
    let tokens = ask("/oauth2/token", &[("grant_type", grant)]).json();
    for name in ["access_token", "refresh_token"] {
        for _ in 0..2 {
            let form = [("token", tokens[name].as_str().unwrap())];
            assert_eq!(ask("/oauth2/revoke", &form).status, 200);
        }
    }
    terminate(running);
    let events = service.json(&["events", "--event", "token_revoked", "--json"]);
    let types: Vec<_> = events
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["token_type"].as_str().unwrap())
        .collect();
    assert_eq!(types, ["access_token", "refresh_token"]);
}

/// The log says who signed a user out.
#[test]
fn what_ends_a_sign_in_is_accounted_for() {
    let service = Service::new();
    let add = "client add web --redirect-uri https://app.example/cb --pkce optional --json";
    let web = service.json(&add.split(' ').collect::<Vec<_>>());
    let alice = "user add alice@example.com --generate-password --json";
    let alice = service.json(&alice.split(' ').collect::<Vec<_>>());
    let running = service.serve();
    let (answer, _) = running.type_in(TARGET, "alice@example.com", alice["password"].as_str().unwrap());
    let mut cookies = answer.headers("set-cookie");
    let session = cookies.find(|set| set.contains("idsvc_session")).unwrap();
    let session = session.split(';').next().unwrap();
    let location = url::Url::parse(answer.header("location").unwrap()).unwrap();
    let code = location.query_pairs().find(|(name, _)| name == "code").unwrap().1;
    let basic = format!("web:{}", web["client_secret"].as_str().unwrap());
    let basic = format!("Basic {}", STANDARD.encode(basic));
    let post = |path: &str, form: &[(&str, &str)]| {
        let reply = running
            .post_form(path, &[("Authorization", &basic)], form)
            .unwrap();
        assert_eq!(reply.status, 200, "{reply:?}");
        serde_json::from_str(&reply.body).unwrap_or(serde_json::Value::Null)
    };
    let form = [
        ("grant_type", "authorization_code"),
        ("code", &code),
        ("redirect_uri", "https://app.example/cb"),
    ];
    let tokens = post("/oauth2/token", &form);
    let token = |name: &str| tokens[name].as_str().unwrap();
    post("/oauth2/revoke", &[("token", token("access_token"))]);
    post("/oauth2/revoke", &[("token", token("refresh_token"))]);
    let target = format!("/oauth2/logout?id_token_hint={}", token("id_token"));
    let left = running.request("GET", &target, &[("Cookie", session)], "");
    assert_eq!(left.unwrap().status, 303);
    let end = [
        "session",
        "revoke",
        "--user",
        "alice@example.com",
        "--yes",
        "--json",
    ];
    service.json(&end);
    terminate(running);
    let events = service.json(&["events", "--json"]);
    let told = |member: &str| -> Vec<_> {
        let events = events.as_array().unwrap().iter();
        events.filter_map(|event| event[member].as_str()).collect()
    };
    assert_eq!(told("token_type"), ["access_token", "refresh_token"]);
    assert!(told("event").contains(&"signed_out"), "{events}");
    assert!(told("command").contains(&"session revoke"), "{events}");
}

#[test]
fn what_was_administered_is_found_by_whom_it_was_about() {
    let service = Service::with_client();
    let alice = service.json(&["user", "add", "alice@example.com", "--no-password", "--json"]);
    let alice = alice["uuid"].as_str().unwrap();
    let state = "[[client]]\nclient_id = \"web\"\nname = \"Web\"\nredirect_uris = [\"https://app.example/cb\"]\n\
                 [[user]]\nemail = \"alice@example.com\"\nenabled = false\n";
    fs::write(service.folder.path().join("state.toml"), state).unwrap();
    service.json(&["apply", "-f", "state.toml", "--json"]);
    service.json(&[
        "session",
        "revoke",
        "--user",
        "ALICE@example.com",
        "--yes",
        "--json",
    ]);
    let about = |whom: &str| {
        let events = service.json(&["events", "--about", whom, "--json"]);
        let told = events.as_array().unwrap().iter().map(|event| {
            let member = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
            (member("command"), member("kind"), member("subject"))
        });
        told.collect::<Vec<_>>()
    };
    let one =
        |command: &str, kind: &str, subject: &str| (command.to_owned(), kind.to_owned(), subject.to_owned());
    let of_alice = [
        one("user add", "", alice),
        one("apply", "user", alice),
        one("session revoke", "", alice),
    ];
    assert_eq!(about(alice), of_alice);
    assert_eq!(about("alice@example.com"), of_alice);
    assert_eq!(
        about("web"),
        [one("client add", "", "web"), one("apply", "client", "web")]
    );
}

#[test]
fn a_directory_without_data_has_no_events_to_show() {
    let service = Service::new();
    let elsewhere = service.folder.path().join("else");
    for flags in [&["events"][..], &["events", "--follow"]] {
        let refused = service.run(&[flags, &["--data-dir", elsewhere.to_str().unwrap()]].concat());
        assert_eq!(refused.status.code(), Some(1));
        assert!(
            said(&refused).contains(&DataDirError::Absent(elsewhere.clone()).to_string()),
            "{}",
            said(&refused)
        );
    }
    assert!(!elsewhere.exists());
    assert!(
        Service::with_client()
            .run(&["events", "--since", "1s"])
            .status
            .success()
    );
}

#[test]
fn the_doctor_foresees_what_keeps_the_service_from_starting_and_people_from_its_theme() {
    let service = Service::with_client();
    service.json(&["client", "update", "web", "--theme", "gone", "--json"]);
    let broken = service.data().join("themes/broken");
    fs::create_dir_all(&broken).unwrap();
    fs::write(broken.join("theme.toml"), "contract = \n").unwrap();
    let mut running = service.serve();
    let ask = || {
        let moved = service
            .command(&["doctor", "--backup-interval", "off", "--theme", "broken"])
            .env("IDSVC_BASE_URL", "https://id.example.com")
            .output()
            .unwrap();
        assert_eq!(moved.status.code(), Some(1));
        shown(&moved)
    };
    let online = ask();
    running.kill();
    for told in [&online, &ask()] {
        for part in [
            "MEND  settings base_url: ",
            "idsvc config set-issuer https://id.example.com --i-know",
            "MEND  theme gone: ",
            "idsvc client update web --theme OTHER",
            "MEND  theme broken: ",
            "idsvc theme check broken",
        ] {
            assert!(told.contains(part), "{part}\n{told}");
        }
    }
    let settled = shown(&service.run(&["doctor", "--backup-interval", "off"]));
    assert!(!settled.contains("base_url"), "{settled}");
    assert!(settled.contains("advice  theme broken"), "{settled}");
}

#[test]
fn what_is_set_and_has_no_effect_is_said_by_everybody_who_reads_the_settings() {
    let service = Service::with_client();
    let file = service.folder.path().join("idsvc.toml");
    fs::write(&file, "[acme]\ndomains = [\"id.example.com\"]\n").unwrap();
    let names_both = |text: &str| text.contains("line 2: acme.domains ") && text.contains("(IDSVC_TLS_MODE)");
    let checked = service.run(&["config", "check"]);
    assert!(
        checked.status.success() && names_both(&said(&checked)),
        "{}",
        said(&checked)
    );
    let doctor = service.run(&["doctor", "--backup-interval", "off"]);
    assert!(
        doctor.status.success() && shown(&doctor).contains("advice  settings") && names_both(&shown(&doctor)),
        "{}",
        shown(&doctor)
    );
    terminate(service.serve());
    service.logged("acme.domains has no effect");
}

fn terminate(mut running: crate::harness::process::Running<'_>) {
    let killed = std::process::Command::new("kill")
        .args(["-TERM", &running.id().to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    assert!(running.wait().success());
}

#[test]
fn events_are_followed_as_they_come() {
    let service = Service::with_client();
    let _running = service.serve();
    let mut follower = service
        .command(&["events", "--follow", "--limit", "0", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let adding = std::thread::scope(|scope| {
        let adder = scope.spawn(|| {
            for number in 0..50 {
                service.json(&[
                    "user",
                    "add",
                    &format!("u{number}@example.com"),
                    "--no-password",
                    "--json",
                ]);
            }
        });
        // The first backup of the service may be made at this time, and is an event too.
        let added = lines
            .by_ref()
            .map(Result::unwrap)
            .find(|line| !line.contains("\"backed_up\""))
            .unwrap();
        adder.join().unwrap();
        added
    });
    follower.kill().unwrap();
    follower.wait().unwrap();
    let event: serde_json::Value = serde_json::from_str(&adding).unwrap();
    assert_eq!(
        (&event["event"], &event["command"]),
        (&"administered".into(), &"user add".into())
    );
}

#[test]
fn the_metrics_have_a_listener_of_their_own() {
    let service = Service::with_client();
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    let child = service
        .command(&["serve", "--metrics-listen", &address])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut child = Ended(child);
    let begun = std::time::Instant::now();
    while request(service.port, "GET", "/readyz", &[], "").is_none_or(|reply| reply.status != 200) {
        assert!(begun.elapsed() < std::time::Duration::from_mins(1));
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let body = "grant_type=client_credentials&client_id=web&client_secret=wrong";
    let form = [("Content-Type", "application/x-www-form-urlencoded")];
    let refused = request(service.port, "POST", "/oauth2/token", &form, body).unwrap();
    assert_eq!(refused.status, 401);
    assert_eq!(
        request(service.port, "GET", "/metrics", &[], "").unwrap().status,
        404
    );
    let scraped = request(port, "GET", "/metrics", &[], "").unwrap();
    assert_eq!(scraped.status, 200);
    assert!(
        scraped
            .header("content-type")
            .unwrap()
            .starts_with("application/openmetrics-text")
    );
    for line in [
        "idsvc_requests_total{route=\"token\",status=\"401\"} 1",
        "idsvc_requests_total{route=\"none\",status=\"404\"} 1",
        "idsvc_grants_total{grant_type=\"client_credentials\",outcome=\"invalid_client\"} 1",
        "idsvc_store_writable 1",
        "idsvc_password_queue 0",
    ] {
        assert!(
            scraped.body.lines().any(|found| found == line),
            "{line}\n{}",
            scraped.body
        );
    }
    assert!(scraped.body.contains("idsvc_request_duration_seconds_bucket"));
    assert_eq!(
        request(port, "GET", "/oauth2/token", &[], "").unwrap().status,
        404
    );
    let ask = |stream: &mut TcpStream| {
        stream
            .write_all(b"HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.extend(byte);
        }
    };
    let mut held = Vec::new();
    for _ in 0..33 {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        ask(&mut stream);
        held.push(stream);
    }
    let mut rest = Vec::new();
    held.remove(0).read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"", "the longest idle one was closed");
    ask(&mut held[0]);
    child.0.kill().unwrap();
}

/// A process that does not outlive the test.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
