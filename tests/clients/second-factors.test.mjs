// Two steps of a sign-in, with an authenticator that was written elsewhere and without script.

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Secret, TOTP } from 'otpauth';
import { ALICE } from './harness.mjs';
import { fitsTheScreen, keep, result, scene, signIn, visitor } from './visitor.mjs';

const PHONE = { javaScriptEnabled: false, viewport: { width: 320, height: 640 } };

const cast = scene();

/** The application of a person who types the key of the page. */
async function application(page) {
  const key = await page.locator('p[dir=ltr] code').innerText();
  return new TOTP({ secret: Secret.fromBase32(key.replaceAll(' ', '')) });
}

async function enterCode(page, code) {
  await page.locator('#code').fill(code);
  await page.locator('#code').press('Enter');
}

/** Waits until the application shows another code: each works once. */
async function nextCode(app, used) {
  for (;;) {
    const code = app.generate();
    if (code !== used) return code;
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
}

describe('second factors', () => {
  it('a person sets up an app, signs in with its codes, and with a recovery code', async () => {
    const page = await visitor(PHONE);
    await page.goto(`${cast.server.issuer}/account/security`);
    await signIn(page, cast.alice.password);
    await page.getByRole('button', { name: 'Set up an authenticator app' }).click();
    await page.locator('svg.qr').waitFor();
    await keep(page, 'second-factors-setup');
    await fitsTheScreen(page);
    const app = await application(page);
    const first = app.generate();
    await page.locator('#proof-app').fill(cast.alice.password);
    await enterCode(page, first);
    await page.locator('.codes').waitFor();
    await keep(page, 'second-factors-codes');
    await fitsTheScreen(page);
    const codes = await page.locator('.codes code').allInnerTexts();
    assert.equal(codes.length, 10);
    await page.getByRole('link', { name: 'I have kept the codes' }).click();
    await keep(page, 'second-factors-list');
    await fitsTheScreen(page);

    const other = await visitor(PHONE);
    await other.goto(cast.website.start('web'));
    await signIn(other, cast.alice.password);
    await other.locator('main.page-second-factor').waitFor();
    await keep(other, 'second-factor');
    await fitsTheScreen(other);
    await enterCode(other, first);
    await other.locator('#problem').waitFor();
    await enterCode(other, await nextCode(app, first));
    const { claims } = await result(other);
    assert.deepEqual([claims.acr, claims.amr], ['2', ['pwd', 'otp', 'mfa']]);

    const third = await visitor(PHONE);
    await third.goto(cast.website.start('web'));
    await signIn(third, cast.alice.password);
    await third.getByRole('link', { name: 'Use a recovery code' }).click();
    await keep(third, 'second-factor-recovery');
    await enterCode(third, codes[0]);
    assert.equal((await result(third)).claims.acr, '2');
    const kinds = (await cast.server.json('user', 'factors', ALICE)).factors.map((factor) => factor.kind);
    assert.deepEqual(kinds, ['totp', 'recovery_codes']);
  });
});
