//! Reading and writing the files of certificates and keys.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use zeroize::Zeroizing;

use super::tls_error::TlsError;
use crate::files::Folder;

/// The certificates in a PEM file, in their order; at least one.
pub fn read_chain(certificate_file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    chain_in(&read(certificate_file)?, certificate_file)
}

/// The certificates in PEM text that was read from `file`, or will be written to it.
pub(super) fn chain_in(pem: &[u8], file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| TlsError::NotPem(file.to_owned()))?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate(file.to_owned()));
    }
    Ok(chain)
}

/// The first private key in a PEM file.
pub fn read_key(key_file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    key_in(&read(key_file)?, key_file)
}

/// The first private key in PEM text that was read from `file`, or will be written to it.
pub(super) fn key_in(pem: &[u8], file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
        _ if is_encrypted(pem) => TlsError::EncryptedKey(file.to_owned()),
        pem::Error::NoItemsFound => TlsError::NoKey(file.to_owned()),
        _ => TlsError::NotPem(file.to_owned()),
    })
}

/// The content of a file without the byte order mark, which would hide the first line of PEM.
fn read(file: &Path) -> Result<Vec<u8>, TlsError> {
    const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
    let mut bytes = fs::read(file).map_err(|source| TlsError::Unreadable {
        file: file.to_owned(),
        source,
    })?;
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(bytes)
}

/// Whether a passphrase protects the key: as PKCS #8 (RFC 5958), or in OpenSSL's way (RFC 1421).
fn is_encrypted(pem: &[u8]) -> bool {
    String::from_utf8_lossy(pem).contains("ENCRYPTED")
}

/// The file of the certificate that ACME brought, with its key.
pub(super) const ACME: &str = "acme.pem";

/// The folder `certs/` of a data directory, with the files that the service makes.
#[derive(Clone, Debug)]
pub(super) struct CertificateFolder {
    data_dir: PathBuf,
    path: PathBuf,
}

impl CertificateFolder {
    pub(super) fn of(data_dir: &Path) -> Self {
        Self {
            data_dir: data_dir.to_owned(),
            path: data_dir.join("certs"),
        }
    }

    pub(super) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The content of a file; `None` if there is none.
    pub(super) fn read(&self, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>, TlsError> {
        let found = Folder::open_below(&self.data_dir, &self.path).and_then(|folder| folder.read(name));
        match found {
            Ok(bytes) => Ok(Some(bytes.into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(TlsError::Unreadable {
                file: self.path_of(name),
                source,
            }),
        }
    }

    /// Writes a file beside the one of this name and renames it, so that a reader never sees half of it. The file is on the
    /// disk when this returns. A missing folder is created, for its owner only.
    pub(super) fn write(&self, name: &str, bytes: &[u8], mode: u32) -> Result<(), TlsError> {
        let beside = Path::new(name).with_extension("new");
        let write = |folder: Folder| -> io::Result<()> {
            if let Err(error) = folder.remove(&beside)
                && error.kind() != io::ErrorKind::NotFound
            {
                return Err(error);
            }
            let mut file = folder.create_file(&beside, mode)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            folder.rename(&beside, name)?;
            folder.sync()
        };
        fs::create_dir_all(&self.data_dir)
            .and_then(|()| Folder::create_below(&self.data_dir, &self.path, 0o700))
            .and_then(write)
            .map_err(|source| TlsError::Unwritable {
                file: self.path_of(name),
                source,
            })
    }

    /// Removes a file.
    pub(super) fn remove(&self, name: &str) -> Result<(), TlsError> {
        let removed = Folder::open_below(&self.data_dir, &self.path).and_then(|folder| folder.remove(name));
        removed.map_err(|source| TlsError::Unwritable {
            file: self.path_of(name),
            source,
        })
    }
}
