//! Checks whether clients that need a certificate can show one, and whether it is accepted.

use super::finding::Finding;
use crate::admin::client::ClientView;
use crate::config::mtls::Mtls;
use crate::oauth::client::AuthMethod;

/// What keeps a client from getting tokens.
pub(super) fn check_client(client: &ClientView, mtls: &Mtls) -> Option<Finding> {
    let id = &client.client_id;
    let authenticates = client.auth_methods.iter().any(|method| method.uses_certificate());
    if mtls.listen.is_none() && (authenticates || client.tls_client_certificate_bound_access_tokens) {
        let message = if authenticates {
            "it authenticates with a certificate, and the service asks for none: all its requests are refused"
        } else {
            "its tokens are bound to its certificate, and the service asks for none: its token requests are refused"
        };
        let remedy = "set tls.mtls_listen to an address, as in 0.0.0.0:9443, and restart the service";
        return Some(Finding::mend("client", id, message, remedy));
    }
    let needs_authority = client.auth_methods.contains(&AuthMethod::TlsClientAuth);
    (needs_authority && mtls.ca_files.is_empty()).then(|| {
        let message =
            "it authenticates with a certificate of an authority, and tls.mtls_ca names none: its requests are refused";
        let remedy = "set tls.mtls_ca to the certificate of the authority, and restart the service";
        Finding::mend("client", id, message, remedy)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(changes: &serde_json::Value, mtls: &Mtls) -> Option<String> {
        let mut view = serde_json::json!({
            "client_id": "bank", "client_uuid": "0193b2a4-7a10-7cc0-8000-000000000001", "public": false, "auth_methods": [],
            "secrets": [], "enabled": true, "created_at": 0, "updated_at": 0, "issuer": "https://id.example",
        });
        for (name, value) in changes.as_object().unwrap() {
            view[name] = value.clone();
        }
        let view: ClientView = serde_json::from_value(view).unwrap();
        check_client(&view, mtls).map(|finding| finding.remedy.unwrap())
    }

    #[test]
    fn a_client_whose_certificate_nobody_asks_for_or_believes_is_reported() {
        let off = Mtls::default();
        let listening = Mtls {
            listen: Some("127.0.0.1:9443".parse().unwrap()),
            ..Mtls::default()
        };
        let complete = Mtls {
            ca_files: vec!["ca.pem".into()],
            ..listening.clone()
        };
        let by_authority = serde_json::json!({ "auth_methods": ["tls_client_auth"] });
        let self_signed = serde_json::json!({ "auth_methods": ["self_signed_tls_client_auth"] });
        let bound = serde_json::json!({ "tls_client_certificate_bound_access_tokens": true });
        for (client, mtls, named) in [
            (&by_authority, &off, Some("tls.mtls_listen")),
            (&by_authority, &listening, Some("tls.mtls_ca")),
            (&by_authority, &complete, None),
            (&self_signed, &off, Some("tls.mtls_listen")),
            (&self_signed, &listening, None),
            (&bound, &off, Some("tls.mtls_listen")),
            (&bound, &listening, None),
            (&serde_json::json!({}), &off, None),
        ] {
            let remedy = finding(client, mtls);
            let is_right = match (&remedy, named) {
                (Some(remedy), Some(named)) => remedy.contains(named),
                (remedy, named) => remedy.is_none() && named.is_none(),
            };
            assert!(is_right, "{client} {named:?} {remedy:?}");
        }
    }
}
