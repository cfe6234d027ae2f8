//! The settings for accounts that people create themselves.

use super::mfa;
use super::reader::Reader;
use super::setting::{Kind, Setting, setting};
use crate::identity::{AccountPolicy, SelfServicePolicy, SignUp};

pub(super) const SIGN_UP: Setting = setting(
    "accounts.sign_up",
    Kind::Text,
    ("WHO", "Who may create an account: off, invitation or open"),
    Some(r#""off""#),
    r#""open""#,
    "Who may create an account: off for nobody, invitation for people whom the operator invites (idsvc user invite), open for\n\
     everybody. With open, the sign-in page offers it.",
);

pub(super) const VERIFY_EMAIL: Setting = setting(
    "accounts.verify_email",
    Kind::Flag,
    ("BOOL", "Send a mail to everybody who signs up"),
    Some("true"),
    "false",
    "Whether a person who signs up must open a link, or type a code, from a mail. Needs mail.url. If it is false, addresses are\n\
     not verified, and the page tells a person whether an address has an account.",
);

pub(super) const ALLOWED_DOMAINS: Setting = setting(
    "accounts.allowed_domains",
    Kind::List,
    ("DOMAIN", "A domain whose addresses may sign up"),
    Some("[]"),
    r#"["example.com"]"#,
    "The domains whose addresses may sign up. Left out: all. Invitations are not limited.",
);

pub(super) const EMAIL_SIGN_IN: Setting = setting(
    "accounts.email_sign_in",
    Kind::Flag,
    ("BOOL", "Let users sign in by a link or a code from a mail"),
    Some("false"),
    "true",
    "Whether users may sign in by a link or a code from a mail, without a password. Needs mail.url.",
);

pub(super) const SELF_SERVICE: Setting = setting(
    "accounts.self_service",
    Kind::List,
    ("WHAT", "What users change themselves on the account page"),
    Some("[]"),
    r#"["name", "email", "export", "deletion"]"#,
    "What users change themselves on the account page: claims (name, given_name, family_name, nickname, phone_number), email\n\
     (needs mail.url), export of their data, deletion of the account. The profile of a user of a provider is the provider's.",
);

/// The rules for accounts. What needs mails is refused if none can be sent.
pub(super) fn policy(reader: &mut Reader<'_>, sends_mail: bool) -> AccountPolicy {
    let sign_up = match reader.one_of(SIGN_UP.key, &["off", "invitation", "open"]) {
        Some("open") => SignUp::Open,
        Some("invitation") => SignUp::Invitation,
        _ => SignUp::Off,
    };
    let (domains, origin) = reader.list(ALLOWED_DOMAINS.key);
    for domain in &domains {
        if domain.contains('@') || !domain.contains('.') {
            let example = "name domains as in example.com";
            let message = format!("{} = {domain:?}: {example}", ALLOWED_DOMAINS.key);
            reader.fault(&origin, message);
        }
    }
    let verify_email = reader.flag(VERIFY_EMAIL.key);
    let email_sign_in = reader.flag(EMAIL_SIGN_IN.key);
    if sign_up == SignUp::Open && verify_email && !sends_mail {
        let message = "accounts.sign_up = \"open\" needs mail.url, or accounts.verify_email = false";
        reader.fault_at(SIGN_UP.key, message);
    }
    if email_sign_in && !sends_mail {
        let message = "accounts.email_sign_in = true needs mail.url";
        reader.fault_at(EMAIL_SIGN_IN.key, message);
    }
    AccountPolicy {
        sign_up,
        self_service: self_service(reader, sends_mail, verify_email || sign_up != SignUp::Open),
        second_factor: mfa::rule(reader),
        remember_device: mfa::remember_device(reader),
        verify_email,
        email_sign_in,
        allowed_domains: domains.iter().map(|domain| domain.to_lowercase()).collect(),
    }
}

fn self_service(reader: &mut Reader<'_>, sends_mail: bool, verifies: bool) -> SelfServicePolicy {
    let (words, origin) = reader.list(SELF_SERVICE.key);
    let mut policy = SelfServicePolicy::default();
    for word in words {
        match word.as_str() {
            "email" if !sends_mail => {
                let message = format!("{} = \"email\" needs mail.url", SELF_SERVICE.key);
                reader.fault(&origin, message);
            }
            // A stranger could take the previous address, and the link that sets it back would be void.
            "email" if !verifies => {
                let message = format!(
                    "{} = \"email\" needs accounts.verify_email = true, if accounts.sign_up is open",
                    SELF_SERVICE.key
                );
                reader.fault(&origin, message);
            }
            "email" => policy.email = true,
            "export" => policy.export = true,
            "deletion" => policy.deletion = true,
            claim if SelfServicePolicy::CLAIMS.contains(&claim) => policy.claims.push(word),
            other => {
                let claims = SelfServicePolicy::CLAIMS.join(", ");
                let message = format!(
                    "{} = {other:?}: the values are {claims}, email, export and deletion",
                    SELF_SERVICE.key
                );
                reader.fault(&origin, message);
            }
        }
    }
    policy
}
