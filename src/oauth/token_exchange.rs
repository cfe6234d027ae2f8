//! Token exchange: RFC 8693.

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::oauth::error::{ErrorCode, Refusal};
use crate::oauth::parameters::Parameters;
use crate::oauth::scope::Scope;

/// The most actors in `act`, the current one and those before it.
pub const MOST_ACTORS: usize = 5;
/// The most values of `audience` in one request.
const MOST_AUDIENCES: usize = 10;

/// The prefix of token type identifiers (RFC 8693 section 3).
macro_rules! token_type {
    ($name:literal) => {
        concat!("urn:ietf:params:oauth:token-type:", $name)
    };
}

/// The token type of access tokens (RFC 8693 section 3).
pub const ACCESS_TOKEN: &str = token_type!("access_token");

/// Which token exchanges may be requested (RFC 8693 section 1.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenExchangePolicy {
    /// With an actor token or without one.
    #[default]
    Any,
    /// Only with an actor token, so that the new token names the actor.
    Delegation,
    Off,
}

impl TokenExchangePolicy {
    /// Refuses an exchange that the policy does not allow. `owner` is the client or API whose policy this is.
    pub fn check(self, has_actor: bool, owner: &str) -> Result<(), Refusal> {
        let rule = match self {
            Self::Any => return Ok(()),
            Self::Delegation if has_actor => return Ok(()),
            Self::Delegation => "needs an actor_token",
            Self::Off => "does not take part in token exchange",
        };
        Err(Refusal::naming(
            ErrorCode::InvalidRequest,
            &format!("{owner} {rule}"),
        ))
    }
}

/// `act`: the party that acts for the subject of a token (RFC 8693 section 4.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// The issuer that knows the actor by `sub`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iss: Option<String>,
    /// The actor: a user, a client that acts for itself, or an account at a provider.
    pub sub: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// The actor before this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub act: Option<Box<Self>>,
}

impl Actor {
    /// Whether the actors and the texts in it are few and short. A provider decides what is in its tokens.
    pub fn is_bounded(&self) -> bool {
        const LONGEST: usize = 255;
        let is_short = |text: &String| text.len() <= LONGEST;
        self.chain_len() <= MOST_ACTORS
            && is_short(&self.sub)
            && self.iss.as_ref().is_none_or(is_short)
            && self.client_id.as_ref().is_none_or(is_short)
            && self.act.as_deref().is_none_or(Self::is_bounded)
    }

    /// The same actors, with this issuer where none is named.
    #[must_use]
    pub fn known_to(mut self, issuer: &str) -> Self {
        self.iss.get_or_insert_with(|| issuer.to_owned());
        self.act = self.act.map(|earlier| Box::new(earlier.known_to(issuer)));
        self
    }

    /// This actor, after those of the subject token. Without a limit, services that call each other in a circle would
    /// make tokens ever longer.
    pub fn after(mut self, earlier: Option<&Self>) -> Result<Self, Refusal> {
        if earlier.is_some_and(|earlier| earlier.chain_len() >= MOST_ACTORS) {
            return Err(Refusal::invalid_request(
                "subject_token has passed through five actors, which is the limit",
            ));
        }
        self.act = earlier.cloned().map(Box::new);
        Ok(self)
    }

    fn chain_len(&self) -> usize {
        1 + self.act.as_deref().map_or(0, Self::chain_len)
    }
}

/// What a token is, as the sender says (RFC 8693 section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PresentedType {
    /// An access token of this service.
    AccessToken,
    /// An ID token of a provider.
    IdToken,
    /// Either of them.
    Jwt,
}

impl PresentedType {
    fn parse(text: &str, name: &str) -> Result<Self, Refusal> {
        match text {
            ACCESS_TOKEN => Ok(Self::AccessToken),
            token_type!("id_token") => Ok(Self::IdToken),
            token_type!("jwt") => Ok(Self::Jwt),
            _ => Err(Refusal::naming(
                ErrorCode::InvalidRequest,
                &format!(
                    "{name} is not supported; supported are those for access_token, id_token and jwt, as {ACCESS_TOKEN}"
                ),
            )),
        }
    }

    /// Whether a token of this type can be an access token of this service.
    pub const fn may_be_access_token(self) -> bool {
        matches!(self, Self::AccessToken | Self::Jwt)
    }

    /// Whether a token of this type can be an ID token of a provider.
    pub const fn may_be_id_token(self) -> bool {
        matches!(self, Self::IdToken | Self::Jwt)
    }
}

/// A token in a request, with its type.
pub struct PresentedToken {
    pub token: Zeroizing<String>,
    pub token_type: PresentedType,
}

impl PresentedToken {
    fn parse(parameters: &Parameters, name: &str) -> Result<Option<Self>, Refusal> {
        let type_name = format!("{name}_type");
        match (parameters.get(name), parameters.get(&type_name)) {
            (None, None) => Ok(None),
            (Some(token), Some(token_type)) => Ok(Some(Self {
                token: Zeroizing::new(token.to_owned()),
                token_type: PresentedType::parse(token_type, &type_name)?,
            })),
            (None, Some(_)) => Err(missing(name)),
            (Some(_), None) => Err(missing(&type_name)),
        }
    }
}

fn missing(name: &str) -> Refusal {
    Refusal::naming(ErrorCode::InvalidRequest, &format!("{name} is missing"))
}

/// A request for an exchange (RFC 8693 section 2.1).
pub struct TokenExchange {
    /// The token of the user for whom the client acts.
    pub subject: PresentedToken,
    /// The token of the acting party.
    pub actor: Option<PresentedToken>,
    /// The requested scope.
    pub scope: Option<Scope>,
    /// The values of `audience`: each is the id or the identifier of an API.
    pub audience: Vec<String>,
    /// Whether a refresh token is requested as well.
    pub wants_refresh_token: bool,
}

impl TokenExchange {
    /// Reads the parameters. A refresh token is requested by its type, or by the scope `offline_access`.
    pub fn parse(parameters: &Parameters) -> Result<Self, Refusal> {
        let subject = PresentedToken::parse(parameters, "subject_token")?;
        let scope = Scope::requested(parameters)?;
        let wants_refresh_token = match parameters.get("requested_token_type") {
            None | Some(ACCESS_TOKEN | token_type!("jwt")) => scope
                .as_ref()
                .is_some_and(|scope| scope.contains(Scope::OFFLINE_ACCESS)),
            Some(token_type!("refresh_token")) => true,
            Some(_) => {
                return Err(Refusal::invalid_request(
                    "requested_token_type is not supported; supported are those for access_token, jwt and refresh_token",
                ));
            }
        };
        let audience: Vec<_> = parameters.audiences().map(ToOwned::to_owned).collect();
        if audience.len() > MOST_AUDIENCES {
            return Err(Refusal::new(
                ErrorCode::InvalidTarget,
                "audience names more than ten APIs",
            ));
        }
        Ok(Self {
            subject: subject.ok_or_else(|| missing("subject_token"))?,
            actor: PresentedToken::parse(parameters, "actor_token")?,
            scope,
            audience,
            wants_refresh_token,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actor(sub: &str) -> Actor {
        Actor {
            iss: Some("https://id.example".to_owned()),
            sub: sub.to_owned(),
            client_id: None,
            act: None,
        }
    }

    #[test]
    fn the_newest_actor_comes_first_and_the_chain_ends_at_five() {
        let mut chain = actor("0");
        for number in 1..MOST_ACTORS {
            chain = actor(&number.to_string()).after(Some(&chain)).unwrap();
        }
        let text = serde_json::to_string(&chain).unwrap();
        assert!(
            text.starts_with(r#"{"iss":"https://id.example","sub":"4","act":{"#),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Actor>(&text).unwrap(), chain);
        assert!(actor("5").after(Some(&chain)).is_err());
    }

    #[test]
    fn a_token_comes_with_its_type() {
        let parse = |body: &str| {
            let parameters = Parameters::parse(body.as_bytes()).unwrap();
            TokenExchange::parse(&parameters).map(|exchange| exchange.wants_refresh_token)
        };
        let subject = format!("subject_token=a&subject_token_type={ACCESS_TOKEN}");
        assert_eq!(parse(&subject), Ok(false));
        for (further, wanted) in [
            ("scope=offline_access", true),
            (
                "requested_token_type=urn:ietf:params:oauth:token-type:refresh_token",
                true,
            ),
            (
                "requested_token_type=urn:ietf:params:oauth:token-type:jwt&scope=email",
                false,
            ),
        ] {
            assert_eq!(parse(&format!("{subject}&{further}")), Ok(wanted), "{further}");
        }
        for wrong in [
            "subject_token=a".to_owned(),
            format!("subject_token_type={ACCESS_TOKEN}"),
            "subject_token=a&subject_token_type=access_token".to_owned(),
            format!("{subject}&actor_token=b"),
            format!("{subject}&actor_token_type={ACCESS_TOKEN}"),
            format!("{subject}&requested_token_type=urn:ietf:params:oauth:token-type:saml2"),
        ] {
            assert_eq!(
                parse(&wrong).unwrap_err().code,
                ErrorCode::InvalidRequest,
                "{wrong}"
            );
        }
    }
}
