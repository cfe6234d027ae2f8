// An application that signs people in with openid-client and reads tokens with jose.

import assert from 'node:assert/strict';
import { createRemoteJWKSet, customFetch as joseFetch, jwtVerify } from 'jose';
import * as oidc from 'openid-client';
import { Page } from './browser.mjs';
import { STANDARD_SCOPES } from './harness.mjs';

/** The ways to authenticate, by their registered names. */
export const AUTHENTICATION = {
  client_secret_basic: (client) => oidc.ClientSecretBasic(client.client_secret),
  client_secret_post: (client) => oidc.ClientSecretPost(client.client_secret),
  private_key_jwt: (client) => oidc.PrivateKeyJwt(client.key),
  none: () => oidc.None(),
};

export class RelyingParty {
  /** Reads the service's metadata for a client registered with it. */
  static async discover(
    server,
    client,
    method = client.client_secret ? 'client_secret_basic' : 'none',
    metadata = { id_token_signed_response_alg: 'RS256' },
  ) {
    const party = new RelyingParty();
    party.server = server;
    party.client = client;
    party.config = await oidc.discovery(
      new URL(server.issuer),
      client.client_id,
      metadata,
      method === 'tls_client_auth' ? oidc.TlsClientAuth() : AUTHENTICATION[method](client),
      { [oidc.customFetch]: server.fetch },
    );
    oidc.enableNonRepudiationChecks(party.config);
    party.jwks = createRemoteJWKSet(new URL(party.config.serverMetadata().jwks_uri), { [joseFetch]: server.fetch });
    return party;
  }

  /**
   * A sign-in with PKCE, state and nonce: where to send the browser and what to check when it is back.
   * `parameters` are added to the request; those that are undefined are left out of it. `build` makes the address.
   */
  async begin(parameters = {}, build = oidc.buildAuthorizationUrl) {
    const pkceCodeVerifier = oidc.randomPKCECodeVerifier();
    const asked = {
      redirect_uri: this.client.redirect_uri,
      scope: STANDARD_SCOPES.join(' '),
      code_challenge: await oidc.calculatePKCECodeChallenge(pkceCodeVerifier),
      code_challenge_method: 'S256',
      state: oidc.randomState(),
      nonce: oidc.randomNonce(),
      ...parameters,
    };
    const sent = Object.fromEntries(Object.entries(asked).filter(([, value]) => value !== undefined));
    const checks = { expectedState: sent.state, expectedNonce: sent.nonce };
    if (sent.code_challenge) checks.pkceCodeVerifier = pkceCodeVerifier;
    if (sent.max_age) checks.maxAge = Number(sent.max_age);
    return { url: await build(this.config, sent), checks };
  }

  /** Exchanges the code. The library checks state, iss, the ID token and its signature. */
  async finish(callback, checks) {
    assert.ok(!(callback instanceof Page), `back at the client, not at ${callback.url}: ${callback.text}`);
    return oidc.authorizationCodeGrant(this.config, callback.request ?? callback, checks);
  }

  /** A whole sign-in by a browser; `user` may be left out where a session exists. */
  async signIn(browser, user, parameters) {
    const { url, checks } = await this.begin(parameters);
    let answer = await browser.open(url);
    if (user) answer = await browser.signIn(answer, user.email, user.password);
    return this.finish(answer, checks);
  }

  /** Verifies an access token as a resource server does (RFC 9068 section 4). */
  async verify(accessToken, audience = this.server.issuer) {
    return jwtVerify(accessToken, this.jwks, {
      issuer: this.server.issuer,
      audience,
      typ: 'at+jwt',
      requiredClaims: ['exp', 'iat', 'jti', 'sub', 'client_id'],
    });
  }

  async refresh(refreshToken, parameters) {
    return oidc.refreshTokenGrant(this.config, refreshToken, parameters);
  }

  async introspect(token, parameters) {
    return oidc.tokenIntrospection(this.config, token, parameters);
  }

  async revoke(token, parameters) {
    return oidc.tokenRevocation(this.config, token, parameters);
  }

  async userinfo(tokens) {
    return oidc.fetchUserInfo(this.config, tokens.access_token, tokens.claims().sub);
  }
}
