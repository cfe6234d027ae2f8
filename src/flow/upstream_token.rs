//! A provider's access token on its way into the access tokens of this service: sealed at rest, dropped once it has
//! expired.

use std::time::Duration;

use zeroize::Zeroizing;

use super::Core;
use crate::clock::Timestamp;
use crate::federation::Provider;
use crate::federation::upstreams::UpstreamTokens;
use crate::identity::UpstreamToken;

/// A longer token is left out: with it, the token around it would outgrow the headers it travels in.
const LONGEST: usize = 8 * 1024;
/// How long a token is kept whose provider does not say.
const USUAL: Duration = Duration::from_hours(1);

/// Seals the token that came with a sign-in, where the provider's record has a claim for it.
pub(super) fn seal(
    core: &Core,
    provider: &Provider,
    tokens: &UpstreamTokens,
    now: Timestamp,
) -> Option<UpstreamToken> {
    provider.embed_token.as_ref()?;
    if tokens.access_token.len() > LONGEST {
        tracing::warn!(
            provider = provider.id,
            bytes = tokens.access_token.len(),
            "the provider's access token is too long to be embedded"
        );
        return None;
    }
    let context = UpstreamToken::context(&provider.id);
    let lasts = tokens.expires_in.map_or(USUAL, Duration::from_secs);
    Some(UpstreamToken {
        sealed: core
            .sealer
            .seal_text(&context, &tokens.access_token, &core.random),
        expires_at: now + lasts,
    })
}

/// Opens it again, as long as the provider accepts it and its record still has a claim for it.
pub(super) fn open(
    core: &Core,
    provider: &Provider,
    token: &UpstreamToken,
    now: Timestamp,
) -> Option<Zeroizing<String>> {
    if provider.embed_token.is_none() || !token.is_current(now) {
        return None;
    }
    let context = UpstreamToken::context(&provider.id);
    let opened = core.sealer.open_text(&context, &token.sealed);
    opened
        .inspect_err(
            |problem| tracing::error!(provider = provider.id, %problem, "a kept token cannot be read"),
        )
        .ok()
}
