// Sign-in at another OpenID provider (oidc-provider), in a real Chromium.

import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, afterEach, before, describe, it } from 'node:test';
import { Server } from './harness.mjs';
import { Upstream } from './upstream.mjs';
import { dismiss, keep, launch, quit, result, visitor } from './visitor.mjs';
import { Website } from './website.mjs';

let server;
let website;
let upstream;
let second;
/** Nothing of these may stand in the log. */
const secrets = [];

/** Registers the service at a provider, and the provider at the service. */
async function introduce(provider, id, method, ...flags) {
  const redirect_uri = `${server.issuer}/federation/${id}/callback`;
  const there = await provider.addClient({
    client_id: `idsvc-${id}`,
    redirect_uris: [redirect_uri],
    token_endpoint_auth_method: method,
    ...(method === 'private_key_jwt' ? { jwks_uri: `${server.issuer}/oauth2/jwks` } : {}),
  });
  const words = ['--issuer', provider.issuer, '--client-id', there.client_id, '--auth-method', method, '--create-users'];
  if (there.client_secret) {
    const file = join(provider.directory, 'secret');
    await writeFile(file, there.client_secret);
    words.push('--client-secret-file', file);
    secrets.push(there.client_secret);
  }
  const view = await server.json('provider', 'add', id, ...words, ...flags);
  assert.equal(view.redirect_uri, redirect_uri);
}

before(async () => {
  const options = { outbound: (url, options) => server.fetch(url, options) };
  [upstream, second] = await Promise.all([Upstream.start(options), Upstream.start(options)]);
  const authorities = join(upstream.directory, 'both.pem');
  await writeFile(authorities, upstream.ca + second.ca);
  server = await Server.start({ flags: ['--outbound-ca-file', authorities, '--outbound-allow', '127.0.0.0/8'] });
  website = await Website.start();
  await introduce(upstream, 'up', 'client_secret_basic', '--name', 'Upstream', '--link', 'verified-email');
  await introduce(second, 'next', 'private_key_jwt', '--name', 'Next', '--link', 'verified-email');
  const nobody = ['--issuer', 'https://127.0.0.1:1', '--client-id', 'x', '--auth-method', 'private_key_jwt'];
  await server.json('provider', 'add', 'down', ...nobody);
  const tied = ['--password-sign-in', 'no', '--provider'];
  const clients = [
    ['tied', ...tied, 'up'],
    ['also-tied', ...tied, 'up'],
    ['lost', ...tied, 'down'],
    ['open', '--provider', 'up'],
  ];
  for (const [id, ...flags] of clients) await website.join(server, await server.addClient(id, website.redirectUri, ...flags));
  await launch(server, upstream, second);
});

after(async () => {
  await quit();
  await website?.stop();
  const log = server?.log ?? '';
  await Promise.all([server?.stop(), upstream?.stop(), second?.stop()]);
  for (const secret of secrets) assert.ok(!log.includes(secret), 'a secret is in the log');
  assert.doesNotMatch(log, /[?&]code=/, 'a code is in the log');
});

afterEach(async () => {
  upstream.hold = () => undefined;
  await dismiss();
});

const ROBOT = ['--grant', 'client_credentials', '--scope', 'notes', '--allow-secret-credentials', '--max-scope', 'notes'];

/** Signs in on the provider's own page. */
async function signInThere(page, account) {
  await page.locator('#account').fill(account);
  await page.locator('#sign-in').click();
}

describe('signing in at a provider', () => {
  it('leads to the same account at another provider, without a change at the site', async () => {
    const first = await visitor();
    await first.goto(website.start('tied'));
    await signInThere(first, 'bert');
    const before = await result(first);
    await server.command('client', 'update', 'tied', '--provider', 'next');
    const page = await visitor();
    await page.goto(website.start('tied'));
    assert.ok(page.url().startsWith(second.issuer), page.url());
    await signInThere(page, 'bert');
    const after = await result(page);
    assert.deepEqual(after.token.amr, [{ authority: 'next' }]);
    assert.equal(after.claims.sub, before.claims.sub, 'the same verified address is the same user');
    await server.command('client', 'update', 'tied', '--provider', 'up');
  });

  it('goes straight there where there is no other way, and once for two sites', async () => {
    const page = await visitor();
    await page.goto(website.start('tied'));
    assert.ok(page.url().startsWith(upstream.issuer), page.url());
    await signInThere(page, 'bert');
    const { claims, token } = await result(page);
    assert.deepEqual(token.amr, [{ authority: 'up' }]);
    assert.deepEqual([token.email, token.account_id], ['bert@upstream.example', 'bert@upstream.example']);
    assert.deepEqual(claims.amr, ['fed']);
    const access = JSON.parse(Buffer.from(token.access_token.split('.')[1], 'base64url'));
    assert.ok(access.upstream_access_token);
    secrets.push(access.upstream_access_token);
    await page.goto(website.start('also-tied'));
    const again = await result(page);
    assert.equal(again.claims.sub, claims.sub);
    assert.equal(again.claims.sid, claims.sid);
  });

  it('is one choice on the page where there are several', async () => {
    const page = await visitor();
    await page.goto(website.start('open'));
    await keep(page, 'login-providers');
    await page.getByRole('link', { name: 'Continue with Upstream' }).click();
    await signInThere(page, 'carla');
    const { token } = await result(page);
    assert.equal(token.account_id, 'up:carla', 'an unverified address names no account');
  });

  it('works without script', async () => {
    const page = await visitor({ javaScriptEnabled: false });
    await page.goto(website.start('open'));
    await page.getByRole('link', { name: 'Continue with Upstream' }).click();
    await signInThere(page, 'bert');
    await result(page);
  });

  it('can be cancelled: the page says so, and the site with no other way is told', async () => {
    const page = await visitor();
    await page.goto(website.start('open'));
    await page.getByRole('link', { name: 'Continue with Upstream' }).click();
    await page.locator('#cancel').click();
    await page.getByText('was cancelled').waitFor();
    await keep(page, 'login-cancelled');
    assert.ok(await page.locator('input#password').isVisible());
    await page.goto(website.start('tied'));
    await page.locator('#cancel').click();
    assert.equal(await page.locator('#error').textContent(), 'access_denied');
  });

  it('opens the account page too', async () => {
    const page = await visitor();
    await page.goto(`${server.issuer}/account`);
    await page.getByRole('link', { name: 'Continue with Upstream' }).click();
    await signInThere(page, 'bert');
    await page.waitForURL(`${server.issuer}/account`);
    assert.match(await page.textContent('body'), /Bert Upstream|bert@upstream.example/);
  });
});

describe('the service beside a provider', () => {
  it('keeps answering while the provider does not', async () => {
    const page = await visitor();
    await page.goto(website.start('open'));
    let release;
    const released = new Promise((done) => {
      release = done;
    });
    let arrive;
    const asked = new Promise((done) => {
      arrive = done;
    });
    await page.getByRole('link', { name: 'Continue with Upstream' }).click();
    await page.locator('#account').fill('bert');
    const robot = await server.json('client', 'add', 'robot', ...ROBOT);
    const ask = async () => {
      const begun = performance.now();
      const answer = await server.fetch(`${server.issuer}/oauth2/token`, {
        method: 'POST',
        headers: { authorization: `Basic ${btoa(`robot:${robot.client_secret}`)}` },
        body: new URLSearchParams({ grant_type: 'client_credentials', scope: 'notes' }),
      });
      assert.equal(answer.status, 200, await answer.text());
      return performance.now() - begun;
    };
    const median = (times) => times.sort((a, b) => a - b)[Math.floor(times.length / 2)];
    const round = async () => {
      const times = [];
      for (let count = 0; count < 100; count += 1) times.push(await ask());
      return median(times);
    };
    const before = await round();
    // the browser's own requests to the provider pass, what the service asks it then does not
    upstream.hold = ({ url }) => {
      if (!url.startsWith('/token')) return undefined;
      arrive();
      return released;
    };
    let isBack = false;
    await page.locator('#sign-in').click({ noWaitAfter: true });
    const back = page.locator('#result').waitFor().then(() => {
      isBack = true;
    });
    await asked;
    const during = await round();
    assert.equal(isBack, false, 'the sign-in still waits for the provider');
    console.log(`median of 100 token requests: ${before.toFixed(1)} ms alone, ${during.toFixed(1)} ms beside a silent provider`);
    release();
    await back;
  });

  it('says so when the provider is down', async () => {
    const page = await visitor();
    await page.goto(website.start('lost'));
    await page.getByText('cannot be reached right now').waitFor();
    await keep(page, 'login-provider-down');
  });
});

describe('idsvc provider test', () => {
  it('says that all is well, and what is not', async () => {
    const report = await server.json('provider', 'test', 'up');
    assert.ok(report.works, JSON.stringify(report));
    await server.command('provider', 'update', 'up', '--client-id', 'another-client');
    const refused = await server.json('provider', 'test', 'up').catch((error) => error);
    assert.equal(refused.code, 1);
    const failed = JSON.parse(refused.stdout).findings.filter(({ standing }) => standing === 'failed');
    assert.deepEqual(failed.map(({ check }) => check), ['redirect uri', 'credentials']);
    assert.ok(failed.every(({ remedy }) => remedy));
  });
});

describe('a provider that changes its keys', () => {
  it('learns the keys that the provider signs with from now on', async () => {
    await second.rotateKeys();
    await server.command('client', 'update', 'tied', '--provider', 'next');
    const deadline = Date.now() + 90_000;
    for (;;) {
      // an unknown key is looked for a minute after the keys were read, in the first test of all
      const page = await visitor();
      await page.goto(website.start('tied'));
      await signInThere(page, 'bert');
      const shown = page.locator('#result, [role=alert]').first();
      await shown.waitFor();
      const isSignedIn = (await shown.getAttribute('id')) === 'result';
      await page.context().close();
      if (isSignedIn) break;
      assert.ok(Date.now() < deadline, 'the new key was never learned');
      await new Promise((done) => setTimeout(done, 3_000));
    }
    await server.command('client', 'update', 'tied', '--provider', 'up');
  });
});
