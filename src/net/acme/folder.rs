//! The two files of ACME in `certs/`: the certificate with its key, and the [`State`]. Each is written atomically, and
//! only its owner can read it.

use std::path::{Path, PathBuf};

use instant_acme::CertificateIdentifier;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::Plan;
use super::schedule::{Held, Schedule};
use crate::net::certificate::Pair;
use crate::net::certificate_file::{ACME, CertificateFolder};
use crate::net::tls_error::TlsError;
use crate::net::validity::ExpiryWarning;

const MODE: u32 = 0o600;
const STATE: &str = "acme.json";
/// Written and removed again, to check that the disk has room for a certificate with its chain and key.
const PROBE: &str = "acme-room";
const PROBE_BYTES: usize = 16 * 1024;

/// The folder `certs/` of a data directory.
#[derive(Clone, Debug)]
pub struct Folder(CertificateFolder);

/// The state that survives a restart, beside the certificate. If the file is lost, another account is opened.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// The account with the authority.
    pub account: Option<SavedAccount>,
    /// The next order and the next question.
    pub schedule: Schedule,
}

/// An account with an authority.
#[derive(Serialize, Deserialize)]
pub struct SavedAccount {
    /// The authority's directory.
    pub directory: String,
    /// The contact that the authority knows.
    pub contact: Option<String>,
    /// The URL of the account and its private key: [`instant_acme::AccountCredentials`].
    pub credentials: serde_json::Value,
}

impl Folder {
    /// The folder of this data directory.
    pub fn of(data_dir: &Path) -> Self {
        Self(CertificateFolder::of(data_dir))
    }

    /// The file of the certificate and its key.
    pub fn certificate_file(&self) -> PathBuf {
        self.0.path_of(ACME)
    }

    /// The current certificate, which must be for at least one of the domains. None if there is no file.
    pub fn held(&self, plan: &Plan) -> Result<Option<Held>, TlsError> {
        let file = self.certificate_file();
        let Some(pair) = Pair::read_for_some(&self.0, &plan.domains)? else {
            return Ok(None);
        };
        let unreadable = || TlsError::NotPem(file.clone());
        let leaf = pair.chain.first().ok_or_else(unreadable)?;
        let heading = format!("{}\n", plan.line());
        let is_ordered_so = self
            .0
            .read(ACME)?
            .is_some_and(|pem| pem.starts_with(heading.as_bytes()));
        let identifier = CertificateIdentifier::try_from(leaf);
        Ok(Some(Held {
            fingerprint: pair.fingerprint(),
            validity: pair.validity().ok_or_else(unreadable)?,
            is_as_planned: is_ordered_so && pair.is_for(&plan.domains),
            identifier: identifier.ok().map(CertificateIdentifier::into_owned),
        }))
    }

    /// Fails if a certificate could not be written. Call it before an order: authorities issue the same certificate only a
    /// few times a week, and one that cannot be written counts too.
    pub fn check_disk_space(&self) -> Result<(), TlsError> {
        self.write(PROBE, &[b' '; PROBE_BYTES])?;
        self.0.remove(PROBE)
    }

    /// Installs a certificate with its key, both PEM, if it is for all domains of the plan. A certificate that clients
    /// refuse at `now`, in seconds since the epoch, does not replace one that they accept.
    pub fn install(&self, plan: &Plan, chain: &str, key: &str, now: u64) -> Result<(), TlsError> {
        let text = Zeroizing::new(format!("{}\n{key}{chain}", plan.line()));
        let file = self.certificate_file();
        let pair = Pair::from_pem(text.as_bytes(), &file)?;
        pair.check_for(&plan.domains)?;
        let held = Pair::read_for_some(&self.0, &plan.domains).unwrap_or_default();
        if held.is_some_and(|held| !held.expiry_warning(now).is_some_and(ExpiryWarning::is_refused)) {
            pair.check_acceptance(now)?;
        }
        self.write(ACME, text.as_bytes())
    }

    /// The state, or the default if the file is missing or cannot be parsed.
    pub fn state(&self) -> Result<State, TlsError> {
        let text = self.0.read(STATE)?.unwrap_or_default();
        Ok(serde_json::from_slice(&text).unwrap_or_default())
    }

    /// Writes the state.
    pub fn save(&self, state: &State) -> Result<(), TlsError> {
        let text = serde_json::to_vec(state).map(Zeroizing::new);
        let text = text.map_err(|error| TlsError::Unwritable {
            file: self.0.path_of(STATE),
            source: error.into(),
        })?;
        self.write(STATE, &text)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), TlsError> {
        self.0.write(name, bytes, MODE)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use rcgen::{CertificateParams, KeyPair};
    use tempfile::TempDir;

    use super::super::tests::plan;
    use super::*;

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
        folder.install(&plan, &chain, &key, NOW).unwrap();
        assert!(folder.held(&plan).unwrap().unwrap().is_as_planned);
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
        folder.install(&two, &chain, &key, NOW).unwrap();
        assert!(!folder.held(&plan(&["a.example"])).unwrap().unwrap().is_as_planned);
        let more = plan(&["a.example", "b.example", "c.example"]);
        assert!(!folder.held(&more).unwrap().unwrap().is_as_planned);
        assert!(folder.install(&more, &chain, &key, NOW).is_err());
        let other = plan(&["c.example"]);
        assert!(matches!(folder.held(&other), Err(TlsError::OtherNames { .. })));
        assert!(folder.install(&other, &chain, &key, NOW).is_err());
        let foreign = certificate(&["a.example", "b.example"]).1;
        let refused = folder.install(&two, &chain, &foreign, NOW);
        assert!(matches!(refused, Err(TlsError::KeyMismatch { .. })));
        assert!(folder.install(&two, "<html>", &key, NOW).is_err());
        assert!(folder.held(&two).unwrap().unwrap().is_as_planned);
    }

    #[test]
    fn no_link_is_followed_where_certificates_are_kept() {
        let (scratch, plan) = (TempDir::new().unwrap(), plan(&["a.example"]));
        let (data_dir, outside) = (scratch.path().join("data"), scratch.path().join("outside"));
        let folder = Folder::of(&data_dir);
        let (chain, key) = certificate(&["a.example"]);
        folder.install(&plan, &chain, &key, NOW).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::rename(folder.certificate_file(), outside.join("mine.pem")).unwrap();
        symlink(outside.join("mine.pem"), folder.certificate_file()).unwrap();
        assert!(matches!(folder.held(&plan), Err(TlsError::Unreadable { .. })));
        let before = fs::read(outside.join("mine.pem")).unwrap();
        folder.install(&plan, &chain, &key, NOW).unwrap();
        assert!(!folder.certificate_file().is_symlink());
        fs::remove_dir_all(data_dir.join("certs")).unwrap();
        symlink(&outside, data_dir.join("certs")).unwrap();
        assert!(folder.held(&plan).is_err() && folder.state().is_err());
        assert!(folder.install(&plan, &chain, &key, NOW).is_err() && folder.check_disk_space().is_err());
        assert_eq!(fs::read(outside.join("mine.pem")).unwrap(), before);
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    }

    #[test]
    fn what_a_killed_process_left_half_written_is_replaced() {
        let (directory, plan) = (TempDir::new().unwrap(), plan(&["a.example"]));
        let folder = Folder::of(directory.path());
        let certs = directory.path().join("certs");
        fs::create_dir(&certs).unwrap();
        fs::write(certs.join("acme.new"), "half").unwrap();
        fs::write(certs.join(STATE), "{\"schedule\":").unwrap();
        let mut state = folder.state().unwrap();
        assert_eq!(state.schedule, Schedule::default());
        state.schedule.failures = 3;
        folder.save(&state).unwrap();
        assert_eq!(folder.state().unwrap().schedule, state.schedule);
        let (chain, key) = certificate(&["a.example"]);
        fs::write(folder.certificate_file(), "-----BEGIN CERTIFICATE-----\nAAAA").unwrap();
        assert!(folder.held(&plan).is_err());
        folder.install(&plan, &chain, &key, NOW).unwrap();
        assert!(folder.held(&plan).unwrap().is_some());
    }
}
