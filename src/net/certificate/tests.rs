//! Tests of certificate files.

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair};
use tempfile::TempDir;
use time::OffsetDateTime;

use super::super::outbound::OutboundPolicy;
use super::super::self_signed::self_signed;
use super::*;

const NOW: u64 = 1_800_000_000;
const DAY: u64 = 24 * 60 * 60;

fn web() -> KnownRoots {
    KnownRoots::of(&OutboundPolicy::default())
}

fn files(directory: &TempDir) -> (PathBuf, PathBuf) {
    let certs = directory.path().join("certs");
    (certs.join("self-signed.pem"), certs.join("self-signed.key"))
}

#[test]
fn validity_is_read_from_the_certificate() {
    let directory = TempDir::new().unwrap();
    let validity = self_signed(directory.path(), &[], NOW)
        .unwrap()
        .validity()
        .unwrap();
    assert_eq!(
        validity,
        Validity {
            not_before: NOW - DAY,
            not_after: NOW + 364 * DAY
        }
    );
}

/// A DER sequence with a length of two bytes.
fn sequence(content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).unwrap().to_be_bytes();
    [&[0x30, 0x82, length[0], length[1]], content].concat()
}

#[test]
fn a_certificate_of_the_first_version_is_named_as_such() {
    let directory = TempDir::new().unwrap();
    let mut pair = self_signed(directory.path(), &[], NOW).unwrap();
    assert!(pair.certified_key().is_ok());
    let new = pair.chain[0].clone();
    let to_be_signed = parse(&new).unwrap().tbs_certificate.as_ref().to_vec();
    let signature = &new[4 + to_be_signed.len()..];
    let without_version = to_be_signed[4..].strip_prefix(&[0xa0, 3, 2, 1, 2]).unwrap();
    let old = sequence(&[&sequence(without_version), signature].concat());
    pair.chain = vec![CertificateDer::from(old)];
    let said = pair.certified_key().unwrap_err().to_string();
    assert!(said.contains("X.509 version 1"), "{said}");
}

#[test]
fn a_certificate_that_is_cut_off_has_no_validity() {
    let (mut pair, _folder) = pair(&["id.example"], |_| ());
    assert!(pair.validity().is_some());
    let whole = pair.chain[0].clone();
    for length in 0..whole.len() {
        pair.chain = vec![CertificateDer::from(whole[..length].to_vec())];
        assert_eq!(pair.validity(), None);
        assert!(!pair.is_for_servers());
    }
}

#[test]
fn a_certificate_is_for_servers_unless_it_says_that_it_is_for_others_only() {
    use ExtendedKeyUsagePurpose::{Any, ClientAuth, CodeSigning, ServerAuth};
    for (purposes, is_for_servers) in [
        (vec![], true),
        (vec![ClientAuth, ServerAuth], true),
        (vec![Any], true),
        (vec![ClientAuth], false),
        (vec![ClientAuth, CodeSigning], false),
    ] {
        let (pair, _folder) = pair(&["id.example"], |params| {
            params.extended_key_usages.clone_from(&purposes);
        });
        assert_eq!(pair.is_for_servers(), is_for_servers, "{purposes:?}");
    }
}

#[test]
fn an_examination_names_the_faults_of_both_files() {
    let (directory, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    self_signed(directory.path(), &[], NOW).unwrap();
    self_signed(other.path(), &[], NOW).unwrap();
    let (certificate, key) = files(&directory);
    let known_roots = KnownRoots::of(&OutboundPolicy::default());
    let look =
        |certificate: &Path, key: &Path, now| examine(certificate, key, Some("localhost"), &known_roots, now);
    let sound = look(&certificate, &key, NOW).unwrap();
    assert!(matches!(sound.chain, ChainEnd::UnknownRoot(_)));
    let chain = sound.chain.clone();
    assert_eq!(
        sound,
        CertificateWarnings {
            chain,
            not_after: Some(NOW + 364 * DAY),
            ..CertificateWarnings::default()
        }
    );
    let soon = look(&certificate, &key, NOW + 363 * DAY).unwrap();
    assert_eq!(soon.expiry, Some(ExpiryWarning::LastWeek(24)));
    for (now, kind) in [
        (NOW + 400 * DAY, ExpiryWarning::Expired),
        (NOW - 2 * DAY, ExpiryWarning::NotYetValid),
    ] {
        let errors = look(&certificate, &key, now).unwrap_err();
        assert!(
            matches!(errors[..], [TlsError::Validity { warning, .. }] if warning == kind),
            "{errors:?}"
        );
    }
    assert_eq!(look(&key, &certificate, NOW).unwrap_err().len(), 2);
    let mismatch = look(&certificate, &files(&other).1, NOW).unwrap_err();
    assert!(matches!(mismatch[..], [TlsError::KeyMismatch { .. }]));
}

/// A pair for these names whose parameters `change` may alter, and its folder.
fn pair(names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> (Pair, TempDir) {
    let directory = TempDir::new().unwrap();
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let file = directory.path().join("pair.pem");
    fs::write(&file, key.serialize_pem() + &certificate.pem()).unwrap();
    (Pair::read(&file, &file).unwrap(), directory)
}

#[test]
fn a_certificate_that_is_not_for_the_host_or_not_for_servers_is_warned_of() {
    let (fit, _folder) = pair(&["id.example", "127.0.0.1"], |_| ());
    assert_eq!(
        (
            fit.mismatch_warning("id.example"),
            fit.mismatch_warning("127.0.0.1")
        ),
        (None, None)
    );
    assert!(
        fit.mismatch_warning("other.example")
            .unwrap()
            .contains("not for other.example")
    );
    let (nameless, _folder) = pair(&[], |params| {
        params.distinguished_name.push(DnType::CommonName, "id.example");
    });
    assert!(
        nameless
            .mismatch_warning("id.example")
            .unwrap()
            .contains("not for id.example")
    );
    let (client, folder) = pair(&["id.example"], |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    assert!(
        client
            .mismatch_warning("id.example")
            .unwrap()
            .contains("not for servers")
    );
    let file = folder.path().join("pair.pem");
    let examined = examine(&file, &file, Some("id.example"), &web(), NOW).unwrap();
    assert_eq!(examined.mismatch, client.mismatch_warning("id.example"));
}

#[test]
fn a_chain_with_something_else_in_it_is_refused() {
    let (mut pair, _folder) = pair(&["id.example"], |_| ());
    let whole = pair.chain[0].clone();
    pair.chain.push(whole.clone());
    assert!(pair.certified_key().is_ok());
    pair.chain.push(CertificateDer::from(vec![0; 3]));
    let said = pair.certified_key().unwrap_err().to_string();
    assert!(said.contains("number 3"), "{said}");
}

#[test]
fn a_chain_in_another_order_is_named_as_such() {
    let (pair, _folder) = pair(&["id.example"], |_| ());
    let (other, _other_folder) = self::pair(&["Authority"], |_| ());
    let (own, other) = (pair.chain[0].clone(), other.chain[0].clone());
    for (chain, part) in [
        (
            vec![other.clone(), own.clone()],
            "is number 2 in the chain: put it first",
        ),
        (
            vec![other.clone(), other.clone(), own],
            "is number 3 in the chain",
        ),
        (vec![other.clone(), other], "does not belong to the certificate"),
    ] {
        let said = Pair {
            chain,
            private_key: pair.private_key.clone_key(),
            ..Pair::read(&pair.certificate_file, &pair.key_file).unwrap()
        };
        let said = said.certified_key().unwrap_err().to_string();
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn only_what_every_client_takes_is_sound() {
    let (mut good, _folder) = pair(&["id.example"], |params| {
        params.not_before = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
        params.not_after = OffsetDateTime::from_unix_timestamp(1_800_000_000 + 86_400).unwrap();
    });
    assert!(good.check_acceptance(NOW).is_ok());
    assert!(
        good.check_acceptance(NOW - CLOCK_SKEW).is_ok(),
        "its issuer's clock is ahead"
    );
    assert!(good.check_acceptance(NOW - CLOCK_SKEW - 1).is_err());
    assert!(good.check_acceptance(NOW + DAY + 1).is_err());
    let leaf = good.chain[0].clone();
    good.chain = vec![leaf.clone(); 10];
    assert!(good.check_acceptance(NOW).is_ok());
    good.chain.push(leaf.clone());
    assert!(good.check_acceptance(NOW).is_err());
    good.chain = vec![leaf, CertificateDer::from(vec![0; 64 * 1024])];
    assert!(good.check_acceptance(NOW).is_err());
}

#[test]
fn a_key_that_cannot_be_used_is_told_with_those_that_can() {
    let (mut pair, _folder) = pair(&["id.example"], |_| ());
    // A P-521 key in PKCS #8 begins like this; what follows makes no difference.
    let p_521 = b"\x30\x1a\x02\x01\x00\x30\x10\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x05\x2b\x81\x04\x00\x23\x04\x03\x04\x01\x00";
    pair.private_key = PrivateKeyDer::Pkcs8(p_521.to_vec().into());
    let said = pair.certified_key().unwrap_err().to_string();
    assert!(said.contains("P-384, or Ed25519"), "{said}");
}

#[test]
fn a_file_of_an_editor_that_marks_utf_8_and_ends_lines_with_two_characters_is_read() {
    let directory = TempDir::new().unwrap();
    self_signed(directory.path(), &[], NOW).unwrap();
    let (certificate, key) = files(&directory);
    for file in [&certificate, &key] {
        let text = fs::read_to_string(file).unwrap();
        let text = text.split_once("-----BEGIN").unwrap().1.replace('\n', "\r\n");
        fs::write(file, format!("\u{feff}-----BEGIN{text}")).unwrap();
    }
    assert!(Pair::read(&certificate, &key).unwrap().certified_key().is_ok());
}

#[test]
fn every_fault_of_the_files_is_named() {
    let (one, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    self_signed(one.path(), &[], NOW).unwrap();
    self_signed(other.path(), &[], NOW).unwrap();
    let (certificate, key) = files(&one);
    let fault = |certificate: &Path, key: &Path| {
        examine(certificate, key, None, &web(), NOW)
            .unwrap_err()
            .remove(0)
    };

    assert!(matches!(
        fault(&one.path().join("none"), &key),
        TlsError::Unreadable { .. }
    ));
    assert!(matches!(fault(&key, &key), TlsError::NoCertificate(_)));
    assert!(matches!(fault(&certificate, &certificate), TlsError::NoKey(_)));
    assert!(matches!(
        fault(&certificate, &files(&other).1),
        TlsError::KeyMismatch { .. }
    ));

    let damaged = one.path().join("damaged");
    fs::write(&damaged, "-----BEGIN PRIVATE KEY-----\nAAAA\n").unwrap();
    assert!(matches!(fault(&certificate, &damaged), TlsError::NotPem(_)));
    fs::write(
        &damaged,
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
    )
    .unwrap();
    assert!(matches!(fault(&certificate, &damaged), TlsError::EncryptedKey(_)));
    fs::write(
        &damaged,
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----\n",
    )
    .unwrap();
    assert!(matches!(fault(&certificate, &damaged), TlsError::EncryptedKey(_)));
    fs::write(
        &damaged,
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    )
    .unwrap();
    assert!(matches!(
        fault(&damaged, &key),
        TlsError::Refused { .. } | TlsError::KeyMismatch { .. }
    ));
}
