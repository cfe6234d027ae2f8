//! What is kept, and the secrets that lead to it.

use std::io::Read as _;
use std::sync::LazyLock;

use idsvc::age::{self, AgeError, DecryptingReader, Header as AgeHeader, Identities};
use idsvc::federation::Provider;
use idsvc::identity::{Consent, Factor, OneTimeLink, Session, User};
use idsvc::oauth::code::AuthorizationCode as CodeRecord;
use idsvc::oauth::device::DeviceAuthorization;
use idsvc::oauth::login::LoginRecord;
use idsvc::oauth::refresh::RefreshFamily;
use idsvc::oauth::refresh_keys::{PresentedRefreshToken, RefreshKeys};
use idsvc::oauth::{Api, Client, Group, RegisteredScope};
use idsvc::secret::{
    ApiKey, AuthorizationCode, BrowserCookie, ClientSecret, DeviceCode, Kind, Lineage, RefreshToken, Secret,
    SessionCookie, UpstreamState,
};
use idsvc::store::backup::{BackupError, BackupReader, Header};
use idsvc::store::record::Record;
use idsvc::store::records::{
    ApiKeyUse, FailedPasswords, Lease, LogoutNotice, OutboxEntry, RefreshKeyRecord, SessionClient,
    SigningKeyRecord,
};
use idsvc::store::table::Key;
use idsvc::store::tables;
use ring::hmac;
use uuid::Uuid;

use super::reference::base64url;

/// A secret has one spelling and one kind, and every character of it counts.
pub(super) fn refresh_token(data: &[u8]) -> bool {
    let mut is_accepted = false;
    if let Ok(text) = std::str::from_utf8(data) {
        let accepted = [
            accepts::<RefreshToken>(text),
            accepts::<AuthorizationCode>(text),
            accepts::<DeviceCode>(text),
            accepts::<ApiKey>(text),
            accepts::<ClientSecret>(text),
            accepts::<SessionCookie>(text),
            accepts::<BrowserCookie>(text),
            accepts::<UpstreamState>(text),
            accepts::<Lineage>(text),
        ];
        assert!(accepted.iter().filter(|is_accepted| **is_accepted).count() <= 1);
        assert_eq!(PresentedRefreshToken::parse(text).is_ok(), accepted[0]);
        is_accepted = accepted[0];
    }
    let Some((locator, rest)) = data.split_first_chunk::<{ RefreshToken::LOCATOR_LEN }>() else {
        return is_accepted;
    };
    let Some((random, rest)) = rest.split_first_chunk::<32>() else {
        return is_accepted;
    };
    let made = Secret::<RefreshToken>::assemble(locator, random);
    let read = PresentedRefreshToken::parse(made.reveal()).unwrap();
    let number = u32::from_be_bytes(locator[16..20].try_into().unwrap());
    let keys = RefreshKeys::new([(number, vec![7; 32].into())]);
    assert!(keys.verify(&read).is_none(), "it was not derived");
    let derived =
        Secret::<RefreshToken>::assemble(locator, hmac::sign(&KEY, locator).as_ref().try_into().unwrap());
    let derived = PresentedRefreshToken::parse(derived.reveal()).unwrap();
    let id = keys.verify(&derived).unwrap();
    assert_eq!(id.family.as_bytes().as_slice(), &locator[..16]);
    let again = keys.derive(&id).unwrap();
    assert_eq!(again.locator(), locator);
    assert_eq!(again.secret_bytes(), hmac::sign(&KEY, locator).as_ref());
    assert!(accepts::<RefreshToken>(made.reveal()));
    if let [at, other, ..] = rest {
        let mut changed = made.reveal().as_bytes().to_vec();
        let at = usize::from(*at) % changed.len();
        changed[at] = *other;
        let is_same = changed == made.reveal().as_bytes();
        let is_taken = std::str::from_utf8(&changed).is_ok_and(accepts::<RefreshToken>);
        assert_eq!(is_taken, is_same);
    }
    is_accepted
}

fn accepts<K: Kind>(text: &str) -> bool {
    let Ok(secret) = Secret::<K>::parse(text) else {
        return false;
    };
    assert_eq!(secret.reveal(), text);
    assert_eq!(secret.locator().len(), K::LOCATOR_LEN);
    let bytes = base64url(text.strip_prefix(K::PREFIX).unwrap()).unwrap();
    let (payload, _) = bytes.split_at(K::LOCATOR_LEN + 32);
    let again = Secret::<K>::assemble(secret.locator(), payload[K::LOCATOR_LEN..].try_into().unwrap());
    assert_eq!(again.reveal(), text);
    assert_eq!(again.digest(), secret.digest());
    assert!(!format!("{secret:?}").contains(text));
    true
}

/// A row that can be read is the same row after it was written again. The first byte names the table.
pub(super) fn stored_record(data: &[u8]) -> bool {
    let Some((table, row)) = data.split_first() else {
        return false;
    };
    match table % 25 {
        0 => check_record::<Client>(row),
        1 => check_record::<User>(row),
        2 => check_record::<SigningKeyRecord>(row),
        3 => check_record::<LoginRecord>(row),
        4 => check_record::<CodeRecord>(row),
        5 => check_record::<RefreshFamily>(row),
        6 => check_record::<Session>(row),
        7 => check_record::<Consent>(row),
        8 => check_record::<ApiKeyUse>(row),
        9 => check_record::<Provider>(row),
        10 => check_record::<String>(row),
        11 => check_record::<Uuid>(row),
        12 => check_record::<RefreshKeyRecord>(row),
        13 => check_record::<()>(row),
        14 => check_record::<FailedPasswords>(row),
        15 => check_record::<Api>(row),
        16 => check_record::<RegisteredScope>(row),
        17 => check_record::<Group>(row),
        18 => check_record::<OutboxEntry>(row),
        19 => check_record::<OneTimeLink>(row),
        20 => check_record::<Factor>(row),
        21 => check_record::<Lease>(row),
        22 => check_record::<DeviceAuthorization>(row),
        23 => check_record::<SessionClient>(row),
        _ => check_record::<LogoutNotice>(row),
    }
}

fn check_record<R: Record>(row: &[u8]) -> bool {
    let Ok(record) = R::decode(row) else {
        return false;
    };
    let mut written = Vec::new();
    record.encode(&mut written).unwrap();
    let mut again = Vec::new();
    R::decode(&written).unwrap().encode(&mut again).unwrap();
    assert_eq!(again, written);
    true
}

/// A key has one spelling. The first byte names the kind.
pub(super) fn stored_key(data: &[u8]) -> bool {
    let Some((kind, bytes)) = data.split_first() else {
        return false;
    };
    match kind % 7 {
        0 => check_key::<Uuid>(bytes),
        1 => check_key::<String>(bytes),
        2 => check_key::<(Uuid, String)>(bytes),
        3 => check_key::<(String, String)>(bytes),
        4 => check_key::<(u32, [u8; 32])>(bytes),
        5 => check_key::<((String, u32), String)>(bytes),
        _ => check_key::<(Uuid, (Uuid, String))>(bytes),
    }
}

fn check_key<K: Key>(bytes: &[u8]) -> bool {
    let key = K::decode(bytes);
    if let Some(key) = &key {
        let mut written = Vec::new();
        key.encode(&mut written);
        assert_eq!(written, bytes);
    }
    if let Some((key, rest)) = K::decode_part(bytes) {
        let mut written = Vec::new();
        key.encode_part(&mut written);
        written.extend_from_slice(rest);
        assert_eq!(written, bytes);
    }
    key.is_some()
}

static KEY: LazyLock<hmac::Key> = LazyLock::new(|| hmac::Key::new(hmac::HMAC_SHA256, &[7; 32]));

/// Nothing counts as a backup but what was sealed with the key, and no more comes out of one than is in it. The
/// input is tried as it is, and once more with a seal that fits.
pub(super) fn backup(data: &[u8]) -> bool {
    let read = |bytes: &[u8]| -> Result<u64, BackupError> {
        let mut rows = BackupReader::open(bytes)?.rows(&KEY);
        let mut taken = 0;
        while let Some((table, key, value)) = rows.next_row()? {
            assert!(tables::all().any(|known| known == table));
            taken += key.len() + value.len();
        }
        assert!(taken <= bytes.len());
        Ok(rows.progress().read)
    };
    let is_sealed = |bytes: &[u8]| {
        let (body, tag) = bytes.split_at(bytes.len() - 32);
        hmac::verify(&KEY, body, tag).is_ok()
    };
    if read(data).is_ok() {
        assert!(is_sealed(data));
    }
    let sealed = [data, hmac::sign(&KEY, data).as_ref()].concat();
    let Ok(rows) = read(&sealed) else {
        return false;
    };
    let header = data.split(|byte| *byte == b'\n').nth(1).unwrap();
    let announced = serde_json::from_slice::<Header>(header).unwrap().rows;
    assert!(announced.is_none_or(|announced| announced == rows));
    assert!(data.ends_with(&rows.to_be_bytes()));
    let mut changed = sealed;
    let at = data.len() / 2;
    changed[at] ^= 1;
    assert!(read(&changed).is_err());
    true
}

/// An encrypted file has one spelling of its header, which is read to its end and no further, and nothing comes out of
/// it without the key.
pub(super) fn age_header(data: &[u8]) -> bool {
    let mut rest = data;
    let Ok(header) = AgeHeader::read(&mut rest) else {
        return false;
    };
    assert!(age::looks_encrypted(data));
    assert_eq!([header.encode().as_slice(), rest].concat(), data);
    match header.unlock(&IDENTITY) {
        Ok(key) => {
            header.verify(&key).unwrap();
            if let Ok(mut payload) = DecryptingReader::new(rest, &key) {
                let mut plain = Vec::new();
                let _ = payload.read_to_end(&mut plain);
                assert!(plain.len() <= rest.len());
            }
        }
        Err(error) => assert!(!matches!(
            error,
            AgeError::Unreadable(_) | AgeError::WrongPassphrase
        )),
    }
    true
}

/// The identity of the specification, to which one of the seeds is encrypted.
static IDENTITY: LazyLock<Identities> = LazyLock::new(|| {
    let text = "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX";
    Identities::Keys(age::identities(text).unwrap())
});
