//! The settings for a PostgreSQL database, which several nodes share.

use std::fs;
use std::path::Path;

use zeroize::Zeroizing;

use super::file::Origin;
use super::reader::Reader;
use super::setting::{Kind, Setting, setting};
use super::{Config, Fault, Tls};
use crate::net::certificate::{Pair, exposure_warning};
use crate::oauth::client_certificate::ClientAuthorities;
use crate::store::Address;
use crate::store::address::{BUILT_WITHOUT, ClientIdentity};

pub(super) const URL: Setting = setting(
    "store.url",
    Kind::Text,
    ("URL", "The PostgreSQL database that nodes share"),
    None,
    r#""postgres://idsvc@db1.example.com,db2.example.com/idsvc?target_session_attrs=read-write""#,
    "The address of a PostgreSQL database that several nodes share. The connection uses TLS, and the certificate of the\n\
     server is verified. A unix socket needs no TLS. For loopback, sslmode=disable turns TLS off. Put an address with a\n\
     password into store.url_file, because other users of the machine see flags.\n\
     Left out: the data is in the file idsvc.redb of the data directory.",
);

pub(super) const URL_FILE: Setting = setting(
    "store.url_file",
    Kind::Text,
    ("FILE", "A file with the address of the database"),
    None,
    r#""/etc/idsvc/store-url""#,
    "A file with the address on one line, in place of store.url. The file is read at the start.",
);

pub(super) const CA_FILE: Setting = setting(
    "store.ca_file",
    Kind::Text,
    ("FILE", "The authorities for the database server's certificate"),
    None,
    r#""/etc/idsvc/database-ca.pem""#,
    "The certificates (PEM) of the authorities that may issue the database server's certificate. The file is read at the\n\
     start. Left out: the authorities of the web.",
);

pub(super) const CERT_FILE: Setting = setting(
    "store.cert_file",
    Kind::Text,
    ("FILE", "The certificate of this node for the database"),
    None,
    r#""/etc/idsvc/database-cert.pem""#,
    "The certificate (PEM) with which this node authenticates to the database server. The file is read at the start.",
);

pub(super) const KEY_FILE: Setting = setting(
    "store.key_file",
    Kind::Text,
    ("FILE", "The private key of that certificate"),
    None,
    r#""/etc/idsvc/database-key.pem""#,
    "The private key (PEM) of the certificate in store.cert_file. The file is read at the start.",
);

/// The database with the files for TLS, if one is named. No fault repeats the address, which may have a password.
pub(super) fn address(reader: &mut Reader<'_>) -> Option<Address> {
    let is_set = |reader: &Reader<'_>, setting: &Setting| reader.explicit(setting.key).is_some();
    let (has_url, has_file) = (is_set(reader, &URL), is_set(reader, &URL_FILE));
    if !has_url && !has_file {
        for setting in [CA_FILE, CERT_FILE, KEY_FILE] {
            if is_set(reader, &setting) && !reader.is_unread(URL.key) && !reader.is_unread(URL_FILE.key) {
                let key = setting.key;
                let message = format!("{key} is set, and no database: set store.url, or take {key} out");
                reader.fault_at(key, message);
            }
        }
        return None;
    }
    if has_url && has_file {
        let message = "store.url and store.url_file are both set: take one of them out";
        reader.fault_at(URL_FILE.key, message);
        return None;
    }
    let authorities = authorities(reader);
    let identity = identity(reader);
    let (key, text, origin) = if has_file {
        let (file, origin) = reader.path(URL_FILE.key)?;
        let text = read(reader, URL_FILE.key, &file, &origin)?;
        let text = Zeroizing::new(String::from_utf8_lossy(&text).trim().to_owned());
        (URL_FILE.key, text, origin)
    } else {
        let (text, origin) = reader.text(URL.key)?;
        (URL.key, Zeroizing::new(text), origin)
    };
    match Address::parse(&text) {
        Ok(mut address) => {
            address.authorities = authorities;
            address.identity = identity;
            Some(address)
        }
        Err(error) => {
            reader.fault(&origin, format!("{key}: {error}"));
            None
        }
    }
}

fn authorities(reader: &mut Reader<'_>) -> Option<Vec<u8>> {
    reader.explicit(CA_FILE.key)?;
    let (file, origin) = reader.path(CA_FILE.key)?;
    let pem = read(reader, CA_FILE.key, &file, &origin)?;
    if let Err(problem) = ClientAuthorities::of_pem(&pem) {
        let (key, file) = (CA_FILE.key, file.display());
        reader.fault(&origin, format!("{key}: {file}: {problem}"));
    }
    Some(pem.to_vec())
}

/// The certificate of this node. It needs both files.
fn identity(reader: &mut Reader<'_>) -> Option<ClientIdentity> {
    let given = [CERT_FILE, KEY_FILE].map(|setting| reader.explicit(setting.key).is_some());
    match given {
        [true, true] => {}
        [true, false] => {
            reader.missing(KEY_FILE.key, "store.cert_file is set, and it needs its key");
            return None;
        }
        [false, true] => {
            reader.missing(
                CERT_FILE.key,
                "store.key_file is set, and it needs its certificate",
            );
            return None;
        }
        [false, false] => return None,
    }
    let (certificate_file, origin) = reader.path(CERT_FILE.key)?;
    let (key_file, key_origin) = reader.path(KEY_FILE.key)?;
    let certificate = read(reader, CERT_FILE.key, &certificate_file, &origin)?;
    let key = read(reader, KEY_FILE.key, &key_file, &key_origin)?;
    let pair = Pair::read(&certificate_file, &key_file).and_then(|pair| pair.certified_key());
    if let Err(error) = pair {
        reader.fault(&origin, format!("{}: {error}", CERT_FILE.key));
    }
    Some(ClientIdentity {
        certificate: certificate.to_vec(),
        key,
    })
}

fn read(reader: &mut Reader<'_>, key: &str, file: &Path, origin: &Origin) -> Option<Zeroizing<Vec<u8>>> {
    match fs::read(file) {
        Ok(bytes) => Some(Zeroizing::new(bytes)),
        Err(error) => {
            let file = file.display();
            reader.fault(origin, format!("{key}: {file} cannot be read: {error}"));
            None
        }
    }
}

/// Checks the settings against the others, and who else can read the secrets.
pub(super) fn check(reader: &mut Reader<'_>, config: &Config) {
    let Some(address) = &config.settings.store else {
        return;
    };
    let named = if reader.explicit(URL.key).is_some() {
        URL.key
    } else {
        URL_FILE.key
    };
    if !cfg!(feature = "postgres") {
        reader.fault_at(named, BUILT_WITHOUT);
    }
    if let Tls::Acme(_) = config.tls {
        let message = format!(
            "{named} is set, and nodes cannot share a certificate that one of them has by ACME: set tls.mode to files, with tls.cert and tls.key"
        );
        reader.fault_at(named, message);
    }
    let secrets = [
        (URL_FILE.key, "the address of the database"),
        (KEY_FILE.key, "the private key for the database"),
    ];
    for (key, what) in secrets {
        if reader.explicit(key).is_some()
            && let Some((file, origin)) = reader.path(key)
        {
            warn_if_exposed(reader, &file, &origin, what);
        }
    }
    if let (true, Some((_, origin))) = (address.has_password(), reader.explicit(URL.key))
        && let Origin::File(file, _) = &origin
    {
        warn_if_exposed(reader, file, &origin, "the password for the database");
    }
}

fn warn_if_exposed(reader: &mut Reader<'_>, file: &Path, origin: &Origin, what: &str) {
    let warning = exposure_warning(file, what).map(|message| Fault {
        place: origin.to_string(),
        message,
    });
    reader.warnings.extend(warning);
}
