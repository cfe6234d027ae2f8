//! Authenticator apps in the exports of other systems.
//!
//! No message has a part of a seed in it, so the errors of serde are not passed on.

use serde::Deserialize;
use serde_json::Value;
use zeroize::Zeroizing;

use super::TotpSeed;
use super::factor::factor_name;
use crate::password::embedded_object;

/// An authenticator app of an export.
#[derive(Clone)]
pub struct ExportedTotp {
    pub seed: TotpSeed,
    /// The name that the user gave it; empty if the user gave none.
    pub name: String,
}

/// Why an app of an export is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TotpExportError {
    /// The service cannot check its codes.
    #[error("{0}")]
    Unsupported(String),
    /// It is not in a form that is known here.
    #[error("{0}")]
    Malformed(&'static str),
}

use TotpExportError::{Malformed, Unsupported};

impl ExportedTotp {
    /// Reads an authenticator app: an object that names its origin, `{"keycloak": {…}}` or `{"authentik": {…}}`.
    pub fn read(value: &Value) -> Result<Self, TotpExportError> {
        let members = value.as_object().filter(|members| members.len() == 1);
        match members.and_then(|members| members.iter().next()) {
            Some((name, inner)) if name == "keycloak" => keycloak(inner),
            Some((name, inner)) if name == "authentik" => authentik(inner),
            _ => Err(Malformed(
                "it is neither {\"keycloak\": …} nor {\"authentik\": …}",
            )),
        }
    }
}

/// `credentialData` of a credential of the type `otp`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeycloakData {
    sub_type: String,
    digits: i64,
    period: i64,
    algorithm: String,
    secret_encoding: Option<String>,
}

/// A credential of a Keycloak export. Without `secretEncoding`, the seed is the text itself and not what it encodes.
fn keycloak(credential: &Value) -> Result<ExportedTotp, TotpExportError> {
    const MALFORMED: TotpExportError =
        Malformed("secretData and credentialData are not those of an otp credential of Keycloak");
    let data = embedded_object(credential, "credentialData").ok_or(MALFORMED)?;
    let data: KeycloakData = serde_json::from_value(data).map_err(|_| MALFORMED)?;
    if data.sub_type != "totp" {
        return Err(Unsupported(format!(
            "its codes are of the type {:?}, and the service checks time-based codes (totp)",
            data.sub_type
        )));
    }
    if data.algorithm != "HmacSHA1" {
        return Err(Unsupported(format!(
            "its codes are made with {:?}, and the service checks those of SHA-1",
            data.algorithm
        )));
    }
    check_form(data.digits, data.period)?;
    let secret = embedded_object(credential, "secretData").ok_or(MALFORMED)?;
    let value = secret.get("value").and_then(Value::as_str).ok_or(MALFORMED)?;
    let seed = match data.secret_encoding {
        None => checked_seed(value.as_bytes())?,
        Some(encoding) if encoding.eq_ignore_ascii_case("base32") => {
            checked_seed(&TotpSeed::decode_base32(value).ok_or(Malformed("the seed is no base32"))?)?
        }
        Some(encoding) => {
            let reason = format!("its seed is encoded in {encoding:?}, which is not known here");
            return Err(Unsupported(reason));
        }
    };
    let label = credential.get("userLabel").and_then(Value::as_str);
    Ok(ExportedTotp {
        seed,
        name: factor_name(label.unwrap_or_default()),
    })
}

/// The fields of a `TOTPDevice`, as `dumpdata` writes them. The hash function is always SHA-1.
#[derive(Deserialize)]
struct AuthentikDevice {
    key: String,
    digits: i64,
    step: i64,
    t0: i64,
    confirmed: bool,
    name: Option<String>,
}

fn authentik(device: &Value) -> Result<ExportedTotp, TotpExportError> {
    let device = AuthentikDevice::deserialize(device).map_err(|_| {
        Malformed("it lacks fields of a TOTPDevice of Authentik, or has others in their place")
    })?;
    if !device.confirmed {
        return Err(Unsupported("the user never confirmed it with a code".to_owned()));
    }
    check_form(device.digits, device.step)?;
    if device.t0 != 0 {
        let reason = format!(
            "it counts time from {} on, and the service counts from 1970 on",
            device.t0
        );
        return Err(Unsupported(reason));
    }
    let bytes =
        decode_hex(&device.key).ok_or(Malformed("the key has other characters than hexadecimal digits"))?;
    Ok(ExportedTotp {
        seed: checked_seed(&bytes)?,
        name: factor_name(device.name.as_deref().unwrap_or_default()),
    })
}

fn check_form(digits: i64, period: i64) -> Result<(), TotpExportError> {
    if digits != 6 {
        let reason = format!("its codes have {digits} digits, and the service checks codes of 6");
        return Err(Unsupported(reason));
    }
    if period != 30 {
        let reason =
            format!("it makes a code every {period} seconds, and the service checks those of 30 seconds");
        return Err(Unsupported(reason));
    }
    Ok(())
}

fn checked_seed(bytes: &[u8]) -> Result<TotpSeed, TotpExportError> {
    TotpSeed::new(bytes).ok_or_else(|| {
        let length = bytes.len();
        Unsupported(format!(
            "its seed has {length} bytes, and the service takes 10 to 64"
        ))
    })
}

fn decode_hex(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs
        .iter()
        .map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    let bytes: Option<Vec<u8>> = rest.is_empty().then(|| bytes.collect())?;
    bytes.map(Zeroizing::new)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of_keycloak(change: impl FnOnce(&mut Value, &mut Value)) -> Value {
        let mut secret = json!({"value": "12345678901234567890"});
        let mut data =
            json!({"subType": "totp", "digits": 6, "counter": 0, "period": 30, "algorithm": "HmacSHA1"});
        change(&mut secret, &mut data);
        json!({"keycloak": {
            "id": "a", "type": "otp", "userLabel": " Phone\n", "createdDate": 1_735_689_600_000_u64,
            "secretData": secret.to_string(), "credentialData": data.to_string(),
        }})
    }

    fn of_authentik(name: &str, value: Value) -> Value {
        let mut device = json!({
            "user": 5, "name": "Phone", "confirmed": true, "key": "3132333435363738393031323334353637383930",
            "step": 30, "t0": 0, "digits": 6, "tolerance": 1, "drift": 0, "last_t": -1,
        });
        device[name] = value;
        json!({"authentik": device})
    }

    /// The seed of RFC 6238 appendix B, in each encoding.
    #[test]
    fn a_seed_of_another_system_is_read_as_that_system_reads_it() {
        let base32 = of_keycloak(|secret, data| {
            secret["value"] = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ".into();
            data["secretEncoding"] = "BASE32".into();
        });
        let mut objects = of_keycloak(|_, _| {});
        for name in ["secretData", "credentialData"] {
            let text = objects["keycloak"][name].as_str().unwrap();
            objects["keycloak"][name] = serde_json::from_str(text).unwrap();
        }
        let upper = of_authentik(
            "key",
            "3132333435363738393031323334353637383930".to_uppercase().into(),
        );
        for value in [
            of_keycloak(|_, _| {}),
            base32,
            objects,
            of_authentik("tolerance", 2.into()),
            upper,
        ] {
            let read = ExportedTotp::read(&value).unwrap_or_else(|error| panic!("{value}: {error}"));
            assert_eq!(read.seed.as_bytes(), b"12345678901234567890", "{value}");
            assert_eq!(read.name, "Phone");
        }
    }

    #[test]
    fn an_app_whose_codes_cannot_be_checked_is_not_taken() {
        let data = |name: &str, value: Value| of_keycloak(|_, data| data[name] = value);
        for (value, reason) in [
            (data("subType", "hotp".into()), "hotp"),
            (data("digits", 8.into()), "8 digits"),
            (data("period", 60.into()), "60 seconds"),
            (data("algorithm", "HmacSHA256".into()), "HmacSHA256"),
            (data("secretEncoding", "HEX".into()), "HEX"),
            (
                of_keycloak(|secret, _| secret["value"] = "short".into()),
                "5 bytes",
            ),
            (of_authentik("digits", 8.into()), "8 digits"),
            (of_authentik("step", 60.into()), "60 seconds"),
            (of_authentik("t0", 1.into()), "from 1 on"),
            (of_authentik("confirmed", false.into()), "never confirmed"),
            (of_authentik("key", "3132".into()), "2 bytes"),
        ] {
            match ExportedTotp::read(&value) {
                Err(Unsupported(said)) => assert!(said.contains(reason), "{said}"),
                other => panic!("{value}: {:?}", other.map(|read| read.name)),
            }
        }
    }

    #[test]
    fn what_is_no_app_is_refused_without_its_seed_in_the_message() {
        let wrong = |name: &str, value: &str| json!({"keycloak": {name: value}});
        for value in [
            json!("GEZDGNBVGY3TQOJQ"),
            json!({}),
            json!({"other": {}}),
            json!({"keycloak": "GEZDGNBVGY3TQOJQ"}),
            json!({"keycloak": {}, "authentik": {}}),
            json!({"authentik": "GEZDGNBVGY3TQOJQ"}),
            wrong("secretData", "GEZDGNBVGY3TQOJQ"),
            wrong("credentialData", "GEZDGNBVGY3TQOJQ"),
            of_keycloak(|secret, _| *secret = json!(["GEZDGNBVGY3TQOJQ"])),
            of_keycloak(|_, data| *data = json!({"subType": "GEZDGNBVGY3TQOJQ"})),
            of_keycloak(|secret, data| {
                secret["value"] = "GEZDGNBVGY3TQOJ1".into();
                data["secretEncoding"] = "BASE32".into();
            }),
            of_authentik("key", "GEZDGNBVGY3TQOJQ".into()),
            of_authentik("key", "313".into()),
            of_authentik("digits", "GEZDGNBVGY3TQOJQ".into()),
        ] {
            match ExportedTotp::read(&value) {
                Err(Malformed(said)) => assert!(!said.contains("GEZD")),
                other => panic!("{value}: {:?}", other.map(|read| read.name)),
            }
        }
    }
}
