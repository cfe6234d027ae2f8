// Clients that register themselves with openid-client.

import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import * as oidc from 'openid-client';
import { Browser } from './browser.mjs';
import { refused } from './cast.mjs';
import { Server } from './harness.mjs';
import { RelyingParty } from './relying-party.mjs';

let server;
let alice;

before(async () => {
  server = await Server.start({ flags: ['--clients-registration', 'token'] });
  alice = await server.addAlice();
});
after(() => server?.stop());

async function register(metadata, initialAccessToken) {
  const config = await oidc.dynamicClientRegistration(new URL(server.issuer), metadata, undefined, {
    initialAccessToken,
    [oidc.customFetch]: server.fetch,
  });
  return { ...config.clientMetadata(), redirect_uri: metadata.redirect_uris[0] };
}

describe('registration', () => {
  for (const [method, redirectUri] of [
    ['client_secret_basic', 'https://notes.example/cb'],
    ['client_secret_post', 'https://notes.example/cb'],
    ['none', 'http://127.0.0.1:7777/cb'],
  ]) {
    it(`brings a client that signs in and refreshes with ${method}`, async () => {
      const token = await server.json('client', 'registration-token', 'add', '--uses', '1');
      const metadata = {
        client_name: 'Notes',
        redirect_uris: [redirectUri],
        grant_types: ['authorization_code', 'refresh_token'],
        token_endpoint_auth_method: method,
      };
      const client = await register(metadata, token.initial_access_token);
      assert.equal(client.token_endpoint_auth_method, method);
      assert.equal(client.client_secret !== undefined, method !== 'none');
      const party = await RelyingParty.discover(server, client, method);
      const browser = new Browser(server);
      const { url, checks } = await party.begin();
      const page = await browser.signIn(await browser.open(url), alice.email, alice.password);
      assert.match(page.text, /Notes/);
      const tokens = await party.finish(await browser.decide(page, 'allow'), checks);
      assert.equal(tokens.claims().sub, alice.uuid);
      await party.refresh(tokens.refresh_token);
      await assert.rejects(register(metadata, token.initial_access_token), (error) => error.status === 401 || error.cause?.status === 401);
    });
  }

  it('says what is wrong with the metadata', async () => {
    const token = await server.json('client', 'registration-token', 'add');
    const bad = { redirect_uris: ['javascript:alert(1)'] };
    await assert.rejects(register(bad, token.initial_access_token), refused('invalid_redirect_uri', 400));
  });
});
