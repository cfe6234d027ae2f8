//! The secret of a client: chosen by the operator, or generated.

use crate::admin::{Admin, SecretString};
use crate::oauth::client::StoredSecret;
use crate::oauth::{Fault, FaultCode};
use crate::secret::{ClientSecret, Digest, Secret};

/// The fewest bytes of a secret that the operator chooses.
const SECRET_MIN_BYTES: usize = 32;
/// The most bytes of a secret that the operator chooses.
const SECRET_MAX_BYTES: usize = 1024;

/// The secret of a client, before it is stored.
pub(in crate::admin) struct PreparedSecret {
    pub(in crate::admin) stored: StoredSecret,
    /// The secret, to be shown once, if it was generated.
    pub(in crate::admin) generated: Option<SecretString>,
}

/// The secret that the operator chose, or else a generated one.
pub(in crate::admin) fn secret_of(
    admin: Admin<'_>,
    chosen: Option<SecretString>,
    faults: &mut Vec<Fault>,
) -> PreparedSecret {
    let (digest, generated) = if let Some(chosen) = chosen {
        let bytes = chosen.reveal().as_bytes();
        if !(SECRET_MIN_BYTES..=SECRET_MAX_BYTES).contains(&bytes.len()) {
            let detail = format!("a secret has {SECRET_MIN_BYTES} to {SECRET_MAX_BYTES} bytes");
            faults.push(FaultCode::Invalid.at(["secret"], detail));
        }
        if bytes.iter().any(|byte| !(0x20..0x7f).contains(byte)) {
            let detail = "a secret is printable ASCII (RFC 6749 appendix A.2)";
            faults.push(FaultCode::Invalid.at(["secret"], detail));
        }
        (Digest::of(bytes), None)
    } else {
        let secret = Secret::<ClientSecret>::generate(&[], &admin.core.random);
        (secret.digest(), Some(SecretString::new(secret.reveal())))
    };
    PreparedSecret {
        stored: StoredSecret {
            digest,
            created_at: admin.core.clock.now(),
            expires_at: None,
        },
        generated,
    }
}
