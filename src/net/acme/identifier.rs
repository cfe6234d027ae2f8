//! By what name an authority knows a certificate when it is asked when to renew it (RFC 9773 section 4.1).

use instant_acme::CertificateIdentifier;
use rustls::pki_types::{CertificateDer, Der};

use crate::net::x509::{Parts, SEQUENCE, element};

const KEY_IDENTIFIER: u8 = 0x80;
/// 2.5.29.35 (RFC 5280 section 4.2.1.1).
const AUTHORITY_KEY_IDENTIFIER: &[u8] = &[0x55, 0x1d, 0x23];

/// The name; none for a certificate that does not tell by which key it was signed.
pub fn of(certificate: &CertificateDer<'_>) -> Option<CertificateIdentifier<'static>> {
    let parts = Parts::of(certificate)?;
    let (authority, _) = element(parts.extension(AUTHORITY_KEY_IDENTIFIER)?, SEQUENCE)?;
    let (authority, _) = element(authority, KEY_IDENTIFIER)?;
    Some(
        CertificateIdentifier::new(Der::from_slice(authority), Der::from_slice(parts.serial_number))
            .into_owned(),
    )
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyIdMethod, KeyPair, SerialNumber};

    use super::*;

    fn certificate(names_its_authority: bool) -> CertificateDer<'static> {
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_identifier_method = KeyIdMethod::PreSpecified(vec![0xc0, 0xff, 0xee]);
        let authority = Issuer::new(authority, KeyPair::generate().unwrap());
        let mut params = CertificateParams::new(["id.example".to_owned()]).unwrap();
        params.serial_number = Some(SerialNumber::from_slice(&[0xca, 0xfe]));
        params.use_authority_key_identifier_extension = names_its_authority;
        let key = KeyPair::generate().unwrap();
        params.signed_by(&key, &authority).unwrap().der().clone()
    }

    #[test]
    fn a_certificate_is_known_by_its_authoritys_key_and_its_number() {
        assert_eq!(of(&certificate(true)).unwrap().to_string(), "wP_u.AMr-");
    }

    #[test]
    fn a_certificate_that_does_not_name_the_key_or_is_cut_off_has_no_name() {
        assert!(of(&certificate(false)).is_none());
        let whole = certificate(true);
        for length in 0..whole.len() {
            assert!(of(&CertificateDer::from(whole[..length].to_vec())).is_none());
        }
    }
}
