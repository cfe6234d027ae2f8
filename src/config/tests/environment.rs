//! Environment variables that set nothing.

use super::*;

#[test]
fn a_misspelt_variable_is_a_warning() {
    let sources = sources_of(
        &[],
        &[
            ("IDSVC_BASEURL", "x"),
            ("IDSVC_CONFIG", ""),
            ("IDSVC_SHOE_SIZE", "x"),
        ],
        "",
    );
    assert_eq!(
        sources.warnings,
        [
            "IDSVC_BASEURL sets nothing: did you mean IDSVC_BASE_URL?",
            "IDSVC_SHOE_SIZE sets nothing"
        ]
    );
}

#[test]
fn a_variable_without_a_value_counts_as_not_set() {
    let file = "base_url = \"https://id.example.com\"\nlisten = [\"127.0.0.1:1\"]\n";
    let empty = [
        ("IDSVC_MAIL_URL", ""),
        ("IDSVC_MAIL_PASSWORD_FILE", ""),
        ("IDSVC_LISTEN", ""),
        ("IDSVC_DATA_DIR", ""),
        ("IDSVC_BASE_URL", ""),
        ("IDSVC_TLS_MODE", ""),
        ("IDSVC_SIGNING_KEYS", ""),
        ("IDSVC_BASEURL", ""),
        ("IDSVC_STORE_URL", " "),
        ("IDSVC_MAIL_FROM", "\t\n"),
        ("IDSVC_CONFIG", ""),
        ("STATE_DIRECTORY", ""),
    ];
    let sources = sources_of(&[], &empty, file);
    assert_eq!(sources, sources_of(&[], &[], file));
}

#[test]
fn what_kubernetes_sets_for_a_service_of_that_name_is_ignored() {
    let injected = [
        ("IDSVC_PORT", "tcp://10.43.0.7:443"),
        ("IDSVC_SERVICE_HOST", "10.43.0.7"),
        ("IDSVC_SERVICE_PORT", "443"),
        ("IDSVC_SERVICE_PORT_HTTPS", "443"),
        ("IDSVC_PORT_443_TCP", "tcp://10.43.0.7:443"),
        ("IDSVC_PORT_443_TCP_PROTO", "tcp"),
        ("IDSVC_PORT_443_TCP_PORT", "443"),
        ("IDSVC_PORT_443_TCP_ADDR", "10.43.0.7"),
        ("IDSVC_PORT_53_UDP_ADDR", "10.43.0.7"),
        ("IDSVC_METRICS_SERVICE_HOST", "10.43.0.8"),
        ("IDSVC_REDIRECT_PORT", "tcp://10.43.0.9:80"),
    ];
    assert_eq!(sources_of(&[], &injected, ""), sources_of(&[], &[], ""));
    let set = [("IDSVC_SERVICE_NAME", "acme"), ("IDSVC_REDIRECT_PORT", "80")];
    assert_eq!(sources_of(&[], &set, "").values.len(), 2);
}
