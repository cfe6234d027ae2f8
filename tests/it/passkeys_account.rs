//! Passkeys on the account page: a signed-in person adds, names and removes them.

use std::sync::atomic::{AtomicU8, Ordering};

use idsvc::identity::FactorKind;
use idsvc::pages::text::EN;
use serde_json::{Value, json};

use crate::harness::authenticator::{BE, BS, Passkey, UP, UV, encode};
use crate::harness::html::Form;
use crate::harness::{Audit, Browser, Person, Screen, Server, scene};
use crate::passkeys::{data, store};
use crate::second_factor_passkey::touch;

const SECURITY: &str = "/account/security";

async fn at_security(browser: &Browser) -> Screen {
    let mut page = browser.visit(SECURITY).await;
    if page.page() == "/login" {
        page = page.sign_in().await;
    }
    assert_eq!((page.status, page.page()), (200, SECURITY), "{}", page.text());
    page
}

fn form(page: &Screen, decision: &str) -> Form {
    page.account_form(decision)
}

fn new_passkey(person: &Person) -> Passkey {
    Passkey::new(person.user.uuid.as_bytes())
}

async fn send(page: &Screen, response: &Value) -> Screen {
    let form = form(page, "passkey").with("passkey", &response.to_string());
    page.browser().submit(&form).await
}

async fn add(page: &Screen, passkey: &Passkey) -> Screen {
    send(page, &passkey.create(&data(page, "challenge").unwrap())).await
}

#[tokio::test]
async fn a_person_adds_names_uses_and_removes_a_passkey() {
    let (server, acme, alice) = scene().await;
    let passkey = new_passkey(&alice);
    let audit = Audit::listen();
    let page = at_security(&alice.browser()).await;
    assert_eq!(data(&page, "rp-id").as_deref(), Some("id.example.test"));
    assert_eq!(data(&page, "algorithms").as_deref(), Some("-7 -8 -257"));
    let page = add(&page, &passkey).await;
    assert!(page.text().contains(EN.passkey_added), "{}", page.text());
    let events = audit.take(&["factor_added"]);
    assert_eq!(events[0]["factor"], "passkey");
    let (id, factor) = server.factors_of(&alice).pop().unwrap();
    let FactorKind::Passkey(kept) = factor.kind else {
        panic!()
    };
    assert_eq!(kept.credential_id, passkey.id);
    assert_eq!(kept.public_key, passkey.public_key());
    assert_eq!(kept.transports, ["internal", "hybrid"]);
    assert!(kept.backup_eligible && kept.backed_up && kept.aaguid.is_none());
    let known = crate::harness::authenticator::encode(&passkey.id);
    assert_eq!(data(&page, "known"), Some(known), "it is excluded the next time");

    let naming = form(&page, "factor-name")
        .with("factor", &id.to_string())
        .with("name", "  Telephone\n ");
    let page = page.browser().submit(&naming).await;
    assert!(page.text().contains("Telephone"));
    assert_eq!(server.factors_of(&alice)[0].1.name, "Telephone");

    let login = server.browser().authorize(&acme.request()).await;
    let mut forms = login.forms().into_iter();
    let sign_in = forms.find(|form| form.value("passkey").is_some()).unwrap();
    let response = passkey.get(&data(&login, "challenge").unwrap());
    let sign_in = sign_in.with("passkey", &response.to_string());
    login.browser().submit(&sign_in).await.callback().code();

    let removal = form(&page, "factors").with("factor", &id.to_string());
    let page = page.browser().submit(&removal).await;
    assert!(page.text().contains(EN.security_removed));
    assert!(server.factors_of(&alice).is_empty());
    assert_eq!(audit.take(&["factor_removed"]).len(), 1);
}

#[tokio::test]
async fn a_passkey_is_added_once_and_only_as_it_was_asked_for() {
    let (server, _, alice) = scene().await;
    let browser = alice.browser();
    let page = at_security(&browser).await;
    let refused = async |change: fn(&mut Passkey)| {
        let page = at_security(&browser).await;
        let mut passkey = new_passkey(&alice);
        change(&mut passkey);
        let audit = Audit::listen();
        let answer = add(&page, &passkey).await;
        assert!(
            answer.text().contains(EN.problem_passkey_add),
            "{}",
            answer.text()
        );
        let refusal = audit.refusals().pop().unwrap();
        refusal["description"].as_str().unwrap().to_owned()
    };
    let not_verified = refused(|passkey| passkey.flags.set(UP | BE | BS)).await;
    assert_eq!(not_verified, "user was not verified");
    let not_present = refused(|passkey| passkey.flags.set(UV)).await;
    assert_eq!(not_present, "user was not present");
    let foreign = refused(|passkey| passkey.rp_id = "evil.example".to_owned()).await;
    assert_eq!(foreign, "authenticator data is for another relying party");
    let elsewhere = refused(|passkey| passkey.origin = "https://evil.example".to_owned()).await;
    assert_eq!(elsewhere, "origin is not one of this service");
    let of_sign_in = refused(|passkey| passkey.client_data = json!({ "type": "webauthn.get" })).await;
    assert_eq!(of_sign_in, "client data is of another ceremony");
    assert!(server.factors_of(&alice).is_empty());

    let passkey = new_passkey(&alice);
    let response = passkey.create(&data(&page, "challenge").unwrap());
    let (one, other) = tokio::join!(send(&page, &response), send(&page, &response));
    let added = [&one, &other]
        .into_iter()
        .filter(|page| page.text().contains(EN.passkey_added));
    assert_eq!(added.count(), 1);
    let again = add(&at_security(&browser).await, &passkey).await;
    assert!(
        again.text().contains(EN.problem_passkey_add),
        "the same passkey twice"
    );
    assert_eq!(server.factors_of(&alice).len(), 1);
}

/// Whether a new person can add a passkey with this attestation object. Its members are sorted by name, as some
/// programs write them.
async fn takes(server: &Server, format: &[u8], statement: &[u8], change: fn(&mut Vec<u8>)) -> bool {
    let count = AtomicU8::fetch_add(&NAMES, 1, Ordering::Relaxed);
    let person = server.user(&format!("person{count}")).await;
    let page = at_security(&person.browser()).await;
    let passkey = new_passkey(&person);
    let mut attested = passkey.attested();
    change(&mut attested);
    let length = [u8::try_from(attested.len()).unwrap()];
    let members: [&[u8]; 7] = [
        b"\xa3\x67attStmt",
        statement,
        b"\x68authData\x58",
        &length,
        &attested,
        b"\x63fmt",
        format,
    ];
    let mut response = passkey.create(&data(&page, "challenge").unwrap());
    response["response"]["attestationObject"] = encode(&members.concat()).into();
    let answer = send(&page, &response).await;
    answer.text().contains(EN.passkey_added)
}

static NAMES: AtomicU8 = AtomicU8::new(0);

#[tokio::test]
async fn the_order_of_an_attestation_and_a_statement_that_nobody_asked_for_do_not_matter() {
    let (server, ..) = scene().await;
    let unchanged = |_: &mut Vec<u8>| {};
    let statements: [[&[u8]; 2]; 4] = [
        [b"\x64none", b"\xa0"],
        [b"\x68fido-u2f", b"\xa2\x63sig\x41\x01\x63x5c\x81\x41\x02"],
        [b"\x65apple", b"\xa1\x63x5c\x82\x41\x01\x41\x02"],
        [
            b"\x66packed",
            b"\xa3\x63x5c\x81\x41\x01\x63sig\x41\x02\x63alg\x26",
        ],
    ];
    for [format, statement] in statements {
        assert!(
            takes(&server, format, statement, unchanged).await,
            "{}",
            format.escape_ascii()
        );
    }
    let [[none, empty], ..] = statements;
    let foreign = takes(&server, none, empty, |data| data[0] ^= 1).await;
    assert!(!foreign, "the data of another service");
    let longer = takes(&server, none, empty, |data| data.push(0)).await;
    assert!(!longer, "data with bytes behind the key");
    let self_signed = b"\xa2\x63alg\x26\x63sig\x41\x01";
    let unsigned = takes(&server, b"\x66packed", self_signed, unchanged).await;
    assert!(!unsigned, "a wrong signature by the key itself");
}

/// Each sign-in verifies a signature with the key, and a stranger chooses it.
#[tokio::test]
async fn a_new_passkey_with_a_costly_rsa_key_is_refused() {
    let (server, ..) = scene().await;
    for (bytes, exponent, is_taken) in [
        (512_u16, b"\x43\x01\x00\x01".as_slice(), true),
        (513, b"\x43\x01\x00\x01", false),
        (1024, b"\x43\x01\x00\x01", false),
        (256, b"\x41\x03", false),
    ] {
        let person = server.user(&format!("rsa{bytes}")).await;
        let page = at_security(&person.browser()).await;
        let passkey = new_passkey(&person);
        let without_key = passkey.attested().len() - passkey.public_key().len();
        let modulus = [&[0xd3], &*vec![0x91; usize::from(bytes) - 1]].concat();
        let attested = [
            &passkey.attested()[..without_key],
            b"\xa4\x01\x03\x03\x39\x01\x00\x20\x59",
            &bytes.to_be_bytes(),
            &modulus,
            b"\x21",
            exponent,
        ]
        .concat();
        let object = [
            b"\xa3\x63fmt\x64none\x67attStmt\xa0\x68authData\x59".as_slice(),
            &u16::try_from(attested.len()).unwrap().to_be_bytes(),
            &attested,
        ]
        .concat();
        let mut response = passkey.create(&data(&page, "challenge").unwrap());
        response["response"]["attestationObject"] = encode(&object).into();
        let answer = send(&page, &response).await;
        assert_eq!(answer.text().contains(EN.passkey_added), is_taken, "{bytes}");
    }
}

#[tokio::test]
async fn a_challenge_of_another_session_or_of_a_sign_in_adds_nothing() {
    let (server, acme, alice) = scene().await;
    let bob = server.user("bob").await;
    let (own, foreign) = (
        at_security(&alice.browser()).await,
        at_security(&bob.browser()).await,
    );
    let login = server.browser().authorize(&acme.request()).await;
    for page in [&foreign, &login] {
        let mut forms = page.forms().into_iter();
        let sealed = forms
            .find_map(|form| form.value("challenge").map(ToOwned::to_owned))
            .unwrap();
        let response = new_passkey(&alice).create(&data(page, "challenge").unwrap());
        let form = form(&own, "passkey")
            .with("passkey", &response.to_string())
            .with("challenge", &sealed);
        let answer = own.browser().submit(&form).await;
        assert_eq!(answer.status, 400);
    }
    assert!(server.factors_of(&alice).is_empty() && server.factors_of(&bob).is_empty());
}

#[tokio::test]
async fn passkeys_change_only_after_a_recent_sign_in_with_all_factors() {
    let (server, _, alice) = scene().await;
    let browser = alice.browser();
    let page = at_security(&browser).await;
    let passkey = new_passkey(&alice);
    add(&page, &passkey).await;
    let page = at_security(&browser).await;
    let (id, _) = server.factors_of(&alice).pop().unwrap();
    let removal = form(&page, "factors").with("factor", &id.to_string());

    server.advance(11 * 60);
    let stale = at_security(&browser).await;
    assert!(
        data(&stale, "challenge").is_none(),
        "no challenge without a recent sign-in"
    );
    for form in [form(&stale, "passkey"), removal.clone()] {
        let asked = browser.submit(&form).await;
        assert_eq!(asked.page(), "/login", "{}", asked.text());
    }
    assert_eq!(server.factors_of(&alice).len(), 1);

    // The password alone is not enough, in this browser or in that of a thief: the passkey answers the second step.
    let asked = browser.submit(&removal).await.sign_in().await;
    assert_eq!(asked.page(), "/second-factor", "{}", asked.text());
    let fresh = touch(&asked, &passkey).await;
    assert_eq!(fresh.page(), SECURITY);
    let thief = alice.browser();
    let page = at_security(&thief).await;
    assert!(data(&page, "challenge").is_none());
    for form in [
        form(&page, "totp"),
        form(&page, "passkey"),
        form(&page, "factors"),
    ] {
        let form = form.with("factor", &id.to_string());
        assert_eq!(thief.submit(&form).await.page(), "/login");
    }
    assert_eq!(server.factors_of(&alice).len(), 1);

    let removal = form(&fresh, "factors").with("factor", &id.to_string());
    let removed = browser.submit(&removal).await;
    assert!(removed.text().contains(EN.security_removed), "{}", removed.text());
}

#[tokio::test]
async fn another_users_passkey_is_neither_named_nor_removed() {
    let (server, _, alice) = scene().await;
    let bob = server.user("bob").await;
    add(&at_security(&bob.browser()).await, &new_passkey(&bob)).await;
    let (id, _) = server.factors_of(&bob).pop().unwrap();
    let browser = alice.browser();
    add(&at_security(&browser).await, &new_passkey(&alice)).await;
    let page = at_security(&browser).await;
    let removal = form(&page, "factors").with("factor", &id.to_string());
    browser.submit(&removal).await;
    let naming = form(&page, "factor-name")
        .with("factor", &id.to_string())
        .with("name", "mine");
    browser.submit(&naming).await;
    let kept = server.factors_of(&bob);
    assert_eq!((kept.len(), kept[0].1.name.as_str()), (1, ""));
    assert_eq!(server.factors_of(&alice).len(), 1);
}

/// A sign-in without a user handle tries so many.
#[tokio::test]
async fn no_more_than_eight_people_add_a_passkey_with_one_credential_id() {
    let (server, _, alice) = scene().await;
    let mut passkey = new_passkey(&alice);
    for number in 1..=8 {
        let person = server.user(&format!("person{number}")).await;
        store(&server, &person, &passkey).await;
        let mut copy = Passkey::new(&[]);
        copy.id.clone_from(&passkey.id);
        passkey = copy;
    }
    let page = add(&at_security(&alice.browser()).await, &passkey).await;
    assert!(page.text().contains(EN.problem_passkey_add), "{}", page.text());
    assert!(server.factors_of(&alice).is_empty());
    let page = add(&page, &new_passkey(&alice)).await;
    assert!(page.text().contains(EN.passkey_added), "{}", page.text());
}
