//! Reading and writing the files of certificates and keys.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::tls_error::TlsError;

/// The certificates in a PEM file, in their order; at least one.
pub(super) fn read_chain(certificate_file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
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
pub(super) fn read_key(key_file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
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
pub(super) fn read(file: &Path) -> Result<Vec<u8>, TlsError> {
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

/// Makes the folder of certificates, for its owner only, if it does not exist.
pub(super) fn make_folder(directory: &Path) -> Result<(), TlsError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|source| TlsError::Unwritable {
            file: directory.to_owned(),
            source,
        })
}

/// Writes beside `file` and renames, so that a reader never sees half of it. The file is on the disk when this returns.
pub(super) fn write(file: &Path, bytes: &[u8], mode: u32) -> Result<(), TlsError> {
    let beside = file.with_extension("new");
    let write = || -> io::Result<()> {
        if let Err(error) = fs::remove_file(&beside)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        let mut open = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&beside)?;
        open.write_all(bytes)?;
        open.sync_all()?;
        fs::rename(&beside, file)?;
        match file.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
            _ => Ok(()),
        }
    };
    write().map_err(|source| TlsError::Unwritable {
        file: file.to_owned(),
        source,
    })
}
