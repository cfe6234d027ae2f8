//! Texts of strangers stay text.

use super::*;
use crate::pages::consent::{ApplicationPages, PageLink, ScopeGroup};
use crate::pages::security::{FactorLine, FactorLineKind};

fn evil_person() -> Person {
    Person {
        name: HOSTILE.to_owned(),
        account_id: format!("{HOSTILE}@"),
    }
}

fn evil_application() -> ApplicationLink {
    ApplicationLink {
        name: HOSTILE.to_owned(),
        href: HOSTILE.to_owned(),
    }
}

fn evil_link() -> PageLink {
    PageLink {
        href: HOSTILE.to_owned(),
        host: HOSTILE.to_owned(),
    }
}

fn hostile_error() -> ErrorPage {
    let evil = || HOSTILE.to_owned();
    ErrorPage {
        kind: ErrorKind::Elsewhere,
        details: Some(evil()),
        request_id: evil(),
        issuer: evil(),
        application: Some(evil_application()),
        retry: Some(evil()),
        own: Some((evil(), Some(evil()))),
        account: Some(evil()),
        contact: Some(evil()),
    }
}

fn hostile_mails() -> DevMails {
    let evil = || HOSTILE.to_owned();
    DevMails {
        mails: vec![MailLine {
            href: evil(),
            subject: evil(),
            to: evil(),
            at: evil(),
        }],
        shown: Some(ShownMail {
            subject: evil(),
            to: evil(),
            html_href: evil(),
            text: evil(),
            source: evil(),
        }),
    }
}

fn hostile_logged_out() -> LoggedOut {
    LoggedOut {
        service: HOSTILE.to_owned(),
        application: Some(evil_application()),
        account: HOSTILE.to_owned(),
    }
}

/// An account page with a hostile text in every field.
fn hostile_account(section: AccountSection) -> Account {
    let evil = || HOSTILE.to_owned();
    let moment = || Moment {
        rfc3339: evil(),
        seconds_ago: 0,
    };
    Account {
        action: evil(),
        csrf: evil(),
        section,
        sections: vec![SectionLink {
            section,
            href: evil(),
        }],
        user: evil_person(),
        notice: Some(AccountNotice::WrongPassword),
        min_length: Some(8),
        max_bytes: 512,
        remembers_browsers: false,
        sessions: vec![SessionLine {
            id: evil(),
            device: Some(evil()),
            address: Some(evil()),
            signed_in_at: moment(),
            last_used_at: moment(),
            is_current: false,
        }],
        launcher: vec![LauncherLine {
            mark: Mark {
                name: evil(),
                logo: Some(evil()),
            },
            open: evil_link(),
        }],
        applications: vec![ApplicationLine {
            id: evil(),
            name: evil(),
            logo: Some(evil()),
            since: moment(),
            open: Some(evil_link()),
            scopes: vec![ScopeLine {
                name: evil(),
                description: String::new(),
                group: ScopeGroup::Offline,
            }],
        }],
        languages: vec![(evil(), evil())],
        language: Some(evil()),
        self_service: SelfService {
            changes_email: true,
            claims: vec![(evil(), evil())],
            email: Some(evil()),
            exports: true,
            deletes: true,
        },
        security: hostile_security(),
        proof: ProofRequest {
            has_password: true,
            takes_code: true,
            passkey: Some(PasskeyProofRequest {
                rp_id: evil(),
                challenge: evil(),
                sealed: evil(),
                known: evil(),
            }),
        },
        added_factors: hostile_security().factors,
    }
}

/// A section with a hostile text in every field.
fn hostile_security() -> Security {
    let evil = || HOSTILE.to_owned();
    let moment = || Moment {
        rfc3339: evil(),
        seconds_ago: 0,
    };
    Security {
        factors: vec![FactorLine {
            id: evil(),
            kind: FactorLineKind::Totp,
            name: evil(),
            added_at: moment(),
            last_used_at: Some(moment()),
        }],
        passkeys: Some(PasskeySection {
            challenge: Some((evil(), evil())),
            rp_id: evil(),
            rp_name: evil(),
            user_id: evil(),
            user_name: evil(),
            display_name: evil(),
            algorithms: evil(),
            known: evil(),
            again: evil(),
        }),
        setup: None,
        is_required: false,
        new_codes: Vec::new(),
        href: evil(),
    }
}

/// A consent page with a hostile text in every field.
fn hostile_consent() -> Consent {
    let evil = || HOSTILE.to_owned();
    Consent {
        action: evil(),
        transaction: evil(),
        csrf: evil(),
        mark: Mark {
            name: evil(),
            logo: Some(evil()),
        },
        document_host: Some(evil()),
        redirect_target: RedirectTarget::Host(evil()),
        unverified_by: Some(evil()),
        pages: ApplicationPages {
            policy: Some(evil_link()),
            terms: Some(evil_link()),
        },
        user: evil_person(),
        other_user: evil(),
        is_repeated: true,
        scopes: vec![
            ScopeLine {
                name: evil(),
                description: String::new(),
                group: ScopeGroup::Api(evil()),
            },
            ScopeLine {
                name: evil(),
                description: evil(),
                group: ScopeGroup::Other,
            },
        ],
    }
}

/// The first page of the development server.
fn hostile_home() -> Home {
    let evil = || HOSTILE.to_owned();
    Home {
        device_href: evil(),
        mail_href: Some(evil()),
        sign_in_href: evil(),
        user: evil(),
        endpoints: vec![(evil(), evil())],
        commands: vec![(evil(), evil())],
    }
}

/// The pages about a device.
fn hostile_devices(theme: &Theme, locale: &Locale) -> [String; 2] {
    let evil = || HOSTILE.to_owned();
    let form = Device {
        action: evil(),
        csrf: evil(),
        user_code: evil(),
        problem: Some(DeviceProblem::Wrong),
        retry_after: None,
    };
    let consent = hostile_consent();
    let decision = DeviceDecision {
        action: evil(),
        transaction: evil(),
        csrf: evil(),
        mark: consent.mark,
        unverified_by: Some(evil()),
        pages: consent.pages,
        user: evil_person(),
        other_user: evil(),
        user_code: evil(),
        address: evil(),
        own_address: Some(evil()),
        asked_at: Moment {
            rfc3339: evil(),
            seconds_ago: 0,
        },
        scopes: consent.scopes,
        is_allowed: None,
    };
    [form.render(theme, locale), decision.render(theme, locale)]
}

#[test]
fn hostile_values_stay_text_on_every_page() {
    let evil = || HOSTILE.to_owned();
    let manifest = format!(
        "contract = 1\nproduct_name = {0}\n[[links]]\nhref = \"/\"\ntext = {0}\n[texts.en]\nsign_in = {0}",
        toml::Value::String(evil())
    );
    let source = themes::Source {
        name: "evil".to_owned(),
        files: [("theme.toml".to_owned(), manifest.into_bytes().into())].into(),
        languages: std::collections::BTreeMap::new(),
    };
    let theme = Theme::load(&source, "/id", Some(Arc::new(built_in(themes::DEFAULT)))).unwrap();
    let login = Login {
        takes_password: true,
        kept: vec![("problem", evil())],
        passkey: Some(PasskeyRequest {
            rp_id: evil(),
            challenge: evil(),
            sealed: evil(),
            again: evil(),
            known: evil(),
            makes_offer: true,
            unknown: Some(evil()),
            only_way: Some(evil()),
        }),
        providers: Vec::new(),
        action: evil(),
        transaction: evil(),
        csrf: evil(),
        username: evil(),
        problem: Some(LoginProblem::Credentials),
        retry_after: None,
        has_failed_often: true,
        issuer: evil(),
        client_name: evil(),
        mark: Some(Mark {
            name: evil(),
            logo: Some(evil()),
        }),
        recover: Some(evil()),
        sign_up: Some(evil()),
        by_mail: Some(evil()),
        continue_as: Some(evil_person()),
    };
    let claim = || DevClaim {
        name: evil(),
        value: evil(),
        time: Some(evil()),
    };
    let token = DevToken {
        title: evil(),
        variable: evil(),
        raw: evil(),
        header: vec![claim()],
        claims: vec![claim()],
    };
    for locale in theme.locales() {
        let drawn = [
            login.render(&theme, locale),
            hostile_consent().render(&theme, locale),
            LogoutConfirm {
                action: evil(),
                csrf: evil(),
                user: Some(evil_person()),
            }
            .render(&theme, locale),
            hostile_error().render(&theme, locale),
            hostile_logged_out().render(&theme, locale),
            FormPost {
                action: evil(),
                fields: vec![(evil(), evil())],
            }
            .render(&theme, locale),
            hostile_home().render(&theme, locale),
            hostile_mails().render(&theme, locale),
            DevTokens {
                tokens: vec![token.clone()],
                response: vec![claim()],
                commands: vec![(evil(), evil())],
                sign_out_href: evil(),
            }
            .render(&theme, locale),
        ];
        let account = AccountSection::ALL.map(|section| hostile_account(section).render(&theme, locale));
        let devices = hostile_devices(&theme, locale);
        for html in drawn.into_iter().chain(account).chain(devices) {
            assert!(!html.contains("<script>"), "{html}");
            let scripts = tags(&html)
                .iter()
                .filter(|tag| tag.name == "script" && !tag.closing)
                .count();
            assert!(scripts <= 1, "{html}");
        }
    }
}
