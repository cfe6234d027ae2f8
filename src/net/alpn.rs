//! The names of protocols in a TLS handshake (ALPN, RFC 7301).

/// HTTP/2 (RFC 9113 section 3.1).
pub const HTTP_2: &[u8] = b"h2";
/// HTTP/1.1 (RFC 7301 section 6).
pub const HTTP_1_1: &[u8] = b"http/1.1";
/// HTTP/1.0, for clients that offer nothing else.
pub const HTTP_1_0: &[u8] = b"http/1.0";
/// The check of a certificate authority (RFC 8737 section 6.2).
pub const ACME_TLS_1: &[u8] = b"acme-tls/1";
