//! Changes that a command makes at one node, and when the others follow.

use crate::harness::Jwt;
use crate::harness::kiosk::{ALL_GRANTS, ANONYMOUS, Kiosk, OWN_TOKEN};
use crate::harness::nodes::{serve, set_up, until};
use crate::harness::postgres::Cluster;
use crate::harness::process::{Running, Service};
use crate::theme;

fn three_nodes(settings: &[(&'static str, &str)]) -> Vec<Service> {
    let url = Cluster::shared().database("changes").url();
    set_up(&[&*url; 3], settings)
}

/// Makes several changes, and waits after each until all nodes have followed.
fn follow(nodes: &[Running<'_>], mut change: impl FnMut(usize) -> Box<dyn Fn(&Service) -> bool>) {
    for number in 0..5 {
        let has_followed = change(number);
        until(|| nodes.iter().all(|node| has_followed(node)));
    }
}

#[test]
fn a_disabled_client_gets_no_token_that_needs_the_store_and_soon_no_other() {
    let nodes = three_nodes(&[]);
    let client = Kiosk::register_as(&nodes[0], "app", ALL_GRANTS);
    let running = serve(&nodes);
    let token = client.enter(&running[0]).unwrap();
    running[0].json(&["client", "disable", "app", "--json"]);
    for node in &running[1..] {
        let refresh = [("grant_type", "refresh_token"), ("refresh_token", &*token)];
        assert_eq!(client.status(node, &refresh), 401);
        assert_eq!(client.status(node, &[("grant_type", ANONYMOUS)]), 401);
    }
    follow(&running, |number| {
        let (verb, expected) = [("enable", 200), ("disable", 401)][number % 2];
        running[number % 3].json(&["client", verb, "app", "--json"]);
        let client = client.clone();
        Box::new(move |node| client.status(node, &OWN_TOKEN) == expected)
    });
}

#[test]
fn a_new_secret_soon_works_at_every_node_and_the_old_one_at_none() {
    let nodes = three_nodes(&[]);
    let mut old = Kiosk::register_as(&nodes[0], "app", ALL_GRANTS);
    let running = serve(&nodes);
    follow(&running, |number| {
        let shown = running[number % 3].json(&["client", "rotate-secret", "app", "--json"]);
        let new = Kiosk::of("app", shown["client_secret"].as_str().unwrap());
        let replaced = std::mem::replace(&mut old, new.clone());
        Box::new(move |node| replaced.status(node, &OWN_TOKEN) == 401 && new.status(node, &OWN_TOKEN) == 200)
    });
}

/// Whether a node publishes the key of this name.
fn publishes(node: &Service, kid: &str) -> bool {
    let reply = node.request("GET", "/oauth2/jwks", &[], "").unwrap();
    let body = reply.json();
    body["keys"]
        .as_array()
        .unwrap()
        .iter()
        .any(|key| key["kid"] == kid)
}

#[test]
fn a_key_that_is_replaced_at_once_is_soon_published_by_every_node() {
    let nodes = three_nodes(&[]);
    let client = Kiosk::register_as(&nodes[0], "app", ALL_GRANTS);
    let running = serve(&nodes);
    follow(&running, |number| {
        let node = &running[number % 3];
        let shown = node.json(&["key", "rotate", "--now", "--json"]);
        let kid = shown["kid"].as_str().unwrap().to_owned();
        let answer = client.ask(node, "/oauth2/token", &OWN_TOKEN).unwrap().json();
        let token = Jwt::read(answer["access_token"].as_str().unwrap());
        assert_eq!(token.header["kid"], *kid, "it signs at once");
        Box::new(move |node| publishes(node, &kid))
    });
}

/// Settings and themes that differ are named by `doctor` at any node.
#[test]
fn doctor_names_the_nodes_whose_settings_or_themes_differ() {
    let mut nodes = three_nodes(&[("IDSVC_SERVICE_NAME", "Acme")]);
    let other = nodes.pop().unwrap().with("IDSVC_SERVICE_NAME", "Emca");
    nodes.push(other);
    let theme_of = |node: &Service, color: &str| {
        let folder = node.data().join("themes/acme");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("theme.css"), format!("body {{ color: {color} }}")).unwrap();
    };
    theme_of(&nodes[0], "red");
    theme_of(&nodes[1], "green");
    theme_of(&nodes[2], "red");
    let running = serve(&nodes);
    let node = |number: usize| format!("(127.0.0.1:{})", nodes[number].port);
    let differences = || {
        let report = running[1].run(&["doctor", "--json"]);
        let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
        let findings = report["findings"].as_array().unwrap().clone();
        let differ = findings.into_iter().filter(|finding| finding["check"] == "nodes");
        differ.collect::<Vec<_>>()
    };
    until(|| differences().len() == 2);
    for (finding, subject, number) in [(0, "service_name", 2), (1, "themes", 1)] {
        let finding = &differences()[finding];
        assert_eq!(
            (&finding["subject"], &finding["level"]),
            (&subject.into(), &"advice".into())
        );
        let message = finding["message"].as_str().unwrap();
        let (few, most) = message.split_once(" and on ").unwrap();
        assert!(few.contains(&node(number)), "{message}");
        assert_eq!(most.matches("127.0.0.1").count(), 2, "{message}");
    }
}

#[test]
fn a_theme_is_used_by_the_node_that_has_its_files() {
    let nodes = three_nodes(&[("IDSVC_THEME", "foreign")]);
    let add = "client add web --redirect-uri https://app.example/cb --pkce optional \
               --scope openid --scope notes.write --json";
    nodes[0].json(&add.split_whitespace().collect::<Vec<_>>());
    let running = serve(&nodes);
    let is_themed = |node: &Running<'_>| theme::login_page(node, "").body.contains("masthead");
    assert!(!running.iter().any(is_themed));
    theme::install(&nodes[1], "foreign");
    until(|| is_themed(&running[1]));
    assert!(!is_themed(&running[0]) && !is_themed(&running[2]));
}
