//! The settings for accounts that people create themselves.

use super::form::{Flag, List, Words};
use super::mfa;
use super::reader::{Read, Reader};
use super::setting::{Literal, Setting};
use crate::identity::{AccountPolicy, SelfServicePolicy, SignUp};
use crate::text;

const SELF_SERVICE_WORDS: [&str; 8] = [
    "name",
    "given_name",
    "family_name",
    "nickname",
    "phone_number",
    "email",
    "export",
    "deletion",
];

pub(super) const SETTINGS: &[&Setting] = &[
    &SIGN_UP,
    &VERIFY_EMAIL,
    &EMAIL_SIGN_IN,
    &ALLOWED_DOMAINS,
    &SELF_SERVICE,
];

pub(super) static SIGN_UP: Setting<Words<SignUp>> = Setting {
    key: "accounts.sign_up",
    doc: "Who may create an account: off for nobody, invitation for people whom the operator invites (idsvc user invite), open for\n\
     everybody. With open, the sign-in page offers it.",
    default: Some(Literal::Text("off")),
    example: Literal::Text("open"),
    value_name: "WHO",
    help: Some("Who may create an account: off, invitation or open"),
    form: Words(&[
        ("off", SignUp::Off),
        ("invitation", SignUp::Invitation),
        ("open", SignUp::Open),
    ]),
};

pub(super) static VERIFY_EMAIL: Setting<Flag> = Setting {
    key: "accounts.verify_email",
    doc: "Whether a person who signs up must open a link, or type a code, from a mail. Needs mail.url. If it is false, addresses are\n\
     not verified, and the page tells a person whether an address has an account.",
    default: Some(Literal::Flag(true)),
    example: Literal::Flag(false),
    value_name: "BOOL",
    help: Some("Send a mail to everybody who signs up"),
    form: Flag,
};

pub(super) static EMAIL_SIGN_IN: Setting<Flag> = Setting {
    key: "accounts.email_sign_in",
    doc: "Whether users may sign in by a link or a code from a mail, without a password. Needs mail.url.",
    default: Some(Literal::Flag(false)),
    example: Literal::Flag(true),
    value_name: "BOOL",
    help: Some("Let users sign in by a link or a code from a mail"),
    form: Flag,
};

pub(super) static ALLOWED_DOMAINS: Setting<List<String>> = Setting {
    key: "accounts.allowed_domains",
    doc: "The domains whose addresses may sign up. Left out: all. Invitations are not limited.",
    default: Some(Literal::List(&[])),
    example: Literal::List(&["example.com"]),
    value_name: "DOMAIN",
    help: Some("A domain whose addresses may sign up"),
    form: List::of(parse_domain),
};

pub(super) static SELF_SERVICE: Setting<List<String>> = Setting {
    key: "accounts.self_service",
    doc: "What users change themselves on the account page: claims (name, given_name, family_name, nickname, phone_number), email\n\
     (needs mail.url), export of their data, deletion of the account. The profile of a user of a provider is the provider's.",
    default: Some(Literal::List(&[])),
    example: Literal::List(&["name", "email", "export", "deletion"]),
    value_name: "WHAT",
    help: Some("What users change themselves on the account page"),
    form: List::of_words(&SELF_SERVICE_WORDS),
};

/// The rules for accounts.
pub(super) fn policy(reader: &mut Reader<'_>) -> Read<AccountPolicy> {
    reader.check(SETTINGS);
    reader.check(mfa::SETTINGS);
    Ok(AccountPolicy {
        sign_up: reader.read(&SIGN_UP)?,
        self_service: self_service(reader)?,
        second_factor: reader.read(&mfa::REQUIRE)?,
        remember_device: reader.read(&mfa::REMEMBER_DEVICE)?,
        verify_email: reader.read(&VERIFY_EMAIL)?,
        email_sign_in: reader.read(&EMAIL_SIGN_IN)?,
        allowed_domains: reader.read(&ALLOWED_DOMAINS)?,
    })
}

/// Refuses what needs mails if a start of the service could send none.
pub(super) fn check(reader: &mut Reader<'_>, sends_mail: Read<bool>) {
    let sign_up = reader.read(&SIGN_UP);
    let verify_email = reader.read(&VERIFY_EMAIL);
    let email_sign_in = reader.read(&EMAIL_SIGN_IN);
    if (sign_up, verify_email, sends_mail) == (Ok(SignUp::Open), Ok(true), Ok(false)) {
        let message = "accounts.sign_up = \"open\" needs mail.url, or accounts.verify_email = false";
        reader.fault(&SIGN_UP, message);
    }
    if (email_sign_in, sends_mail) == (Ok(true), Ok(false)) {
        let message = "accounts.email_sign_in = true needs mail.url";
        reader.fault(&EMAIL_SIGN_IN, message);
    }
    if self_service(reader).is_ok_and(|policy| policy.email) {
        if sends_mail == Ok(false) {
            let message = "accounts.self_service = \"email\" needs mail.url";
            reader.fault(&SELF_SERVICE, message);
        } else if (sign_up, verify_email) == (Ok(SignUp::Open), Ok(false)) {
            // A stranger could take the previous address, and the link that sets it back would be void.
            let message = "accounts.self_service = \"email\" needs accounts.verify_email = true, if accounts.sign_up is open";
            reader.fault(&SELF_SERVICE, message);
        }
    }
}

fn self_service(reader: &mut Reader<'_>) -> Read<SelfServicePolicy> {
    reader.read(&SELF_SERVICE).map(|words| self_service_of(&words))
}

fn self_service_of(words: &[String]) -> SelfServicePolicy {
    let has = |wanted: &str| words.iter().any(|word| word == wanted);
    let is_claim = |word: &&String| SelfServicePolicy::CLAIMS.contains(&word.as_str());
    SelfServicePolicy {
        claims: words.iter().filter(is_claim).cloned().collect(),
        email: has("email"),
        export: has("export"),
        deletion: has("deletion"),
    }
}

fn parse_domain(text: &str) -> Result<String, String> {
    let domain = text::a_labels(text).filter(|_| !text.contains('@') && text.contains('.'));
    domain.ok_or_else(|| ": name domains as in example.com".to_owned())
}
