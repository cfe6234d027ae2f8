//! Rules for single pages.

use super::*;

#[test]
fn the_sign_in_page_has_the_elements_that_scripts_look_for() {
    everywhere(|page, _, _, html| {
        if page == Login::NAME && html.contains("type=\"password\"") {
            assert!(has(
                html,
                "input",
                &[
                    ("id", "username"),
                    ("name", "username"),
                    ("autocomplete", "username")
                ]
            ));
            assert!(has(html, "input", &[("id", "password"), ("type", "password")]));
            assert!(has(
                html,
                "input",
                &[
                    ("type", "hidden"),
                    ("name", "transaction"),
                    ("value", "4lQ0bI2xQ9mN")
                ]
            ));
            assert!(has(
                html,
                "input",
                &[("type", "hidden"), ("name", "csrf"), ("value", "b1x0Jm5vYQ")]
            ));
            assert!(!html.contains("readonly") && !html.contains("disabled"));
            assert_eq!(html.matches("type=\"submit\"").count(), 1);
        }
    });
    let html = render(&Login::sample());
    assert!(html.contains("<title>Sign in · idsvc</title>") && html.contains("<h1>Sign in</h1>"));
}

#[test]
fn a_failed_sign_in_is_announced_and_tied_to_its_fields() {
    for problem in LoginProblem::ALL {
        let page = Login {
            problem: Some(problem),
            username: "alice".to_owned(),
            ..Login::sample()
        };
        let html = render(&page);
        assert!(has(&html, "p", &[("id", "problem"), ("role", "alert")]));
        assert_eq!(html.matches("aria-describedby=\"problem\"").count(), 2);
        assert_eq!(
            html.contains("aria-invalid"),
            problem == LoginProblem::Credentials
        );
        assert!(has(&html, "input", &[("id", "username"), ("value", "alice")]));
        assert!(has(&html, "input", &[("id", "password"), ("autofocus", "")]));
    }
    let wrong = Login {
        problem: Some(LoginProblem::Credentials),
        ..Login::sample()
    };
    let html = render(&wrong);
    assert!(has(&html, "a", &[("href", "#password")]), "it leads to the field");
    let first = render(&Login::sample());
    assert!(!first.contains("role=\"alert\"") && !first.contains("aria-describedby"));
    assert!(has(&first, "input", &[("id", "username"), ("autofocus", "")]));
}

#[test]
fn a_present_session_can_be_continued_from_a_form_of_its_own() {
    let page = Login {
        continue_as: Some(Person::sample()),
        ..Login::sample()
    };
    let html = render(&page);
    assert_eq!(html.matches("<form class=\"stack\" method=\"post\"").count(), 2);
    assert_eq!(html.matches("name=\"csrf\"").count(), 2);
    assert!(has(
        &html,
        "button",
        &[("name", "decision"), ("value", "continue")]
    ));
    assert!(html.find("value=\"continue\"") < html.find("id=\"username\""));
    assert!(!html.contains("autofocus"));
}

#[test]
fn decisions_are_buttons_with_values() {
    let consent = render(&Consent::sample());
    for value in ["allow", "deny"] {
        assert!(has(
            &consent,
            "button",
            &[("type", "submit"), ("name", "decision"), ("value", value)]
        ));
    }
    assert!(
        consent.contains("See your email address") && consent.contains("Write and share notes in your name")
    );
    for page in LogoutConfirm::samples() {
        let html = render(&page);
        assert!(has(
            &html,
            "button",
            &[("type", "submit"), ("name", "decision"), ("value", "logout")]
        ));
    }
}

#[test]
fn a_form_post_sends_its_fields_and_nothing_else() {
    let html = render(&FormPost::sample());
    let form = &html[html.find("<form").unwrap()..html.find("</form>").unwrap()];
    assert_eq!(form.matches(" name=").count(), 3);
    assert_eq!(form.matches("type=\"hidden\"").count(), 3);
    assert!(form.ends_with("<button class=\"button\" type=\"submit\">Continue</button>"));
    assert!(has(
        &html,
        "form",
        &[("method", "post"), ("action", "https://app.example/cb")]
    ));
}

#[test]
fn the_words_that_the_certification_looks_for_are_there() {
    assert!(render(&ErrorPage::samples()[0]).contains("<h1>Request error</h1>"));
    for page in LoggedOut::samples() {
        assert!(render(&page).contains("<h1>You are signed out of "));
    }
}

/// The first way on of a page: the button that is not quiet.
fn best_way(html: &str) -> Option<String> {
    let tags = tags(html);
    let best = tags.iter().find(|tag| tag.attribute("class") == Some("button"))?;
    best.attribute("href").map(ToOwned::to_owned)
}

#[test]
fn each_error_page_has_a_way_on_and_only_developers_read_details() {
    for (kind, way) in [
        (ErrorKind::Request, "https://notes.example"),
        (ErrorKind::NotFound, "/account"),
        (ErrorKind::Busy, "/login?transaction=x"),
    ] {
        let page = ErrorPage {
            kind,
            details: None,
            application: (kind == ErrorKind::Request).then(ApplicationLink::sample),
            retry: (kind == ErrorKind::Busy).then(|| "/login?transaction=x".to_owned()),
            ..ErrorPage::samples().remove(0)
        };
        let html = render(&page);
        assert_eq!(best_way(&html).as_deref(), Some(way));
        assert!(has(&html, "a", &[("href", "mailto:help@example.com")]));
        assert!(!html.contains("<details"));
        let developers = ErrorPage {
            details: Some("a sentence".to_owned()),
            ..page
        };
        let html = render(&developers);
        assert!(html.contains("<details>") && html.contains("a sentence"));
    }
}

#[test]
fn the_signed_out_page_leads_back() {
    let [known, unknown] = <[_; 2]>::try_from(LoggedOut::samples()).unwrap();
    assert_eq!(
        best_way(&render(&known)).as_deref(),
        Some("https://notes.example")
    );
    assert_eq!(best_way(&render(&unknown)).as_deref(), Some("/account"));
}

#[test]
fn a_password_that_was_refused_is_announced_at_its_field() {
    for (notice, field) in [
        (AccountNotice::WrongPassword, "current-password"),
        (AccountNotice::TooShort, "new-password"),
        (AccountNotice::TooLong, "new-password"),
        (AccountNotice::Guessable, "new-password"),
        (AccountNotice::SamePassword, "new-password"),
    ] {
        let page = Account {
            notice: Some(notice),
            ..Account::sample(AccountSection::Password)
        };
        let html = render(&page);
        assert!(has(&html, "p", &[("id", "notice"), ("role", "alert")]));
        assert!(has(&html, "a", &[("href", &format!("#{field}"))]));
        assert!(has(
            &html,
            "input",
            &[("id", field), ("aria-invalid", "true"), ("autofocus", "")]
        ));
        assert_eq!(html.matches("aria-invalid").count(), 1);
    }
}

#[test]
fn password_managers_find_their_way_on_the_account_page() {
    let html = render(&Account::sample(AccountSection::Password));
    for (name, autocomplete) in [
        ("username", "username"),
        ("current-password", "current-password"),
        ("new-password", "new-password"),
    ] {
        assert!(has(
            &html,
            "input",
            &[("name", name), ("autocomplete", autocomplete)]
        ));
    }
    for section in AccountSection::ALL {
        let html = render(&Account::bare_sample(section));
        assert!(!html.contains("type=\"password\"") && !html.contains("href=\"/account/password"));
    }
}

#[test]
fn each_section_of_the_account_has_its_own_address_and_leads_to_the_others() {
    for section in AccountSection::ALL {
        let html = render(&Account::sample(section));
        let tags = tags(&html);
        let current: Vec<_> = tags
            .iter()
            .filter(|tag| tag.attribute("aria-current") == Some("page"))
            .filter_map(|tag| tag.attribute("href"))
            .collect();
        let own = format!("/account/{}", section.name());
        assert_eq!(current, [own.as_str()]);
        for other in AccountSection::ALL {
            assert!(has(
                &html,
                "a",
                &[("href", &format!("/account/{}", other.name()))]
            ));
        }
        for form in tags.iter().filter(|tag| tag.name == "form" && !tag.closing) {
            assert_eq!(form.attribute("action"), Some(own.as_str()));
        }
    }
}

#[test]
fn each_token_is_there_once_with_a_button_that_copies_it() {
    let page = DevTokens::sample();
    let html = render(&page);
    for token in &page.tokens {
        assert_eq!(html.matches(&token.raw).count(), 1, "{}", token.title);
        assert!(has(&html, "code", &[("id", token.variable.as_str())]));
        assert!(has(
            &html,
            "button",
            &[("data-copy", token.variable.as_str()), ("hidden", "")]
        ));
    }
}
