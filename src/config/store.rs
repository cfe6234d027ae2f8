//! The settings for a PostgreSQL database, which several nodes share.

use std::fs;
use std::path::Path;

use zeroize::Zeroizing;

use super::form::{File, Text};
use super::reader::{Read, Reader};
use super::setting::{Literal, Setting};
use super::source::Origin;
use super::tls::Tls;
use crate::net::certificate::{Pair, exposure_warning};
use crate::oauth::client_certificate::ClientAuthorities;
use crate::store::Address;
use crate::store::address::{BUILT_WITHOUT, ClientIdentity};

pub(super) const SETTINGS: &[&Setting] = &[&URL, &URL_FILE, &CA_FILE, &CERT_FILE, &KEY_FILE];

pub(super) static URL: Setting<Text> = Setting {
    key: "store.url",
    doc: "The address of a PostgreSQL database that several nodes share. The connection uses TLS, and the certificate of the\n\
     server is verified. A unix socket needs no TLS. For loopback, sslmode=disable turns TLS off. Put an address with a\n\
     password into store.url_file, because other users of the machine see flags.\n\
     Left out: the data is in the file idsvc.redb of the data directory.",
    default: None,
    example: Literal::Text(
        "postgres://idsvc@db1.example.com,db2.example.com/idsvc?target_session_attrs=read-write",
    ),
    value_name: "URL",
    help: Some("The PostgreSQL database that nodes share"),
    form: Text,
};

pub(super) static URL_FILE: Setting<File> = Setting {
    key: "store.url_file",
    doc: "A file with the address on one line, in place of store.url. The file is read at the start.",
    default: None,
    example: Literal::Text("/etc/idsvc/store-url"),
    value_name: "FILE",
    help: Some("A file with the address of the database"),
    form: File,
};

pub(super) static CA_FILE: Setting<File> = Setting {
    key: "store.ca_file",
    doc: "The certificates (PEM) of the authorities that may issue the database server's certificate. The file is read at the\n\
     start. Left out: the authorities of the web.",
    default: None,
    example: Literal::Text("/etc/idsvc/database-ca.pem"),
    value_name: "FILE",
    help: Some("The authorities for the database server's certificate"),
    form: File,
};

pub(super) static CERT_FILE: Setting<File> = Setting {
    key: "store.cert_file",
    doc: "The certificate (PEM) with which this node authenticates to the database server. The file is read at the start.",
    default: None,
    example: Literal::Text("/etc/idsvc/database-cert.pem"),
    value_name: "FILE",
    help: Some("The certificate of this node for the database"),
    form: File,
};

pub(super) static KEY_FILE: Setting<File> = Setting {
    key: "store.key_file",
    doc: "The private key (PEM) of the certificate in store.cert_file. The file is read at the start.",
    default: None,
    example: Literal::Text("/etc/idsvc/database-key.pem"),
    value_name: "FILE",
    help: Some("The private key of that certificate"),
    form: File,
};

/// The database with the files for TLS, if one is named. No fault repeats the address, which may have a password.
pub(super) fn address(reader: &mut Reader<'_>) -> Read<Option<Address>> {
    let (url, url_file) = (reader.read_if_set(&URL), reader.read_if_set(&URL_FILE));
    if (&url, &url_file) == (&Ok(None), &Ok(None)) {
        for setting in [&CA_FILE, &CERT_FILE, &KEY_FILE] {
            if reader.is_set(setting) {
                let key = setting.key;
                let message = format!("{key} is set, and no database: set store.url, or take {key} out");
                reader.fault(setting, message);
            }
        }
        return Ok(None);
    }
    if reader.is_set(&URL) && reader.is_set(&URL_FILE) {
        let message = "store.url and store.url_file are both set: take one of them out";
        return Err(reader.fault(&URL_FILE, message));
    }
    let authorities = authorities(reader);
    let identity = identity(reader);
    let parsed = match (url?, url_file?) {
        (_, Some(file)) => {
            let text = contents(reader, &URL_FILE, &file)?;
            let text = Zeroizing::new(String::from_utf8_lossy(&text).trim().to_owned());
            Address::parse(&text).map_err(|error| reader.fault(&URL_FILE, format!("store.url_file: {error}")))
        }
        (Some(text), None) => {
            let text = Zeroizing::new(text);
            Address::parse(&text).map_err(|error| reader.fault(&URL, format!("store.url: {error}")))
        }
        (None, None) => return Ok(None),
    };
    let mut address = parsed?;
    address.authorities = authorities?;
    address.identity = identity?;
    Ok(Some(address))
}

fn authorities(reader: &mut Reader<'_>) -> Read<Option<Vec<u8>>> {
    let Some(file) = reader.read_if_set(&CA_FILE)? else {
        return Ok(None);
    };
    let pem = contents(reader, &CA_FILE, &file)?;
    if let Err(problem) = ClientAuthorities::of_pem(&pem) {
        let message = format!("store.ca_file: {}: {problem}", file.display());
        return Err(reader.fault(&CA_FILE, message));
    }
    Ok(Some(pem.to_vec()))
}

/// The certificate of this node. It needs both files.
fn identity(reader: &mut Reader<'_>) -> Read<Option<ClientIdentity>> {
    let (cert_file, key_file) = (reader.read_if_set(&CERT_FILE), reader.read_if_set(&KEY_FILE));
    let (cert_file, key_file) = match (cert_file?, key_file?) {
        (Some(cert_file), Some(key_file)) => (cert_file, key_file),
        (None, None) => return Ok(None),
        (Some(_), None) => {
            return Err(reader.missing(&KEY_FILE, "store.cert_file is set, and it needs its key"));
        }
        (None, Some(_)) => {
            return Err(reader.missing(&CERT_FILE, "store.key_file is set, and it needs its certificate"));
        }
    };
    let certificate = contents(reader, &CERT_FILE, &cert_file);
    let key = contents(reader, &KEY_FILE, &key_file);
    let (certificate, key) = (certificate?.to_vec(), key?);
    match Pair::read(&cert_file, &key_file).and_then(|pair| pair.certified_key()) {
        Ok(_) => Ok(Some(ClientIdentity { certificate, key })),
        Err(error) => Err(reader.fault(&CERT_FILE, format!("store.cert_file: {error}"))),
    }
}

fn contents(reader: &mut Reader<'_>, setting: &Setting<File>, file: &Path) -> Read<Zeroizing<Vec<u8>>> {
    let bytes = fs::read(file).map_err(|error| {
        let (key, file) = (setting.key, file.display());
        reader.fault(setting, format!("{key}: {file} cannot be read: {error}"))
    });
    bytes.map(Zeroizing::new)
}

/// Checks the settings against the others, and who else can read the secrets.
pub(super) fn check(reader: &mut Reader<'_>, address: &Address, tls: Read<&Tls>) {
    if !cfg!(feature = "postgres") {
        fault_of_address(reader, BUILT_WITHOUT);
    }
    if let Ok(Tls::Acme(_)) = tls {
        let named = if reader.is_set(&URL) {
            URL.key
        } else {
            URL_FILE.key
        };
        let message = format!(
            "{named} is set, and nodes cannot share a certificate that one of them has by ACME: set tls.mode to files, with tls.cert and tls.key"
        );
        fault_of_address(reader, &message);
    }
    for (setting, what) in [
        (&URL_FILE, "the address of the database"),
        (&KEY_FILE, "the private key for the database"),
    ] {
        if let Ok(Some(file)) = reader.read_if_set(setting)
            && let Some(message) = exposure_warning(&file, what)
        {
            reader.warn(setting, message);
        }
    }
    if address.has_password()
        && let Origin::File(file, _) = reader.origin(&URL)
        && let Some(message) = exposure_warning(&file, "the password for the database")
    {
        reader.warn(&URL, message);
    }
}

/// Reports a fault at the setting that names the database.
fn fault_of_address(reader: &mut Reader<'_>, message: &str) {
    if reader.is_set(&URL) {
        reader.fault(&URL, message);
    } else {
        reader.fault(&URL_FILE, message);
    }
}
