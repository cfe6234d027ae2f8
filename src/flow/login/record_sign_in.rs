//! Records that a user has signed in, after the commit.

use super::start_session::StartedSession;
use crate::identity::AuthenticationMethod;
use crate::observe::audit::{self, Event};
use crate::observe::sign_ins::{self, SignInMethod};

/// Records the event, and counts the sign-in by its method. `client_id` is the client that sent the browser.
pub(in crate::flow) fn record_sign_in(
    started: &StartedSession,
    factor: &AuthenticationMethod,
    client_id: &str,
) {
    audit::record(&Event::SignedIn {
        user: started.user.uuid,
        session: started.session,
        authority: factor.authority(),
        client_id,
    });
    sign_ins::count(match factor {
        AuthenticationMethod::Email => SignInMethod::Email,
        AuthenticationMethod::Passkey { .. } => SignInMethod::Passkey,
        AuthenticationMethod::Federated { .. } => SignInMethod::Provider,
        // An anonymous user has no session.
        AuthenticationMethod::Password | AuthenticationMethod::Anonymous => SignInMethod::Password,
    });
}
