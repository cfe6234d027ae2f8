// Sessions, consent, refusals and pages, by openid-client and a browser without script.

import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import * as oidc from 'openid-client';
import { Browser, Page } from './browser.mjs';
import { alice, atTheCode, enter, leave, native, other, refused, server, SIGNED_OUT, tokenRequest, web } from './cast.mjs';
import { ALICE } from './harness.mjs';
import { RelyingParty } from './relying-party.mjs';

before(enter);
after(leave);

describe('a pushed request', () => {
  it('signs in by openid-client, once', async () => {
    const party = await RelyingParty.discover(server, web);
    const browser = new Browser(server);
    const { url, checks } = await party.begin({}, oidc.buildAuthorizationUrlWithPAR);
    assert.deepEqual([...url.searchParams.keys()].sort(), ['client_id', 'request_uri']);
    const page = await browser.open(url);
    const tokens = await party.finish(await browser.signIn(page, alice.email, alice.password), checks);
    assert.equal(tokens.claims().sub, alice.uuid);
    assert.equal((await browser.open(url)).status, 400);
  });
});

describe('sessions', () => {
  it('sign in to a second client without asking, and keep auth_time and sid', async () => {
    const browser = new Browser(server);
    const first = await (await RelyingParty.discover(server, web)).signIn(browser, alice);
    const client = await server.addClient('second', 'https://second.example/cb');
    const second = await (await RelyingParty.discover(server, client)).signIn(browser);
    assert.ok(first.claims().sid && first.claims().auth_time);
    assert.equal(second.claims().sid, first.claims().sid);
    assert.equal(second.claims().auth_time, first.claims().auth_time);
  });

  it('change their identifier at sign-in and come in one cookie', async () => {
    const browser = new Browser(server);
    await (await RelyingParty.discover(server, web)).signIn(browser, alice);
    const session = () => {
      const names = browser.jar.names.filter((name) => name.startsWith('__Host-idsvc_session'));
      assert.equal(names.length, 1);
      return browser.jar.valueOf(names[0]);
    };
    const first = session();
    assert.ok(first);
    await (await RelyingParty.discover(server, web)).signIn(browser, alice, { prompt: 'login' });
    assert.notEqual(session(), first);
  });

  it('answer prompt=none: login_required without one, a code with one', async () => {
    const party = await RelyingParty.discover(server, web);
    const browser = new Browser(server);
    const silent = await party.begin({ prompt: 'none' });
    const answer = await browser.open(silent.url);
    await assert.rejects(party.finish(answer, silent.checks), refused('login_required'));
    const first = await party.signIn(browser, alice);
    const again = await party.signIn(browser, undefined, { prompt: 'none', id_token_hint: first.id_token });
    assert.equal(again.claims().sub, alice.uuid);
  });

  it('ask again for max_age=1, and not for a long one', async () => {
    const party = await RelyingParty.discover(server, web);
    const browser = new Browser(server);
    const first = await party.signIn(browser, alice);
    const long = await party.signIn(browser, undefined, { max_age: '10000' });
    assert.equal(long.claims().auth_time, first.claims().auth_time);
    const zero = await browser.open((await party.begin({ max_age: '0' })).url);
    assert.ok(zero instanceof Page && zero.signInForm, 'max_age=0 asks again');
  });

  it('end with the hint of an ID token at the registered address', async () => {
    const party = await RelyingParty.discover(server, web);
    const browser = new Browser(server);
    const tokens = await party.signIn(browser, alice);
    const url = oidc.buildEndSessionUrl(party.config, {
      id_token_hint: tokens.id_token,
      post_logout_redirect_uri: SIGNED_OUT,
      state: 'leaving',
    });
    let answer = await browser.open(url);
    if (answer instanceof Page) answer = await browser.decide(answer, 'logout');
    assert.equal(String(answer.url), `${SIGNED_OUT}?state=leaving`);
    const silent = await party.begin({ prompt: 'none' });
    await assert.rejects(party.finish(await browser.open(silent.url), silent.checks), refused('login_required'));
  });

  it('end after a confirmation when nothing vouches for the request, and lead nowhere unregistered', async () => {
    const party = await RelyingParty.discover(server, web);
    const browser = new Browser(server);
    const tokens = await party.signIn(browser, alice);
    const astray = await browser.open(
      oidc.buildEndSessionUrl(party.config, {
        id_token_hint: tokens.id_token,
        post_logout_redirect_uri: `${SIGNED_OUT}?foo=bar`,
      }),
    );
    assert.ok(astray instanceof Page, `stays here, not at ${astray.url}`);
    const again = new Browser(server);
    await party.signIn(again, alice);
    const page = await again.open(oidc.buildEndSessionUrl(party.config));
    const done = await again.decide(page, 'logout');
    assert.match(done.text, /You are signed out/);
    const silent = await party.begin({ prompt: 'none' });
    await assert.rejects(party.finish(await again.open(silent.url), silent.checks), refused('login_required'));
  });
});

describe('consent', () => {
  it('is asked for once, remembered, and asked again on request', async () => {
    const party = await RelyingParty.discover(server, other);
    const browser = new Browser(server);
    const { url, checks } = await party.begin();
    const page = await browser.signIn(await browser.open(url), ALICE, alice.password);
    const tokens = await party.finish(await browser.decide(page, 'allow'), checks);
    assert.equal(tokens.claims().sub, alice.uuid);
    await party.signIn(browser);
    const again = await browser.open((await party.begin({ prompt: 'consent' })).url);
    assert.ok(again.decisionForm('allow'));
  });

  it('can be denied', async () => {
    const client = await server.addClient('asking', 'https://asking.example/cb', '--consent', 'require');
    const party = await RelyingParty.discover(server, client);
    const browser = new Browser(server);
    const { url, checks } = await party.begin();
    const page = await browser.signIn(await browser.open(url), ALICE, alice.password);
    await assert.rejects(party.finish(await browser.decide(page, 'deny'), checks), refused('access_denied'));
    const silent = await party.begin({ prompt: 'none' });
    await assert.rejects(party.finish(await browser.open(silent.url), silent.checks), refused('consent_required'));
  });
});

describe('errors', () => {
  it('stay on a page when the client or its address is not known', async () => {
    const party = await RelyingParty.discover(server, web);
    for (const parameters of [{ client_id: 'nobody' }, { redirect_uri: 'https://app.example/cb/' }]) {
      const page = await new Browser(server).open((await party.begin(parameters)).url);
      assert.ok(page instanceof Page);
      assert.equal(page.status, 400);
      assert.match(page.text, /Request error/);
      assert.match(page.text, new RegExp(page.headers['x-request-id']));
    }
  });

  it('go to the client otherwise', async () => {
    const party = await RelyingParty.discover(server, web);
    for (const [parameters, error] of [
      [{ response_type: 'token' }, 'unsupported_response_type'],
      [{ request: 'e30.e30.' }, 'invalid_request_object'],
      [{ request_uri: 'https://app.example/request' }, 'request_uri_not_supported'],
      [{ prompt: 'none login' }, 'invalid_request'],
    ]) {
      const { url, checks } = await party.begin(parameters);
      await assert.rejects(party.finish(await new Browser(server).open(url), checks), refused(error));
    }
  });

  it('of the token endpoint follow RFC 6749 section 5.2', async () => {
    const wrong = await tokenRequest(
      { grant_type: 'refresh_token', refresh_token: 'x' },
      { client: { client_id: 'web', client_secret: 'wrong' } },
    );
    assert.deepEqual([wrong.status, wrong.body.error], [401, 'invalid_client']);
    assert.match(wrong.headers.get('www-authenticate'), /^Basic/);

    const unknown = await tokenRequest({ grant_type: 'password', username: 'a', password: 'b' });
    assert.deepEqual([unknown.status, unknown.body.error], [400, 'unsupported_grant_type']);

    const twice = await tokenRequest([['grant_type', 'refresh_token'], ['refresh_token', 'a'], ['refresh_token', 'b']]);
    assert.deepEqual([twice.status, twice.body.error], [400, 'invalid_request']);

    const two = await tokenRequest({ grant_type: 'refresh_token', refresh_token: 'x', client_id: 'web', client_secret: 'x' });
    assert.deepEqual([two.status, two.body.error], [400, 'invalid_request']);

    const missing = await tokenRequest({ grant_type: 'authorization_code' });
    assert.deepEqual([missing.status, missing.body.error], [400, 'invalid_request']);

    const text = await tokenRequest({ grant_type: 'refresh_token' }, { headers: { 'content-type': 'text/plain' } });
    assert.deepEqual([text.status, text.body.error], [400, 'invalid_request']);
  });

  it('name the methods and paths there are', async () => {
    const get = await server.fetch(`${server.issuer}/oauth2/token`);
    assert.equal(get.status, 405);
    assert.match(get.headers.get('allow'), /POST/);
    assert.equal((await server.fetch(`${server.issuer}/nothing`)).status, 404);
    const large = await server.fetch(`${server.issuer}/oauth2/token`, {
      method: 'POST',
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
      body: `grant_type=${'x'.repeat(70_000)}`,
    });
    assert.equal(large.status, 413);
  });
});

describe('the sign-in page', () => {
  it('says the same about a wrong password and an unknown user', async () => {
    const party = await RelyingParty.discover(server, web);
    const texts = [];
    for (const name of [ALICE, 'nobody@example.com']) {
      const browser = new Browser(server);
      const { url } = await party.begin();
      const page = await browser.signIn(await browser.open(url), name, 'not the password');
      assert.ok(page instanceof Page && page.signInForm);
      texts.push(page.text);
    }
    assert.equal(texts[0], texts[1]);
  });

  it('is sound HTML, not framed, not stored, without inline script', async () => {
    const party = await RelyingParty.discover(server, web);
    const page = await new Browser(server).open((await party.begin()).url);
    assert.deepEqual(page.parseErrors, []);
    assert.ok(page.language);
    assert.match(page.title, /Sign in/);
    const policy = page.headers['content-security-policy'];
    assert.match(policy, /frame-ancestors 'none'/);
    assert.doesNotMatch(policy, /unsafe-inline|unsafe-eval/);
    assert.equal(page.headers['x-content-type-options'], 'nosniff');
    assert.equal(page.headers['strict-transport-security'], undefined); // this is localhost
    assert.match(page.headers['cache-control'], /no-store/);
  });

  it('is of no use to another browser or another site', async () => {
    const party = await RelyingParty.discover(server, web);
    const { url } = await party.begin();
    const page = await new Browser(server).open(url);
    const elsewhere = new Browser(server);
    const stolen = await elsewhere.signIn(page, ALICE, alice.password);
    assert.ok(stolen instanceof Page && stolen.status >= 400, 'a page without its cookie');

    const browser = new Browser(server);
    const own = await browser.open(url);
    own.signInForm.field('username').value = ALICE;
    own.signInForm.field('password').value = alice.password;
    const forged = await browser.post(own.signInForm.action, own.signInForm.body(), 'https://evil.example');
    assert.ok(forged instanceof Page && forged.status >= 400, 'a form of another site');
  });
});

describe('the process', () => {
  it('loses nothing it answered when it is killed', async () => {
    const party = await RelyingParty.discover(server, web);
    const browser = new Browser(server);
    const tokens = await party.signIn(browser, alice);
    const kept = await party.signIn(browser);
    const { callback, checks } = await atTheCode(party);
    await party.finish(callback, checks);
    const next = await party.refresh(tokens.refresh_token);
    const last = await party.refresh(next.refresh_token);
    await server.kill();
    await server.restart();

    const after = await RelyingParty.discover(server, web);
    await after.verify(last.access_token);
    await after.signIn(browser, undefined, { prompt: 'none' });
    await after.refresh(kept.refresh_token);
    await assert.rejects(after.finish(callback, checks), refused('invalid_grant', 400));
    await assert.rejects(after.refresh(tokens.refresh_token), refused('invalid_grant', 400));
  });
});
