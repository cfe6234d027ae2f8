// Who takes part in the tests of the client libraries: one server, Alice and three clients.

import assert from 'node:assert/strict';
import { Browser, Callback } from './browser.mjs';
import { ALICE, Server } from './harness.mjs';

export const SIGNED_OUT = 'https://app.example/signed-out';

export let server;
export let alice;
/** A confidential client. */
export let web;
/** A public client. */
export let native;
/** A confidential client that people are asked about. */
export let other;

/** The client library refuses with this OAuth error. */
export function refused(error, status) {
  return (caught) => {
    assert.ok(caught.error !== undefined, `an OAuth error, not: ${caught.stack}\n${caught.cause}`);
    assert.equal(caught.error, error, caught.error_description);
    if (status !== undefined) assert.equal(caught.status, status);
    if (caught.error_description !== undefined) assert.match(caught.error_description, /^[\x20\x21\x23-\x5b\x5d-\x7e]+$/);
    return true;
  };
}

/** A request to the token endpoint without any library. */
export async function tokenRequest(parameters, { client = web, headers = {} } = {}) {
  const answer = await server.fetch(`${server.issuer}/oauth2/token`, {
    method: 'POST',
    headers: client
      ? { authorization: `Basic ${btoa(`${client.client_id}:${client.client_secret}`)}`, ...headers }
      : headers,
    body: new URLSearchParams(parameters),
  });
  assert.match(answer.headers.get('cache-control'), /no-store/);
  return { status: answer.status, headers: answer.headers, body: await answer.json() };
}

/** A signed-in browser at the point where the client has the code and has not used it. */
export async function atTheCode(party, parameters) {
  const browser = new Browser(server);
  const { url, checks } = await party.begin(parameters);
  const callback = await browser.signIn(await browser.open(url), ALICE, alice.password);
  assert.ok(callback instanceof Callback, callback.text);
  return { browser, callback, checks, code: callback.parameters.get('code') };
}

export async function enter() {
  server = await Server.start();
  alice = await server.addAlice();
  web = await server.addClient('web', 'https://app.example/cb', '--pkce', 'optional', '--post-logout-redirect-uri', SIGNED_OUT);
  other = await server.addClient('other', 'https://other.example/cb', '--consent', 'require');
  native = await server.addClient('native', 'com.example.app:/cb', '--public');
}

export async function leave() {
  await server?.stop();
}
