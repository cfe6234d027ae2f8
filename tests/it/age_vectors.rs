//! The vectors of the CCTV project for the age format. What they call a success is decrypted, and nothing else is.

use std::fs;
use std::io::Read;
use std::path::Path;

use idsvc::age::{AgeError, DecryptingReader, Header, Identities, Passphrase, identities};
use idsvc::hex;
use ring::digest;

/// One vector: what is said of it, and the encrypted file.
struct Vector {
    facts: Vec<(String, String)>,
    file: Vec<u8>,
}

impl Vector {
    fn read(path: &Path) -> Self {
        let bytes = fs::read(path).unwrap();
        let end = bytes.windows(2).position(|pair| pair == b"\n\n").unwrap();
        let text = str::from_utf8(&bytes[..end]).unwrap();
        let facts = text.lines().map(|line| line.split_once(": ").unwrap());
        Self {
            facts: facts
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            file: bytes[end + 2..].to_vec(),
        }
    }

    fn all(&self, name: &str) -> Vec<&str> {
        let found = self.facts.iter().filter(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).collect()
    }

    fn identities(&self) -> Identities {
        match self.all("passphrase")[..] {
            [passphrase, ..] => Identities::Passphrase(Passphrase::new(passphrase).unwrap()),
            [] => Identities::Keys(identities(&self.all("identity").join("\n")).unwrap()),
        }
    }

    /// What happens, in the words of the vectors, and the plaintext that is returned.
    fn outcome(&self) -> (&'static str, Vec<u8>) {
        let mut source = self.file.as_slice();
        let key = match Header::read(&mut source).and_then(|header| header.unlock(&self.identities())) {
            Ok(key) => key,
            Err(AgeError::HeaderChanged) => return ("HMAC failure", Vec::new()),
            Err(
                AgeError::NoMatch
                | AgeError::WrongPassphrase
                | AgeError::NeedsIdentity
                | AgeError::NeedsPassphrase,
            ) => {
                return ("no match", Vec::new());
            }
            Err(_) => return ("header failure", Vec::new()),
        };
        let mut plain = Vec::new();
        let Ok(mut reader) = DecryptingReader::new(source, &key) else {
            // The vectors count the nonce as a part of the header.
            return ("header failure", plain);
        };
        let mut buffer = [0; 1000];
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => return ("success", plain),
                Ok(count) => plain.extend_from_slice(&buffer[..count]),
                Err(_) => return ("payload failure", plain),
            }
        }
    }
}

#[test]
fn every_vector_of_age_has_its_expected_outcome() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/age");
    let mut wrong = Vec::new();
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some() {
            continue;
        }
        count += 1;
        let vector = Vector::read(&path);
        let expected = vector.all("expect")[0];
        let (outcome, plain) = vector.outcome();
        let name = path.file_name().unwrap().display().to_string();
        if outcome != expected {
            wrong.push(format!("{name}: {outcome} instead of {expected}"));
        }
        if let [sum] = vector.all("payload")[..] {
            let mut made = String::new();
            hex::push(&mut made, digest::digest(&digest::SHA256, &plain).as_ref());
            if made != sum {
                wrong.push(format!("{name}: another payload of {} bytes", plain.len()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(count, 73);
}
