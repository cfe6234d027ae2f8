// Services exchange the token of a user by openid-client and oauth4webapi (RFC 8693), and an identity assertion comes in.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { decodeJwt, exportJWK, generateKeyPair, SignJWT } from 'jose';
import * as oauth from 'oauth4webapi';
import * as oidc from 'openid-client';
import { Browser } from './browser.mjs';
import { refused } from './cast.mjs';
import { ALICE, Server } from './harness.mjs';
import { RelyingParty } from './relying-party.mjs';
import { Upstream } from './upstream.mjs';

const GRANT = 'urn:ietf:params:oauth:grant-type:token-exchange';
const JWT_BEARER = 'urn:ietf:params:oauth:grant-type:jwt-bearer';
const ACCESS_TOKEN = 'urn:ietf:params:oauth:token-type:access_token';
const ID_TOKEN = 'urn:ietf:params:oauth:token-type:id_token';
const CALLBACK = 'https://app.example/cb';
const COMPANY = 'https://id.company.example';
const SCOPE = { orders: 'orders.write', stock: 'stock.read', ledger: 'ledger.read' };
const API_FLAGS = Object.keys(SCOPE).flatMap((api) => ['--api', api]);

const identifier = (api) => `https://api.example/${api}`;

let [upstream, server, alice] = [];
/** The application that users sign in to, and the services that its API calls pass through. */
let [app, orders, stock] = [];
/** The application at the provider. */
let there;

/** A service that exchanges tokens, as a party of openid-client. */
async function addService(id, ownScope, ...flags) {
  const grants = ['token-exchange', 'client_credentials'].flatMap((grant) => ['--grant', grant]);
  const secret = ['--allow-secret-credentials', '--max-scope', ownScope];
  return RelyingParty.discover(server, await server.json('client', 'add', id, ...grants, ...API_FLAGS, ...secret, ...flags));
}

before(async () => {
  upstream = await Upstream.start();
  server = await Server.start({ flags: upstream.flags });
  alice = await server.addAlice();
  for (const [api, scope] of Object.entries(SCOPE)) {
    await server.json('api', 'add', api, '--identifier', identifier(api), '--scope', scope);
  }
  there = await upstream.addClient({ client_id: 'their-app', redirect_uris: [CALLBACK] });
  await server.json('provider', 'add', 'partner', '--issuer', upstream.issuer, '--exchange', '--audience', 'their-app', '--create-users');
  const scopes = Object.values(SCOPE).flatMap((scope) => ['--scope', scope]);
  app = await RelyingParty.discover(server, await server.addClient('app', CALLBACK, ...API_FLAGS, ...scopes));
  orders = await addService('orders-service', SCOPE.stock, '--provider', 'partner');
  stock = await addService('stock-service', SCOPE.ledger);
  for (const api of ['orders', 'stock']) await server.json('api', 'update', api, '--introspection-client', `${api}-service`);
});

after(async () => {
  await server?.stop();
  await upstream?.stop();
});

/** The tokens of Alice, who signed in to the application by code. */
const signedIn = (scopes = Object.values(SCOPE)) =>
  app.signIn(new Browser(server), { email: ALICE, password: alice.password }, { scope: ['openid', 'offline_access', ...scopes].join(' ') });

const ownToken = ({ config }, scope) => oidc.clientCredentialsGrant(config, { scope });

/** The exchange of an access token by openid-client. */
const exchange = ({ config }, { access_token }, parameters = {}, options = undefined) =>
  oidc.genericGrantRequest(config, GRANT, { subject_token: access_token, subject_token_type: ACCESS_TOKEN, ...parameters }, options);

const actor = ({ access_token }) => ({ actor_token: access_token, actor_token_type: ACCESS_TOKEN });

describe('token exchange', () => {
  it('is named by the metadata', () => {
    assert.ok(app.config.serverMetadata().grant_types_supported.includes(GRANT));
  });

  it('narrows the token of a user to one API by openid-client', async () => {
    const subject = await signedIn();
    for (const target of [{ resource: identifier('stock') }, { audience: 'stock' }, { audience: identifier('stock') }]) {
      const tokens = await exchange(orders, subject, target);
      assert.equal(tokens.issued_token_type, ACCESS_TOKEN);
      assert.deepEqual([tokens.refresh_token, tokens.id_token], [undefined, undefined]);
      const { payload } = await app.verify(tokens.access_token, identifier('stock'));
      assert.equal(payload.aud, identifier('stock'));
      assert.deepEqual([payload.sub, payload.client_id, payload.act], [alice.uuid, 'orders-service', undefined]);
      assert.ok(payload.scope.split(' ').includes(SCOPE.stock) && !payload.scope.includes(SCOPE.orders), payload.scope);
      const { payload: before } = await app.verify(subject.access_token);
      assert.deepEqual([payload.auth_time, payload.acr, payload.amr], [before.auth_time, before.acr, before.amr]);
      assert.ok(payload.exp <= before.exp);
    }
  });

  it('names the service that acts, by oauth4webapi', async () => {
    const issuer = new URL(server.issuer);
    const options = { [oauth.customFetch]: server.fetch };
    const as = await oauth.processDiscoveryResponse(issuer, await oauth.discoveryRequest(issuer, options));
    const client = { client_id: 'orders-service' };
    const authentication = oauth.ClientSecretBasic(orders.client.client_secret);
    const answered = await oauth.clientCredentialsGrantRequest(as, client, authentication, { scope: SCOPE.stock }, options);
    const own = await oauth.processClientCredentialsResponse(as, client, answered);
    const { access_token: subject_token } = await signedIn();
    const parameters = { subject_token, subject_token_type: ACCESS_TOKEN, ...actor(own), resource: identifier('stock') };
    const answer = await oauth.genericTokenEndpointRequest(as, client, authentication, GRANT, parameters, options);
    const tokens = await oauth.processGenericTokenEndpointResponse(as, client, answer);
    // As the called API does it (RFC 9068 section 4).
    const request = new Request(identifier('stock'), { headers: { authorization: `Bearer ${tokens.access_token}` } });
    const claims = await oauth.validateJwtAccessToken(as, request, identifier('stock'), options);
    assert.equal(claims.sub, alice.uuid);
    assert.deepEqual(claims.act, { iss: server.issuer, sub: own.uuid, client_id: 'orders-service' });
  });

  it('names both services of a chain, the newer one outside', async () => {
    const both = new URLSearchParams({ subject_token: (await signedIn()).access_token, subject_token_type: ACCESS_TOKEN });
    for (const api of ['stock', 'ledger']) both.append('resource', identifier(api));
    const first = await ownToken(orders, SCOPE.stock);
    for (const [name, value] of Object.entries(actor(first))) both.set(name, value);
    const forStock = await oidc.genericGrantRequest(orders.config, GRANT, both);
    const { payload } = await app.verify(forStock.access_token, identifier('stock'));
    assert.deepEqual(payload.aud.toSorted(), [identifier('ledger'), identifier('stock')]);

    const second = await ownToken(stock, SCOPE.ledger);
    const forLedger = await exchange(stock, forStock, { ...actor(second), resource: identifier('ledger') });
    const { payload: last } = await app.verify(forLedger.access_token, identifier('ledger'));
    assert.deepEqual([last.aud, last.sub, last.client_id], [identifier('ledger'), alice.uuid, 'stock-service']);
    const inner = { iss: server.issuer, sub: first.uuid, client_id: 'orders-service' };
    assert.deepEqual(last.act, { iss: server.issuer, sub: second.uuid, client_id: 'stock-service', act: inner });
    const told = await stock.introspect(forLedger.access_token);
    assert.deepEqual([told.active, told.act], [true, last.act]);
    const stolen = exchange(stock, forStock, { ...actor(first), resource: identifier('ledger') });
    await assert.rejects(stolen, refused('invalid_request', 400));
  });

  it('does not widen scope or audience', async () => {
    const narrow = await exchange(orders, await signedIn(), { resource: identifier('stock'), scope: SCOPE.stock });
    await assert.rejects(exchange(orders, narrow, { scope: SCOPE.orders }), refused('invalid_scope', 400));
    await assert.rejects(exchange(orders, narrow, { scope: 'openid' }), refused('invalid_scope', 400));
    await assert.rejects(exchange(orders, narrow, { resource: identifier('orders') }), refused('invalid_target', 400));
    await assert.rejects(exchange(orders, narrow, { audience: 'unknown' }), refused('invalid_target', 400));
    const forOrders = await signedIn([SCOPE.orders]);
    await assert.rejects(exchange(orders, forOrders, { resource: identifier('stock') }), refused('invalid_target', 400));
    await assert.rejects(exchange(app, forOrders), refused('unauthorized_client', 400));
  });

  it('ends with the grant of the user', async () => {
    const subject = await signedIn();
    const tokens = await exchange(orders, subject, { resource: identifier('stock') });
    assert.equal((await stock.introspect(tokens.access_token)).active, true);
    await app.revoke(subject.refresh_token);
    assert.equal((await stock.introspect(tokens.access_token)).active, false);
    await assert.rejects(exchange(orders, subject), refused('invalid_request', 400));
    await assert.rejects(exchange(orders, tokens), refused('invalid_request', 400));
  });

  it('takes a token that is bound to a key only from the API that it is for', async () => {
    const keys = await oidc.randomDPoPKeyPair('ES256');
    const { url, checks } = await app.begin({ scope: `openid ${SCOPE.orders}` });
    const browser = new Browser(server);
    const callback = await browser.signIn(await browser.open(url), ALICE, alice.password);
    const options = { DPoP: oidc.getDPoPHandle(app.config, keys) };
    const subject = await oidc.authorizationCodeGrant(app.config, callback.request, checks, undefined, options);
    assert.equal(subject.token_type, 'dpop');
    await assert.rejects(exchange(stock, subject), refused('invalid_request', 400));
    await assert.rejects(exchange(orders, subject), refused('invalid_request', 400));
    const own = await oidc.randomDPoPKeyPair('ES256');
    const tokens = await exchange(orders, subject, {}, { DPoP: oidc.getDPoPHandle(orders.config, own) });
    assert.equal(tokens.token_type, 'dpop');
    const { payload } = await app.verify(tokens.access_token, identifier('orders'));
    const [before, now] = [subject, tokens].map(({ access_token }) => decodeJwt(access_token).cnf.jkt);
    assert.deepEqual([payload.sub, payload.cnf.jkt === now, now === before], [alice.uuid, true, false]);
  });

  it('takes the ID token of a provider', async () => {
    const { id_token, access_token } = await upstream.signIn(there, 'bert');
    const own = await ownToken(orders, SCOPE.stock);
    const parameters = { subject_token: id_token, subject_token_type: ID_TOKEN, ...actor(own), resource: identifier('stock') };
    const tokens = await oidc.genericGrantRequest(orders.config, GRANT, parameters);
    assert.deepEqual([tokens.source, tokens.issued_token_type, tokens.refresh_token], ['partner', ACCESS_TOKEN, undefined]);
    const { payload } = await app.verify(tokens.access_token, identifier('stock'));
    assert.deepEqual([payload.sub, payload.amr], [tokens.uuid, [{ authority: 'partner' }]]);
    assert.equal(payload.act.client_id, 'orders-service');
    const untrusted = oidc.genericGrantRequest(stock.config, GRANT, { subject_token: id_token, subject_token_type: ID_TOKEN });
    await assert.rejects(untrusted, refused('invalid_request', 400));
    await assert.rejects(exchange(orders, { access_token }), refused('invalid_request', 400));
  });
});

describe('an identity assertion', () => {
  let [privateKey, agent] = [];

  before(async () => {
    const pair = await generateKeyPair('RS256');
    privateKey = pair.privateKey;
    const keys = join(server.directory, 'company.jwks');
    await writeFile(keys, JSON.stringify({ keys: [await exportJWK(pair.publicKey)] }));
    await server.json('provider', 'add', 'company', '--issuer', COMPANY, '--id-jag', '--create-users', '--jwks-file', keys);
    const flags = ['--grant', 'jwt-bearer', '--provider', 'company', '--scope', 'openid', '--scope', SCOPE.stock, ...API_FLAGS];
    agent = await RelyingParty.discover(server, await server.json('client', 'add', 'agent', ...flags));
  });

  /** An assertion of the provider that its user may use one API by the agent. */
  const idJag = (changes = {}, typ = 'oauth-id-jag+jwt') =>
    new SignJWT({ client_id: 'agent', resource: identifier('stock'), scope: `${SCOPE.stock} ${SCOPE.orders}`, ...changes })
      .setProtectedHeader({ alg: 'RS256', typ })
      .setIssuer(COMPANY)
      .setAudience(server.issuer)
      .setSubject('dora')
      .setJti(randomUUID())
      .setIssuedAt()
      .setExpirationTime('5m')
      .sign(privateKey);

  const grant = (assertion, parameters = {}) => oidc.genericGrantRequest(agent.config, JWT_BEARER, { assertion, ...parameters });

  it('is named by the metadata', () => {
    const { authorization_grant_profiles_supported: profiles } = agent.config.serverMetadata();
    assert.deepEqual(profiles, ['urn:ietf:params:oauth:grant-profile:id-jag']);
  });

  it('brings an access token for what it names, once', async () => {
    const assertion = await idJag();
    const tokens = await grant(assertion);
    assert.deepEqual([tokens.refresh_token, tokens.source], [undefined, 'company']);
    const { payload } = await app.verify(tokens.access_token, identifier('stock'));
    assert.deepEqual([payload.aud, payload.client_id], [identifier('stock'), 'agent']);
    assert.deepEqual(payload.scope.split(' ').filter((scope) => scope !== 'authenticated'), [SCOPE.stock]);
    await assert.rejects(grant(assertion), refused('invalid_grant', 400));
    const again = await grant(await idJag());
    assert.equal(again.uuid, tokens.uuid, 'the user stays the same');
  });

  it('is refused for another client, of another type, and for more than it names', async () => {
    await assert.rejects(grant(await idJag({ client_id: 'app' })), refused('invalid_grant', 400));
    await assert.rejects(grant(await idJag({}, 'JWT')), refused('invalid_grant', 400));
    await assert.rejects(grant(await idJag(), { resource: identifier('orders') }), refused('invalid_target', 400));
    await assert.rejects(grant(await idJag(), { scope: 'openid' }), refused('invalid_scope', 400));
  });
});
