use super::*;
use crate::identity::SecondFactorRule;

const BASE: &str = "base_url = \"https://id.example.com\"\ntls.mode = \"self-signed\"\n";
const MAIL: &str = "mail.url = \"smtp://localhost\"\nmail.from = \"no-reply@example.com\"\n";

#[test]
fn what_needs_mails_is_a_fault_without_a_mail_server() {
    for (setting, named) in [
        (
            "accounts.sign_up = \"open\"",
            "accounts.sign_up = \"open\" needs mail.url",
        ),
        (
            "accounts.email_sign_in = true",
            "accounts.email_sign_in = true needs mail.url",
        ),
        (
            "accounts.self_service = [\"email\"]",
            "accounts.self_service = \"email\" needs mail.url",
        ),
    ] {
        let told = faults(&sources_of(&[], &[], &format!("{BASE}{setting}\n")));
        assert!(told.contains(named), "{told:?}");
        // The development server catches mails, and its commands get the same file.
        let sources = sources_of(&[], &[], &format!("{setting}\n"));
        resolve(&sources.clone().for_development()).unwrap();
        resolve_settings(&sources).unwrap();
        resolve(&sources_of(&[], &[], &format!("{BASE}{MAIL}{setting}\n"))).unwrap();
    }
    let unverified = "accounts.sign_up = \"open\"\naccounts.verify_email = false\n";
    let config = resolve(&sources_of(&[], &[], &format!("{BASE}{unverified}"))).unwrap();
    assert!(config.policy().accounts.is_open());
}

#[test]
fn a_domain_is_no_address() {
    let setting = "accounts.allowed_domains = [\"example.com\", \"a@example.com\"]\n";
    let told = faults(&sources_of(&[], &[], &format!("{BASE}{setting}")));
    assert!(told.contains("a@example.com"), "{told:?}");
}

/// A stranger could sign up with the previous address of a user, and the link that sets it back would be void.
#[test]
fn a_change_of_address_needs_verified_addresses() {
    let open = "accounts.sign_up = \"open\"\naccounts.verify_email = false\n";
    let setting = format!("{BASE}{MAIL}{open}accounts.self_service = [\"email\"]\n");
    let told = faults(&sources_of(&[], &[], &setting));
    assert!(told.contains("needs accounts.verify_email = true"), "{told:?}");
    resolve(&sources_of(&[], &[], &setting.replace("= false", "= true"))).unwrap();
}

#[test]
fn a_device_is_remembered_for_whole_days_or_not_at_all() {
    let resolved = |setting: &str| resolve(&sources_of(&[], &[], &format!("{BASE}{setting}\n")));
    for (setting, days) in [
        ("", None),
        ("\"off\"", None),
        ("\"30d\"", Some(30)),
        ("\"24h\"", Some(1)),
    ] {
        let setting = if setting.is_empty() {
            String::new()
        } else {
            format!("mfa.remember_device = {setting}")
        };
        let remembered = resolved(&setting).unwrap().policy().accounts.remember_device;
        assert_eq!(remembered.map(|time| time.as_secs() / 86_400), days, "{setting}");
    }
    for wrong in ["12h", "36h", "366d", "0s"] {
        let setting = format!("{BASE}mfa.remember_device = \"{wrong}\"\n");
        let told = faults(&sources_of(&[], &[], &setting));
        assert!(told.contains("1d to 365d in whole days"), "{told:?}");
    }
}

#[test]
fn who_needs_a_second_factor_is_one_of_three_words() {
    let file = format!("{BASE}mfa.require = \"everybody\"\n");
    assert!(faults(&sources_of(&[], &[], &file)).contains("password-users"));
    let file = format!("{BASE}mfa.require = \"all\"\n");
    let config = resolve(&sources_of(&[], &[], &file)).unwrap();
    assert_eq!(config.policy().accounts.second_factor, SecondFactorRule::All);
}
