// ID tokens of another OpenID provider, exchanged by openid-client and oauth4webapi.

import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import * as oauth from 'oauth4webapi';
import * as oidc from 'openid-client';
import { refused } from './cast.mjs';
import { decode, Server } from './harness.mjs';
import { RelyingParty } from './relying-party.mjs';
import { Upstream } from './upstream.mjs';

const GRANT = 'urn:ietf:params:oauth:grant-type:jwt-bearer';
const CALLBACK = 'https://app.example/cb';
const GRANTS = ['--grant', 'authorization_code', '--grant', 'refresh_token', '--grant', 'jwt-bearer'];

let upstream;
let server;
/** What the application is called at the provider. */
let there;
/** The same application here. */
let app;
let party;
/** Every token of the provider that was shown to the service. */
const shown = [];

before(async () => {
  upstream = await Upstream.start();
  server = await Server.start({ flags: upstream.flags });
  there = await upstream.addClient({ client_id: 'their-app', redirect_uris: [CALLBACK] });
  await server.json('provider', 'add', 'partner', '--issuer', upstream.issuer, '--exchange', '--audience', there.client_id, '--create-users', '--addresses', 'verified');
  app = await server.addClient('app', CALLBACK, '--provider', 'partner', '--api-key', ...GRANTS);
  party = await RelyingParty.discover(server, app);
});

after(async () => {
  const log = server?.log ?? '';
  for (const token of shown) for (const part of token.split('.').slice(1)) assert.ok(!log.includes(part), 'a token is in the log');
  await server?.stop();
  await upstream?.stop();
});

/** An ID token of the provider for one of its accounts. */
async function idToken(account, client = there) {
  const { id_token } = await upstream.signIn(client, account);
  shown.push(id_token);
  return id_token;
}

const exchange = (assertion, parameters = {}) => oidc.genericGrantRequest(party.config, GRANT, { assertion, ...parameters });

describe('the exchange of an ID token', () => {
  it('is named by the metadata', () => {
    assert.ok(party.config.serverMetadata().grant_types_supported.includes(GRANT));
  });

  it('brings tokens of a user to openid-client, who stays the same through both kinds of refresh', async () => {
    const theirs = await idToken('bert');
    const tokens = await exchange(theirs);
    assert.deepEqual(tokens.amr, [{ authority: 'partner' }]);
    assert.deepEqual([tokens.source, tokens.email, tokens.account_id], ['partner', 'bert@upstream.example', 'bert@upstream.example']);
    assert.equal(tokens.claims().sub, tokens.uuid);
    assert.notEqual(tokens.uuid, decode(theirs).payload.sub);
    const { payload } = await party.verify(tokens.access_token);
    assert.deepEqual(payload.amr, tokens.amr);
    const userinfo = await party.userinfo(tokens);
    assert.equal(userinfo.sub, tokens.uuid);

    const next = await party.refresh(tokens.refresh_token);
    assert.deepEqual([next.uuid, next.amr], [tokens.uuid, tokens.amr]);
    const answer = await server.fetch(`${server.issuer}/v4/tokens`, {
      method: 'POST',
      headers: { authorization: `Basic ${btoa(`${app.api_key}:`)}` },
      body: new URLSearchParams({ grant_type: 'refresh_token', refresh_token: next.refresh_token }),
    });
    assert.equal(answer.status, 200);
    const last = await answer.json();
    assert.deepEqual([last.uuid, last.amr], [tokens.uuid, tokens.amr]);
    assert.equal((await exchange(await idToken('bert'))).uuid, tokens.uuid, 'and at the next sign-in there');
    assert.notEqual((await exchange(await idToken('carla'))).uuid, tokens.uuid);
  });

  it('is understood by oauth4webapi', async () => {
    const issuer = new URL(server.issuer);
    const options = { [oauth.customFetch]: server.fetch };
    const as = await oauth.processDiscoveryResponse(issuer, await oauth.discoveryRequest(issuer, options));
    const client = { client_id: app.client_id };
    const authentication = oauth.ClientSecretBasic(app.client_secret);
    const parameters = { assertion: await idToken('bert'), scope: 'openid email' };
    const answer = await oauth.genericTokenEndpointRequest(as, client, authentication, GRANT, parameters, options);
    const tokens = await oauth.processGenericTokenEndpointResponse(as, client, answer);
    assert.equal(tokens.scope, 'openid email authenticated');
    await oauth.validateApplicationLevelSignature(as, answer, options);
    const refreshed = await oauth.refreshTokenGrantRequest(as, client, authentication, tokens.refresh_token, options);
    const next = await oauth.processRefreshTokenResponse(as, client, refreshed);
    assert.equal(oauth.getValidatedIdTokenClaims(next).email, 'bert@upstream.example');
  });

  it('takes JSON, and a token that is base64-encoded once more', async () => {
    const assertion = btoa(await idToken('bert'));
    const answer = await server.fetch(`${server.issuer}/oauth2/token`, {
      method: 'POST',
      headers: {
        authorization: `Basic ${btoa(`${app.client_id}:${app.client_secret}`)}`,
        'content-type': 'application/json',
      },
      body: JSON.stringify({ grant_type: GRANT, assertion }),
    });
    assert.equal(answer.status, 200);
    assert.equal((await answer.json()).account_id, 'bert@upstream.example');
  });

  it('gives an account its address only when the provider has verified it', async () => {
    const carla = await exchange(await idToken('carla'));
    assert.deepEqual([carla.account_id, carla.email], ['partner:carla', '']);
    const nobody = await exchange(await idToken('nobody'));
    assert.deepEqual([nobody.account_id, nobody.email], ['partner:nobody', '']);
  });

  it('refuses tokens for others, changed ones, and access tokens', async () => {
    const other = await upstream.addClient({ client_id: 'their-other-app', redirect_uris: [CALLBACK] });
    await assert.rejects(exchange(await idToken('bert', other)), refused('invalid_grant', 400));
    const [header, payload, signature] = (await idToken('bert')).split('.');
    const claims = { ...JSON.parse(Buffer.from(payload, 'base64url')), sub: 'carla' };
    const forged = Buffer.from(JSON.stringify(claims)).toString('base64url');
    await assert.rejects(exchange([header, forged, signature].join('.')), refused('invalid_grant', 400));
    const { access_token } = await upstream.signIn(there, 'bert');
    await assert.rejects(exchange(access_token), refused('invalid_grant', 400));
    await assert.rejects(exchange(await idToken('bert'), { scope: 'services:all' }), refused('invalid_scope', 400));
  });

  it('takes only what the record says the provider signs with', async () => {
    const elliptic = await upstream.addClient({
      client_id: 'their-elliptic-app',
      redirect_uris: [CALLBACK],
      id_token_signed_response_alg: 'ES256',
    });
    const audiences = ['--audience', there.client_id, '--audience', elliptic.client_id];
    await server.json('provider', 'update', 'partner', ...audiences);
    const token = await idToken('bert', elliptic);
    assert.equal(decode(token).header.alg, 'ES256');
    await assert.rejects(exchange(token), refused('invalid_grant', 400));
    await server.json('provider', 'update', 'partner', '--alg', 'RS256', '--alg', 'ES256');
    assert.equal((await exchange(token)).account_id, 'bert@upstream.example');
  });

  it('ends, with what came of it, when the operator disables the provider', async () => {
    const tokens = await exchange(await idToken('bert'));
    await server.json('provider', 'update', 'partner', '--disable');
    await assert.rejects(exchange(await idToken('bert')), refused('invalid_grant', 400));
    await assert.rejects(party.refresh(tokens.refresh_token), refused('invalid_grant', 400));
    await server.json('provider', 'update', 'partner', '--enable');
    assert.equal((await party.refresh(tokens.refresh_token)).uuid, tokens.uuid);
  });

  it('goes on with known keys while the provider is down, and asks to come back where there are none', async () => {
    const second = await Upstream.start({ port: 0 });
    const client = await second.addClient({ client_id: 'their-app', redirect_uris: [CALLBACK] });
    const { id_token } = await second.signIn(client, 'bert');
    await second.stop();
    await server.json('provider', 'add', 'gone', '--issuer', second.issuer, '--exchange', '--audience', 'their-app', '--create-users');
    await server.json('client', 'update', 'app', '--provider', 'partner', '--provider', 'gone');
    await assert.rejects(exchange(id_token), ({ cause }) => cause.status === 503 && cause.headers.get('retry-after') === '2');

    const known = await idToken('bert');
    await upstream.stop();
    assert.equal((await exchange(known)).account_id, 'bert@upstream.example');
  });
});
