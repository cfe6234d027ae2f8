// The service as openid-client, oauth4webapi and jose see it.

import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { exportSPKI } from 'jose';
import * as oauth from 'oauth4webapi';
import * as oidc from 'openid-client';
import { Browser } from './browser.mjs';
import { alice, atTheCode, enter, leave, native, other, refused, server, tokenRequest, web } from './cast.mjs';
import { ALICE, ALICE_CLAIMS, decode } from './harness.mjs';
import { AUTHENTICATION, RelyingParty } from './relying-party.mjs';

before(enter);
after(leave);

/** The flags that name grants. */
const GRANTS = (...grants) => grants.flatMap((grant) => ['--grant', grant]);

describe('metadata', () => {
  it('is the same document under both well-known names, for any origin, and can be revalidated', async () => {
    const documents = [];
    for (const name of ['openid-configuration', 'oauth-authorization-server']) {
      const url = `${server.issuer}/.well-known/${name}`;
      const answer = await server.fetch(url);
      assert.equal(answer.status, 200);
      assert.match(answer.headers.get('content-type'), /^application\/json/);
      assert.equal(answer.headers.get('access-control-allow-origin'), '*');
      assert.match(answer.headers.get('cache-control'), /public.*max-age/);
      const again = await server.fetch(url, { headers: { 'if-none-match': answer.headers.get('etag') } });
      assert.equal(again.status, 304);
      documents.push(await answer.json());
    }
    assert.deepEqual(documents[0], documents[1]);
  });

  it('names what works', async () => {
    const { config } = await RelyingParty.discover(server, web);
    const metadata = config.serverMetadata();
    assert.equal(metadata.issuer, server.issuer);
    assert.equal(metadata.authorization_endpoint, `${server.issuer}/oauth2/authorize`);
    assert.equal(metadata.token_endpoint, `${server.issuer}/oauth2/token`);
    assert.equal(metadata.end_session_endpoint, `${server.issuer}/oauth2/logout`);
    assert.deepEqual(metadata.response_types_supported, ['code']);
    assert.deepEqual([...metadata.response_modes_supported].sort(), ['form_post', 'form_post.jwt', 'jwt', 'query', 'query.jwt']);
    for (const grant of ['authorization_code', 'refresh_token']) assert.ok(metadata.grant_types_supported.includes(grant));
    for (const method of Object.keys(AUTHENTICATION)) {
      assert.ok(metadata.token_endpoint_auth_methods_supported.includes(method), method);
    }
    assert.deepEqual(metadata.code_challenge_methods_supported, ['S256']);
    assert.equal(metadata.authorization_response_iss_parameter_supported, true);
    assert.equal(metadata.request_parameter_supported, true);
    assert.equal(metadata.request_uri_parameter_supported, false);
    for (const alg of ['RS256', 'ES256']) assert.ok(metadata.id_token_signing_alg_values_supported.includes(alg));
  });

  it('satisfies oauth4webapi by the OAuth name as well', async () => {
    const issuer = new URL(server.issuer);
    const answer = await oauth.discoveryRequest(issuer, { algorithm: 'oauth2', [oauth.customFetch]: server.fetch });
    assert.equal((await oauth.processDiscoveryResponse(issuer, answer)).issuer, server.issuer);
  });

  it('points to public keys without private parts', async () => {
    const { keys } = await (await server.fetch(`${server.issuer}/oauth2/jwks`)).json();
    assert.ok(keys.some(({ kty }) => kty === 'RSA') && keys.some(({ kty }) => kty === 'EC'));
    assert.equal(new Set(keys.map(({ kid }) => kid)).size, keys.length);
    for (const key of keys) for (const secret of ['d', 'p', 'q', 'k']) assert.ok(!(secret in key));
  });
});

describe('authorization code', () => {
  for (const [method, clientOf] of [
    ['client_secret_basic', () => web],
    ['client_secret_post', () => web],
    ['none', () => native],
  ]) {
    it(`signs in, refreshes and revokes with ${method}`, async () => {
      const party = await RelyingParty.discover(server, clientOf(), method);
      const tokens = await party.signIn(new Browser(server), alice);
      assert.equal(tokens.claims().sub, alice.uuid);
      const next = await party.refresh(tokens.refresh_token);
      assert.notEqual(next.refresh_token, tokens.refresh_token);
      await party.revoke(next.refresh_token);
      await assert.rejects(party.refresh(next.refresh_token), refused('invalid_grant', 400));
    });
  }

  it('answers an access token whose claims are the token response, field by field', async () => {
    const party = await RelyingParty.discover(server, web);
    const tokens = await party.signIn(new Browser(server), alice);
    const { payload, protectedHeader } = await party.verify(tokens.access_token);
    const { access_token, refresh_token, id_token, idtoken, token_type, expires_in, ...shared } = tokens;

    assert.equal(protectedHeader.alg, 'ES256');
    assert.equal(token_type, 'bearer');
    assert.ok(Number.isInteger(expires_in));
    assert.equal(idtoken, id_token);
    assert.match(refresh_token, /^idsvc_rt_/);
    assert.deepEqual(
      Object.keys(shared).sort(),
      ['account_id', 'amr', 'email', 'email_verified', 'iat', 'iss', 'jti', 'organization', 'phone_number', 'scope', 'source', 'user_type', 'uuid', 'venueId'],
    );
    for (const [name, value] of Object.entries(shared)) assert.deepEqual(payload[name], value, name);

    assert.equal(shared.iss, server.issuer);
    assert.equal(shared.account_id, ALICE);
    assert.equal(shared.email, ALICE);
    assert.equal(shared.user_type, 'user');
    assert.equal(shared.venueId, 'venue-7');
    assert.equal(shared.organization, 'acme');
    assert.equal(shared.phone_number, ALICE_CLAIMS.phone_number);
    assert.equal(shared.source, 'LOCAL');
    assert.equal(shared.uuid, alice.uuid);
    assert.deepEqual(shared.amr, [{ authority: 'credential' }]);
    assert.ok(shared.scope.split(' ').includes('authenticated'));

    assert.equal(payload.sub, alice.uuid);
    assert.equal(payload.aud, server.issuer);
    assert.equal(payload.client_id, 'web');
    assert.equal(payload.exp, payload.iat + expires_in);
    assert.ok(payload.auth_time <= payload.iat);
    assert.ok(!('nbf' in payload));
  });

  it('answers an ID token of the standard kind', async () => {
    const party = await RelyingParty.discover(server, web);
    const tokens = await party.signIn(new Browser(server), alice);
    const { header, payload } = decode(tokens.id_token);
    assert.equal(header.alg, 'RS256');
    assert.deepEqual(payload.amr, ['pwd']);
    for (const claim of ['sid', 'auth_time', 'at_hash', 'nonce']) assert.ok(claim in payload, claim);
    const claims = ['name', 'email', 'phone_number', 'address'];
    for (const claim of claims) assert.ok(claim in payload, claim);

    const letter = await server.addClient('letter', 'https://letter.example/cb', '--id-token-claims', 'requested');
    const strict = await (await RelyingParty.discover(server, letter)).signIn(new Browser(server), alice);
    for (const claim of claims) assert.ok(!(claim in decode(strict.id_token).payload), claim);
  });

  it('signs ID tokens with the algorithm the client is registered for', async () => {
    const client = await server.addClient('elliptic', 'https://elliptic.example/cb', '--id-token-alg', 'ES256');
    const metadata = { id_token_signed_response_alg: 'ES256' };
    const party = await RelyingParty.discover(server, client, 'client_secret_basic', metadata);
    const tokens = await party.signIn(new Browser(server), alice);
    assert.equal(decode(tokens.id_token).header.alg, 'ES256');
  });

  it('puts the registered audience into access tokens', async () => {
    const client = await server.addClient('api-caller', 'https://caller.example/cb', '--audience', 'https://api.example');
    const party = await RelyingParty.discover(server, client);
    const tokens = await party.signIn(new Browser(server), alice);
    await party.verify(tokens.access_token, 'https://api.example');
  });

  it('works with OAuth alone: no openid, no ID token, no nonce', async () => {
    const party = await RelyingParty.discover(server, web);
    const tokens = await party.signIn(new Browser(server), alice, { scope: 'email', nonce: undefined });
    assert.equal(tokens.id_token, undefined);
    await party.verify(tokens.access_token);
  });

  it('hands the response over by form_post', async () => {
    const party = await RelyingParty.discover(server, web);
    const browser = new Browser(server);
    const { url, checks } = await party.begin({ response_mode: 'form_post' });
    const page = await browser.signIn(await browser.open(url), ALICE, alice.password);
    assert.match(page.headers['cache-control'], /no-store/);
    const callback = await browser.hand(page);
    assert.equal(callback.url.search, '');
    const tokens = await party.finish(callback, checks);
    assert.equal(tokens.claims().sub, alice.uuid);
  });

  it('accepts the authorization request by POST', async () => {
    const party = await RelyingParty.discover(server, web);
    const browser = new Browser(server);
    const { url, checks } = await party.begin();
    const endpoint = url.origin + url.pathname;
    const page = await browser.post(endpoint, url.searchParams, 'https://app.example');
    const tokens = await party.finish(await browser.signIn(page, ALICE, alice.password), checks);
    assert.equal(tokens.claims().sub, alice.uuid);
  });

  it('gives state back byte for byte and names the issuer', async () => {
    const party = await RelyingParty.discover(server, web);
    const state = `${'aZ09-._~'.repeat(16)} &=+%/?#"é`;
    const { callback } = await atTheCode(party, { state });
    assert.equal(callback.parameters.get('state'), state);
    assert.equal(callback.parameters.get('iss'), server.issuer);
  });

  it('accepts a loopback redirect URI of a native application at any port', async () => {
    const client = await server.addClient('desktop', 'http://127.0.0.1/cb', '--public');
    const party = await RelyingParty.discover(server, { ...client, redirect_uri: 'http://127.0.0.1:51234/cb' });
    const tokens = await party.signIn(new Browser(server), alice);
    assert.equal(tokens.claims().aud, 'desktop');
  });
});

describe('the code', () => {
  it('is refused without or with another code_verifier', async () => {
    const party = await RelyingParty.discover(server, web);
    const wrong = await atTheCode(party);
    const checks = { ...wrong.checks, pkceCodeVerifier: oidc.randomPKCECodeVerifier() };
    await assert.rejects(party.finish(wrong.callback, checks), refused('invalid_grant', 400));

    const { code } = await atTheCode(party);
    const { status, body } = await tokenRequest({
      grant_type: 'authorization_code',
      code,
      redirect_uri: web.redirect_uri,
    });
    assert.deepEqual([status, body.error], [400, 'invalid_grant']);
  });

  it('is refused with a code_verifier when no challenge was sent', async () => {
    const party = await RelyingParty.discover(server, web);
    const bare = { code_challenge: undefined, code_challenge_method: undefined, state: undefined, nonce: undefined };
    const { callback, code } = await atTheCode(party, bare);
    assert.ok(!callback.parameters.has('state'));
    const { status, body } = await tokenRequest({
      grant_type: 'authorization_code',
      code,
      redirect_uri: web.redirect_uri,
      code_verifier: oidc.randomPKCECodeVerifier(),
    });
    assert.equal(status, 400);
    assert.match(body.error, /^invalid_(grant|request)$/);
  });

  it('is demanded with a challenge from public clients, and only with S256', async () => {
    const party = await RelyingParty.discover(server, native);
    const without = { code_challenge: undefined, code_challenge_method: undefined };
    for (const parameters of [without, { code_challenge_method: 'plain' }, { code_challenge_method: undefined }]) {
      const { url } = await party.begin(parameters);
      const callback = await new Browser(server).open(url);
      assert.equal(callback.parameters.get('error'), 'invalid_request');
      assert.equal(callback.parameters.get('iss'), server.issuer);
    }
  });

  it('is refused to another client and with another redirect_uri', async () => {
    const party = await RelyingParty.discover(server, web);
    const stolen = await atTheCode(party);
    const { status, body } = await tokenRequest(
      {
        grant_type: 'authorization_code',
        code: stolen.code,
        redirect_uri: web.redirect_uri,
        code_verifier: stolen.checks.pkceCodeVerifier,
      },
      { client: other },
    );
    assert.deepEqual([status, body.error], [400, 'invalid_grant']);

    const moved = await atTheCode(party);
    const answer = await tokenRequest({
      grant_type: 'authorization_code',
      code: moved.code,
      redirect_uri: `${web.redirect_uri}/`,
      code_verifier: moved.checks.pkceCodeVerifier,
    });
    assert.deepEqual([answer.status, answer.body.error], [400, 'invalid_grant']);
  });

  it('used twice takes back what it brought', async () => {
    const party = await RelyingParty.discover(server, web);
    const { callback, checks } = await atTheCode(party);
    const tokens = await party.finish(callback, checks);
    assert.equal((await party.introspect(tokens.access_token)).active, true);
    await assert.rejects(party.finish(callback, checks), refused('invalid_grant', 400));
    await assert.rejects(party.refresh(tokens.refresh_token), refused('invalid_grant', 400));
    assert.equal((await party.introspect(tokens.access_token)).active, false);
    await assert.rejects(party.userinfo(tokens), (error) => error.cause?.[0]?.parameters?.error === 'invalid_token');
  });

  it('used twice at once brings tokens at most once', async () => {
    const party = await RelyingParty.discover(server, web);
    const { callback, checks } = await atTheCode(party);
    const outcomes = await Promise.allSettled(Array.from({ length: 8 }, () => party.finish(callback, checks)));
    assert.ok(outcomes.filter(({ status }) => status === 'fulfilled').length <= 1);
  });
});

describe('userinfo', () => {
  it('answers every standard claim with its JSON type', async () => {
    const party = await RelyingParty.discover(server, web);
    const tokens = await party.signIn(new Browser(server), alice);
    const { sub, updated_at, ...claims } = await party.userinfo(tokens);
    assert.equal(sub, alice.uuid);
    assert.ok(Number.isInteger(updated_at));
    assert.equal(claims.phone_number_verified, false);
    delete claims.phone_number_verified;
    assert.deepEqual(claims, { ...ALICE_CLAIMS, email: ALICE, email_verified: true });
  });

  it('answers what the scope allows and no more', async () => {
    const party = await RelyingParty.discover(server, web);
    const tokens = await party.signIn(new Browser(server), alice, { scope: 'openid email' });
    assert.deepEqual(await party.userinfo(tokens), { sub: alice.uuid, email: ALICE, email_verified: true });
  });

  it('takes the token by POST, in the header or in the body, and says what is wrong with it', async () => {
    const party = await RelyingParty.discover(server, web);
    const { access_token } = await party.signIn(new Browser(server), alice, { scope: 'openid' });
    const url = `${server.issuer}/oauth2/userinfo`;
    const byHeader = { method: 'POST', headers: { authorization: `Bearer ${access_token}` } };
    const byBody = { method: 'POST', body: new URLSearchParams({ access_token }) };
    for (const options of [byHeader, byBody]) {
      const answer = await server.fetch(url, options);
      assert.equal(answer.status, 200);
      assert.equal((await answer.json()).sub, alice.uuid);
    }
    const broken = await server.fetch(url, { headers: { authorization: `Bearer ${access_token.slice(0, -8)}AAAAAAAA` } });
    assert.equal(broken.status, 401);
    assert.match(broken.headers.get('www-authenticate'), /^Bearer .*error="invalid_token"/);
    const missing = await server.fetch(url);
    assert.equal(missing.status, 401);
    assert.doesNotMatch(missing.headers.get('www-authenticate'), /error=/);
  });
});

describe('refresh', () => {
  it('keeps who, how and when', async () => {
    const party = await RelyingParty.discover(server, web);
    const first = await party.signIn(new Browser(server), alice);
    const next = await party.refresh(first.refresh_token);
    const [before, now] = [await party.verify(first.access_token), await party.verify(next.access_token)];
    for (const claim of ['sub', 'auth_time', 'amr', 'scope', 'client_id', 'aud']) {
      assert.deepEqual(now.payload[claim], before.payload[claim], claim);
    }
    assert.notEqual(now.payload.jti, before.payload.jti);
    assert.equal(next.claims().auth_time, first.claims().auth_time);
    assert.equal(next.claims().sub, first.claims().sub);
  });

  it('answers a retry while the successor has not been used', async () => {
    const party = await RelyingParty.discover(server, web);
    const first = await party.signIn(new Browser(server), alice);
    const lost = await party.refresh(first.refresh_token);
    const retried = await party.refresh(first.refresh_token);
    assert.equal(retried.refresh_token, lost.refresh_token);
    const next = await party.refresh(retried.refresh_token);
    assert.ok(next.access_token);
  });

  it('refuses a token whose successor was used and ends the family', async () => {
    const party = await RelyingParty.discover(server, web);
    const first = await party.signIn(new Browser(server), alice);
    const second = await party.refresh(first.refresh_token);
    const third = await party.refresh(second.refresh_token);
    await assert.rejects(party.refresh(first.refresh_token), refused('invalid_grant', 400));
    await assert.rejects(party.refresh(third.refresh_token), refused('invalid_grant', 400));
  });

  it('answers many at once with one successor', async () => {
    const party = await RelyingParty.discover(server, web);
    const first = await party.signIn(new Browser(server), alice);
    const answers = await Promise.all(Array.from({ length: 8 }, () => party.refresh(first.refresh_token)));
    const successors = new Set(answers.map((answer) => answer.refresh_token));
    assert.equal(successors.size, 1);
    assert.ok((await party.refresh(answers[0].refresh_token)).access_token);
  });

  it('narrows the scope, never widens it', async () => {
    const party = await RelyingParty.discover(server, web);
    const first = await party.signIn(new Browser(server), alice, { scope: 'openid email' });
    const narrow = await party.refresh(first.refresh_token, { scope: 'openid' });
    assert.ok(!narrow.scope.split(' ').includes('email'));
    await assert.rejects(party.refresh(narrow.refresh_token, { scope: 'openid profile' }), refused('invalid_scope', 400));
  });

  it('is bound to the client, and a stranger consumes nothing', async () => {
    const party = await RelyingParty.discover(server, web);
    const stranger = await RelyingParty.discover(server, other);
    const first = await party.signIn(new Browser(server), alice);
    await assert.rejects(stranger.refresh(first.refresh_token), refused('invalid_grant', 400));
    await party.refresh(first.refresh_token);
  });

  it('is refused for a disabled user', async () => {
    const bob = await server.addUser('bob@example.com');
    const party = await RelyingParty.discover(server, web);
    const first = await party.signIn(new Browser(server), bob);
    await server.json('user', 'disable', 'bob@example.com');
    await assert.rejects(party.refresh(first.refresh_token), refused('invalid_grant', 400));
  });
});

describe('refresh with an API key', () => {
  const send = async (authorization, refresh_token, asJson) => {
    const parameters = { grant_type: 'refresh_token', refresh_token };
    const answer = await server.fetch(`${server.issuer}/v4/tokens`, {
      method: 'POST',
      headers: { authorization, ...(asJson ? { 'content-type': 'application/json' } : {}) },
      body: asJson ? JSON.stringify(parameters) : new URLSearchParams(parameters),
    });
    assert.match(answer.headers.get('cache-control'), /no-store/);
    return { status: answer.status, body: await answer.json() };
  };

  it('takes every form of the header, a form and JSON', async () => {
    const tv = await server.addClient('tv', 'https://tv.example/cb', '--api-key');
    const party = await RelyingParty.discover(server, tv);
    let tokens = await party.signIn(new Browser(server), alice);
    const key = tv.api_key;
    const forms = [btoa(key), btoa(`${key}:`), btoa(`:${key}`), btoa(`tv:${key}`), key];
    for (const form of forms) {
      for (const asJson of [false, true]) {
        const { status, body } = await send(`Basic ${form}`, tokens.refresh_token, asJson);
        assert.equal(status, 200, JSON.stringify(body));
        assert.equal((await party.verify(body.access_token)).payload.client_id, 'tv');
        assert.notEqual(body.refresh_token, tokens.refresh_token);
        tokens = body;
      }
    }
    const [{ id, last_used_at }] = await server.json('client', 'api-key', 'list', 'tv');
    assert.ok(Number.isInteger(last_used_at));
    await server.json('client', 'api-key', 'revoke', 'tv', id, '--yes');
    const { status, body } = await send(`Basic ${btoa(key)}`, tokens.refresh_token, false);
    assert.deepEqual([status, body.error], [401, 'invalid_client']);
  });
});

describe('anonymous users', () => {
  const GRANT = 'urn:service:oauth2:grant-type:anonymous';

  it('come from the grant that the metadata names, and stay the same through refreshes', async () => {
    const kiosk = await server.addClient('kiosk', 'https://kiosk.example/cb', ...GRANTS('authorization_code', 'refresh_token', 'anonymous'));
    const party = await RelyingParty.discover(server, kiosk);
    assert.ok(party.config.serverMetadata().grant_types_supported.includes(GRANT));
    const tokens = await oidc.genericGrantRequest(party.config, GRANT, { scope: 'openid profile' });
    assert.equal(tokens.user_type, 'anonymous');
    assert.equal(tokens.claims().sub, tokens.uuid);
    const { payload } = await party.verify(tokens.access_token);
    assert.deepEqual(payload.amr, [{ authority: 'anonymous' }]);
    assert.equal(payload.scope, 'openid profile anonymous');
    const next = await party.refresh(tokens.refresh_token);
    assert.equal(next.claims().sub, tokens.uuid);
    assert.equal((await party.userinfo(next)).sub, tokens.uuid);
    const other = await oidc.genericGrantRequest(party.config, GRANT, {});
    assert.notEqual(other.uuid, tokens.uuid);
    const users = await server.json('user', 'list');
    assert.ok(users.some(({ uuid, source }) => uuid === tokens.uuid && source === 'ANONYMOUS'));
  });

  it('are asked for by oauth4webapi, or with JSON', async () => {
    const kiosk = await server.addClient('lobby', 'https://lobby.example/cb', ...GRANTS('authorization_code', 'refresh_token', 'anonymous'));
    const issuer = new URL(server.issuer);
    const options = { [oauth.customFetch]: server.fetch };
    const as = await oauth.processDiscoveryResponse(issuer, await oauth.discoveryRequest(issuer, options));
    const client = { client_id: kiosk.client_id };
    const authentication = oauth.ClientSecretBasic(kiosk.client_secret);
    const answer = await oauth.genericTokenEndpointRequest(as, client, authentication, GRANT, { scope: 'anonymous' }, options);
    const tokens = await oauth.processGenericTokenEndpointResponse(as, client, answer);
    assert.equal(tokens.scope, 'anonymous');
    const byJson = await server.fetch(as.token_endpoint, {
      method: 'POST',
      headers: {
        authorization: `Basic ${btoa(`${kiosk.client_id}:${kiosk.client_secret}`)}`,
        'content-type': 'application/json',
      },
      body: JSON.stringify({ grant_type: GRANT }),
    });
    assert.equal(byJson.status, 200);
    assert.equal((await byJson.json()).scope, 'openid anonymous');
  });

  it('are for clients that opted in', async () => {
    const party = await RelyingParty.discover(server, web);
    await assert.rejects(oidc.genericGrantRequest(party.config, GRANT, {}), refused('unauthorized_client', 400));
  });
});

describe('clients that act for themselves', () => {
  for (const [alg, generate] of [
    ['RS256', { name: 'RSASSA-PKCS1-v1_5', modulusLength: 2048, publicExponent: new Uint8Array([1, 0, 1]), hash: 'SHA-256' }],
    ['PS256', { name: 'RSA-PSS', modulusLength: 2048, publicExponent: new Uint8Array([1, 0, 1]), hash: 'SHA-256' }],
    ['ES256', { name: 'ECDSA', namedCurve: 'P-256' }],
  ]) {
    it(`authenticate with private_key_jwt and ${alg}`, async () => {
      const { privateKey, publicKey } = await crypto.subtle.generateKey(generate, true, ['sign', 'verify']);
      const file = join(server.directory, `${alg}.pem`);
      await writeFile(file, await exportSPKI(publicKey));
      const id = `robot-${alg}`;
      const flags = [...GRANTS('client_credentials'), '--scope', 'services:all', '--public-key-file', file];
      const robot = await server.json('client', 'add', id, ...flags);
      assert.equal(robot.client_secret, undefined);
      const config = await oidc.discovery(new URL(server.issuer), id, {}, oidc.PrivateKeyJwt(privateKey), {
        [oidc.customFetch]: server.fetch,
      });
      assert.ok(config.serverMetadata().token_endpoint_auth_methods_supported.includes('private_key_jwt'));
      assert.ok(config.serverMetadata().token_endpoint_auth_signing_alg_values_supported.includes(alg));
      const tokens = await oidc.clientCredentialsGrant(config, { scope: 'services:all' });
      assert.deepEqual([tokens.refresh_token, tokens.id_token], [undefined, undefined]);
      assert.deepEqual([tokens.account_id, tokens.user_type, tokens.source], [id, 'client', 'CLIENT']);
      const { payload } = decode(tokens.access_token);
      assert.deepEqual([payload.sub, payload.client_id], [robot.client_uuid, id]);
      assert.equal((await oidc.tokenIntrospection(config, tokens.access_token)).active, true);
      await oidc.tokenRevocation(config, tokens.access_token);
      assert.equal((await oidc.tokenIntrospection(config, tokens.access_token)).active, false);
      await assert.rejects(oidc.clientCredentialsGrant(config, { scope: 'openid' }), refused('invalid_scope', 400));
    });
  }

  it('use a secret only where the operator allows it', async () => {
    const flags = [...GRANTS('client_credentials'), '--scope', 'services:all', '--scope', 'services:read'];
    const most = ['--allow-secret-credentials', '--max-scope', 'services:read'];
    const cron = await server.json('client', 'add', 'cron', ...flags, ...most);
    const { config } = await RelyingParty.discover(server, cron);
    assert.equal((await oidc.clientCredentialsGrant(config, { scope: 'services:read' })).scope, 'services:read');
    await assert.rejects(oidc.clientCredentialsGrant(config, { scope: 'services:all' }), refused('invalid_scope', 400));
  });
});

describe('introspection and revocation', () => {
  it('tell a live token from a revoked one', async () => {
    const party = await RelyingParty.discover(server, web);
    const tokens = await party.signIn(new Browser(server), alice);
    const access = await party.introspect(tokens.access_token, { token_type_hint: 'access_token' });
    assert.equal(access.active, true);
    assert.equal(access.client_id, 'web');
    assert.equal(access.sub, alice.uuid);
    assert.equal(access.scope, tokens.scope);
    assert.equal((await party.introspect(tokens.refresh_token)).active, true);

    await party.revoke(tokens.access_token);
    assert.deepEqual(await party.introspect(tokens.access_token), { active: false });
    await party.revoke(tokens.refresh_token, { token_type_hint: 'refresh_token' });
    assert.deepEqual(await party.introspect(tokens.refresh_token), { active: false });
  });

  it('say nothing about what they do not know', async () => {
    const party = await RelyingParty.discover(server, web);
    assert.deepEqual(await party.introspect('idsvc_rt_nonsense'), { active: false });
    await party.revoke('idsvc_rt_nonsense');
  });

  it('leave the tokens of another client alone', async () => {
    const party = await RelyingParty.discover(server, web);
    const stranger = await RelyingParty.discover(server, other);
    const tokens = await party.signIn(new Browser(server), alice);
    await stranger.revoke(tokens.refresh_token).catch((error) => assert.equal(error.status, 400));
    await party.refresh(tokens.refresh_token);
  });
});
