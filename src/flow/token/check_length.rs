//! Refuses grants whose tokens would be too long, before anything is used up for them.

use uuid::Uuid;

use super::access_token_settings::AccessTokenSettings;
use super::issue::{ApprovedGrant, Encoding, Granted, TokenIssuer};
use crate::clock::Timestamp;
use crate::flow::FlowError;
use crate::identity::User;
use crate::oauth::client::{Client, GrantType};
use crate::oauth::code::Authorization;
use crate::oauth::error::Refusal;
use crate::oauth::login::CodeGrant;
use crate::oauth::resource::{Resources, TokenTarget};
use crate::oauth::token_length;

/// A grant before its transaction writes anything.
#[derive(Clone, Copy)]
pub struct ProposedGrant<'a> {
    pub client: &'a Client,
    pub grant_type: GrantType,
    pub user: &'a User,
    pub authorization: &'a Authorization,
    pub target: &'a TokenTarget,
    /// `nonce` of the authorization request.
    pub nonce: Option<&'a str>,
}

impl TokenIssuer {
    /// Refuses a grant whose tokens would be too long. Asked before a transaction uses up anything for the grant.
    pub fn check_length(&self, proposed: &ProposedGrant<'_>, now: Timestamp) -> Result<(), Refusal> {
        let ProposedGrant { client, user, .. } = *proposed;
        let groups = self.catalog.groups().of(user);
        let has_much = token_length::near_limit(&groups, &user.claims).is_some();
        if !has_much && proposed.authorization.upstream_token.is_none() {
            return Ok(());
        }
        let granted = Granted {
            user: user.clone(),
            authorization: proposed.authorization.clone(),
            target: proposed.target.clone(),
        };
        let approved = ApprovedGrant {
            nonce: proposed.nonce.map(ToOwned::to_owned),
            ..ApprovedGrant::new(proposed.grant_type, Uuid::nil(), granted, None)
        };
        let settings = AccessTokenSettings::of(&self.policy, client, proposed.target);
        match self.make(Encoding::Unsigned, client, approved, &settings, Uuid::nil(), now) {
            Err(FlowError::Refused(refusal)) => Err(refusal),
            // What fails here fails again when the tokens are signed, and is reported there.
            Ok(_) | Err(FlowError::Failed(_)) => Ok(()),
        }
    }

    /// The same before a code is issued. The token request may name fewer APIs.
    pub fn check_code(
        &self,
        client: &Client,
        user: &User,
        grant: &CodeGrant,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let authorization = &grant.authorization;
        let scope = authorization.scope.kept_within(&client.scope);
        let apis = self.catalog.apis();
        let target = apis.target(client, &authorization.resources, &scope, &Resources::new());
        target.map_or(Ok(()), |target| {
            let proposed = ProposedGrant {
                client,
                grant_type: GrantType::AuthorizationCode,
                user,
                authorization,
                target: &target,
                nonce: grant.nonce.as_deref(),
            };
            self.check_length(&proposed, now)
        })
    }
}
