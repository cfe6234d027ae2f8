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
  };
}

const addButton = (page) => page.getByRole('button', { name: 'Add a passkey' });
const passkeyButton = (page) => page.getByRole('button', { name: 'Sign in with a passkey' });

/** Signs in with the password and adds a passkey. */
async function addPasskey(page, authenticator) {
  await page.goto(`${cast.server.issuer}/account/security`);
  await signIn(page, cast.alice.password);
  await authenticator.touch();
  await addButton(page).click();
  await page.locator('p.done').waitFor();
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
    const page = await visitor();
    const authenticator = await withAuthenticator(page);
    await addPasskey(page, authenticator);
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

  it('without script the page is as before', async () => {
    const page = await visitor({ javaScriptEnabled: false });
    await page.goto(cast.website.start('web'));
    assert.equal(await passkeyButton(page).count(), 0);
    await signIn(page, cast.alice.password);
    assert.deepEqual((await result(page)).claims.amr, ['pwd']);
  });
});
