//! Files of our own and of the tool `age`, and everything that can be wrong with one.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;

use super::stanza::Stanza;
use super::*;

/// Made by age-keygen 1.1.1.
const IDENTITY: &str = "AGE-SECRET-KEY-1CZKX2R84YGK7TQWLZNMEW8FNSXFKFT00FGX9GYJC7T2YE9VS5P9QSNUAP2";
const RECIPIENT: &str = "age16ua0d5zkwf58egyk2zwxgc2kpq5uawsrk252pv8cdmwh7eh9devshc397d";
/// The identity and its recipient from the specification.
const OTHER_IDENTITY: &str = "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX";
const OTHER_RECIPIENT: &str = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";
/// `idsvc backup 1\n`, encrypted by age 1.1.1 to [`RECIPIENT`].
const BY_AGE_FOR_KEY: &str = "6167652d656e6372797074696f6e2e6f72672f76310a2d3e20583235353139206633416262676257446569362b6b46786377456d374b4d79764e596f4b2f676433516651347a65394253300a424775535763784137374637425a454e4a644a674f44346a6254745146514d4d506154634666394a6333770a2d2d2d205675346d4b5a4c364e6730567179356f314244584634343443376c596735323159324e56445745686337450ac86a493ce295ff96ba612c2a7a0d73d8188b9a2e5de6a016921e9422425741ef8632703f8a7ff81698f310b1805885";
/// The same with the passphrase `correct horse`.
const BY_AGE_FOR_PASSPHRASE: &str = "6167652d656e6372797074696f6e2e6f72672f76310a2d3e2073637279707420367076644f344c2b5a7071524c32302f5270637443512031380a6550735176466e456273524c32386c73384643487a7930724f6c436b42446e61356b3837672b616845756b0a2d2d2d204c644d6579796f4833314153424867633044312b71494f5a7872674c2f366776596c4877693871324532450aab352fe9544506d51529190ed1b1da321cfde47527ab6d5dd95e6564558893feb4a1a44bcb338a76bac7635e11286d";
const CHUNK: usize = 64 * 1024;
const TAG: usize = 16;

fn keys(text: &str) -> Identities {
    Identities::Keys(identities(text).unwrap())
}

fn passphrase(text: &str) -> Passphrase {
    Passphrase::new(text).unwrap()
}

fn to(recipients: &[&str]) -> Recipients {
    Recipients::Keys(recipients.iter().map(|text| text.parse().unwrap()).collect())
}

fn hexadecimal(text: &str) -> Vec<u8> {
    let digits = (0..text.len()).step_by(2);
    digits
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

fn encrypt(plain: &[u8], recipients: &Recipients) -> Vec<u8> {
    let mut file = Vec::new();
    let key = FileKey::generate(&Random::system());
    let mut writer = EncryptingWriter::new(&mut file, recipients, &key, &Random::system());
    // Pieces that fit the chunks badly.
    plain
        .chunks(1000)
        .for_each(|piece| writer.write_all(piece).unwrap());
    writer.flush().unwrap();
    let length = writer.finish().unwrap();
    assert_eq!(usize::try_from(length).unwrap(), file.len());
    file
}

fn decrypt_with(file: &[u8], identities: &Identities) -> Result<Vec<u8>, AgeError> {
    let mut source = file;
    let key = Header::read(&mut source)?.unlock(identities)?;
    let mut plain = Vec::new();
    DecryptingReader::new(source, &key)?
        .read_to_end(&mut plain)
        .map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => AgeError::PayloadChanged,
            _ => AgeError::Unreadable(error),
        })?;
    Ok(plain)
}

/// Plaintext in which every chunk is different.
fn plaintext(length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at / 7 + at / CHUNK).to_le_bytes()[0])
        .collect()
}

fn header_len(file: &[u8]) -> usize {
    let mut rest = file;
    Header::read(&mut rest).unwrap();
    file.len() - rest.len()
}

/// A file with these stanzas, whose header has the MAC that fits.
fn forged(stanzas: Vec<Stanza>, key: [u8; 16]) -> Vec<u8> {
    Header::new(stanzas, &FileKey(Zeroizing::new(key))).encode()
}

fn stanza(arguments: &[&str], body: &[u8]) -> Stanza {
    Stanza {
        arguments: arguments.iter().map(|text| (*text).to_owned()).collect(),
        body: body.to_vec(),
    }
}

#[test]
fn files_of_the_tool_are_decrypted() {
    let plain = b"idsvc backup 1\n";
    assert_eq!(
        decrypt_with(&hexadecimal(BY_AGE_FOR_KEY), &keys(IDENTITY)).unwrap(),
        plain
    );
    let file = hexadecimal(BY_AGE_FOR_PASSPHRASE);
    let known = Identities::Passphrase(passphrase("correct horse\n"));
    assert_eq!(decrypt_with(&file, &known).unwrap(), plain);
    let other = Identities::Passphrase(passphrase("correct horse "));
    assert!(matches!(
        decrypt_with(&file, &other),
        Err(AgeError::WrongPassphrase)
    ));
}

#[test]
fn what_was_encrypted_is_decrypted_whatever_its_length() {
    let recipients = to(&[RECIPIENT]);
    for length in [0, 1, 999, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK + 5] {
        let plain = plaintext(length);
        let file = encrypt(&plain, &recipients);
        let chunks = length.div_ceil(CHUNK).max(1);
        assert_eq!(file.len(), header_len(&file) + 16 + length + chunks * TAG);
        assert_eq!(decrypt_with(&file, &keys(IDENTITY)).unwrap(), plain, "{length}");
    }
}

#[test]
fn each_recipient_decrypts_and_nobody_else() {
    let file = encrypt(b"secret", &to(&[RECIPIENT, OTHER_RECIPIENT]));
    for own in [IDENTITY, OTHER_IDENTITY] {
        assert_eq!(decrypt_with(&file, &keys(own)).unwrap(), b"secret");
    }
    let several = format!("# two of them\n\n{OTHER_IDENTITY}\r\n{IDENTITY}");
    let file = encrypt(b"secret", &to(&[RECIPIENT]));
    assert_eq!(decrypt_with(&file, &keys(&several)).unwrap(), b"secret");
    assert!(matches!(
        decrypt_with(&file, &keys(OTHER_IDENTITY)),
        Err(AgeError::NoMatch)
    ));
    let passphrase = Identities::Passphrase(passphrase("correct horse"));
    assert!(matches!(
        decrypt_with(&file, &passphrase),
        Err(AgeError::NeedsIdentity)
    ));
}

#[test]
fn a_passphrase_decrypts_and_no_identity() {
    let file = encrypt(b"secret", &Recipients::Passphrase(passphrase("correct horse")));
    assert_eq!(
        Header::read(&mut &file[..]).unwrap().wanted(),
        SecretKind::Passphrase
    );
    assert!(matches!(
        decrypt_with(&file, &keys(IDENTITY)),
        Err(AgeError::NeedsPassphrase)
    ));
    let known = Identities::Passphrase(passphrase("correct horse"));
    assert_eq!(decrypt_with(&file, &known).unwrap(), b"secret");
}

#[test]
fn two_files_of_the_same_content_have_nothing_in_common() {
    let recipients = to(&[RECIPIENT]);
    let (one, two) = (encrypt(b"secret", &recipients), encrypt(b"secret", &recipients));
    let version_line = 22;
    let equal = one.iter().zip(&two).skip(version_line).filter(|(a, b)| a == b);
    assert!(equal.count() < 40, "the words of the header and chance");
}

#[test]
fn every_cut_and_every_changed_bit_is_noticed_in_an_encrypted_file() {
    let file = encrypt(b"secret", &to(&[RECIPIENT]));
    for end in 0..file.len() {
        let cut = decrypt_with(&file[..end], &keys(IDENTITY));
        let sends_notice = matches!(cut, Err(AgeError::CutOff | AgeError::PayloadChanged));
        assert!(sends_notice, "{end}: {cut:?}");
    }
    for at in 0..file.len() {
        for bit in 0..8 {
            let mut changed = file.clone();
            changed[at] ^= 1 << bit;
            assert!(
                decrypt_with(&changed, &keys(IDENTITY)).is_err(),
                "byte {at} bit {bit}"
            );
        }
    }
    let longer = [&file[..], &[0]].concat();
    assert!(decrypt_with(&longer, &keys(IDENTITY)).is_err());
}

#[test]
fn chunks_that_are_missing_moved_or_changed_are_noticed() {
    let plain = plaintext(3 * CHUNK);
    let file = encrypt(&plain, &to(&[RECIPIENT]));
    let (head, chunks) = file.split_at(header_len(&file) + 16);
    let chunks: Vec<_> = chunks.chunks(CHUNK + TAG).collect();
    assert_eq!(chunks.len(), 3);
    let with = |order: &[&[u8]]| [head, &order.concat()].concat();
    let (one, two, three) = (chunks[0], chunks[1], chunks[2]);
    let changed = {
        let mut changed = two.to_vec();
        changed[CHUNK / 2] ^= 1;
        changed
    };
    let wrong: [(&str, Vec<u8>, usize); 12] = [
        ("no chunk", with(&[]), 0),
        ("the last is missing", with(&[one, two]), 1),
        ("the last is cut", with(&[one, two, &three[..CHUNK]]), 2),
        (
            "only a tag is left of the last",
            with(&[one, two, &three[..TAG]]),
            2,
        ),
        (
            "less than a tag is left of the last",
            with(&[one, two, &three[..1]]),
            2,
        ),
        ("one in the middle is missing", with(&[one, three]), 1),
        ("the first is missing", with(&[two, three]), 0),
        ("two are swapped", with(&[two, one, three]), 0),
        ("one is there twice", with(&[one, one, two, three]), 1),
        ("one is changed", with(&[one, &changed, three]), 1),
        ("a byte follows", with(&[one, two, three, &[0]]), 2),
        ("the last is there twice", with(&[one, two, three, three]), 2),
    ];
    let key = Header::read(&mut &file[..])
        .unwrap()
        .unlock(&keys(IDENTITY))
        .unwrap();
    for (what, file, intact) in wrong {
        let mut read = Vec::new();
        let mut reader = decrypt(&file[..], &key).unwrap();
        let error = reader.read_to_end(&mut read).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{what}");
        assert!(read == plain[..intact * CHUNK], "{what}: {} bytes", read.len());
        assert!(
            reader.read(&mut [0; 10]).is_err(),
            "{what}: nothing comes after an error"
        );
    }
}

#[test]
fn a_payload_of_a_full_chunk_and_an_empty_one_is_refused() {
    let mut file = Vec::new();
    let key = FileKey::generate(&Random::system());
    let mut writer = EncryptingWriter::new(&mut file, &to(&[RECIPIENT]), &key, &Random::system());
    writer.write_all(&plaintext(CHUNK)).unwrap();
    writer.write_chunk(false).unwrap();
    writer.finish().unwrap();
    let mut read = Vec::new();
    assert!(decrypt(&file[..], &key).unwrap().read_to_end(&mut read).is_err());
    assert_eq!(read.len(), CHUNK);
}

#[test]
fn the_key_of_another_file_does_not_verify_a_header() {
    let recipients = to(&[RECIPIENT]);
    let file = encrypt(b"secret", &recipients);
    let other = FileKey::generate(&Random::system());
    assert!(matches!(decrypt(&file[..], &other), Err(AgeError::HeaderChanged)));
}

#[test]
fn without_its_end_a_file_is_refused() {
    let mut file = Vec::new();
    let key = FileKey::generate(&Random::system());
    let mut writer = EncryptingWriter::new(&mut file, &to(&[RECIPIENT]), &key, &Random::system());
    writer.write_all(&plaintext(2 * CHUNK)).unwrap();
    drop(writer);
    let mut read = Vec::new();
    assert!(decrypt(&file[..], &key).unwrap().read_to_end(&mut read).is_err());
}

#[test]
fn a_sink_that_fails_is_an_error_each_time() {
    let mut room = vec![0; CHUNK];
    let key = FileKey::generate(&Random::system());
    let mut writer = EncryptingWriter::new(&mut room[..], &to(&[RECIPIENT]), &key, &Random::system());
    let error = writer.write_all(&plaintext(2 * CHUNK)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WriteZero);
    assert!(writer.finish().is_err());
}

#[test]
fn an_error_of_the_source_is_not_taken_for_the_end() {
    struct Failing<'a>(&'a [u8]);
    impl Read for Failing<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.0.read(buffer)? {
                0 => Err(io::Error::other("the disk fails")),
                count => Ok(count),
            }
        }
    }
    let file = encrypt(b"secret", &to(&[RECIPIENT]));
    let key = Header::read(&mut &file[..])
        .unwrap()
        .unlock(&keys(IDENTITY))
        .unwrap();
    let mut read = Vec::new();
    let error = decrypt(Failing(&file), &key)
        .unwrap()
        .read_to_end(&mut read)
        .unwrap_err();
    assert_eq!((error.to_string().as_str(), read.len()), ("the disk fails", 0));
    let nothing = Header::read(&mut Failing(&[])).unwrap_err();
    assert!(matches!(nothing, AgeError::Unreadable(_)));
}

#[test]
fn a_share_or_a_recipient_of_low_order_is_refused() {
    // The points of order 1, 2, 4 and 8 (RFC 7748 section 6.1), and two that are not reduced.
    let points = [
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    ];
    for point in points {
        let point = hexadecimal(point);
        let share = STANDARD_NO_PAD.encode(&point);
        let file = forged(vec![stanza(&["X25519", &share], &[0; 32])], [0; 16]);
        let refused = decrypt_with(&file, &keys(IDENTITY));
        assert!(matches!(refused, Err(AgeError::Malformed(_))), "{refused:?}");
        let mut key = [0; 32];
        key.copy_from_slice(&point);
        assert!(
            is_low_order(&x25519([1; 32], key)),
            "no text is read as such a recipient"
        );
    }
    // The point of order 1, spelled as a recipient.
    let zero = "age1qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq5cu47z";
    assert!(bech32::decode("age", zero).is_some());
    assert_eq!(zero.parse::<Recipient>(), Err(RecipientError::Malformed));
}

#[test]
fn a_work_factor_that_takes_too_much_is_refused_before_it_is_used() {
    let salt = STANDARD_NO_PAD.encode([7; 16]);
    let read =
        |arguments: &[&str]| Header::read(&mut &forged(vec![stanza(arguments, &[0; 32])], [0; 16])[..]);
    for factor in [21, 22, 64, 255] {
        let refused = read(&["scrypt", &salt, &factor.to_string()]).unwrap_err();
        assert!(matches!(refused, AgeError::WorkFactor(found) if found == factor));
        assert!(refused.to_string().contains("at most 2^20"), "{refused}");
    }
    for wrong in [
        "256",
        "0",
        "018",
        "+18",
        "-1",
        "1e1",
        "0x12",
        "99999999999999999999",
        "１８",
    ] {
        assert!(read(&["scrypt", &salt, wrong]).is_err(), "{wrong}");
    }
    assert!(read(&["scrypt", &salt, "20"]).is_ok());
}

#[test]
fn a_passphrase_stands_beside_no_other_recipient() {
    let salt = STANDARD_NO_PAD.encode([7; 16]);
    let (with, share) = (
        stanza(&["scrypt", &salt, "1"], &[0; 32]),
        STANDARD_NO_PAD.encode([9; 32]),
    );
    for other in [
        with.clone(),
        stanza(&["X25519", &share], &[0; 32]),
        stanza(&["new"], b""),
    ] {
        for both in [
            vec![with.clone(), other.clone()],
            vec![other.clone(), with.clone()],
        ] {
            let refused = Header::read(&mut &forged(both, [0; 16])[..]);
            assert!(matches!(refused, Err(AgeError::Malformed(_))));
        }
    }
}

#[test]
fn a_header_of_any_size_takes_bounded_memory_and_time() {
    let many = |count| forged(vec![stanza(&["new"], b""); count], [0; 16]);
    assert!(Header::read(&mut &many(MAX_STANZAS)[..]).is_ok());
    for bad in [
        many(MAX_STANZAS + 1),
        forged(vec![stanza(&[&"x".repeat(4096)], b"")], [0; 16]),
        forged(vec![stanza(&["new"], &vec![0; 128 * 1024])], [0; 16]),
        forged(Vec::new(), [0; 16]),
    ] {
        assert!(matches!(Header::read(&mut &bad[..]), Err(AgeError::Malformed(_))));
    }
    let mut endless = b"age-encryption.org/v1\n-> new\n".chain(io::repeat(b'A'));
    assert!(matches!(Header::read(&mut endless), Err(AgeError::Malformed(_))));
    let line = format!("{}\n", "A".repeat(64));
    let lines = format!("age-encryption.org/v1\n-> new\n{}", line.repeat(10_000));
    assert!(matches!(
        Header::read(&mut lines.as_bytes()),
        Err(AgeError::Malformed(_))
    ));
}

#[test]
fn a_file_of_another_version_is_said_to_be_one() {
    let later = b"age-encryption.org/v2\nanything";
    assert!(matches!(
        Header::read(&mut &later[..]),
        Err(AgeError::OtherVersion)
    ));
    assert!(looks_encrypted(later) && looks_encrypted(b"") && looks_encrypted(b"age-enc"));
    for other in [&b"age-encryption.com/v1"[..], b"idsvc backup 1\n", b"agx"] {
        assert!(!looks_encrypted(other));
    }
}

#[test]
fn a_slip_in_a_recipient_an_identity_or_a_passphrase_is_named() {
    assert_eq!(IDENTITY.parse::<Recipient>(), Err(RecipientError::Identity));
    for other in [
        "",
        "age1",
        "age1pq1xx76jra",
        "ssh-ed25519 AAAA",
        "alice@example.com",
    ] {
        assert_eq!(
            other.parse::<Recipient>(),
            Err(RecipientError::Malformed),
            "{other}"
        );
    }
    let of = |text: &str| identities(text).unwrap_err();
    assert_eq!(of("# none\n\n"), IdentityError::None);
    assert_eq!(of(&format!("{IDENTITY}\n{RECIPIENT}\n")), IdentityError::Line(2));
    assert_eq!(Passphrase::new("\n").unwrap_err(), PassphraseError::Empty);
    for several in ["a\nb", "a\n\n", "a\tb"] {
        assert_eq!(
            Passphrase::new(several).unwrap_err(),
            PassphraseError::SeveralLines
        );
    }
    assert_eq!(*passphrase("two words \r\n").0, "two words ");
}

#[test]
fn no_identity_and_no_passphrase_is_printed() {
    let key = FileKey::generate(&Random::system());
    let printed = format!(
        "{:?} {:?} {key:?}",
        keys(IDENTITY),
        Recipients::Passphrase(passphrase("horse"))
    );
    assert_eq!(
        printed,
        "Keys([Identity([redacted])]) Passphrase(Passphrase([redacted])) FileKey([redacted])"
    );
}
