// A client that shows a certificate, as openid-client does (RFC 8705).

import assert from 'node:assert/strict';
import { createHash, X509Certificate } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import * as oidc from 'openid-client';
import { Agent, fetch as undiciFetch } from 'undici';
import { Browser } from './browser.mjs';
import { certificates } from './certificates.mjs';
import { freePort, Server } from './harness.mjs';
import { RelyingParty } from './relying-party.mjs';

describe('with a certificate', () => {
  const name = 'bank.example.com';
  let folder;
  let server;
  let alice;
  let shown;
  let client;

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'idsvc-mtls-'));
    shown = await certificates(folder, name);
    const flags = ['--tls-mtls-listen', `127.0.0.1:${await freePort()}`, '--tls-mtls-ca', shown.caFile];
    server = await Server.start({ flags });
    alice = await server.addAlice();
    client = await server.addClient(
      'bank', 'https://app.example/cb', '--tls-client-auth-san-dns', name, '--tls-client-certificate-bound-access-tokens',
    );
  });
  after(async () => {
    await server?.stop();
    await rm(folder, { recursive: true });
  });

  it('openid-client signs in by the aliases, refreshes and asks UserInfo', async () => {
    assert.deepEqual(client.auth_methods, ['tls_client_auth']);
    const metadata = { id_token_signed_response_alg: 'RS256', use_mtls_endpoint_aliases: true };
    const party = await RelyingParty.discover(server, client, 'tls_client_auth', metadata);
    const dispatcher = new Agent({ connect: { ca: server.ca, cert: shown.cert, key: shown.key } });
    const addresses = [];
    party.config[oidc.customFetch] = (url, options) => {
      addresses.push(url);
      return undiciFetch(url, { ...options, duplex: options.body ? 'half' : undefined, dispatcher });
    };
    const browser = new Browser(server);
    const { url, checks } = await party.begin();
    const callback = await browser.signIn(await browser.open(url), alice.email, alice.password);
    const tokens = await oidc.authorizationCodeGrant(party.config, callback.request ?? callback, checks);
    const digest = createHash('sha256').update(new X509Certificate(shown.cert).raw).digest('base64url');
    const { payload } = await party.verify(tokens.access_token);
    assert.deepEqual(payload.cnf, { 'x5t#S256': digest });
    const next = await oidc.refreshTokenGrant(party.config, tokens.refresh_token);
    const claims = await oidc.fetchUserInfo(party.config, next.access_token, alice.uuid);
    assert.equal(claims.sub, alice.uuid);
    const aliases = party.config.serverMetadata().mtls_endpoint_aliases;
    assert.ok(addresses.includes(aliases.token_endpoint) && addresses.includes(aliases.userinfo_endpoint), `${addresses}`);
    const stolen = await server.fetch(`${server.issuer}/oauth2/userinfo`, {
      headers: { authorization: `Bearer ${next.access_token}` },
    });
    assert.equal(stolen.status, 401);
    await dispatcher.close();
  });
});
