//! What a token is bound to, and how a request shows it: RFC 7800 section 3.1, RFC 9449, RFC 8705 section 3.

use serde::{Deserialize, Serialize};

use crate::oauth::assertion::ReplayKey;
use crate::oauth::client::Client;
use crate::oauth::client_certificate::{CertificateThumbprint, ClientCertificate};
use crate::oauth::dpop::{DpopProof, KeyThumbprint};
use crate::oauth::error::{ErrorCode, Refusal};

/// `cnf`: the one thing that a token is bound to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Confirmation {
    /// A key (RFC 9449 section 6.1).
    #[serde(rename = "jkt")]
    Key(KeyThumbprint),
    /// A client certificate (RFC 8705 section 3.1).
    #[serde(rename = "x5t#S256")]
    Certificate(CertificateThumbprint),
}

/// What the sender of a token request has shown to hold. The token is bound to it.
#[derive(Clone, Debug)]
pub enum Possession {
    /// The key of a proof.
    Key(DpopProof),
    /// The key of a certificate.
    Certificate(CertificateThumbprint),
}

impl Possession {
    /// What the token of the request is bound to. A client with certificate-bound tokens must send its certificate (RFC
    /// 8705 section 3).
    pub fn of_request(
        client: &Client,
        proof: Option<DpopProof>,
        certificate: Option<&ClientCertificate>,
    ) -> Result<Option<Self>, Refusal> {
        if !client.tls_client_certificate_bound_access_tokens {
            return Ok(proof.map(Self::Key));
        }
        if proof.is_some() {
            return Err(Refusal::invalid_request(
                "the tokens of this client are bound to its certificate; leave the DPoP header out",
            ));
        }
        let certificate = certificate.ok_or(Refusal::invalid_request(
            "this client must send its certificate, to the address in mtls_endpoint_aliases of discovery",
        ))?;
        Ok(Some(Self::Certificate(certificate.thumbprint.clone())))
    }

    /// What the token is bound to.
    pub fn confirmation(&self) -> Confirmation {
        match self {
            Self::Key(proof) => Confirmation::Key(proof.key.clone()),
            Self::Certificate(thumbprint) => Confirmation::Certificate(thumbprint.clone()),
        }
    }

    /// The key under which its use is recorded. A certificate can be used any number of times.
    pub fn replay_key(&self) -> Option<ReplayKey> {
        match self {
            Self::Key(proof) => Some(proof.replay_key),
            Self::Certificate(_) => None,
        }
    }
}

/// Checks the scheme of an access token, and the proof or certificate that came with it. A token that is bound to a key
/// needs the scheme `DPoP` and a proof by this key (RFC 9449 section 7.1). Every other token needs the scheme `Bearer`. One
/// that is bound to a certificate needs this certificate as well (RFC 8705 section 3).
pub fn check_binding(
    bound: Option<&Confirmation>,
    proof: Option<&DpopProof>,
    certificate: Option<&ClientCertificate>,
) -> Result<(), Refusal> {
    let problem = match (bound, proof) {
        (None, None) => return Ok(()),
        (Some(Confirmation::Key(bound)), Some(proof)) if *bound == proof.key => return Ok(()),
        (Some(Confirmation::Key(_)), Some(_)) => {
            "the DPoP proof is not signed by the key that the access token is bound to"
        }
        (Some(Confirmation::Key(_)), None) => {
            "access token is bound to a key; send it in the scheme DPoP, with a proof"
        }
        (None, Some(_)) => "access token is not bound to a key; send it in the scheme Bearer",
        (Some(Confirmation::Certificate(_)), Some(_)) => {
            "access token is bound to a certificate; send it in the scheme Bearer, with the certificate"
        }
        (Some(Confirmation::Certificate(bound)), None) => match certificate {
            Some(certificate) if certificate.thumbprint == *bound => return Ok(()),
            Some(_) => "access token is bound to another certificate",
            None => {
                "access token is bound to a certificate; send it with the certificate, as mtls_endpoint_aliases says"
            }
        },
    };
    Err(Refusal::new(ErrorCode::InvalidToken, problem))
}

/// Refuses a request that does not show what the code or the refresh token is bound to.
pub fn check_grant(bound: Option<&Confirmation>, shown: Option<&Confirmation>) -> Result<(), Refusal> {
    let problem = match (bound, shown) {
        (None, _) => return Ok(()),
        (Some(bound), Some(shown)) if bound == shown => return Ok(()),
        (Some(Confirmation::Key(_)), Some(Confirmation::Key(_))) => {
            "the grant is bound to another key than that of the DPoP proof"
        }
        (Some(Confirmation::Key(_)), Some(Confirmation::Certificate(_))) => {
            "the grant is bound to a DPoP key, and the tokens of this client are now bound to its certificate; sign in again"
        }
        (Some(Confirmation::Key(_)), None) => "the grant is bound to a key; send a DPoP proof by this key",
        (Some(Confirmation::Certificate(_)), Some(Confirmation::Certificate(_))) => {
            "the grant is bound to another certificate"
        }
        (Some(Confirmation::Certificate(_)), _) => {
            "the grant is bound to a certificate, and the tokens of this client no longer are"
        }
    };
    Err(Refusal::invalid_grant(problem))
}
