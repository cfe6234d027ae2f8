// How people get an account and a way back in, with real mails.

import assert from 'node:assert/strict';
import { after, describe, it } from 'node:test';
import { ALICE } from './harness.mjs';
import { Mailbox } from './mailbox.mjs';
import { fitsTheScreen, keep, result, scene, signIn, visitor } from './visitor.mjs';

const NEW = 'violet tractor umbrella';
/** Until when a link works. */
const ENDS = /The link works once, until 20\d\d-\d\d-\d\d \d\d:\d\d UTC/;

let mailbox;

const cast = scene(async () => {
  mailbox = await Mailbox.start({ disabledCommands: ['STARTTLS'] });
  return {
    flags: [
      ...['--mail-url', `smtp://127.0.0.1:${mailbox.port}`, '--mail-from', 'Acme <no-reply@acme.example>'],
      ...['--accounts-sign-up', 'open', '--accounts-email-sign-in', 'true'],
      ...['name', 'email', 'export', 'deletion'].flatMap((what) => ['--accounts-self-service', what]),
    ],
  };
});

after(() => mailbox?.stop());

/** Asks for a mail on the page behind a link of the sign-in page. */
async function requestMail(page, link, address) {
  await page.goto(cast.website.start('web'));
  await page.getByRole('link', { name: link }).click();
  await page.locator('#address').fill(address);
  await page.locator('button[type=submit]').click();
  await page.locator('main.page-check-mail').waitFor();
}

async function enterCode(page, code) {
  await page.locator('#code').fill(code);
  await page.locator('button[type=submit]').click();
}

async function choosePassword(page) {
  await page.locator('#new-password').fill(NEW);
  await page.locator('button[type=submit]').click();
}

/** Shows both parts of a mail as a telephone and as a program for text do. */
async function keepMail(mail, name) {
  const phone = await visitor({ viewport: { width: 360, height: 740 }, javaScriptEnabled: false });
  await phone.setContent(mail.html);
  await fitsTheScreen(phone);
  await keep(phone, `mail-${name}`);
  const escaped = mail.text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
  await phone.setContent(`<pre style="white-space: pre-wrap; overflow-wrap: anywhere">${escaped}</pre>`);
  await keep(phone, `mail-${name}-text`);
}

describe('accounts', () => {
  it('a person signs up with the code of a mail, and signs in again', async () => {
    const page = await visitor({ javaScriptEnabled: false, viewport: { width: 320, height: 640 } });
    await requestMail(page, 'Create an account', 'bob@example.com');
    await keep(page, 'accounts-check-mail');
    await fitsTheScreen(page);
    const mail = await mailbox.read();
    assert.equal(mail.to[0].address, 'bob@example.com');
    await keepMail(mail, 'sign-up');
    assert.match(mail.text, ENDS);
    await enterCode(page, '000000');
    await page.locator('#problem').waitFor();
    await enterCode(page, mail.code);
    await page.locator('#name').fill('Bob Builder');
    await keep(page, 'accounts-create');
    await fitsTheScreen(page);
    await choosePassword(page);
    await page.locator('#result').waitFor();
    const again = await visitor();
    await again.goto(cast.website.start('web'));
    await again.locator('#username').fill('bob@example.com');
    await again.locator('#password').fill(NEW);
    await again.locator('button[type=submit]').click();
    const { claims } = await result(again);
    assert.equal(claims.email_verified ?? (await cast.server.json('user', 'show', 'bob@example.com')).email_verified, true);
    await keepMail(await mailbox.read(), 'new-device');
  });

  it('a person who forgot the password opens the link on a telephone', async () => {
    const page = await visitor();
    await page.goto(cast.website.start('web'));
    await signIn(page, cast.alice.password);
    await result(page);
    await mailbox.read();
    const asked = await visitor();
    await requestMail(asked, 'Forgot password?', ALICE);
    const mail = await mailbox.read();
    await keepMail(mail, 'reset-password');
    const phone = await visitor({ viewport: { width: 360, height: 740 } });
    await phone.goto(mail.link);
    await keep(phone, 'accounts-new-password');
    await choosePassword(phone);
    await phone.locator('main.page-account').waitFor();
    cast.alice.password = NEW;
    await keepMail(await mailbox.read(), 'password-changed');
    await page.goto(`${cast.server.issuer}/account`);
    await page.locator('main.page-login').waitFor();
    await phone.goto(mail.link);
    await phone.locator('main.page-error').waitFor();
    await keep(phone, 'accounts-used-link');
  });

  it('a person signs in without a password', async () => {
    const page = await visitor();
    await requestMail(page, 'Sign in by email', ALICE);
    const mail = await mailbox.read();
    await keepMail(mail, 'sign-in');
    assert.match(mail.text, ENDS);
    await page.goto(mail.link);
    await page.locator('main.page-confirm-link button[type=submit]').click();
    await result(page);
  });

  it('an invited person is in the group', async () => {
    await cast.server.command('group', 'add', 'staff');
    const { sent_to: sentTo } = await cast.server.json('user', 'invite', 'carol@example.com', '--group', 'staff', '--client', 'web');
    assert.equal(sentTo, 'carol@example.com');
    const mail = await mailbox.read();
    await keepMail(mail, 'invitation');
    const page = await visitor();
    await page.goto(mail.link);
    await choosePassword(page);
    await page.waitForURL((url) => !url.pathname.startsWith('/link'));
    const user = await cast.server.json('user', 'show', 'carol@example.com');
    assert.deepEqual([user.groups, user.email_verified], [['staff'], true]);
  });

  it('a user who sees a sign-in of another person secures the account', async () => {
    const thief = await visitor();
    await thief.goto(cast.website.start('web'));
    await signIn(thief, cast.alice.password);
    await result(thief);
    const mail = await mailbox.read();
    const phone = await visitor({ viewport: { width: 360, height: 740 }, javaScriptEnabled: false });
    await phone.goto(mail.link);
    await keep(phone, 'accounts-secure');
    await phone.locator('button[type=submit]').click();
    await phone.getByRole('heading', { name: 'Your account is secured' }).waitFor();
    await thief.goto(`${cast.server.issuer}/account`);
    await thief.locator('main.page-login').waitFor();
    const reset = await mailbox.read();
    await phone.goto(reset.link);
    await choosePassword(phone);
    await phone.locator('main.page-account').waitFor();
    await mailbox.read();
  });

  it('a device with an anonymous user keeps its sub when the person signs up', async () => {
    const grants = ['anonymous', 'authorization_code', 'refresh_token'].flatMap((grant) => ['--grant', grant]);
    const redirectUri = 'https://app.example/cb';
    const { client_secret: secret } = await cast.server.json('client', 'add', 'app', '--redirect-uri', redirectUri, ...grants);
    const post = async (path, fields) => {
      const body = new URLSearchParams({ client_id: 'app', client_secret: secret, ...fields }).toString();
      const headers = { 'content-type': 'application/x-www-form-urlencoded' };
      const answer = await cast.server.fetch(`${cast.server.issuer}${path}`, { method: 'POST', headers, body });
      return answer.json();
    };
    const device = await post('/oauth2/token', { grant_type: 'urn:service:oauth2:grant-type:anonymous' });
    const pushed = await post('/oauth2/par', {
      response_type: 'code',
      redirect_uri: redirectUri,
      scope: 'openid',
      code_challenge: 'E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM',
      code_challenge_method: 'S256',
      anonymous_refresh_token: device.refresh_token,
    });
    const page = await visitor();
    const query = new URLSearchParams({ client_id: 'app', request_uri: pushed.request_uri });
    await page.goto(`${cast.server.issuer}/oauth2/authorize?${query}`);
    await page.getByRole('link', { name: 'Create an account' }).click();
    await page.locator('#address').fill('dora@example.com');
    await page.locator('button[type=submit]').click();
    await page.locator('#code').waitFor();
    const mail = await mailbox.read();
    await enterCode(page, mail.code);
    await page.locator('#new-password').fill(NEW);
    const arrived = page.waitForRequest((request) => request.url().startsWith(redirectUri));
    await page.locator('button[type=submit]').click();
    const code = new URL((await arrived).url()).searchParams.get('code');
    const tokens = await post('/oauth2/token', {
      grant_type: 'authorization_code',
      code,
      redirect_uri: redirectUri,
      code_verifier: 'dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk',
    });
    assert.equal(tokens.uuid, device.uuid);
    const refresh = (token) => post('/oauth2/token', { grant_type: 'refresh_token', refresh_token: token });
    const rotated = await refresh(device.refresh_token);
    assert.deepEqual([rotated.uuid, rotated.user_type], [device.uuid, 'user']);
    assert.ok((await refresh(rotated.refresh_token)).access_token);
    assert.equal((await refresh(device.refresh_token)).error, 'invalid_grant');
  });

  it('a person looks after the account: name, address, data, and its end', async () => {
    const erin = await cast.server.addUser('erin@example.com');
    const page = await visitor({ javaScriptEnabled: false, viewport: { width: 320, height: 640 } });
    await page.goto(`${cast.server.issuer}/account/profile`);
    await page.locator('#username').fill('erin@example.com');
    await page.locator('#password').fill(erin.password);
    await page.locator('button[type=submit]').click();
    await page.locator('#claim-name').fill('Erin Example');
    await page.getByRole('button', { name: 'Save' }).first().click();
    await page.locator('#notice').waitFor();
    await mailbox.read();
    await page.locator('#email').fill('erin@example.org');
    await page.locator('#proof-email').fill(erin.password);
    await keep(page, 'accounts-profile');
    await fitsTheScreen(page);
    await page.getByRole('button', { name: 'Change email address' }).click();
    const mail = await mailbox.read();
    assert.equal(mail.to[0].address, 'erin@example.org');
    await keepMail(mail, 'verify-address');
    const phone = await visitor({ viewport: { width: 360, height: 740 }, javaScriptEnabled: false });
    await phone.goto(mail.link);
    await keep(phone, 'accounts-verify-address');
    await phone.locator('button[type=submit]').click();
    await phone.getByRole('heading', { name: 'Your email address is changed' }).waitFor();
    const notice = await mailbox.read();
    assert.equal(notice.to[0].address, 'erin@example.com');
    await keepMail(notice, 'address-changed');
    const changed = await cast.server.json('user', 'show', 'erin@example.org');
    assert.deepEqual([changed.claims.name, changed.email_verified], ['Erin Example', true]);

    await page.goto(`${cast.server.issuer}/account/data`);
    await keep(page, 'accounts-data');
    const downloading = page.waitForEvent('download');
    await page.getByRole('button', { name: 'Download' }).click();
    const download = await downloading;
    assert.equal(download.suggestedFilename(), 'account.json');
    await page.locator('#confirm').fill('erin@example.com');
    await page.locator('#proof-deletion').fill(erin.password);
    await page.locator('button[type=submit]').last().click();
    await page.locator('main.page-logged-out').waitFor();
    await assert.rejects(cast.server.command('user', 'show', 'erin@example.org'));
  });
});
