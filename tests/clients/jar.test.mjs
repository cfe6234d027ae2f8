// Signed authorization requests and responses, as openid-client makes and reads them (RFC 9101, JARM, RFC 9701).

import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, it } from 'node:test';
import { exportSPKI, generateKeyPair, jwtVerify } from 'jose';
import * as oidc from 'openid-client';
import { Browser, Page } from './browser.mjs';
import { Server } from './harness.mjs';
import { RelyingParty } from './relying-party.mjs';

let server;
let alice;

before(async () => {
  server = await Server.start();
  alice = await server.addAlice();
});
after(() => server?.stop());

/** A client that authenticates with a key of this algorithm and must sign its requests with it. */
async function register(id, alg, flags = [], metadata = undefined) {
  const { publicKey, privateKey } = await generateKeyPair(alg, { extractable: true });
  const file = join(server.directory, `${id}.pem`);
  await writeFile(file, await exportSPKI(publicKey));
  const signing = ['--public-key-file', file, '--require-signed-request', '--request-object-signing-alg', alg];
  const client = await server.addClient(id, 'https://app.example/cb', ...signing, ...flags);
  client.key = privateKey;
  return RelyingParty.discover(server, client, 'private_key_jwt', metadata);
}

for (const alg of ['ES256', 'RS256', 'PS256']) {
  it(`openid-client signs a request by value with ${alg}`, async () => {
    const party = await register(`by-value-${alg}`, alg);
    const sign = (config, parameters) => oidc.buildAuthorizationUrlWithJAR(config, parameters, party.client.key);
    const { url, checks } = await party.begin({ max_age: '600', claims: '{"id_token":{"acr":null}}' }, sign);
    assert.deepEqual([...url.searchParams.keys()].sort(), ['client_id', 'request']);
    const browser = new Browser(server);
    const callback = await browser.signIn(await browser.open(url), alice.email, alice.password);
    const tokens = await party.finish(callback, checks);
    assert.equal(tokens.claims().acr, '1');
  });

  it(`openid-client pushes a request that is signed with ${alg}`, async () => {
    const party = await register(`pushed-${alg}`, alg, ['--require-par']);
    const push = async (config, parameters) => {
      const { searchParams } = await oidc.buildAuthorizationUrlWithJAR(config, parameters, party.client.key);
      return oidc.buildAuthorizationUrlWithPAR(config, searchParams);
    };
    const { url, checks } = await party.begin({}, push);
    assert.deepEqual([...url.searchParams.keys()].sort(), ['client_id', 'request_uri']);
    const browser = new Browser(server);
    const callback = await browser.signIn(await browser.open(url), alice.email, alice.password);
    await party.finish(callback, checks);
  });
}

for (const alg of ['RS256', 'ES256']) {
  it(`openid-client reads a response that is signed with ${alg}`, async () => {
    const metadata = { id_token_signed_response_alg: 'RS256', authorization_signed_response_alg: alg };
    const flags = ['--authorization-signed-response-alg', alg];
    const party = await register(`signed-${alg}`, 'ES256', flags, metadata);
    oidc.useJwtResponseMode(party.config);
    const sign = (config, parameters) => oidc.buildAuthorizationUrlWithJAR(config, parameters, party.client.key);
    const { url, checks } = await party.begin({}, sign);
    const browser = new Browser(server);
    const callback = await browser.signIn(await browser.open(url), alice.email, alice.password);
    const tokens = await party.finish(callback, checks);
    assert.equal(tokens.claims().sub, alice.uuid);
    const silent = await party.begin({ prompt: 'none' }, sign);
    const refusal = await new Browser(server).open(silent.url);
    await assert.rejects(party.finish(refusal, silent.checks), { error: 'login_required' });
  });
}

it('a request that another key signed is refused', async () => {
  const party = await register('stolen', 'ES256');
  const { privateKey } = await generateKeyPair('ES256');
  const sign = (config, parameters) => oidc.buildAuthorizationUrlWithJAR(config, parameters, privateKey);
  const { url } = await party.begin({}, sign);
  const page = await new Browser(server).open(url);
  assert.ok(page instanceof Page);
  assert.equal(page.status, 400);
  const push = oidc.buildAuthorizationUrlWithPAR(party.config, url.searchParams);
  await assert.rejects(push, { error: 'invalid_request_object' });
  const plain = await party.begin();
  const callback = await new Browser(server).open(plain.url);
  await assert.rejects(party.finish(callback, plain.checks), { error: 'invalid_request' });
});

it('openid-client and jose read a signed introspection response', async () => {
  const client = await server.addClient('api', 'https://app.example/cb', '--introspection-signed-response-alg', 'ES256');
  const metadata = { id_token_signed_response_alg: 'RS256', introspection_signed_response_alg: 'ES256' };
  const party = await RelyingParty.discover(server, client, 'client_secret_basic', metadata);
  const tokens = await party.signIn(new Browser(server), alice);
  const told = await party.introspect(tokens.access_token);
  assert.deepEqual([told.active, told.sub], [true, alice.uuid]);
  assert.deepEqual(await party.introspect('unknown'), { active: false });
  const answer = await server.fetch(`${server.issuer}/oauth2/introspect`, {
    method: 'POST',
    headers: {
      accept: 'application/token-introspection+jwt',
      authorization: `Basic ${btoa(`api:${client.client_secret}`)}`,
    },
    body: new URLSearchParams({ token: tokens.access_token }),
  });
  const { payload } = await jwtVerify(await answer.text(), party.jwks, {
    issuer: server.issuer, audience: 'api', typ: 'token-introspection+jwt',
  });
  assert.equal(payload.token_introspection.active, true);
});
