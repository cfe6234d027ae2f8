//! Conversion of exported password hashes of other systems to their stored form.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde_json::Value;

use super::foreign_hash::decode;
use super::{InvalidPasswordHash, PasswordHash};

use InvalidPasswordHash::{Malformed, Unknown};

impl PasswordHash {
    /// Reads a hash of an import: a string (PHC, bcrypt, or ASP.NET Identity's base64), or an object that names its
    /// origin, `{"keycloak": {…}}` or `{"firebase": {…}}`.
    pub fn import(value: &Value) -> Result<Self, InvalidPasswordHash> {
        match value {
            Value::String(text) if text.starts_with('$') => Self::parse(text),
            Value::String(text) => aspnet(text),
            Value::Object(members) => match members.iter().next() {
                Some((name, inner)) if members.len() == 1 && name == "keycloak" => keycloak(inner),
                Some((name, inner)) if members.len() == 1 && name == "firebase" => firebase(inner),
                _ => Err(Unknown),
            },
            _ => Err(Unknown),
        }
    }
}

/// ASP.NET Identity. Version 2 is PBKDF2 with SHA-1 and 1000 iterations. Version 3 contains its parameters.
fn aspnet(text: &str) -> Result<PasswordHash, InvalidPasswordHash> {
    let bytes = decode(text).map_err(|_| Unknown)?;
    let (version, rest) = bytes.split_first().ok_or(Unknown)?;
    match version {
        0 if rest.len() == 48 => {
            let (salt, output) = rest.split_at_checked(16).ok_or(Malformed)?;
            pbkdf2("pbkdf2-sha1", 1000, salt, output)
        }
        1 => {
            let (prf, rest) = number(rest)?;
            let (iterations, rest) = number(rest)?;
            let (salt_len, rest) = number(rest)?;
            let name = match prf {
                0 => "pbkdf2-sha1",
                1 => "pbkdf2-sha256",
                2 => "pbkdf2-sha512",
                _ => return Err(Unknown),
            };
            let salt_len = usize::try_from(salt_len).map_err(|_| Malformed)?;
            let (salt, output) = rest.split_at_checked(salt_len).ok_or(Malformed)?;
            pbkdf2(name, iterations, salt, output)
        }
        _ => Err(Unknown),
    }
}

fn pbkdf2(
    name: &str,
    iterations: u32,
    salt: &[u8],
    output: &[u8],
) -> Result<PasswordHash, InvalidPasswordHash> {
    let (salt, output) = (STANDARD_NO_PAD.encode(salt), STANDARD_NO_PAD.encode(output));
    PasswordHash::parse(&format!("${name}$i={iterations}${salt}${output}"))
}

fn number(bytes: &[u8]) -> Result<(u32, &[u8]), InvalidPasswordHash> {
    let (number, rest) = bytes.split_first_chunk().ok_or(Malformed)?;
    Ok((u32::from_be_bytes(*number), rest))
}

/// Reads a member that is an object or, as in Keycloak's exports, a string with the JSON of one.
pub fn embedded_object(value: &Value, name: &str) -> Option<Value> {
    match value.get(name)? {
        Value::String(text) => serde_json::from_str(text).ok(),
        object @ Value::Object(_) => Some(object.clone()),
        _ => None,
    }
}

fn text<'a>(value: &'a Value, name: &str) -> Result<&'a str, InvalidPasswordHash> {
    value.get(name).and_then(Value::as_str).ok_or(Malformed)
}

fn count(value: &Value, name: &str) -> Result<u32, InvalidPasswordHash> {
    let number = value.get(name).and_then(Value::as_u64).ok_or(Malformed)?;
    u32::try_from(number).map_err(|_| InvalidPasswordHash::TooCostly("a number out of all bounds"))
}

/// A credential of a Keycloak export: `secretData` and `credentialData`.
fn keycloak(value: &Value) -> Result<PasswordHash, InvalidPasswordHash> {
    let part = |name| embedded_object(value, name).ok_or(Malformed);
    let (secret, data) = (part("secretData")?, part("credentialData")?);
    let (salt, output) = (decode(text(&secret, "salt")?)?, decode(text(&secret, "value")?)?);
    let (algorithm, iterations) = (text(&data, "algorithm")?, count(&data, "hashIterations")?);
    if algorithm == "argon2" {
        return keycloak_argon2(&data, iterations, &salt, &output);
    }
    if !algorithm.starts_with("pbkdf2") {
        return Err(Unknown);
    }
    pbkdf2(algorithm, iterations, &salt, &output)
}

/// Each parameter is a list of one string.
fn keycloak_argon2(
    data: &Value,
    iterations: u32,
    salt: &[u8],
    output: &[u8],
) -> Result<PasswordHash, InvalidPasswordHash> {
    let parameter = |name: &str| {
        let list = data.get("additionalParameters").and_then(|all| all.get(name));
        let first = list.and_then(|list| list.get(0).or(Some(list)));
        first.and_then(Value::as_str).ok_or(Malformed)
    };
    let version = match parameter("version")? {
        "1.3" => 19,
        "1.0" => 16,
        _ => return Err(Unknown),
    };
    PasswordHash::parse(&format!(
        "$argon2{}$v={version}$m={},t={iterations},p={}${}${}",
        parameter("type")?,
        parameter("memory")?,
        parameter("parallelism")?,
        STANDARD_NO_PAD.encode(salt),
        STANDARD_NO_PAD.encode(output),
    ))
}

/// A user's hash and salt with the parameters of the Firebase project.
fn firebase(value: &Value) -> Result<PasswordHash, InvalidPasswordHash> {
    let bytes = |name| decode(text(value, name)?).map(|bytes| STANDARD_NO_PAD.encode(bytes));
    PasswordHash::parse(&format!(
        "$firebase-scrypt$ln={},r={},p=1${}${}${}${}",
        count(value, "mem_cost")?,
        count(value, "rounds")?,
        bytes("salt")?,
        bytes("salt_separator")?,
        bytes("signer_key")?,
        bytes("hash")?,
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::password::{Memory, PasswordParams, verify};

    fn opens(value: &Value, password: &str) {
        let hash = PasswordHash::import(value).unwrap_or_else(|problem| panic!("{value}: {problem}"));
        let mut memory = Memory::default();
        assert_eq!(
            verify(&hash, password.as_bytes(), &mut memory),
            Ok(true),
            "{value}"
        );
        let wrong = format!("{password}x");
        assert_eq!(verify(&hash, wrong.as_bytes(), &mut memory), Ok(false), "{value}");
        assert!(hash.needs_rehash(PasswordParams::default()));
        assert_eq!(
            PasswordHash::parse(hash.as_str()).as_ref(),
            Ok(&hash),
            "its stored form reads back"
        );
    }

    #[test]
    fn hashes_of_other_systems_open_with_their_passwords() {
        // OpenBSD's and PHP's bcrypt.
        opens(
            &json!("$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"),
            "U*U",
        );
        opens(
            &json!("$2y$04$abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e"),
            "correct horse",
        );
        // RFC 7914 section 12, in PHC form.
        opens(
            &json!(
                "$scrypt$ln=10,r=8,p=16$TmFDbA$/bq+HJ00cgB4VucZDQHp/nxq18vII3gw53N2Y0s3MWIurzDZLiKjiG/xCSedmDDaxyevuUqD7m2DYMvfoswGQA"
            ),
            "password",
        );
        // Firebase's own example.
        opens(
            &json!({"firebase": {
                "hash": "lSrfV15cpx95/sZS2W9c9Kp6i/LVgQNDNC/qzrCnh1SAyZvqmZqAjTdn3aoItz+VHjoZilo78198JAdRuid5lQ==",
                "salt": "42xEC+ixf3L2lw==",
                "signer_key": "jxspr8Ki0RYycVU8zykbdLGjFQ3McFUH0uiiTvC8pVMXAn210wjLNmdZJzxUECKbm0QsEmYUSDzZvpjeJ9WmXA==",
                "salt_separator": "Bw==", "rounds": 8, "mem_cost": 14,
            }}),
            "user1password",
        );
        // passlib's and the PHC string format's PBKDF2.
        for cost in ["1000", "i=1000", "i=1000,l=32"] {
            let text = format!(
                "$pbkdf2-sha256${cost}$AAECAwQFBgcICQoLDA0ODw$yRTMTwbMbo9G0VfjobWqerzuuxe7BETNTErBbKKumGQ"
            );
            opens(&json!(text), "correct horse");
        }
    }

    #[test]
    fn hashes_of_aspnet_identity_open_with_their_passwords() {
        for text in [
            "AQAAAAIAACcQAAAAEAABAgMEBQYHCAkKCwwNDg8QISIXesfGJA2fd4iEPf+tC7smA1S4c2QTBevrsewdcA==",
            "AAABAgMEBQYHCAkKCwwNDg+d2FbDdriytxO2vgdAVMuIpGVW4BGF6o0NJn8znGUhaQ==",
        ] {
            opens(&json!(text), "correct horse");
        }
    }

    fn of_keycloak(algorithm: &str, iterations: u32, value: &str) -> Value {
        let secret = json!({"value": value, "salt": "AAECAwQFBgcICQoLDA0ODw==", "additionalParameters": {}});
        let data = json!({"hashIterations": iterations, "algorithm": algorithm, "additionalParameters": {}});
        json!({"keycloak": {
            "type": "password", "secretData": secret.to_string(), "credentialData": data.to_string(),
        }})
    }

    #[test]
    fn hashes_of_keycloak_open_with_their_passwords() {
        for (algorithm, iterations, value) in [
            (
                "pbkdf2-sha256",
                27500,
                "qnA427fe69fAjkevcHZvnm7vp3MewnxKL4g2WLfI7U6teQVH1eR2L5DfcV0psPIfjGPtlZbkpnogYX+2TaSl6w==",
            ),
            (
                "pbkdf2-sha512",
                1000,
                "Xpx07WjVx4vCIvrmBRj8uOoVVtGqJqtUv2J5bhizSQs7osCteF7W4A61dZDqSIqQjO+dxO6p5FT/Uy7QRBXSXA==",
            ),
            ("pbkdf2", 1000, "ndhWw3a4srcTtr4HQFTLiKRlVuARheqNDSZ/M5xlIWk="),
        ] {
            opens(&of_keycloak(algorithm, iterations, value), "correct horse");
        }
        let argon2 = json!({"keycloak": {
            "secretData": {"value": "CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc=", "salt": "c29tZXNhbHQ="},
            "credentialData": {"hashIterations": 2, "algorithm": "argon2", "additionalParameters": {
                "hashLength": ["32"], "memory": ["65536"], "type": ["id"], "version": ["1.3"], "parallelism": ["1"],
            }},
        }});
        let hash = PasswordHash::import(&argon2).unwrap();
        assert_eq!(verify(&hash, b"password", &mut Memory::default()), Ok(true));
    }

    #[test]
    fn what_costs_too_much_is_refused_before_it_is_computed() {
        let salt_and_hash = "AAECAwQFBgcICQoLDA0ODw$yRTMTwbMbo9G0VfjobWqerzuuxe7BETNTErBbKKumGQ";
        for text in [
            "$2b$31$abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e".to_owned(),
            "$2b$16$abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e".to_owned(),
            format!("$pbkdf2-sha256$i=4000001${salt_and_hash}"),
            format!("$pbkdf2-sha1$i=2500000${salt_and_hash}"),
            format!("$pbkdf2-sha256$i=99999999999${salt_and_hash}"),
            format!("$scrypt$ln=19,r=8,p=1${salt_and_hash}"),
            format!("$scrypt$ln=63,r=8,p=1${salt_and_hash}"),
            format!("$scrypt$ln=200,r=8,p=1${salt_and_hash}"),
            format!("$scrypt$ln=18,r=8,p=5${salt_and_hash}"),
            format!("$scrypt$ln=4,r=4294967295,p=1${salt_and_hash}"),
        ] {
            let refused = PasswordHash::import(&json!(text));
            assert!(
                matches!(refused, Err(InvalidPasswordHash::TooCostly(_))),
                "{text}"
            );
        }
        let keycloak = of_keycloak(
            "pbkdf2-sha256",
            50_000_000,
            "ndhWw3a4srcTtr4HQFTLiKRlVuARheqNDSZ/M5xlIWk=",
        );
        assert!(PasswordHash::import(&keycloak).is_err());
    }

    #[test]
    fn what_is_no_hash_is_refused() {
        for value in [
            json!(""),
            json!("password"),
            json!("5f4dcc3b5aa765d61d8327deb882cf99"),
            json!("$1$abc$def"),
            json!("$2b$04$short"),
            json!("$2x$04$abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e"),
            json!("$2b$+4$abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e"),
            json!("$pbkdf2-sha256$i=0$AAECAwQFBgcICQoLDA0ODw$yRTMTwbMbo9G0VfjobWqerzuuxe7BETNTErBbKKumGQ"),
            json!("$pbkdf2-sha256$i=1000$AAECAwQFBgcICQoLDA0ODw$"),
            json!("$pbkdf2-sha256$i=1000$AAECAwQFBgcICQoLDA0ODw$yRTM"),
            json!("$pbkdf2-md5$i=1000$AAEC$yRTMTwbMbo9G0VfjobWqerzuuxe7BETNTErBbKKumGQ"),
            json!("$scrypt$ln=0,r=8,p=1$AAEC$yRTMTwbMbo9G0VfjobWqerzuuxe7BETNTErBbKKumGQ"),
            json!("$scrypt$ln=4,r=8$AAEC$yRTMTwbMbo9G0VfjobWqerzuuxe7BETNTErBbKKumGQ"),
            json!("AQAAAAI="),
            json!("AQAAAAIAACcQ/////wABAgMEBQYHCAkKCwwNDg8="),
            json!(7),
            json!({"keycloak": {}}),
            json!({"keycloak": {"secretData": "no json", "credentialData": "{}"}}),
            json!({"firebase": {"hash": "AA==", "salt": "AA==", "signer_key": "AA==", "salt_separator": "", "rounds": 8, "mem_cost": 14}}),
            json!({"other": {}}),
        ] {
            let refused = PasswordHash::import(&value);
            assert!(
                matches!(
                    refused,
                    Err(InvalidPasswordHash::Malformed | InvalidPasswordHash::Unknown)
                ),
                "{value}: {refused:?}"
            );
        }
    }
}
