//! The flags of a client that shows a certificate (RFC 8705).

use clap::Args;
use serde::Serialize;

/// A flag for a field has the name of the field.
#[derive(Debug, Args, Serialize)]
pub struct CertificateFields {
    /// The subject of the client's certificate of an authority, as in CN=client,O=Example,C=BE (RFC 8705)
    #[arg(long, value_name = "DN")]
    pub tls_client_auth_subject_dn: Option<String>,
    /// The DNS name in the client's certificate of an authority
    #[arg(long, value_name = "NAME")]
    pub tls_client_auth_san_dns: Option<String>,
    /// The URI in the client's certificate of an authority
    #[arg(long, value_name = "URI")]
    pub tls_client_auth_san_uri: Option<String>,
    /// The address in the client's certificate of an authority
    #[arg(long, value_name = "IP")]
    pub tls_client_auth_san_ip: Option<String>,
    /// The mail address in the client's certificate of an authority
    #[arg(long, value_name = "ADDRESS")]
    pub tls_client_auth_san_email: Option<String>,
    /// The client authenticates with a certificate for one of its public keys, not with assertions
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub self_signed_tls_client_auth: Option<bool>,
    /// Bind the client's access tokens to its certificate, and refuse token requests without one
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub tls_client_certificate_bound_access_tokens: Option<bool>,
}
