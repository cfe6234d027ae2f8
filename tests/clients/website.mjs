// A small website on a loopback port whose visitors sign in with idsvc: once by openid-client on the
// server, once by oauth4webapi in the visitor's own browser.

import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import * as oidc from 'openid-client';
import { RelyingParty } from './relying-party.mjs';

const escape = (text) => String(text).replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);

const page = (body) => `<!doctype html><html lang="en"><meta charset="utf-8"><title>Website</title>
<link rel="icon" href="data:,"><body>${body}</body></html>`;

const SINGLE_PAGE_APPLICATION = `<pre id="result"></pre><script type="module">
import * as oauth from '/oauth4webapi.js';

const show = (result) => { document.querySelector('#result').textContent = JSON.stringify(result); };

async function main() {
  const here = new URL(location.href);
  const settings = JSON.parse(sessionStorage.settings ?? here.searchParams.get('settings'));
  const issuer = new URL(settings.issuer);
  const server = await oauth.processDiscoveryResponse(issuer, await oauth.discoveryRequest(issuer));
  const client = { client_id: settings.client_id };
  const redirect_uri = location.origin + '/spa';
  if (!here.searchParams.has('code')) {
    sessionStorage.settings = JSON.stringify(settings);
    sessionStorage.verifier = oauth.generateRandomCodeVerifier();
    sessionStorage.state = oauth.generateRandomState();
    sessionStorage.nonce = oauth.generateRandomNonce();
    const target = new URL(server.authorization_endpoint);
    target.search = new URLSearchParams({
      client_id: client.client_id, redirect_uri, response_type: 'code', scope: 'openid email offline_access',
      code_challenge: await oauth.calculatePKCECodeChallenge(sessionStorage.verifier), code_challenge_method: 'S256',
      state: sessionStorage.state, nonce: sessionStorage.nonce,
    });
    location.assign(target);
    return;
  }
  const parameters = oauth.validateAuthResponse(server, client, here, sessionStorage.state);
  const answer = await oauth.authorizationCodeGrantRequest(
    server, client, oauth.None(), parameters, redirect_uri, sessionStorage.verifier);
  const tokens = await oauth.processAuthorizationCodeResponse(
    server, client, answer, { expectedNonce: sessionStorage.nonce, requireIdToken: true });
  await oauth.validateApplicationLevelSignature(server, answer);
  const { sub } = oauth.getValidatedIdTokenClaims(tokens);
  const userinfo = await oauth.processUserInfoResponse(
    server, client, sub, await oauth.userInfoRequest(server, client, tokens.access_token));
  const next = await oauth.processRefreshTokenResponse(
    server, client, await oauth.refreshTokenGrantRequest(server, client, oauth.None(), tokens.refresh_token));
  await oauth.processRevocationResponse(
    await oauth.revocationRequest(server, client, oauth.None(), next.refresh_token));
  show({ sub, email: userinfo.email, refreshed: next.refresh_token !== tokens.refresh_token });
}

main().catch((error) => show({ error: String(error), code: error.code, cause: String(error.cause) }));
</script>`;

export class Website {
  #http;
  #parties = new Map();
  #pending = new Map();
  #idTokens = new Map();

  static async start() {
    const website = new Website();
    website.#http = createServer((request, response) => {
      website.#answer(request, response).catch((error) => {
        // a refusal is an ordinary outcome here; the browser would complain about any other status
        response.writeHead(error.error ? 200 : 500, { 'content-type': 'text/html' });
        response.end(page(`<h1>Sign-in failed</h1><p id="error">${escape(error.error ?? error)}</p>`));
      });
    });
    await new Promise((done) => website.#http.listen(0, '127.0.0.1', done));
    website.origin = `http://127.0.0.1:${website.#http.address().port}`;
    return website;
  }

  get redirectUri() {
    return `${this.origin}/cb`;
  }

  get signedOut() {
    return `${this.origin}/signed-out`;
  }

  /** Takes part as a registered client; visitors start at `/start/{client_id}`. */
  async join(server, client) {
    this.#parties.set(client.client_id, await RelyingParty.discover(server, client));
  }

  /** The address at which a visitor begins to sign in, with more parameters for the request. */
  start(clientId, parameters = {}) {
    return `${this.origin}/start/${clientId}?${new URLSearchParams(parameters)}`;
  }

  async stop() {
    this.#http.closeAllConnections();
    await new Promise((done) => this.#http.close(done));
  }

  async #answer(request, response) {
    const url = new URL(request.url, this.origin);
    const [, place, name] = url.pathname.split('/');
    const send = (body) => response.writeHead(200, { 'content-type': 'text/html' }).end(page(body));
    const redirect = (target) => response.writeHead(303, { location: String(target) }).end();

    if (place === 'start') {
      const party = this.#parties.get(name);
      const { url: target, checks } = await party.begin(Object.fromEntries(url.searchParams));
      this.#pending.set(checks.expectedState, { party, checks });
      redirect(target);
    } else if (place === 'cb') {
      const callback = request.method === 'POST' ? await posted(request, url) : url;
      const parameters = callback instanceof URL ? url.searchParams : new URLSearchParams(await callback.clone().text());
      const { party, checks } = this.#pending.get(parameters.get('state'));
      this.#pending.delete(parameters.get('state'));
      const tokens = await party.finish(callback, checks);
      const clientId = party.client.client_id;
      this.#idTokens.set(clientId, tokens.id_token);
      const result = { client_id: clientId, method: request.method, claims: tokens.claims(), token: tokens };
      send(`<h1>Signed in</h1><pre id="result">${escape(JSON.stringify(result))}</pre>
        <a id="out" href="/out/${clientId}">Sign out</a> <a id="plain" href="/out-plain/${clientId}">Sign out, no hint</a>`);
    } else if (place === 'out') {
      const id_token_hint = this.#idTokens.get(name);
      const { config } = this.#parties.get(name);
      redirect(oidc.buildEndSessionUrl(config, { id_token_hint, post_logout_redirect_uri: this.signedOut, state: 'bye' }));
    } else if (place === 'out-plain') {
      redirect(this.#parties.get(name).config.serverMetadata().end_session_endpoint);
    } else if (place === 'signed-out') {
      send(`<h1>Back, signed out</h1><p id="state">${escape(url.searchParams.get('state'))}</p>`);
    } else if (place === 'spa') {
      send(SINGLE_PAGE_APPLICATION);
    } else if (place === 'oauth4webapi.js') {
      const library = await readFile(new URL(import.meta.resolve('oauth4webapi')));
      response.writeHead(200, { 'content-type': 'text/javascript' }).end(library);
    } else {
      response.writeHead(404).end();
    }
  }
}

async function posted(request, url) {
  const parts = [];
  for await (const part of request) parts.push(part);
  const headers = { 'content-type': request.headers['content-type'] };
  return new Request(url, { method: 'POST', headers, body: Buffer.concat(parts) });
}
