//! The settings that all nodes of a service have in common.

use std::collections::BTreeMap;

use ring::digest;

use super::form::Shape;
use super::reference::settings;
use super::setting::{Literal, Setting};
use super::source::{RawValue, Sources};

/// Settings that a node has for itself, and names of files.
const OF_ONE_NODE: &[&str] = &[
    "backup.passphrase_file",
    "backup.to",
    "brand.logo",
    "data_dir",
    "limits.connections",
    "limits.connections_per_address",
    "limits.memory",
    "listen",
    "mail.ca_file",
    "mail.password_file",
    "metrics.listen",
    "outbound.ca_file",
    "password.blocklist_file",
    "password.workers",
    "redirect_port",
    "theme_dir",
    "tls.cert",
    "tls.key",
    "tls.mtls_ca",
    "tls.mtls_listen",
];
/// Sections of which a node has each setting for itself.
const SECTIONS_OF_ONE_NODE: &[&str] = &["log", "store"];

/// The SHA-256 of the value of each setting that nodes have in common, by key.
pub(super) fn digests(sources: &Sources) -> BTreeMap<&'static str, [u8; 32]> {
    let shared = settings().filter(|setting| is_shared(setting));
    shared
        .filter_map(|setting| {
            let set = sources.values.iter().find(|value| value.key == setting.key);
            let default = || setting.default.map(Literal::raw);
            let value = set.map(|set| set.raw.clone()).or_else(default)?;
            let text = text_of(setting, &value);
            let digest = digest::digest(&digest::SHA256, text.as_bytes());
            Some((setting.key, digest.as_ref().try_into().ok()?))
        })
        .collect()
}

fn is_shared(setting: &Setting) -> bool {
    let is_of_section = |section| SECTIONS_OF_ONE_NODE.contains(&section);
    !OF_ONE_NODE.contains(&setting.key) && !setting.section().is_some_and(is_of_section)
}

/// The same text for the same value, wherever it was set.
fn text_of(setting: &Setting, value: &RawValue) -> String {
    let text = match value {
        RawValue::Text(text) | RawValue::Untyped(text) => text.clone(),
        RawValue::Number(number) => number.to_string(),
        RawValue::Flag(flag) => flag.to_string(),
        RawValue::List(items) => items.join(","),
    };
    match setting.form.shape() {
        Shape::List { .. } => {
            let items: Vec<_> = text.split(',').map(str::trim).collect();
            items.join(",")
        }
        _ => text.trim().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::source::{Origin, SettingValue};

    fn with(key: &'static str, raw: RawValue) -> Sources {
        let origin = Origin::Default;
        Sources {
            values: vec![SettingValue { key, raw, origin }],
            ..Sources::default()
        }
    }

    #[test]
    fn a_value_has_one_digest_wherever_it_is_set_and_a_default_is_one() {
        let untyped = |text: &str| RawValue::Untyped(text.to_owned());
        let list = RawValue::List(vec!["10.0.0.0/8".to_owned(), "192.0.2.1".to_owned()]);
        assert_eq!(
            digests(&with("trusted_proxies", list)),
            digests(&with("trusted_proxies", untyped("10.0.0.0/8, 192.0.2.1")))
        );
        assert_eq!(
            digests(&with("limits.enabled", untyped("true"))),
            digests(&Sources::default())
        );
        let changed = digests(&with("limits.enabled", RawValue::Flag(false)));
        assert_ne!(changed, digests(&Sources::default()));
    }

    #[test]
    fn what_a_node_has_for_itself_is_not_compared() {
        let common = digests(&Sources::default());
        for key in OF_ONE_NODE.iter().copied().chain(["store.url", "log.level"]) {
            assert!(settings().any(|setting| setting.key == key), "{key}");
            let own = digests(&with(key, RawValue::Untyped("7".to_owned())));
            assert_eq!(own, common, "{key}");
        }
    }
}
