//! Tests of certificate chains.

use std::{fs, slice};

use rcgen::{BasicConstraints, CertificateParams, CustomExtension, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use time::OffsetDateTime;

use super::*;

const NOW: u64 = 1_800_000_000;
const DAY: u64 = 24 * 60 * 60;

/// An authority and its certificate.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pem: String,
}

fn params(name: &str, days: std::ops::Range<i64>) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    let moment = |day: i64| {
        let seconds = i64::try_from(NOW).unwrap() + day * i64::try_from(DAY).unwrap();
        OffsetDateTime::from_unix_timestamp(seconds).unwrap()
    };
    params.distinguished_name.push(DnType::CommonName, name);
    (params.not_before, params.not_after) = (moment(days.start), moment(days.end));
    params
}

fn authority(name: &str, by: Option<&Authority>, days: std::ops::Range<i64>) -> Authority {
    let key = KeyPair::generate().unwrap();
    let mut params = params(name, days);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = match by {
        Some(by) => params.signed_by(&key, &by.issuer),
        None => params.self_signed(&key),
    };
    let certificate = certificate.unwrap();
    Authority {
        pem: certificate.pem(),
        certificate: certificate.der().clone(),
        issuer: Issuer::new(params, key),
    }
}

fn leaf(by: &Authority, extensions: Vec<CustomExtension>) -> CertificateDer<'static> {
    let mut params = params("id.example", -1..30);
    params.custom_extensions = extensions;
    let key = KeyPair::generate().unwrap();
    params.signed_by(&key, &by.issuer).unwrap().der().clone()
}

fn web() -> KnownRoots {
    KnownRoots::of(&OutboundPolicy::default())
}

fn knowing(root: &Authority) -> KnownRoots {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("ca.pem");
    fs::write(&file, &root.pem).unwrap();
    KnownRoots::of(&OutboundPolicy {
        ca_file: Some(file),
        ..OutboundPolicy::default()
    })
}

fn end_of(chain: &[CertificateDer<'_>], known: &KnownRoots, now: u64) -> Result<ChainEnd, ChainFault> {
    follow(chain, known, now).map(|followed| followed.end)
}

#[test]
fn a_whole_chain_is_good_whether_its_root_is_known_or_not() {
    let root = authority("Root", None, -9..90);
    let between = authority("Between", Some(&root), -9..90);
    let (own, at_root) = (leaf(&between, Vec::new()), leaf(&root, Vec::new()));
    let (known, web) = (knowing(&root), web());
    let chain = [own, between.certificate.clone(), root.certificate.clone()];
    for certificates in [
        &chain[..2],
        &chain,
        &[chain[0].clone(), chain[2].clone(), chain[1].clone()],
    ] {
        assert_eq!(end_of(certificates, &known, NOW), Ok(ChainEnd::KnownRoot));
        let end = ChainEnd::UnknownRoot("CN=Root".to_owned());
        assert_eq!(end_of(certificates, &web, NOW), Ok(end));
    }
    assert_eq!(
        end_of(slice::from_ref(&at_root), &known, NOW),
        Ok(ChainEnd::KnownRoot)
    );
    assert_eq!(
        end_of(&[at_root.clone(), chain[2].clone()], &web, NOW),
        Ok(ChainEnd::UnknownRoot("CN=Root".to_owned()))
    );
    let alone = ChainEnd::Alone("CN=Root".to_owned());
    assert_eq!(end_of(&[at_root], &web, NOW), Ok(alone));
}

#[test]
fn a_certificate_that_signed_itself_is_at_a_root_that_is_not_known() {
    let root = authority("Root", None, -9..90);
    let chain = [root.certificate.clone()];
    let end = ChainEnd::UnknownRoot("CN=Root".to_owned());
    assert_eq!(end_of(&chain, &web(), NOW), Ok(end));
    assert_eq!(end_of(&chain, &knowing(&root), NOW), Ok(ChainEnd::KnownRoot));
}

#[test]
fn a_chain_without_its_intermediate_is_incomplete() {
    let root = authority("Root", None, -9..90);
    let between = authority("Between", Some(&root), -9..90);
    let incomplete = |published: Option<&str>| ChainFault::Incomplete {
        issuer: "CN=Between".to_owned(),
        published: published.map(ToOwned::to_owned),
    };
    let chain = [leaf(&between, Vec::new())];
    assert_eq!(end_of(&chain, &knowing(&root), NOW), Err(incomplete(None)));
    // DER: a sequence of one policy; one access description with a URI; an octet string.
    let policies = CustomExtension::from_oid_content(
        &[2, 5, 29, 32],
        vec![0x30, 10, 0x30, 8, 6, 6, 0x67, 0x81, 0x0c, 1, 2, 1],
    );
    let url = b"http://ca.example/b.der";
    let location = [&[0x86, u8::try_from(url.len()).unwrap()], &url[..]].concat();
    let method = [6, 8, 0x2b, 6, 1, 5, 5, 7, 0x30, 2];
    let described = [&method[..], &location].concat();
    let length = u8::try_from(described.len()).unwrap();
    let access = [&[0x30, length + 2, 0x30, length], &described[..]].concat();
    let access = CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 1], access);
    let logged = CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 11129, 2, 4, 2], vec![4, 0]);
    let chain = [leaf(&between, vec![policies, access])];
    let fault = end_of(&chain, &web(), NOW).unwrap_err();
    assert_eq!(fault, incomplete(Some("http://ca.example/b.der")));
    assert!(fault.to_string().contains("(http://ca.example/b.der)"), "{fault}");
    let chain = [leaf(&between, vec![logged])];
    assert_eq!(end_of(&chain, &web(), NOW), Err(incomplete(None)));
}

#[test]
fn a_foreign_intermediate_breaks_the_chain() {
    let root = authority("Root", None, -9..90);
    let between = authority("Between", Some(&root), -9..90);
    let renewed = authority("Between", Some(&root), -9..90);
    let other = authority("Other", Some(&root), -9..90);
    for known in [web(), knowing(&root)] {
        for foreign in [&other, &renewed, &root] {
            let chain = [leaf(&between, Vec::new()), foreign.certificate.clone()];
            let fault = end_of(&chain, &known, NOW).unwrap_err();
            assert!(
                matches!(&fault, ChainFault::Foreign { number: 2, issuer, .. } if issuer == "CN=Between"),
                "{fault}"
            );
        }
    }
    let chain = [
        leaf(&between, Vec::new()),
        other.certificate.clone(),
        between.certificate.clone(),
    ];
    assert_eq!(
        end_of(&chain, &knowing(&root), NOW),
        Ok(ChainEnd::KnownRoot),
        "clients leave it out"
    );
}

#[test]
fn an_intermediate_that_is_not_valid_now_is_named() {
    let root = authority("Root", None, -900..900);
    let expired = authority("Between", Some(&root), -90..-1);
    let early = authority("Between", Some(&root), 1..90);
    for known in [web(), knowing(&root)] {
        let chain = |by: &Authority| [leaf(by, Vec::new()), by.certificate.clone()];
        let subject = "CN=Between".to_owned();
        let fault = end_of(&chain(&expired), &known, NOW);
        assert_eq!(
            fault,
            Err(ChainFault::Expired {
                number: 2,
                subject: subject.clone()
            })
        );
        let fault = end_of(&chain(&early), &known, NOW);
        assert_eq!(fault, Err(ChainFault::NotYetValid { number: 2, subject }));
    }
}

#[test]
fn an_intermediate_that_expires_within_a_week_is_warned_of_as_the_first_certificate_is() {
    let root = authority("Root", None, -900..900);
    let between = authority("Between", Some(&root), -90..6);
    let long = authority("Between", Some(&root), -90..8);
    let chain = [leaf(&between, Vec::new()), between.certificate.clone()];
    for known in [web(), knowing(&root)] {
        let warning = |now| ChainWarning::at(now, &chain, &known).map(|warning| warning.to_string());
        let said = warning(NOW).unwrap();
        assert!(
            said.starts_with("number 2 in the chain (CN=Between) expires in 144 hours"),
            "{said}"
        );
        assert_eq!(warning(NOW - 2 * DAY), None);
        assert!(warning(NOW + 7 * DAY).unwrap().contains("has expired"));
        let longer = [leaf(&long, Vec::new()), long.certificate.clone()];
        assert_eq!(ChainWarning::at(NOW, &longer, &known), None);
    }
    // A root in the file that is about to expire concerns nobody who knows its successor.
    let old_root = authority("Root", None, -900..1);
    let between = authority("Between", Some(&old_root), -90..90);
    let chain = [
        leaf(&between, Vec::new()),
        between.certificate.clone(),
        old_root.certificate.clone(),
    ];
    assert_eq!(ChainWarning::at(NOW, &chain, &knowing(&root)), None);
}
