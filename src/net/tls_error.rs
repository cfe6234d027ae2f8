//! Why TLS cannot be offered.

use std::io;
use std::path::PathBuf;

use super::chain::ChainFault;
use super::validity::ExpiryWarning;

/// Why TLS cannot be offered with the certificate and key at hand.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is missing or closed to this user.
    #[error("cannot read {}: {source}", file.display())]
    Unreadable {
        file: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// A file is cut off or damaged.
    #[error("{} is not valid PEM", .0.display())]
    NotPem(PathBuf),
    /// The certificate file holds none.
    #[error("no certificate in {}", .0.display())]
    NoCertificate(PathBuf),
    /// The key file holds none.
    #[error("no private key in {}", .0.display())]
    NoKey(PathBuf),
    /// The key is protected by a passphrase.
    #[error("the private key in {} is encrypted; store it without a passphrase, readable by this user only", .0.display())]
    EncryptedKey(PathBuf),
    /// The two files do not belong together.
    #[error("the key in {} does not belong to the certificate in {}", key.display(), certificate.display())]
    KeyMismatch {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// The certificate names other hosts than it should.
    #[error("the certificate in {} is not for {names}", certificate.display())]
    OtherNames {
        /// The certificate's file.
        certificate: PathBuf,
        /// What it should be for.
        names: String,
    },
    /// The certificate is of a kind that cannot name a host.
    #[error("the certificate in {} is X.509 version 1, which clients refuse: have it issued as version 3", .0.display())]
    Version1(PathBuf),
    /// Another certificate comes before the server's own.
    #[error("{}: the server's own certificate is number {number} in the chain: put it first, then the one that issued it, and so on up to the root", certificate.display())]
    NotFirst {
        /// The certificate's file.
        certificate: PathBuf,
        number: usize,
    },
    /// Clients refuse the server's own certificate at this time.
    #[error("{}: {warning}", certificate.display())]
    Validity {
        /// The certificate's file.
        certificate: PathBuf,
        warning: ExpiryWarning,
    },
    /// Clients cannot follow the chain.
    #[error("{}: {fault}", certificate.display())]
    Chain {
        /// The certificate's file.
        certificate: PathBuf,
        fault: ChainFault,
    },
    /// The chain contains something other than a certificate.
    #[error("number {number} in the chain of {} is no certificate: leave it out, or have the chain issued again", certificate.display())]
    NoCertificateInChain {
        /// The certificate's file.
        certificate: PathBuf,
        /// Which one, the server's own being the first.
        number: usize,
    },
    /// The key is damaged, or of a kind or size that the TLS library does not sign with.
    #[error("cannot use the private key in {}: it has to be RSA of 2048 to 4096 bits, ECDSA on P-256 or P-384, or Ed25519", .0.display())]
    UnusableKey(PathBuf),
    /// The authority issued a certificate that clients refuse, while they accept the one in use.
    #[error("the certificate that came {0}: the one in use stays")]
    RefusedByClients(&'static str),
    /// The TLS library does not take the certificate.
    #[error("cannot use the certificate in {}: {source}", certificate.display())]
    Refused {
        /// The certificate's file.
        certificate: PathBuf,
        /// What the library says.
        source: rustls::Error,
    },
    /// A certificate, key or state file cannot be written.
    #[error("cannot write {}: {source}", file.display())]
    Unwritable {
        /// Which file or directory.
        file: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// No certificate can be made for these names.
    #[error("cannot make a certificate: {0}")]
    Unmakeable(String),
    /// The library cannot be set up at all.
    #[error("cannot set up TLS: {0}")]
    Setup(rustls::Error),
}
