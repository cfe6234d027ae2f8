//! The anonymous grant: a device gets a user of its own.

use std::sync::Arc;

use super::issue::{Granted, issue_tokens};
use super::start_family::NewFamily;
use crate::clock::Timestamp;
use crate::flow::{Core, FlowError};
use crate::identity::{AuthenticationMethod, User};
use crate::oauth::client::GrantType;
use crate::oauth::client_auth::AuthenticatedClient;
use crate::oauth::code::Authorization;
use crate::oauth::confirmation::Possession;
use crate::oauth::error::{ErrorCode, Refusal};
use crate::oauth::openid::claims::ClaimsRequest;
use crate::oauth::resource::Resources;
use crate::oauth::scope::Scope;
use crate::oauth::token::{TokenResponse, user_scope};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::TxError;
use crate::store::tables::USERS;

/// Creates a user and its refresh family in one transaction, and issues tokens. The user is removed after its last
/// family has expired.
pub async fn create_anonymous_user(
    core: &Core,
    client: &AuthenticatedClient,
    scope: Option<Scope>,
    resources: Resources,
    possession: Option<Possession>,
    now: Timestamp,
) -> Result<TokenResponse, FlowError> {
    let grant_policy = core.grant_policy();
    grant_policy.check_grant(client, GrantType::Anonymous)?;
    if client.is_public() {
        return Err(Refusal::new(
            ErrorCode::UnauthorizedClient,
            "anonymous users are for clients that authenticate",
        )
        .into());
    }
    let scope = user_scope(scope.as_ref(), client, Scope::ANONYMOUS)?;
    let uuid = core.random.uuid_v7(core.clock.since_epoch());
    let user = User::anonymous(uuid, &core.policy.organization, now);
    let apis = Arc::clone(core.catalog().apis());
    let granted = apis.resolve(&resources, client)?;
    let scope = apis.scope_within(&scope, &granted);
    let (drawn, bearer) = (NewFamily::draw(core, possession)?, client.clone());
    let approved = core
        .store
        .write(
            "create_anonymous_user",
            move |tx| -> Result<_, TxError<Refusal>> {
                drawn.check_proof(&*tx, now)?;
                let authorization = Authorization {
                    client_id: bearer.client_id.clone(),
                    client_incarnation: bearer.incarnation,
                    user: user.uuid,
                    session: None,
                    auth_time: None,
                    factor: AuthenticationMethod::Anonymous,
                    second_factor: None,
                    upstream_token: None,
                    scope: scope.clone(),
                    resources: granted.clone(),
                    claims: ClaimsRequest::default(),
                    bound_to: None,
                    actor: None,
                };
                let user = grant_policy.authorize_new_user(&*tx, &bearer, &authorization, user.clone())?;
                let target = drawn.target(&bearer, &authorization, &resources)?;
                USERS.put(tx, &user.uuid, &user)?;
                let granted = Granted {
                    user,
                    authorization,
                    target,
                };
                drawn.begin(tx, &bearer, GrantType::Anonymous, granted, now)
            },
        )
        .await?;
    audit::record(&Event::AnonymousUserCreated {
        user: uuid,
        client_id: &client.client_id,
    });
    issue_tokens(core, client, approved, now)
}
