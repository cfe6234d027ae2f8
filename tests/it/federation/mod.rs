//! Sign-in at an upstream provider, from the application's door and back to it.

mod anonymous;
mod apple;
mod ending;
mod hostile;
mod hostile_answers;
mod operator_changes;
mod record;
mod sign_in;
mod two_factors;

use idsvc::admin::provider::ProviderFields;
use idsvc::federation::provider::AddressPolicy;
use idsvc::oauth::Policy;
use idsvc::oauth::client::Client;
use serde_json::{Value, json};
use url::Url;

use crate::harness::reply::Callback;
use crate::harness::{Browser, RelyingParty, Say, Screen, Server, Tokens, Upstream, parse_form};

/// The identifier of the service at the provider.
const AT_PROVIDER: &str = "idsvc";

struct Scene {
    upstream: Upstream,
    server: Server,
    acme: RelyingParty,
}

fn registered(upstream: &Upstream) -> ProviderFields {
    ProviderFields {
        issuer: Some(upstream.issuer.clone()),
        name: Some("Up & Co".to_owned()),
        client_id: Some(AT_PROVIDER.to_owned()),
        create_users: Some(true),
        addresses: Some(AddressPolicy::Verified),
        ..ProviderFields::default()
    }
}

/// A client whose people come by the provider and in no other way.
fn tied(client: &mut Client) {
    client.providers.insert("up".to_owned());
    client.password_sign_in = false;
}

/// A client whose people may choose.
fn open(client: &mut Client) {
    client.providers.insert("up".to_owned());
}

async fn scene() -> Scene {
    scene_with(tied, |_| {}).await
}

async fn scene_with(client: impl FnOnce(&mut Client), provider: impl FnOnce(&mut ProviderFields)) -> Scene {
    scene_under(|_| {}, client, provider).await
}

async fn scene_under(
    policy: impl FnOnce(&mut Policy),
    client: impl FnOnce(&mut Client),
    provider: impl FnOnce(&mut ProviderFields),
) -> Scene {
    let upstream = Upstream::start().await;
    let server = Server::start_reaching(&upstream.terms(), policy).await;
    let mut fields = registered(&upstream);
    provider(&mut fields);
    server.provider("up", fields).await;
    let acme = server.client_with("acme", client).await;
    Scene {
        upstream,
        server,
        acme,
    }
}

/// A question that the service has sent a browser to the provider with.
struct Question(Vec<(String, String)>);

impl Question {
    fn of(screen: &Screen, upstream: &Upstream) -> Self {
        let location = screen
            .header("location")
            .unwrap_or_else(|| panic!("{}", screen.text()));
        let address = Url::parse(location).unwrap();
        assert!(
            location.starts_with(&format!("{}/authorize?", upstream.issuer)),
            "{location}"
        );
        Self(parse_form(address.query().unwrap()))
    }

    fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    fn state(&self) -> &str {
        self.get("state").unwrap()
    }

    fn answer(&self, rest: &str) -> String {
        self.answer_of("up", rest)
    }

    fn answer_of(&self, provider: &str, rest: &str) -> String {
        format!("/federation/{provider}/callback?state={}&{rest}", self.state())
    }
}

impl Scene {
    fn visitor(&self) -> Browser {
        self.server.browser()
    }

    async fn ask(&self, browser: &Browser) -> Question {
        Question::of(&browser.authorize(&self.acme.request()).await, &self.upstream)
    }

    /// The provider answers this question about `subject`, with these claims changed; null removes one.
    fn vouch(&self, question: &Question, subject: &str, changes: &Value) {
        self.issue(&self.id_token(question, subject, changes));
    }

    fn id_token(&self, question: &Question, subject: &str, changes: &Value) -> String {
        let mut claims = self.upstream.claims(AT_PROVIDER, subject);
        claims["nonce"] = question.get("nonce").unwrap().into();
        for (name, value) in changes.as_object().unwrap() {
            if value.is_null() {
                claims.as_object_mut().unwrap().remove(name);
            } else {
                claims[name] = value.clone();
            }
        }
        self.upstream.sign(&claims)
    }

    fn issue(&self, id_token: &str) {
        self.issue_lasting(id_token, &json!(600));
    }

    fn issue_lasting(&self, id_token: &str, expires_in: &Value) {
        self.upstream.say(
            "/token",
            Say::Json(json!({
                "access_token": "the-upstream-access-token",
                "token_type": "Bearer",
                "expires_in": expires_in,
                "id_token": id_token,
            })),
        );
    }

    /// Signs a user in at the provider and brings them to the application.
    async fn sign_in(&self, browser: &Browser, subject: &str, claims: &Value) -> Callback {
        let question = self.ask(browser).await;
        self.vouch(&question, subject, claims);
        browser.visit(&question.answer("code=c-1")).await.callback()
    }

    async fn tokens(&self, browser: &Browser, subject: &str, claims: &Value) -> Tokens {
        let code = self.sign_in(browser, subject, claims).await.code();
        self.acme.redeem(&code).await.tokens()
    }
}

fn uuid(tokens: &Tokens) -> String {
    tokens.0["uuid"].as_str().unwrap().to_owned()
}
