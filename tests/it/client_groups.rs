//! A client for some groups: nobody else gets a token of it, by any grant.

use idsvc::admin::client::UpdateClient;
use idsvc::admin::group::{AddGroup, RemoveGroup};
use idsvc::admin::provider::ProviderFields;
use idsvc::admin::user::{UpdateUser, UserFields};
use idsvc::admin::{AdminError, AdminRefusal};
use idsvc::flow::token::token_exchange::SUBJECT_REFUSED;
use idsvc::identity::SignUp;
use idsvc::jose::jwt;
use idsvc::oauth::client::{
    Client, ConsentRequirement, GrantType, GroupsClaim, PkceRequirement, StoredApiKey,
};
use idsvc::oauth::group::GroupFields;
use idsvc::oauth::list_edits::ListEdits;
use idsvc::oauth::token_exchange::ACCESS_TOKEN;
use idsvc::oauth::{ClientFields, FaultCode};
use idsvc::pages::locale::built_in_text;
use idsvc::pages::text::EN;
use idsvc::random::Random;
use idsvc::secret::{ApiKey, Secret};
use idsvc::store::Store;
use serde_json::{Value, json};

use crate::account_links::{choose, enter_code, request_mail};
use crate::harness::registration::open;
use crate::harness::reply::{line_of, text};
use crate::harness::server::{CONTACT, Setup};
use crate::harness::wire::Call;
use crate::harness::{
    Audit, AuthorizationRequest, ISSUER, Person, RelyingParty, Reply, START, Screen, Server, Upstream,
};

const REFUSED: &str = "400 invalid_grant: the user is in no group that may use this client";
const DENIED: &str = "access_denied: the user is in no group that may use this client";
const ID_TOKEN: &str = "urn:ietf:params:oauth:token-type:id_token";
/// The audience of the provider's tokens that are exchanged.
const APP: &str = "https://app.example";

async fn add_group(server: &Server, name: &str) {
    let request = AddGroup {
        name: name.to_owned(),
        fields: GroupFields::default(),
    };
    server.admin().call(request).await.unwrap();
}

/// Puts a user into these groups, and out of all others.
async fn put_into(server: &Server, who: &str, groups: &[&str]) {
    let request = UpdateUser {
        who: who.to_owned(),
        email: None,
        account_id: None,
        reset_failed_passwords: false,
        keep_factors: false,
        fields: UserFields {
            groups: Some(groups.iter().map(|&name| name.to_owned()).collect()),
            ..UserFields::default()
        },
    };
    server.admin().call(request).await.unwrap();
}

/// Lets only the users of these groups use the client.
async fn allow(server: &Server, client_id: &str, groups: &[&str]) {
    change(server, client_id, named(groups)).await.unwrap();
}

fn named(groups: &[&str]) -> ClientFields {
    ClientFields {
        allowed_groups: Some(groups.iter().map(|&name| name.to_owned()).collect()),
        ..ClientFields::default()
    }
}

async fn change(server: &Server, client_id: &str, fields: ClientFields) -> Result<Value, AdminRefusal> {
    let request = UpdateClient {
        client_id: client_id.to_owned(),
        no_secret: false,
        fields,
    };
    match server.admin().call(request).await {
        Ok(view) => Ok(serde_json::to_value(view).unwrap()),
        Err(AdminError::Refused(refusal)) => Err(refusal),
        Err(error) => panic!("{error}"),
    }
}

/// The client `payroll` for the group `staff`, with every grant but the anonymous one, and `web` for everybody. Alice and
/// Bob are in the group. So are the accounts of the provider `up` with the subjects `alice` and `bob`, once they exist.
struct Scene {
    server: Server,
    upstream: Upstream,
    payroll: RelyingParty,
    web: RelyingParty,
    people: [Subject; 2],
    api_key: Secret<ApiKey>,
}

/// A person with a password here and an account at the provider.
struct Subject {
    name: &'static str,
    person: Person,
    /// The user with the account at the provider.
    federated: String,
}

impl Scene {
    async fn new() -> Self {
        Self::on(None).await
    }

    async fn on(store: Option<Store>) -> Self {
        let upstream = Upstream::start().await;
        let mut setup = Setup {
            outbound: upstream.terms(),
            store,
            ..Setup::default()
        };
        setup.limits.enabled = false;
        let server = setup.start().await;
        for name in ["staff", "guests"] {
            add_group(&server, name).await;
        }
        let fields = ProviderFields {
            issuer: Some(upstream.issuer.clone()),
            audiences: Some(vec![APP.to_owned()]),
            exchange: Some(true),
            id_jag: Some(true),
            create_users: Some(true),
            ..ProviderFields::default()
        };
        server.provider("up", fields).await;
        let id = Random::system().uuid_v4();
        let api_key = Secret::<ApiKey>::generate(id.as_bytes(), &Random::system());
        let stored = StoredApiKey {
            id,
            digest: api_key.digest(),
            created_at: START,
        };
        let with_all = |client: &mut Client| {
            client.client_name = Some("Payroll".to_owned());
            client.grant_types = GrantType::ALL.into();
            client.grant_types.remove(&GrantType::Anonymous);
            client.scope = client.scope.clone().with("groups");
            client.max_scope = Some("notes.read".parse().unwrap());
            client.providers.insert("up".to_owned());
            client.api_keys.push(stored);
        };
        let payroll = server.client_with("payroll", with_all).await;
        let web = server
            .client_with("web", |client| {
                client.grant_types.insert(GrantType::JwtBearer);
                client.providers.insert("up".to_owned());
            })
            .await;
        let mut people = Vec::new();
        for name in ["alice", "bob"] {
            let person = server.user(name).await;
            put_into(&server, &person.sub(), &["staff"]).await;
            let claims = upstream.claims(APP, name);
            let tokens = exchange_at(&web, "jwt-bearer", &upstream.sign(&claims))
                .await
                .tokens();
            let federated = text(&tokens.0["uuid"]).to_owned();
            put_into(&server, &federated, &["staff"]).await;
            people.push(Subject {
                name,
                person,
                federated,
            });
        }
        allow(&server, "payroll", &["staff"]).await;
        Self {
            server,
            upstream,
            payroll,
            web,
            people: people.try_into().ok().unwrap(),
            api_key,
        }
    }

    /// Takes Alice out of all groups, by both of her accounts.
    async fn take_out_alice(&self) {
        let [alice, _] = &self.people;
        for who in [&alice.person.sub(), &alice.federated] {
            put_into(&self.server, who, &["guests"]).await;
        }
    }

    /// The page that a person sees who goes to Payroll.
    async fn page(&self, person: &Person) -> Screen {
        let login = person.browser().authorize(&self.payroll.request()).await;
        login.sign_in().await
    }

    /// Another token of the provider for this person.
    fn provider_token(&self, subject: &Subject, typ: Option<&str>) -> String {
        let audience = if typ.is_some() { ISSUER } else { APP };
        let mut claims = self.upstream.claims(audience, subject.name);
        claims["jti"] = json!(Random::system().uuid_v4());
        let Some(typ) = typ else {
            return self.upstream.sign(&claims);
        };
        claims["client_id"] = json!("payroll");
        jwt::sign(self.upstream.key(), typ, &claims).unwrap()
    }
}

fn exchange_at(client: &RelyingParty, grant: &str, assertion: &str) -> Call {
    client
        .post("/oauth2/token")
        .with("grant_type", &format!("urn:ietf:params:oauth:grant-type:{grant}"))
        .with("assertion", assertion)
}

/// The ways to a token for a user.
#[derive(Clone, Copy, Debug)]
enum Way {
    Code,
    PushedRequest,
    GivenConsent,
    Device,
    Refresh,
    RefreshByApiKey,
    JwtBearer,
    IdJag,
    ExchangeOfAccessToken,
    ExchangeOfIdToken,
}

impl Way {
    const ALL: [Self; 10] = [
        Self::Code,
        Self::PushedRequest,
        Self::GivenConsent,
        Self::Device,
        Self::Refresh,
        Self::RefreshByApiKey,
        Self::JwtBearer,
        Self::IdJag,
        Self::ExchangeOfAccessToken,
        Self::ExchangeOfIdToken,
    ];

    /// Goes as far as the request for the token, while the person may use the client.
    async fn prepare(self, scene: &Scene, subject: &Subject) -> Call {
        let (payroll, browser) = (&scene.payroll, subject.person.browser());
        match self {
            Self::Code | Self::GivenConsent => payroll.redeem(&payroll.code(&browser).await),
            Self::PushedRequest => {
                let parameters = payroll.request().without("client_id").parameters;
                let pushed = payroll.post("/oauth2/par").fields(&parameters).await.json();
                let request = AuthorizationRequest::default()
                    .with("client_id", "payroll")
                    .with("request_uri", text(&pushed["request_uri"]));
                let code = browser.authorize(&request).await.through().await.code();
                payroll.redeem(&code)
            }
            Self::Device => {
                let codes = payroll.post("/oauth2/device_authorization").await.json();
                let user_code = text(&codes["user_code"]);
                let page = type_code(&browser, user_code).await.sign_in().await;
                assert_eq!(page.decide("allow").await.heading(), EN.device_allowed_title);
                payroll
                    .post("/oauth2/token")
                    .with("grant_type", "urn:ietf:params:oauth:grant-type:device_code")
                    .with("device_code", text(&codes["device_code"]))
            }
            Self::Refresh => payroll.refresh(payroll.tokens(&browser).await.refresh_token()),
            Self::RefreshByApiKey => scene
                .server
                .post("/v4/tokens")
                .basic("", scene.api_key.reveal())
                .with("grant_type", "refresh_token")
                .with("refresh_token", payroll.tokens(&browser).await.refresh_token()),
            Self::JwtBearer => exchange_at(payroll, "jwt-bearer", &scene.provider_token(subject, None)),
            Self::IdJag => {
                let assertion = scene.provider_token(subject, Some("oauth-id-jag+jwt"));
                exchange_at(payroll, "jwt-bearer", &assertion)
            }
            Self::ExchangeOfAccessToken => {
                let tokens = scene.web.tokens(&browser).await;
                exchange_of(payroll, tokens.access_token(), ACCESS_TOKEN)
            }
            Self::ExchangeOfIdToken => exchange_of(payroll, &scene.provider_token(subject, None), ID_TOKEN),
        }
    }
}

fn exchange_of(client: &RelyingParty, token: &str, token_type: &str) -> Call {
    client
        .post("/oauth2/token")
        .with("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange")
        .with("subject_token", token)
        .with("subject_token_type", token_type)
}

/// The page after the code of a device was typed.
async fn type_code(browser: &crate::harness::Browser, user_code: &str) -> Screen {
    let page = browser.visit("/device").await;
    let mut forms = page.forms().into_iter();
    let form = forms.find(|form| form.value("user_code").is_some()).unwrap();
    browser.submit(&form.with("user_code", user_code)).await
}

/// Alice and Bob go every way as far as the last request. Then Alice is taken out of the group.
async fn nobody_else_gets_a_token(scene: &Scene) {
    for way in Way::ALL {
        let consent = match way {
            Way::GivenConsent => ConsentRequirement::Require,
            _ => ConsentRequirement::Skip,
        };
        scene
            .server
            .change_client(&scene.payroll, |client| client.consent = consent)
            .await;
        let [alice, bob] = &scene.people;
        let of_alice = way.prepare(scene, alice).await;
        let of_bob = way.prepare(scene, bob).await;
        scene.take_out_alice().await;
        let audit = Audit::listen();
        let refused: Reply = of_alice.await;
        assert_eq!(refused.refusal(), REFUSED, "{way:?}");
        let events = audit.take(&["access_refused"]);
        let [event] = &events[..] else {
            panic!("{way:?}: {events:?}")
        };
        let user = [&alice.person.sub(), &alice.federated].map(|sub| json!(sub));
        assert!(user.contains(&event["user"]), "{way:?}: {event}");
        assert_eq!(
            (&event["client_id"], &event["reason"]),
            (&json!("payroll"), &json!("not_in_group")),
            "{way:?}"
        );
        let tokens = of_bob.await.tokens();
        assert_eq!(tokens.access().claims["client_id"], "payroll", "{way:?}");
        for who in [&alice.person.sub(), &alice.federated] {
            put_into(&scene.server, who, &["staff"]).await;
        }
    }
    let own = scene
        .payroll
        .post("/oauth2/token")
        .with("grant_type", "client_credentials")
        .with("scope", "notes.read");
    own.await.tokens();
}

#[tokio::test]
async fn a_person_in_no_group_of_the_client_gets_no_token_by_any_grant() {
    Box::pin(nobody_else_gets_a_token(&Scene::new().await)).await;
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_person_in_no_group_of_the_client_gets_no_token_by_any_grant_on_postgresql() {
    let scene = Scene::on(Some(crate::harness::shared_store::store())).await;
    Box::pin(nobody_else_gets_a_token(&scene)).await;
}

#[tokio::test]
async fn a_page_names_the_application_and_whom_to_ask() {
    let scene = Scene::new().await;
    let [alice, bob] = &scene.people;
    scene.take_out_alice().await;
    let audit = Audit::listen();
    let page = scene.page(&alice.person).await;
    assert_eq!((page.status, page.page()), (403, "/login"));
    assert_eq!(page.heading(), EN.no_access_title.replace("{}", "Payroll"));
    assert!(page.text().contains(EN.no_access_advice));
    assert!(page.text().contains(CONTACT), "{}", page.text());
    assert!(page.text().contains("alice@example.com"));
    let events = audit.take(&["access_refused", "signed_in"]);
    let names: Vec<_> = events.iter().map(|event| text(&event["event"])).collect();
    assert_eq!(names, ["signed_in", "access_refused"]);
    assert_eq!(events[1]["reason"], "not_in_group");

    for tag in ["ar", "de", "es", "fr", "ja"] {
        let page = page
            .browser()
            .visit(&format!("{}&ui_locales={tag}", page.path))
            .await;
        let heading = built_in_text(tag).unwrap().no_access_title;
        assert_eq!(
            (page.status, page.heading()),
            (403, heading.replace("{}", "Payroll"))
        );
    }
    // The browser is signed in, so that the page comes at once.
    let again = page.browser().authorize(&scene.payroll.request()).await;
    assert_eq!((again.status, again.page()), (403, "/login"));

    let other = again
        .browser()
        .visit(&format!("{}&other_user=1", again.path))
        .await;
    let callback = other
        .type_in("bob@example.com", &bob.person.password)
        .await
        .callback();
    let tokens = scene.payroll.redeem(&callback.code()).await.tokens();
    assert_eq!(tokens.id().claims["sub"], bob.person.sub());
}

/// OpenID Connect Core 3.1.2.6. The second client is a native one, which gets no code without a person in any case.
#[tokio::test]
async fn a_client_that_asks_without_pages_is_told() {
    let scene = Scene::new().await;
    let [alice, bob] = &scene.people;
    let phone = scene.server.public_client("phone").await;
    scene
        .server
        .change_client(&phone, |client| {
            client.pkce = PkceRequirement::Required;
            client.redirect_uris.push("com.example.phone:/cb".to_owned());
        })
        .await;
    allow(&scene.server, "phone", &["staff"]).await;
    let native = phone.request().with("redirect_uri", "com.example.phone:/cb");
    let hint = scene.web.tokens(&alice.person.browser()).await;
    scene.take_out_alice().await;
    let browser = alice.person.browser();
    scene.web.code(&browser).await;
    for request in [
        scene.payroll.request(),
        scene.payroll.request().with("id_token_hint", hint.id_token()),
        native.clone(),
    ] {
        let audit = Audit::listen();
        let silent = browser.authorize(&request.with("prompt", "none")).await;
        assert_eq!(silent.callback().refusal(), DENIED);
        let events = audit.take(&["access_refused"]);
        assert_eq!(
            (events.len(), &events[0]["user"]),
            (1, &json!(alice.person.sub()))
        );
    }
    let other = bob.person.browser();
    scene.web.code(&other).await;
    let silent = |request: AuthorizationRequest| request.with("prompt", "none");
    other
        .authorize(&silent(scene.payroll.request()))
        .await
        .callback()
        .code();
    let refused = other.authorize(&silent(native)).await.callback();
    assert_eq!(refused.error(), "interaction_required");
    // Nobody is signed in, so that there is nobody to refuse.
    let nobody = scene.server.browser();
    let refused = nobody
        .authorize(&silent(scene.payroll.request()))
        .await
        .callback();
    assert_eq!(refused.error(), "login_required");
}

#[tokio::test]
async fn a_device_is_for_the_same_people() {
    let scene = Scene::new().await;
    let [alice, bob] = &scene.people;
    scene.take_out_alice().await;
    let codes = scene.payroll.post("/oauth2/device_authorization").await.json();
    let user_code = text(&codes["user_code"]);
    let browser = alice.person.browser();
    let page = type_code(&browser, user_code).await.sign_in().await;
    assert_eq!(
        (page.status, page.heading()),
        (403, EN.no_access_title.replace("{}", "Payroll"))
    );
    let again = type_code(&browser, user_code).await;
    assert_eq!((again.status, again.page()), (403, "/login"));
    let page = type_code(&bob.person.browser(), user_code).await.sign_in().await;
    assert_eq!(page.heading(), EN.device_decision_title);
    // Bob is taken out while the page is open.
    put_into(&scene.server, &bob.person.sub(), &[]).await;
    let page = page.decide("allow").await;
    assert_eq!((page.status, page.page()), (403, "/login"));
}

/// The consent page is open when the person is taken out of the group.
#[tokio::test]
async fn a_page_that_is_open_already_lets_nobody_in() {
    let scene = Scene::new().await;
    let [alice, _] = &scene.people;
    scene
        .server
        .change_client(&scene.payroll, |client| {
            client.consent = ConsentRequirement::Require;
        })
        .await;
    let consent = scene.page(&alice.person).await;
    assert_eq!(consent.page(), "/consent");
    scene.take_out_alice().await;
    let page = consent.allow().await;
    assert_eq!((page.status, page.page()), (403, "/login"));
    put_into(&scene.server, &alice.person.sub(), &["staff"]).await;
    // The consent was not given.
    let asked = page.browser().visit(&page.path).await;
    let callback = asked.allow().await.callback();
    scene.payroll.redeem(&callback.code()).await.tokens();
}

#[tokio::test]
async fn a_new_account_is_in_no_group_and_an_invited_one_may_be() {
    let server = Server::start_with(|policy| {
        policy.sends_mail = true;
        policy.accounts.sign_up = SignUp::Open;
    })
    .await;
    add_group(&server, "staff").await;
    let payroll = server.client("payroll").await;
    allow(&server, "payroll", &["staff"]).await;
    let login = server.browser().authorize(&payroll.request()).await;
    let sent = request_mail(&login, EN.create_account, "carol@example.com").await;
    let page = enter_code(&sent, &server.mail().await.code()).await;
    let page = choose(&page, "a password that is new").await;
    assert_eq!((page.status, page.page()), (403, "/login"));
    put_into(&server, "carol@example.com", &["staff"]).await;
    page.browser().visit(&page.path).await.callback().code();
}

/// The same rule as for disabled users: introspection and `UserInfo` tell at once.
#[tokio::test]
async fn a_person_who_is_taken_out_loses_living_tokens_and_the_next_refresh() {
    let scene = Scene::new().await;
    let [alice, bob] = &scene.people;
    let payroll = &scene.payroll;
    let of_alice = payroll.tokens(&alice.person.browser()).await;
    let of_bob = payroll.tokens(&bob.person.browser()).await;
    let exchanged = {
        let subject = scene.web.tokens(&alice.person.browser()).await;
        exchange_of(payroll, subject.access_token(), ACCESS_TOKEN)
            .await
            .tokens()
    };
    let is_active = async |token: &str| payroll.introspect(token).await.json()["active"] == true;
    let living = [
        of_alice.access_token(),
        of_alice.refresh_token(),
        exchanged.access_token(),
    ];
    for token in living {
        assert!(is_active(token).await);
    }
    scene.take_out_alice().await;
    for token in living {
        assert!(!is_active(token).await);
    }
    assert!(!payroll.is_welcome(&of_alice).await);
    assert_eq!(payroll.refresh(of_alice.refresh_token()).await.refusal(), REFUSED);
    let exchange = exchange_of(payroll, of_alice.access_token(), ACCESS_TOKEN);
    assert_eq!(exchange.await.refusal(), line_of(&SUBJECT_REFUSED));
    assert!(payroll.is_welcome(&of_bob).await);
    payroll.refresh(of_bob.refresh_token()).await.tokens();
    // A refusal uses up nothing.
    put_into(&scene.server, &alice.person.sub(), &["guests", "staff"]).await;
    payroll.refresh(of_alice.refresh_token()).await.tokens();
}

#[tokio::test]
async fn the_groups_of_a_client_count_from_the_next_request_on() {
    let scene = Scene::new().await;
    let [alice, _] = &scene.people;
    let refresh = async |tokens: &crate::harness::Tokens| scene.payroll.refresh(tokens.refresh_token()).await;
    let tokens = scene.payroll.tokens(&alice.person.browser()).await;
    allow(&scene.server, "payroll", &["guests"]).await;
    assert_eq!(refresh(&tokens).await.refusal(), REFUSED);
    allow(&scene.server, "payroll", &["", "guests", "staff"]).await;
    let tokens = refresh(&tokens).await.tokens();
    allow(&scene.server, "payroll", &["guests"]).await;
    assert_eq!(refresh(&tokens).await.refusal(), REFUSED);
    // An empty list is for everybody, and so is one of empty names.
    for everybody in [&[][..], &["", ""]] {
        allow(&scene.server, "payroll", &["guests"]).await;
        allow(&scene.server, "payroll", everybody).await;
        let tokens = scene.payroll.tokens(&alice.person.browser()).await;
        refresh(&tokens).await.tokens();
    }
}

#[tokio::test]
async fn a_group_is_found_by_every_form_of_its_name_and_stays_while_a_client_names_it() {
    let scene = Scene::new().await;
    let server = &scene.server;
    add_group(server, "Gru\u{308}n/Team").await;
    for form in [
        "Gru\u{308}n/Team",
        "gr\u{fc}n/team",
        "GR\u{dc}N/TEAM",
        "\u{ff27}r\u{fc}n/Team",
    ] {
        let shown = change(server, "payroll", named(&[form])).await.unwrap();
        assert_eq!(shown["allowed_groups"], json!(["Gru\u{308}n/Team"]), "{form}");
    }
    let edited = |add: Option<&str>, remove: Option<&str>| ClientFields {
        edits: Some(Box::new(ListEdits {
            add: add.map(|name| named(&[name])).unwrap_or_default(),
            remove: remove.map(|name| named(&[name])).unwrap_or_default(),
        })),
        ..ClientFields::default()
    };
    for (edits, left) in [
        (edited(Some("GUESTS"), Some("GR\u{dc}N/team")), "guests"),
        (edited(Some("gr\u{fc}n/TEAM"), Some("Guests")), "Gru\u{308}n/Team"),
        (edited(Some("GR\u{dc}N/team"), None), "Gru\u{308}n/Team"),
    ] {
        let shown = change(server, "payroll", edits).await.unwrap();
        assert_eq!(shown["allowed_groups"], json!([left]));
    }
    for unknown in ["grun/team", "Gru\u{308}n", "Gru\u{308}n/Team/x", " "] {
        let refused = change(server, "payroll", named(&[unknown])).await.unwrap_err();
        assert_eq!(refused.0[0].code, FaultCode::NotFound, "{unknown}");
    }
    let remove = async |name: &str| {
        let name = name.to_owned();
        server.admin().call(RemoveGroup { name }).await
    };
    let [alice, _] = &scene.people;
    put_into(server, &alice.person.sub(), &["gr\u{fc}n/TEAM"]).await;
    scene.payroll.tokens(&alice.person.browser()).await;
    for form in ["Gru\u{308}n/Team", "GR\u{dc}N/team"] {
        let refused = remove(form).await.unwrap_err().to_string();
        assert!(refused.contains("is named by client payroll"), "{refused}");
    }
    remove("staff").await.unwrap();
    allow(server, "payroll", &["guests"]).await;
    remove("gr\u{fc}n/team").await.unwrap();
    // A later group of the same name has other people.
    add_group(server, "Gru\u{308}n/Team").await;
    allow(server, "payroll", &["Gru\u{308}n/Team"]).await;
    assert_eq!(scene.page(&alice.person).await.status, 403);
}

#[tokio::test]
async fn anonymous_users_are_in_no_group() {
    let scene = Scene::new().await;
    let server = &scene.server;
    let anonymous = ClientFields {
        grant_types: Some(vec![GrantType::Anonymous, GrantType::RefreshToken]),
        redirect_uris: Some(Vec::new()),
        ..ClientFields::default()
    };
    let refused = change(server, "payroll", anonymous.clone()).await.unwrap_err();
    assert_eq!(refused.0[0].code, FaultCode::NotAllowed);
    let kiosk = server
        .client_with("kiosk", |client| {
            client.grant_types.insert(GrantType::Anonymous);
        })
        .await;
    let device = kiosk
        .post("/oauth2/token")
        .with("grant_type", "urn:service:oauth2:grant-type:anonymous")
        .await
        .tokens();
    let refused = change(server, "kiosk", named(&["staff"])).await.unwrap_err();
    assert_eq!(refused.0[0].code, FaultCode::NotAllowed);
    // The grant goes with the same change, and its users with it.
    let without = ClientFields {
        grant_types: Some(vec![GrantType::AuthorizationCode, GrantType::RefreshToken]),
        ..named(&["staff"])
    };
    change(server, "kiosk", without).await.unwrap();
    assert_eq!(kiosk.refresh(device.refresh_token()).await.refusal(), REFUSED);
    let push = kiosk
        .post("/oauth2/par")
        .fields(&kiosk.request().without("client_id").parameters)
        .with("anonymous_refresh_token", device.refresh_token());
    assert_eq!(push.await.refusal(), REFUSED);
}

#[tokio::test]
async fn the_claim_groups_can_be_limited_to_the_groups_of_the_client() {
    let scene = Scene::new().await;
    let [alice, _] = &scene.people;
    let server = &scene.server;
    put_into(server, &alice.person.sub(), &["staff", "guests"]).await;
    let request = scene.payroll.request().with("scope", "openid groups");
    let groups = async || {
        let tokens = scene.payroll.tokens_for(&alice.person.browser(), &request).await;
        let userinfo = scene.payroll.userinfo(tokens.access_token()).await.json();
        [
            tokens.id().claims["groups"].clone(),
            userinfo["groups"].clone(),
            tokens.access().claims["groups"].clone(),
        ]
    };
    assert_eq!(groups().await, [(); 3].map(|()| json!(["guests", "staff"])));
    let limited = |groups_claim| ClientFields {
        groups_claim: Some(groups_claim),
        ..ClientFields::default()
    };
    change(server, "payroll", limited(GroupsClaim::Allowed))
        .await
        .unwrap();
    assert_eq!(groups().await, [(); 3].map(|()| json!(["staff"])));
    allow(server, "payroll", &["guests", "staff"]).await;
    assert_eq!(groups().await, [(); 3].map(|()| json!(["guests", "staff"])));
    // For everybody, the claim would always be empty.
    let refused = change(server, "payroll", named(&[])).await.unwrap_err();
    assert_eq!(refused.0[0].fields, ["groups_claim", "allowed_groups"]);
    let refused = change(server, "web", limited(GroupsClaim::Allowed))
        .await
        .unwrap_err();
    assert_eq!(refused.0[0].code, FaultCode::NotAllowed);
    let all = ClientFields {
        groups_claim: Some(GroupsClaim::All),
        ..named(&[])
    };
    change(server, "payroll", all).await.unwrap();
    assert_eq!(groups().await, [(); 3].map(|()| json!(["guests", "staff"])));
}

/// RFC 7592 section 2.2: a client replaces its own metadata, and not what the operator decided.
#[tokio::test]
async fn a_client_that_registered_itself_cannot_leave_its_groups() {
    let server = Server::start_with(|policy| policy.registration = open(100)).await;
    add_group(&server, "staff").await;
    let alice = server.user("alice").await;
    let metadata = json!({ "redirect_uris": ["https://app.example/cb"], "client_name": "App" });
    let registrant = server.registrant(&metadata).await;
    let app = &registrant.party;
    allow(&server, app.client_id(), &["staff"]).await;
    for changed in [
        metadata.clone(),
        json!({ "redirect_uris": ["https://app.example/cb"], "allowed_groups": [] }),
    ] {
        assert_eq!(registrant.change(&server, changed).await.status, 200);
        let login = alice.browser().authorize(&app.request().with_challenge()).await;
        assert_eq!(login.sign_in().await.status, 403);
    }
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn what_one_node_decides_of_groups_the_others_know() {
    let [one, other] = crate::nodes::two_nodes().await;
    add_group(&one, "staff").await;
    let payroll = one.client("payroll").await;
    crate::harness::until(async || other.app.core.catalog().client("payroll").is_some()).await;
    let there = other.party("payroll", &payroll.secret);
    let alice = other.user("alice").await;
    put_into(&one, &alice.sub(), &["staff"]).await;
    allow(&one, "payroll", &["staff"]).await;
    let tokens = there.tokens(&alice.browser()).await;
    put_into(&one, &alice.sub(), &[]).await;
    assert_eq!(there.refresh(tokens.refresh_token()).await.refusal(), REFUSED);
    put_into(&one, &alice.sub(), &["staff"]).await;
    let tokens = there.refresh(tokens.refresh_token()).await.tokens();
    add_group(&one, "others").await;
    allow(&one, "payroll", &["others"]).await;
    assert_eq!(there.refresh(tokens.refresh_token()).await.refusal(), REFUSED);
    put_into(&other, &alice.sub(), &["others"]).await;
    let tokens = there.refresh(tokens.refresh_token()).await.tokens();
    assert_eq!(tokens.access().claims["sub"], alice.sub());
}
