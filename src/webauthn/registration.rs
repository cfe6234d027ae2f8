//! The registration of a credential (section 7.1).

use ring::digest;

use super::authenticator_data::{AttestedCredential, AuthenticatorData};
use super::cbor::{self, Value};
use super::client_data::{self, Ceremony};
use super::{Expected, WebAuthnError};

const MAX_ATTESTATION_OBJECT_LEN: usize = 16 * 1024;

/// What the browser returned from `navigator.credentials.create()`.
#[derive(Clone, Copy, Debug)]
pub struct Registration<'a> {
    /// `response.clientDataJSON`.
    pub client_data: &'a [u8],
    /// `response.attestationObject`.
    pub attestation_object: &'a [u8],
}

/// A credential that may be stored, if no user has a credential with this id (step 25).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCredential {
    pub id: Vec<u8>,
    /// The `COSE_Key`.
    pub public_key: Vec<u8>,
    /// The signature counter, zero if the authenticator has none.
    pub sign_count: u32,
    /// Whether a provider may sync it.
    pub backup_eligible: bool,
    /// Whether it is backed up now.
    pub backed_up: bool,
    /// The model of the authenticator, zero if it does not say.
    pub aaguid: [u8; 16],
}

impl Registration<'_> {
    /// Verifies the response (section 7.1 steps 5 to 24). The algorithm is one of those that the service offers, because a
    /// key of another one cannot be read.
    pub fn verify(&self, expected: &Expected<'_>) -> Result<NewCredential, WebAuthnError> {
        client_data::check(self.client_data, Ceremony::Registration, expected)?;
        if self.attestation_object.len() > MAX_ATTESTATION_OBJECT_LEN {
            return Err(WebAuthnError::AttestationObject);
        }
        let object =
            cbor::in_any_order(self.attestation_object).map_err(|_| WebAuthnError::AttestationObject)?;
        let Some(attestation) = AttestationObject::of(&object) else {
            return Err(WebAuthnError::AttestationObject);
        };
        let data = AuthenticatorData::parse(attestation.data)?;
        data.check(expected)?;
        let attested = data.attested.as_ref().ok_or(WebAuthnError::AuthenticatorData)?;
        let hash = digest::digest(&digest::SHA256, self.client_data);
        let signed = [attestation.data, hash.as_ref()].concat();
        verify_statement(attestation.format, attestation.statement, attested, &signed)?;
        Ok(NewCredential {
            id: attested.id.to_vec(),
            public_key: attested.public_key.to_vec(),
            sign_count: data.sign_count,
            backup_eligible: data.is_backup_eligible(),
            backed_up: data.is_backed_up(),
            aaguid: attested.aaguid,
        })
    }
}

struct AttestationObject<'a> {
    format: &'a str,
    statement: &'a [Entry<'a>],
    data: &'a [u8],
}

impl<'a> AttestationObject<'a> {
    /// Reads the members (section 6.5.4). Others are ignored.
    fn of(object: &'a Value<'a>) -> Option<Self> {
        let Value::Map(members) = object else {
            return None;
        };
        match (
            member(members, "fmt")?,
            member(members, "attStmt")?,
            member(members, "authData")?,
        ) {
            (Value::Text(format), Value::Map(statement), Value::Bytes(data)) => Some(Self {
                format,
                statement,
                data,
            }),
            _ => None,
        }
    }
}

type Entry<'a> = (Value<'a>, Value<'a>);

fn member<'a>(members: &'a [Entry<'a>], name: &str) -> Option<&'a Value<'a>> {
    let mut members = members.iter();
    members
        .find(|(key, _)| *key == Value::Text(name))
        .map(|(_, value)| value)
}

/// Verifies the attestation statement (steps 20 to 23).
///
/// The service requests no attestation, and has no trust anchors. Without them step 23 lets it register the credential
/// without a proof of the model. So a statement of any format is accepted like a missing one. Only a `packed` statement
/// without certificates is verified: the credential itself signed it (section 8.2).
fn verify_statement(
    format: &str,
    statement: &[Entry<'_>],
    attested: &AttestedCredential<'_>,
    message: &[u8],
) -> Result<(), WebAuthnError> {
    const BAD: WebAuthnError = WebAuthnError::AttestationStatement;
    if format != "packed" || member(statement, "x5c").is_some() {
        return Ok(());
    }
    match (member(statement, "alg"), member(statement, "sig")) {
        (Some(Value::Integer(algorithm)), Some(Value::Bytes(signature)))
            if *algorithm == attested.key.algorithm() =>
        {
            attested.key.verify(message, signature).map_err(|_| BAD)
        }
        _ => Err(BAD),
    }
}
