// Passkeys in a real browser: Chromium's virtual authenticator, over the DevTools protocol.

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { fitsTheScreen, keep, result, scene, signIn, visitor } from './visitor.mjs';

const cast = scene();

/** A page whose browser has an authenticator, which does not react until it is told to. */
async function withAuthenticator(page, options = {}) {
  const devtools = await page.context().newCDPSession(page);
  await devtools.send('WebAuthn.enable', { enableUI: false });
  const { authenticatorId } = await devtools.send('WebAuthn.addVirtualAuthenticator', {
    options: {
      protocol: 'ctap2',
      ctap2Version: 'ctap2_1',
      transport: 'internal',
      hasResidentKey: true,
      hasUserVerification: true,
      isUserVerified: true,
      automaticPresenceSimulation: false,
      defaultBackupEligibility: true,
      defaultBackupState: true,
      ...options,
    },
  });
  const send = (method, parameters) => devtools.send(`WebAuthn.${method}`, { authenticatorId, ...parameters });
  return {
    /** The user touches the authenticator from now on, or no longer. */
    touch: (enabled = true) => send('setAutomaticPresenceSimulation', { enabled }),
    /** What the authenticator gets wrong. */
    lie: (bits) => send('setResponseOverrideBits', bits),
    credentials: async () => (await send('getCredentials')).credentials,
    /** The device with the passkeys is lost. */
    lose: () => send('clearCredentials'),
  };
}

const addButton = (page) => page.getByRole('button', { name: 'Add a passkey' });
const passkeyButton = (page) => page.getByRole('button', { name: 'Sign in with a passkey' });

/** Signs in with the password and adds a passkey. */
async function addPasskey(page, authenticator, { name, password } = { password: cast.alice.password }) {
  await page.goto(`${cast.server.issuer}/account/security`);
  await signIn(page, password, name);
  await pressAdd(page, authenticator, password);
}

/** Adds a passkey on the account page. */
async function pressAdd(page, authenticator, password) {
  await page.locator('#proof-passkey').fill(password);
  await authenticator.touch();
  await addButton(page).click();
  await page.locator('p.done', { hasText: 'The passkey is added' }).waitFor();
  await authenticator.touch(false);
}

/** Presses the button, and touches the authenticator until its answer is sent. */
async function signInOnce(page, authenticator) {
  const sent = page.waitForRequest((request) => request.method() === 'POST');
  await authenticator.touch();
  await passkeyButton(page).click();
  await sent;
  await authenticator.touch(false);
}

async function signOut(page) {
  await page.context().clearCookies();
}

/** A user of one test: the others sign in as Alice with a password alone. */
async function addUser(name) {
  const { password } = await cast.server.addUser(name);
  return { name, password };
}

/** Makes recovery codes on the account page with a passkey in the place of the password, and returns them. */
async function makeCodes(page, authenticator) {
  await authenticator.touch();
  const form = page.locator('form', { has: page.locator('#proof-codes') });
  await form.getByRole('button', { name: 'Use a passkey instead' }).click();
  await page.locator('.codes').waitFor();
  await authenticator.touch(false);
  return page.locator('.codes code').allInnerTexts();
}

describe('passkeys', () => {
  it('a person adds a passkey, signs out, and signs in by autofill and by the button', async () => {
    const page = await visitor({ viewport: { width: 320, height: 720 } });
    const authenticator = await withAuthenticator(page);
    await addPasskey(page, authenticator);
    await keep(page, 'account-security-passkey');
    await fitsTheScreen(page);
    const [credential] = await authenticator.credentials();
    assert.equal(credential.rpId, 'localhost');
    assert.ok(credential.isResidentCredential);

    await signOut(page);
    await page.goto(cast.website.start('web'));
    await passkeyButton(page).waitFor();
    await keep(page, 'login-passkey');
    await fitsTheScreen(page);
    await authenticator.touch();
    await passkeyButton(page).click();
    const byButton = await result(page);
    assert.deepEqual(byButton.claims.amr, ['swk', 'user', 'mfa']);
    assert.equal(byButton.claims.acr, 'phr');

    await signOut(page);
    await page.goto(cast.website.start('web'));
    assert.equal((await result(page)).claims.acr, 'phr');
  });

  it('a bogus signature, a user who is not verified, and one who is not there are refused', async () => {
    const carl = await addUser('carl@example.com');
    const page = await visitor();
    const authenticator = await withAuthenticator(page);
    await addPasskey(page, authenticator, carl);
    for (const lie of [{ isBogusSignature: true }, { isBadUV: true }, { isBadUP: true }]) {
      await signOut(page);
      await page.goto(cast.website.start('web'));
      await passkeyButton(page).waitFor();
      await authenticator.lie(lie);
      await signInOnce(page, authenticator);
      await page.getByText('This passkey was not accepted.').waitFor();
      await authenticator.lie({ isBogusSignature: false, isBadUV: false, isBadUP: false });
    }
  });

  it('a person who loses the passkey gets in with a recovery code, and adds another passkey', async () => {
    const dora = await addUser('dora@example.com');
    const page = await visitor({ viewport: { width: 320, height: 720 } });
    const authenticator = await withAuthenticator(page);
    await addPasskey(page, authenticator, dora);
    await page.getByText('your password alone no longer signs you in').waitFor();
    const codes = await makeCodes(page, authenticator);
    assert.equal(codes.length, 10);

    await signOut(page);
    await authenticator.touch();
    await page.goto(cast.website.start('web'));
    assert.equal((await result(page)).claims.acr, 'phr', 'by autofill');
    await authenticator.touch(false);

    await signOut(page);
    await authenticator.lose();
    await page.goto(cast.website.start('web'));
    await signIn(page, dora.password, dora.name);
    await page.locator('main.page-second-factor').waitFor();
    await passkeyButton(page).waitFor();
    await keep(page, 'second-factor-passkey');
    await fitsTheScreen(page);
    await page.locator('#code').fill(codes[0]);
    await page.locator('#code').press('Enter');
    assert.equal((await result(page)).claims.acr, '2');

    await page.goto(`${cast.server.issuer}/account/security`);
    const lost = page.locator('section[aria-labelledby=passkeys] .rows li');
    await lost.locator('summary').click();
    await lost.locator('[id^=proof-removal]').fill(dora.password);
    await lost.getByRole('button', { name: 'Remove' }).click();
    await page.getByText('It was removed.').waitFor();
    await pressAdd(page, authenticator, dora.password);
    assert.equal((await authenticator.credentials()).length, 1);

    await signOut(page);
    await authenticator.touch();
    await page.goto(cast.website.start('web'));
    assert.equal((await result(page)).claims.acr, 'phr');
  });

  it('a passkey answers the second step, and without script the code does', async () => {
    const erik = await addUser('erik@example.com');
    const page = await visitor();
    const authenticator = await withAuthenticator(page);
    await addPasskey(page, authenticator, erik);
    const [code] = await makeCodes(page, authenticator);
    await signOut(page);
    await page.goto(cast.website.start('web'));
    await signIn(page, erik.password, erik.name);
    await page.locator('main.page-second-factor').waitFor();
    await signInOnce(page, authenticator);
    assert.equal((await result(page)).claims.acr, 'phr');

    const plain = await visitor({ javaScriptEnabled: false });
    await plain.goto(cast.website.start('web'));
    await signIn(plain, erik.password, erik.name);
    await plain.locator('main.page-second-factor').waitFor();
    assert.equal(await passkeyButton(plain).count(), 0);
    await plain.locator('#code').fill(code);
    await plain.locator('#code').press('Enter');
    assert.equal((await result(plain)).claims.acr, '2');
  });

  it('a passkey is offered after a sign-in with a password, until the person declines or has one', async () => {
    const gustav = await addUser('gustav@example.com');
    const offer = (page) => page.locator('main.page-passkey-offer');
    const begin = async (page) => {
      await page.goto(cast.website.start('web'));
      await page.locator('input[name=platform_authenticator]').waitFor({ state: 'attached' });
      await signIn(page, gustav.password, gustav.name);
    };
    const first = await visitor({ viewport: { width: 320, height: 720 } });
    await withAuthenticator(first);
    await begin(first);
    await offer(first).waitFor();
    await first.getByRole('button', { name: 'Create a passkey' }).waitFor();
    await keep(first, 'passkey-offer');
    await fitsTheScreen(first);
    await first.getByRole('button', { name: 'Not now' }).click();
    assert.equal((await result(first)).claims.acr, '1');
    await first.context().clearCookies({ name: /^__Host-idsvc_session/ });
    await first.goto(cast.website.start('web'));
    await signIn(first, gustav.password, gustav.name);
    assert.equal((await result(first)).claims.acr, '1', 'not asked again');

    const second = await visitor();
    const authenticator = await withAuthenticator(second);
    await begin(second);
    await offer(second).waitFor();
    await authenticator.touch();
    await second.getByRole('button', { name: 'Create a passkey' }).click();
    assert.equal((await result(second)).claims.acr, '1');
    assert.equal((await authenticator.credentials()).length, 1);
    await signOut(second);
    await second.goto(cast.website.start('web'));
    assert.equal((await result(second)).claims.acr, 'phr', 'by autofill');
  });

  it('a browser that cannot keep a passkey is offered none', async () => {
    const page = await visitor();
    await page.goto(cast.website.start('web'));
    await passkeyButton(page).waitFor();
    await signIn(page, cast.alice.password);
    assert.equal((await result(page)).claims.acr, '1');
  });

  it('the browser is told of a passkey that the service does not know', async () => {
    const frida = await addUser('frida@example.com');
    const page = await visitor();
    await page.addInitScript(() => {
      window.signalled = [];
      PublicKeyCredential.signalUnknownCredential = async (options) => window.signalled.push(options);
    });
    const authenticator = await withAuthenticator(page);
    await addPasskey(page, authenticator, frida);
    const [{ credentialId }] = await authenticator.credentials();
    await cast.server.command('user', 'reset', frida.name, '--factors');
    await signOut(page);
    await page.goto(cast.website.start('web'));
    await passkeyButton(page).waitFor();
    assert.deepEqual(await page.evaluate(() => window.signalled), []);
    await signInOnce(page, authenticator);
    const signalled = await page.waitForFunction(() => window.signalled.length > 0 && window.signalled);
    await page.getByText('This passkey does not belong to an account here any more.').waitFor();
    const told = { rpId: 'localhost', credentialId: Buffer.from(credentialId, 'base64').toString('base64url') };
    assert.deepEqual(await signalled.jsonValue(), [told]);
  });

  it('without script the page is as before', async () => {
    const page = await visitor({ javaScriptEnabled: false });
    await page.goto(cast.website.start('web'));
    assert.equal(await passkeyButton(page).count(), 0);
    await signIn(page, cast.alice.password);
    assert.deepEqual((await result(page)).claims.amr, ['pwd']);
  });
});
