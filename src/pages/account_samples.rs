//! The account page in each of its states, for tests and previews.

use super::account::Account;
use super::account_lines::{ApplicationLine, LauncherLine, SessionLine};
use super::account_notice::AccountNotice;
use super::account_section::{AccountSection, SectionLink};
use super::consent::{PageLink, ScopeGroup};
use super::form::Person;
use super::moment::Moment;
use super::proof::ProofRequest;
use super::security::{FactorLineKind, Security};
use super::self_service::SelfService;
use super::{Mark, ScopeLine};

impl Account {
    /// A section for a user with three sessions and two applications.
    pub fn sample(section: AccountSection) -> Self {
        let moment = |rfc3339: &str, seconds_ago| Moment {
            rfc3339: rfc3339.to_owned(),
            seconds_ago,
        };
        let scope = |name: &str| ScopeLine {
            name: name.to_owned(),
            description: String::new(),
            group: ScopeGroup::Identity,
        };
        let session = |id: &str, device: Option<&str>, address: &str, is_current: bool| SessionLine {
            id: id.to_owned(),
            device: device.map(ToOwned::to_owned),
            address: Some(address.to_owned()),
            signed_in_at: moment("2026-11-20T08:15:00Z", 91_200),
            last_used_at: moment("2026-11-21T09:30:00Z", 300),
            is_current,
        };
        let launch = |mark: Mark, address: &str| LauncherLine {
            mark,
            open: PageLink {
                href: format!("https://{address}"),
                host: address.split('/').next().unwrap_or_default().to_owned(),
            },
        };
        let pay = Mark {
            name: "Acme Payroll".to_owned(),
            logo: None,
        };
        let application = |id: &str, name: &str, scopes: &[&str]| ApplicationLine {
            id: id.to_owned(),
            name: name.to_owned(),
            logo: None,
            since: moment("2026-11-02T17:45:00Z", 1_612_200),
            open: (id == "web").then(|| PageLink {
                href: "https://notes.example/login?iss=https%3A%2F%2Fid.example".to_owned(),
                host: "notes.example".to_owned(),
            }),
            scopes: scopes.iter().map(|name| scope(name)).collect(),
        };
        let href = |section: AccountSection| format!("/account/{}", section.name());
        Self {
            action: href(section),
            csrf: "b1x0Jm5vYQ".to_owned(),
            section,
            sections: AccountSection::ALL
                .map(|section| SectionLink {
                    section,
                    href: href(section),
                })
                .to_vec(),
            user: Person::sample(),
            notice: None,
            min_length: Some(8),
            max_bytes: 512,
            remembers_browsers: false,
            sessions: vec![
                session("0199f3a2-7c41", Some("Firefox (Linux)"), "198.51.100.7", true),
                session("0199e1c0-10b8", Some("Safari (iOS)"), "2001:db8::17", false),
                session("0199d011-7e02", None, "203.0.113.40", false),
            ],
            launcher: vec![
                launch(Mark::sample(), "notes.example/login?iss=https%3A%2F%2Fid.example"),
                launch(pay, "payroll.example/"),
            ],
            applications: vec![
                application("web", "Acme Notes", &["openid", "email", "offline_access"]),
                application("tv", "Acme Television", &["openid", "profile", "notes.read"]),
            ],
            languages: vec![
                ("en".to_owned(), "English".to_owned()),
                ("de".to_owned(), "Deutsch".to_owned()),
                ("ar".to_owned(), "العربية".to_owned()),
            ],
            language: None,
            self_service: SelfService::sample(),
            security: Security::sample(),
            proof: ProofRequest::sample(),
            added_factors: Vec::new(),
        }
    }

    /// A section for a user without a password, who has one session and no applications.
    pub fn bare_sample(section: AccountSection) -> Self {
        let sample = Self::sample(section);
        let is_for_all =
            |link: &SectionLink| !matches!(link.section, AccountSection::Password | AccountSection::Data);
        Self {
            min_length: None,
            sections: sample.sections.into_iter().filter(is_for_all).collect(),
            sessions: sample.sessions.into_iter().take(1).collect(),
            launcher: Vec::new(),
            applications: Vec::new(),
            language: Some("de".to_owned()),
            self_service: SelfService::default(),
            security: Security::default(),
            proof: ProofRequest::default(),
            ..Self::sample(section)
        }
    }

    /// A section for a user who has an app and a passkey, and added them after the last change of the password.
    fn full_sample(section: AccountSection) -> Self {
        let mut security = Security::sample();
        security
            .factors
            .retain(|line| !matches!(line.kind, FactorLineKind::RecoveryCodes(_)));
        Self {
            notice: Some(AccountNotice::WrongPassword),
            proof: ProofRequest::full_sample(),
            added_factors: security.factors.clone(),
            security,
            ..Self::sample(section)
        }
    }

    /// Each section, the same for a user without a password and for one with factors, and each notice.
    pub fn samples() -> Vec<Self> {
        let noticed = AccountNotice::ALL.map(|notice| Self {
            notice: Some(notice),
            ..Self::sample(notice.section())
        });
        let mut samples = AccountSection::ALL.map(Self::sample).to_vec();
        samples.extend(AccountSection::ALL.map(Self::bare_sample));
        samples.extend(AccountSection::ALL.map(Self::full_sample));
        samples.extend(noticed);
        let security = [Security::setup_sample(), Security::codes_sample()];
        samples.extend(security.map(|security| Self {
            security,
            ..Self::sample(AccountSection::Security)
        }));
        samples
    }
}
