// Another OpenID provider (oidc-provider) on loopback, over TLS with a certificate authority of its
// own. Started by the tests that need an upstream, or by hand: `node upstream.mjs '{"port": 4443}'`.

import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { exportJWK, generateKeyPair } from 'jose';
import { Provider } from 'oidc-provider';
import { Agent, fetch as undiciFetch } from 'undici';
import { certificates } from './certificates.mjs';
import { spkiOf } from './harness.mjs';

/** What holds where the options of `start` say nothing else. */
const DEFAULTS = {
  /** The host of the issuer: 127.0.0.1 is another site than localhost, as a real upstream is. */
  host: '127.0.0.1',
  port: 0,
  /** Client metadata as in OpenID Connect Dynamic Client Registration; see `addClient`. */
  clients: [],
  /** Account id to claims. */
  accounts: {
    bert: { email: 'bert@upstream.example', email_verified: true, name: 'Bert Upstream', given_name: 'Bert' },
    carla: { email: 'carla@upstream.example', email_verified: false, name: 'Carla Upstream' },
    nobody: {},
  },
  /** The account that is signed in without a page; undefined shows the page. */
  autoLogin: undefined,
  /** Whether ID tokens carry the claims of the scopes, or only UserInfo does. */
  claimsInIdToken: true,
  /** Seconds that access tokens and ID tokens last. */
  lifetime: 600,
  /** Asked of every request: what its answer waits for, to make the provider as slow as a test wants it. */
  hold: () => undefined,
  /** How the provider itself fetches the `jwks_uri` of clients that authenticate with private_key_jwt. */
  outbound: undiciFetch,
};

const SCOPE_CLAIMS = {
  openid: ['sub'],
  email: ['email', 'email_verified'],
  profile: ['name', 'given_name', 'family_name', 'nickname', 'preferred_username', 'picture', 'locale', 'zoneinfo'],
  phone: ['phone_number', 'phone_number_verified'],
};

const escape = (text) => String(text).replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);

const loginPage = (accounts, hint) => `<!doctype html><html lang="en"><meta charset="utf-8">
<title>Upstream sign-in</title><link rel="icon" href="data:,"><h1>Upstream sign-in</h1>
<form method="post"><label>Account <input id="account" name="account" list="accounts" value="${escape(hint ?? '')}"></label>
<datalist id="accounts">${accounts.map((id) => `<option>${escape(id)}</option>`).join('')}</datalist>
<button id="sign-in" name="do" value="sign-in">Sign in</button>
<button id="cancel" name="do" value="cancel">Cancel</button></form></html>`;

/** Everything the provider remembers, in one map that outlives a change of keys. */
function memory() {
  const kept = new Map();
  return class Adapter {
    constructor(model) {
      this.name = (id) => `${model}:${id}`;
      this.model = model;
    }

    async upsert(id, payload) {
      kept.set(this.name(id), payload);
    }

    async find(id) {
      return kept.get(this.name(id));
    }

    async findByUid(uid) {
      return [...kept.values()].find((payload) => payload.kind === this.model && payload.uid === uid);
    }

    async findByUserCode() {
      return undefined;
    }

    async consume(id) {
      kept.get(this.name(id)).consumed = Math.floor(Date.now() / 1000);
    }

    async destroy(id) {
      kept.delete(this.name(id));
    }

    async revokeByGrantId(grantId) {
      for (const [name, payload] of kept) if (payload.grantId === grantId) kept.delete(name);
    }
  };
}

/** Fresh signing keys, one of each kind. */
async function signingKeys() {
  const make = async (alg) => {
    const { privateKey } = await generateKeyPair(alg, { extractable: true });
    return { ...(await exportJWK(privateKey)), alg, use: 'sig', kid: randomBytes(6).toString('hex') };
  };
  return { keys: await Promise.all(['RS256', 'PS256', 'ES256'].map(make)) };
}

export class Upstream {
  #https;
  #handle;
  #agent;
  #adapter = memory();
  #cookieKeys = [randomBytes(16).toString('hex')];

  /**
   * Starts the provider. `caFile` is for `idsvc serve --outbound-ca-file`, which also needs
   * `--outbound-allow 127.0.0.0/8`; `flags` is both. `autoLogin`, `accounts` and `claimsInIdToken` may be
   * changed while it runs.
   */
  static async start(options = {}) {
    const upstream = Object.assign(new Upstream(), DEFAULTS, options);
    upstream.accounts = structuredClone(upstream.accounts);
    upstream.directory = await mkdtemp(join(tmpdir(), 'idsvc-upstream-'));
    try {
      const { key, cert, ca, caFile } = await certificates(upstream.directory, upstream.host);
      Object.assign(upstream, { ca, caFile, cert });
      upstream.#agent = new Agent({ connect: { ca } });
      upstream.#https = createServer({ key, cert }, (request, response) => upstream.#answer(request, response));
      await new Promise((done, failed) =>
        upstream.#https.once('error', failed).listen(upstream.port, '127.0.0.1', done),
      );
      upstream.port = upstream.#https.address().port;
      upstream.issuer = `https://${upstream.host}:${upstream.port}`;
      await upstream.rotateKeys();
      for (const client of upstream.clients) await upstream.addClient(client);
    } catch (error) {
      await upstream.stop();
      throw error;
    }
    return upstream;
  }

  /** What `idsvc serve` has to be told to reach this provider. */
  get flags() {
    return ['--outbound-ca-file', this.caFile, '--outbound-allow', '127.0.0.0/8'];
  }

  /** Base64 of the SHA-256 of the certificate's public key, as browsers want it. */
  get spki() {
    return spkiOf(this.cert);
  }

  /** `fetch` that trusts this provider's authority beside nothing else. */
  fetch = (url, options = {}) => undiciFetch(url, { ...options, dispatcher: this.#agent });

  /**
   * Registers a client: `client_id`, `redirect_uris`, `token_endpoint_auth_method` (client_secret_basic,
   * client_secret_post, private_key_jwt with `jwks` or `jwks_uri`, none), and the other members of the standard.
   * A secret is made where one is needed. Answers the whole registration.
   */
  async addClient({ token_endpoint_auth_method = 'client_secret_basic', ...metadata }) {
    const client = { token_endpoint_auth_method, grant_types: ['authorization_code'], response_types: ['code'], ...metadata };
    if (/^client_secret/.test(token_endpoint_auth_method)) client.client_secret ??= randomBytes(32).toString('base64url');
    await new this.#adapter('Client').upsert(client.client_id, client);
    return client;
  }

  /** Signs with fresh keys from now on; the old ones are no longer published. */
  async rotateKeys() {
    const upstream = this;
    const provider = new Provider(this.issuer, {
      adapter: this.#adapter,
      jwks: await signingKeys(),
      cookies: { keys: this.#cookieKeys },
      claims: SCOPE_CLAIMS,
      conformIdTokenClaims: !this.claimsInIdToken,
      fetch: (url, { dispatcher, ...options } = {}) => this.outbound(url, options),
      features: { devInteractions: { enabled: false }, revocation: { enabled: true }, userinfo: { enabled: true } },
      interactions: { url: (_, { uid }) => `/interaction/${uid}` },
      pkce: { required: () => false },
      ttl: { AccessToken: this.lifetime, IdToken: this.lifetime, AuthorizationCode: 60, Interaction: 600, Session: 3600, Grant: 3600 },
      async findAccount(_, accountId) {
        const claims = upstream.accounts[accountId];
        return claims && { accountId, claims: async () => ({ ...claims, sub: accountId }) };
      },
      // each user has consented
      async loadExistingGrant({ oidc: { session, client } }) {
        const grantId = session.grantIdFor(client.clientId);
        const known = grantId && (await provider.Grant.find(grantId));
        if (known) return known;
        const grant = new provider.Grant({ clientId: client.clientId, accountId: session.accountId });
        grant.addOIDCScope(Object.keys(SCOPE_CLAIMS).join(' '));
        await grant.save();
        return grant;
      },
    });
    provider.on('server_error', (_, error) => console.error(error));
    const callback = provider.callback();
    this.#handle = (request, response) =>
      request.url.startsWith('/interaction/') ? this.#interact(provider, request, response) : callback(request, response);
  }

  async #answer(request, response) {
    try {
      await this.hold(request);
      await this.#handle(request, response);
    } catch (error) {
      response.writeHead(error.statusCode ?? 500, { 'content-type': 'text/plain' }).end(String(error));
    }
  }

  async #interact(provider, request, response) {
    const { params } = await provider.interactionDetails(request, response);
    const finish = (result) => provider.interactionFinished(request, response, result, { mergeWithLastSubmission: false });
    if (this.autoLogin) return finish({ login: { accountId: this.autoLogin } });
    if (request.method !== 'POST') {
      const html = loginPage(Object.keys(this.accounts), params.login_hint);
      response.writeHead(200, { 'content-type': 'text/html', 'cache-control': 'no-store' }).end(html);
      return;
    }
    const parts = [];
    for await (const part of request) parts.push(part);
    const form = new URLSearchParams(Buffer.concat(parts).toString());
    const accountId = form.get('account');
    if (form.get('do') === 'cancel' || !this.accounts[accountId]) {
      return finish({ error: 'access_denied', error_description: 'the person cancelled' });
    }
    return finish({ login: { accountId } });
  }

  /**
   * The whole code flow of a registered client for one account, without a page: answers the token response.
   * `parameters` are added to the authorization request.
   */
  async signIn(client, account, parameters = {}) {
    const redirect_uri = client.redirect_uris[0];
    const target = new URL(`${this.issuer}/auth`);
    target.search = new URLSearchParams({
      client_id: client.client_id, redirect_uri, response_type: 'code', scope: 'openid email profile', ...parameters,
    });
    const code = new URL(await this.#walk(target, account, redirect_uri)).searchParams.get('code');
    const answer = await this.fetch(`${this.issuer}/token`, {
      method: 'POST',
      headers: { authorization: `Basic ${btoa(`${client.client_id}:${client.client_secret}`)}` },
      body: new URLSearchParams({ grant_type: 'authorization_code', code, redirect_uri }),
    });
    const tokens = await answer.json();
    if (!answer.ok) throw new Error(`the upstream refused the code: ${JSON.stringify(tokens)}`);
    return tokens;
  }

  /** Follows redirects with a fresh set of cookies, signing in on the way, until the client's address. */
  async #walk(url, account, end) {
    const cookies = new Map();
    let options = {};
    for (let step = 0; step < 10; step += 1) {
      const cookie = [...cookies].map((pair) => pair.join('=')).join('; ');
      const headers = cookie ? { cookie } : {};
      const answer = await this.fetch(url, { redirect: 'manual', headers, ...options });
      const text = await answer.text();
      options = {};
      for (const line of answer.headers.getSetCookie()) {
        const [, name, value] = /^([^=]+)=([^;]*)/.exec(line);
        if (value) cookies.set(name, value);
        else cookies.delete(name);
      }
      if (answer.status === 200) {
        options = { method: 'POST', body: new URLSearchParams({ account, do: 'sign-in' }) };
        continue;
      }
      const location = answer.headers.get('location');
      if (!location) throw new Error(`the upstream answered ${answer.status} at ${url}: ${text}`);
      url = new URL(location, url);
      if (url.href.startsWith(end)) return url;
    }
    throw new Error(`the upstream redirects without end, the last time to ${url}`);
  }

  /** Ends the provider; once more does no harm. */
  async stop() {
    await this.#agent?.destroy();
    if (this.#https?.listening) {
      this.#https.closeAllConnections();
      await new Promise((done) => this.#https.close(done));
    }
    await rm(this.directory, { recursive: true, force: true });
  }
}

if (process.argv[1] === import.meta.filename) {
  const upstream = await Upstream.start(JSON.parse(process.argv[2] ?? '{}'));
  const { issuer, caFile, flags } = upstream;
  console.log(JSON.stringify({ issuer, ca_file: caFile, flags }));
  process.once('SIGTERM', () => upstream.stop().then(() => process.exit(0)));
}
