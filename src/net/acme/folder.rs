//! What is kept of ACME in `certs/`, each file whole or not at all, closed to others.
//!
//! The certificate lies with its key in one file, so no crash can leave one without the other. Losing any of the
//! files costs an order and nothing else.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest;
use serde::Deserialize;
use serde::Serialize;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use super::Plan;
use super::timetable::{Held, Progress};
use crate::net::certificate::{self, Pair};
use crate::net::tls_error::TlsError;
use crate::net::validity::Lapse;

/// For the owner only: there are keys in all of them, or next to them.
const MODE: u32 = 0o600;
const CERTIFICATE: &str = "acme.pem";
const ACCOUNT: &str = "acme-account.json";
const PROGRESS: &str = "acme-progress.json";
const ORDER: &str = "acme-order.json";
/// Written and removed again, as proof of room for a certificate with its chain and key.
const PROOF: &str = "acme-room";
const PROOF_BYTES: usize = 16 * 1024;

/// The folder `certs/` of a data directory.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

/// An account with an authority.
#[derive(Serialize, Deserialize)]
pub struct SavedAccount {
    /// Whose account it is.
    pub directory: String,
    /// Where the authority was told to write to.
    pub contact: Option<String>,
    /// The library's own form of the account and its key.
    pub credentials: instant_acme::AccountCredentials,
}

/// An order that the authority may issue a certificate for, or has.
#[derive(Serialize, Deserialize)]
pub struct SavedOrder {
    /// What was ordered where: [`Plan::line`].
    pub order: String,
    /// Where the authority tells how it stands (RFC 8555 section 7.1.3).
    pub url: String,
    /// The private key of the certificate, PEM.
    pub key: Zeroizing<String>,
    /// When it was ordered, in seconds since the epoch.
    pub ordered_at: u64,
}

impl Folder {
    /// That of this data directory.
    pub fn of(data_dir: &Path) -> Self {
        Self(data_dir.join("certs"))
    }

    /// The file of the certificate and its key.
    pub fn certificate_file(&self) -> PathBuf {
        self.0.join(CERTIFICATE)
    }

    /// The certificate in place, if it can be used for one of these domains at least; none when there is no file. It
    /// may have expired.
    pub fn certificate(&self, domains: &[String]) -> Result<Option<Pair>, TlsError> {
        let file = self.certificate_file();
        Pair::read_for_some(&file, domains)
    }

    /// The same, and how it stands to the plan.
    pub fn held(&self, plan: &Plan) -> Result<Option<(Pair, Held)>, TlsError> {
        let file = self.certificate_file();
        let Some(pem) = read(&file)? else {
            return Ok(None);
        };
        let pair = serve(&pem, &file, &plan.domains)?;
        let is_for_all = pair.is_for(&plan.domains);
        let held = Held {
            name: name(&pair),
            validity: pair.validity().ok_or_else(|| TlsError::NotPem(file.clone()))?,
            is_as_planned: is_for_all
                && pem
                    .strip_prefix(plan.line().as_bytes())
                    .is_some_and(|rest| rest.starts_with(b"\n")),
        };
        Ok(Some((pair, held)))
    }

    /// Fails when a certificate could not be kept. To be asked before one is ordered: authorities issue the same one a
    /// few times a week, and one that is lost for want of room counts.
    pub fn prove_room(&self) -> Result<(), TlsError> {
        let file = self.0.join(PROOF);
        certificate::make_folder(&self.0)?;
        certificate::write(&file, &[b' '; PROOF_BYTES], MODE)?;
        fs::remove_file(&file).map_err(|source| TlsError::Unwritable { file, source })
    }

    /// Puts a certificate in place with its key, both PEM, when it can be used for what is planned. One that clients
    /// refuse at `now`, in seconds since the epoch, does not take the place of one that they accept.
    pub fn place(&self, plan: &Plan, chain: &str, key: &str, now: u64) -> Result<(), TlsError> {
        let text = Zeroizing::new(format!("{}\n{key}{chain}", plan.line()));
        let file = self.certificate_file();
        let pair = fit(text.as_bytes(), &file, &plan.domains)?;
        let held = self.certificate(&plan.domains).unwrap_or_default();
        let is_refused = |held: &Pair| held.lapse(now).is_some_and(Lapse::is_refused);
        if held.is_some_and(|held| !is_refused(&held)) {
            pair.is_sound(now)?;
        }
        certificate::make_folder(&self.0)?;
        certificate::write(&file, text.as_bytes(), MODE)
    }

    /// The account; none when there is none that can be read.
    pub fn account(&self) -> Result<Option<SavedAccount>, TlsError> {
        self.document(ACCOUNT)
    }

    /// Keeps an account.
    pub fn keep_account(&self, account: &SavedAccount) -> Result<(), TlsError> {
        self.keep(ACCOUNT, account)
    }

    /// What is remembered of orders; nothing when it cannot be read.
    pub fn progress(&self) -> Result<Progress, TlsError> {
        Ok(self.document(PROGRESS)?.unwrap_or_default())
    }

    /// Remembers it.
    pub fn keep_progress(&self, progress: &Progress) -> Result<(), TlsError> {
        self.keep(PROGRESS, progress)
    }

    /// The order that is not brought to its end yet; none when there is none that can be read.
    pub fn order(&self) -> Result<Option<SavedOrder>, TlsError> {
        self.document(ORDER)
    }

    /// Keeps an order.
    pub fn keep_order(&self, order: &SavedOrder) -> Result<(), TlsError> {
        self.keep(ORDER, order)
    }

    /// Forgets the order.
    pub fn drop_order(&self) -> Result<(), TlsError> {
        let file = self.0.join(ORDER);
        match fs::remove_file(&file) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(TlsError::Unwritable { file, source })
            }
            _ => Ok(()),
        }
    }

    fn document<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, TlsError> {
        let text = read(&self.0.join(name))?;
        Ok(text.and_then(|text| serde_json::from_slice(&text).ok()))
    }

    fn keep<T: Serialize>(&self, name: &str, document: &T) -> Result<(), TlsError> {
        let file = self.0.join(name);
        let text = serde_json::to_vec(document).map(Zeroizing::new);
        let text = text.map_err(|error| TlsError::Unwritable {
            file: file.clone(),
            source: io::Error::other(error),
        })?;
        certificate::make_folder(&self.0)?;
        certificate::write(&file, &text, MODE)
    }
}

fn read(file: &Path) -> Result<Option<Zeroizing<Vec<u8>>>, TlsError> {
    match fs::read(file) {
        Ok(bytes) => Ok(Some(Zeroizing::new(bytes))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(TlsError::Unreadable {
            file: file.to_owned(),
            source,
        }),
    }
}

/// Certificate and key, when they belong together and to all of these domains.
fn fit(pem: &[u8], file: &Path, domains: &[String]) -> Result<Pair, TlsError> {
    matching(pem, file, domains, |pair| pair.is_for(domains))
}

/// Certificate and key, when they belong together and to one of these domains: until a certificate for all of them is
/// here, those that had one keep it.
fn serve(pem: &[u8], file: &Path, domains: &[String]) -> Result<Pair, TlsError> {
    matching(pem, file, domains, |pair| {
        domains
            .iter()
            .any(|domain| pair.is_for(std::slice::from_ref(domain)))
    })
}

fn matching(
    pem: &[u8],
    file: &Path,
    domains: &[String],
    is_theirs: impl FnOnce(&Pair) -> bool,
) -> Result<Pair, TlsError> {
    let pair = Pair::from_pem(pem, file)?;
    pair.certified_key()?;
    if !is_theirs(&pair) {
        return Err(TlsError::OtherNames {
            certificate: file.to_owned(),
            names: domains.join(" "),
        });
    }
    Ok(pair)
}

/// The SHA-256 of the server's own certificate, in base64url.
fn name(pair: &Pair) -> String {
    let certificate = pair.chain.first().map(AsRef::as_ref).unwrap_or_default();
    let digest = digest::digest(&digest::SHA256, certificate);
    URL_SAFE_NO_PAD.encode(digest)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use rcgen::{CertificateParams, KeyPair};

    use super::super::tests::plan;
    use super::*;
    use tempfile::TempDir;

    const NOW: u64 = 1_800_000_000;

    fn certificate(domains: &[&str]) -> (String, String) {
        let names: Vec<String> = domains.iter().map(|&domain| domain.to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    #[test]
    fn a_certificate_comes_back_with_its_key_and_is_closed_to_others() {
        let (directory, plan) = (TempDir::new().unwrap(), plan(&["a.example", "b.example"]));
        let folder = Folder::of(directory.path());
        assert!(folder.held(&plan).unwrap().is_none());
        let (chain, key) = certificate(&["a.example", "b.example"]);
        folder.place(&plan, &chain, &key, NOW).unwrap();
        let (pair, held) = folder.held(&plan).unwrap().unwrap();
        assert!(held.is_as_planned && pair.is_for(&plan.domains));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder.certificate_file()), 0o600);
        assert_eq!(mode(&directory.path().join("certs")), 0o700);
        assert_eq!(fs::read_dir(directory.path().join("certs")).unwrap().count(), 1);
    }

    #[test]
    fn a_certificate_for_other_names_is_not_used_and_one_for_fewer_or_more_is_not_as_planned() {
        let directory = TempDir::new().unwrap();
        let folder = Folder::of(directory.path());
        let two = plan(&["a.example", "b.example"]);
        let (chain, key) = certificate(&["a.example", "b.example"]);
        folder.place(&two, &chain, &key, NOW).unwrap();
        let (_, held) = folder.held(&plan(&["a.example"])).unwrap().unwrap();
        assert!(!held.is_as_planned);
        let more = plan(&["a.example", "b.example", "c.example"]);
        let (_, held) = folder.held(&more).unwrap().unwrap();
        assert!(!held.is_as_planned);
        assert!(folder.place(&more, &chain, &key, NOW).is_err());
        let other = plan(&["c.example"]);
        assert!(matches!(folder.held(&other), Err(TlsError::OtherNames { .. })));
        assert!(folder.place(&other, &chain, &key, NOW).is_err());
        let foreign = certificate(&["a.example", "b.example"]).1;
        assert!(matches!(
            folder.place(&two, &chain, &foreign, NOW),
            Err(TlsError::KeyMismatch { .. })
        ));
        assert!(folder.place(&two, "<html>", &key, NOW).is_err());
        assert!(folder.held(&two).unwrap().unwrap().1.is_as_planned);
    }

    #[test]
    fn what_a_killed_process_left_half_written_is_in_nobodys_way() {
        let (directory, plan) = (TempDir::new().unwrap(), plan(&["a.example"]));
        let folder = Folder::of(directory.path());
        let certs = directory.path().join("certs");
        fs::create_dir(&certs).unwrap();
        for name in ["acme.new", "acme-account.new", "acme-progress.new"] {
            fs::write(certs.join(name), "half").unwrap();
        }
        fs::write(certs.join(PROGRESS), "{\"order\":").unwrap();
        fs::write(certs.join(ACCOUNT), "").unwrap();
        assert_eq!(folder.progress().unwrap(), Progress::default());
        assert!(folder.account().unwrap().is_none());
        let (chain, key) = certificate(&["a.example"]);
        folder.place(&plan, &chain, &key, NOW).unwrap();
        let progress = Progress {
            failures: 3,
            ..Progress::default()
        };
        folder.keep_progress(&progress).unwrap();
        assert_eq!(folder.progress().unwrap(), progress);
        assert!(folder.held(&plan).unwrap().is_some());
        fs::write(folder.certificate_file(), "-----BEGIN CERTIFICATE-----\nAAAA").unwrap();
        assert!(folder.held(&plan).is_err());
        folder.place(&plan, &chain, &key, NOW).unwrap();
        assert!(folder.held(&plan).unwrap().is_some());
    }
}
