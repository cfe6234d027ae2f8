// Tokens that are bound to a key, as openid-client and oauth4webapi get and use them (RFC 9449).

import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import * as oauth from 'oauth4webapi';
import * as oidc from 'openid-client';
import { Browser } from './browser.mjs';
import { Server } from './harness.mjs';
import { RelyingParty } from './relying-party.mjs';

for (const nonce of ['off', 'required']) {
  describe(`with dpop.nonce ${nonce}`, () => {
    let server;
    let alice;
    const clients = {};

    before(async () => {
      server = await Server.start({ flags: ['--dpop-nonce', nonce] });
      alice = await server.addAlice();
      clients.web = await server.addClient('web', 'https://app.example/cb', '--require-dpop');
      clients.native = await server.addClient('native', 'com.example.app:/cb', '--public', '--require-dpop');
      clients.robot = await server.json(
        'client', 'add', 'robot', '--grant', 'client_credentials', '--scope', 'notes.read',
        '--allow-secret-credentials', '--max-scope', 'notes.read',
      );
    });
    after(() => server?.stop());

    for (const [name, alg] of [['web', 'ES256'], ['web', 'PS256'], ['native', 'Ed25519'], ['native', 'RS256']]) {
      it(`openid-client signs in, refreshes and asks UserInfo: ${name} with ${alg}`, async () => {
        const party = await RelyingParty.discover(server, clients[name]);
        const keys = await oidc.randomDPoPKeyPair(alg);
        const DPoP = oidc.getDPoPHandle(party.config, keys);
        const browser = new Browser(server);
        const { url, checks } = await party.begin({ dpop_jkt: await DPoP.calculateThumbprint() });
        const callback = await browser.signIn(await browser.open(url), alice.email, alice.password);
        const current = callback.request ?? callback;
        const tokens = await oidc.authorizationCodeGrant(party.config, current, checks, undefined, { DPoP });
        assert.equal(tokens.token_type, 'dpop');
        const { payload } = await party.verify(tokens.access_token);
        assert.deepEqual(payload.cnf, { jkt: await DPoP.calculateThumbprint() });
        const next = await oidc.refreshTokenGrant(party.config, tokens.refresh_token, undefined, { DPoP });
        const claims = await oidc.fetchUserInfo(party.config, next.access_token, alice.uuid, { DPoP });
        assert.equal(claims.sub, alice.uuid);
        const stolen = await server.fetch(`${server.issuer}/oauth2/userinfo`, {
          headers: { authorization: `Bearer ${next.access_token}` },
        });
        assert.equal(stolen.status, 401);
        await assert.rejects(oidc.refreshTokenGrant(party.config, next.refresh_token), { error: 'invalid_dpop_proof' });
      });
    }

    it('openid-client pushes a request with a proof', async () => {
      const party = await RelyingParty.discover(server, clients.web);
      const DPoP = oidc.getDPoPHandle(party.config, await oidc.randomDPoPKeyPair('ES256'));
      const { url, checks } = await party.begin();
      const pushed = await oidc.buildAuthorizationUrlWithPAR(party.config, url.searchParams, { DPoP });
      assert.ok(pushed.searchParams.has('request_uri'));
      const browser = new Browser(server);
      const callback = await browser.signIn(await browser.open(pushed), alice.email, alice.password);
      const current = callback.request ?? callback;
      const tokens = await oidc.authorizationCodeGrant(party.config, current, checks, undefined, { DPoP });
      assert.equal(tokens.token_type, 'dpop');
    });

    it('oauth4webapi gets a token for a client that acts for itself', async () => {
      const issuer = new URL(server.issuer);
      const options = { [oauth.customFetch]: server.fetch };
      const discovered = await oauth.discoveryRequest(issuer, options);
      const as = await oauth.processDiscoveryResponse(issuer, discovered);
      const client = { client_id: 'robot' };
      const authentication = oauth.ClientSecretBasic(clients.robot.client_secret);
      const DPoP = oauth.DPoP(client, await oauth.generateKeyPair('ES256'));
      const ask = async () => {
        const parameters = new URLSearchParams({ scope: 'notes.read' });
        const answer = await oauth.clientCredentialsGrantRequest(as, client, authentication, parameters, { DPoP, ...options });
        return oauth.processClientCredentialsResponse(as, client, answer);
      };
      const tokens = await ask().catch((error) => {
        assert.ok(nonce === 'required' && oauth.isDPoPNonceError(error), error);
        return ask();
      });
      assert.equal(tokens.token_type, 'dpop');
      // It lacks the scope openid, so UserInfo refuses the token, but not the proof.
      const resource = new URL(`${server.issuer}/oauth2/userinfo`);
      const request = () =>
        oauth.protectedResourceRequest(tokens.access_token, 'GET', resource, undefined, undefined, { DPoP, ...options });
      await assert.rejects(request(), (error) => error.cause?.[0]?.parameters.error === 'insufficient_scope');
    });
  });
}
