//! What is wrong with TLS to a server, in words for the operator.

use std::io;

use rustls::CertificateError;
use rustls::pki_types::UnixTime;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The text of a TLS error. It explains the frequent one about an authority's own certificate, for which the library has
/// only a code.
pub fn tls_problem(error: &io::Error) -> String {
    let tls = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match tls {
        Some(tls) if is_of_an_authority(tls) => {
            "the certificate is that of a certificate authority: the server needs one of its own, signed by that"
                .to_owned()
        }
        Some(rustls::Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
            format!("its certificate has expired{}", moment(*not_after))
        }
        Some(rustls::Error::InvalidCertificate(CertificateError::NotValidYetContext { not_before, .. })) => {
            format!("its certificate is not valid yet{}", moment(*not_before))
        }
        _ => error.to_string(),
    }
}

/// Whether the certificate of the server is one for an authority.
pub fn is_of_an_authority(error: &rustls::Error) -> bool {
    let rustls::Error::InvalidCertificate(CertificateError::Other(other)) = error else {
        return false;
    };
    other.to_string() == "CaUsedAsEndEntity"
}

/// A moment of a certificate, with a blank before it.
fn moment(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let moment = OffsetDateTime::from_unix_timestamp(seconds).ok();
    let moment = moment.and_then(|moment| moment.format(&Rfc3339).ok());
    moment.map(|moment| format!(" ({moment})")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_moments_of_a_certificate_are_dates() {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let said = |error| tls_problem(&io::Error::other(rustls::Error::InvalidCertificate(error)));
        assert_eq!(
            said(CertificateError::ExpiredContext {
                time: at(1_800_000_000),
                not_after: at(1_700_000_000)
            }),
            "its certificate has expired (2023-11-14T22:13:20Z)"
        );
        assert_eq!(
            said(CertificateError::NotValidYetContext {
                time: at(1_700_000_000),
                not_before: at(1_800_000_000)
            }),
            "its certificate is not valid yet (2027-01-15T08:00:00Z)"
        );
        assert!(said(CertificateError::UnknownIssuer).contains("UnknownIssuer"));
    }
}
