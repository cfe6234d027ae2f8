//! The access token of a provider, which this service may embed in its own. It is sealed at rest, and dropped once it
//! has expired.

use std::time::Duration;

use zeroize::Zeroizing;

use super::Core;
use crate::clock::Timestamp;
use crate::federation::Provider;
use crate::federation::upstreams::UpstreamTokens;
use crate::identity::UpstreamToken;
use crate::seal::Sealer;

/// A longer token is not embedded: the token around it would be too long for a header.
const MAX_BYTES: usize = 8 * 1024;
/// How long a token is kept if the provider does not say when it expires.
const DEFAULT_LIFETIME: Duration = Duration::from_hours(1);

/// Seals the token that came with a sign-in, if the provider's record names a claim for it.
pub(super) fn seal(
    core: &Core,
    provider: &Provider,
    tokens: &UpstreamTokens,
    now: Timestamp,
) -> Option<UpstreamToken> {
    provider.embed_token.as_ref()?;
    if tokens.access_token.len() > MAX_BYTES {
        tracing::warn!(
            provider = provider.id,
            bytes = tokens.access_token.len(),
            "the provider's access token is too long to be embedded"
        );
        return None;
    }
    let context = UpstreamToken::context(&provider.id);
    let lifetime = tokens.expires_in.map_or(DEFAULT_LIFETIME, Duration::from_secs);
    Some(UpstreamToken {
        sealed: core
            .sealer
            .seal_text(&context, &tokens.access_token, &core.random),
        expires_at: now + lifetime,
    })
}

/// Opens a sealed token, if it has not expired and the provider's record still names a claim for it.
pub(super) fn open(
    sealer: &Sealer,
    provider: &Provider,
    token: &UpstreamToken,
    now: Timestamp,
) -> Option<Zeroizing<String>> {
    if provider.embed_token.is_none() || !token.is_current(now) {
        return None;
    }
    let context = UpstreamToken::context(&provider.id);
    let opened = sealer.open_text(&context, &token.sealed);
    opened
        .inspect_err(
            |problem| tracing::error!(provider = provider.id, %problem, "a stored token of a provider cannot be opened"),
        )
        .ok()
}
