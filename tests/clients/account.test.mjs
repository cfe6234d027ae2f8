// The account page, used for real.

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ALICE } from './harness.mjs';
import { keep, result, scene, signIn, visitor, withMemory } from './visitor.mjs';

const cast = scene({}, ['--consent', 'require']);

/** A browser that is signed in at the account page. */
async function atAccount(options, section = 'password', visited = visitor) {
  const page = await visited(options);
  await page.goto(`${cast.server.issuer}/account/${section}`);
  await signIn(page, cast.alice.password);
  await page.locator('main.page-account').waitFor();
  return page;
}

async function isSignedIn(page) {
  await page.goto(`${cast.server.issuer}/account`);
  return (await page.locator('main.page-account').count()) === 1;
}

describe('the account page', () => {
  it('leads from section to section, and says which one is open', async () => {
    const page = await atAccount({ javaScriptEnabled: false }, 'profile');
    for (const name of ['Devices', 'Applications', 'Password', 'Profile']) {
      await page.locator('nav.sections').getByRole('link', { name }).click();
      await page.waitForURL(new RegExp(`/account/${name.toLowerCase()}$`));
      assert.equal(await page.locator('nav.sections [aria-current=page]').innerText(), name);
    }
  });

  it('shows what is typed as a password when asked to, and hides it before it is sent', async () => {
    const page = await atAccount();
    const field = page.locator('#current-password');
    await field.fill('visible');
    const button = page.locator('button.reveal[aria-controls=current-password]');
    await button.click();
    assert.equal(await field.getAttribute('type'), 'text');
    assert.equal(await button.getAttribute('aria-pressed'), 'true');
    await button.press('Space');
    assert.equal(await field.getAttribute('type'), 'password');
    await button.click();
    await page.locator('#new-password').fill('a password that is new');
    const [request] = await Promise.all([
      page.waitForRequest((request) => request.method() === 'POST'),
      page.locator('#new-password').press('Enter'),
    ]);
    assert.match(request.postData(), /current-password=visible/);
    const problem = page.locator('#notice[role=alert] a');
    await problem.click();
    await page.locator('#current-password:focus').waitFor();
    assert.equal(await field.inputValue(), '');
  });

  it('signs another browser out', async () => {
    const here = await atAccount({}, 'devices');
    const other = await atAccount({ userAgent: 'Mozilla/5.0 (Android 16; Mobile; rv:145.0) Gecko/145.0 Firefox/145.0' });
    await here.reload();
    const row = here.locator('.rows li', { hasText: 'Firefox (Android)' });
    await keep(here, 'account-two-browsers');
    await row.getByRole('button').click();
    await here.getByText('Signed out there').waitFor();
    assert.equal(await row.count(), 0);
    assert.equal(await isSignedIn(other), false);
    assert.equal(await isSignedIn(here), true);
  });

  it('takes an application its access', async () => {
    const page = await visitor();
    await page.goto(cast.website.start('web'));
    await signIn(page, cast.alice.password);
    await page.locator('button[value=allow]').click();
    const { token } = await result(page);
    await page.goto(`${cast.server.issuer}/account/applications`);
    const row = page.locator('.rows li', { hasText: 'Website' });
    await row.getByRole('button').click();
    await page.locator('#notice[role=status]').waitFor();
    assert.equal(await row.count(), 0);
    const answer = await cast.server.fetch(`${cast.server.issuer}/oauth2/userinfo`, {
      headers: { authorization: `Bearer ${token.access_token}` },
    });
    assert.equal(answer.status, 401);
    await page.goto(cast.website.start('web'));
    await page.locator('button[value=allow]').waitFor();
  });

  it('keeps room for the button beside a password, in every direction of page and field', async () => {
    const page = await atAccount();
    await page.locator('button.reveal').first().waitFor();
    const rooms = await page.evaluate(() => {
      const field = document.querySelector('#current-password');
      const button = document.querySelector('button.reveal');
      const rooms = [];
      for (const around of ['ltr', 'rtl']) {
        for (const own of ['ltr', 'rtl', 'auto', '']) {
          document.documentElement.dir = around;
          field.dir = own;
          const [outer, inner] = [field.getBoundingClientRect(), button.getBoundingClientRect()];
          const { paddingLeft, paddingRight } = getComputedStyle(field);
          const [room, width] =
            around === 'rtl'
              ? [paddingLeft, inner.right - outer.left]
              : [paddingRight, outer.right - inner.left];
          rooms.push({ around, own, isEnough: parseFloat(room) >= width && width < outer.width / 2 });
        }
      }
      return rooms;
    });
    assert.deepEqual(rooms.filter(({ isEnough }) => !isEnough), []);
  });

  it('speaks another language from then on', async () => {
    const page = await atAccount({}, 'profile');
    await page.locator('#language').selectOption('ar');
    await page.locator('#language').press('Tab');
    await page.keyboard.press('Enter');
    await page.locator('html[lang=ar][dir=rtl]').waitFor();
    await page.context().clearCookies({ name: /^__Host-idsvc_session/ });
    await page.goto(cast.website.start('web'));
    assert.equal(await page.getAttribute('html', 'lang'), 'ar');
  });

  it('is not shown again when the user goes back after a sign-out', async () => {
    await withMemory(cast.server, async (visited) => {
      const page = await atAccount({}, 'devices', visited);
      await page.locator('.rows li button').first().click();
      await page.locator('main.page-logged-out').waitFor();
      await page.evaluate(() => history.back());
      await page.locator('main.page-login').waitFor();
    });
  });

  it('says once what was done', async () => {
    const page = await atAccount({}, 'profile');
    await page.locator('#language').selectOption('de');
    await page.locator('section[aria-labelledby=languages] button').click();
    await page.locator('#notice').waitFor();
    assert.equal(new URL(page.url()).search, '');
    await page.reload();
    assert.equal(await page.locator('#notice').count(), 0);
  });

  it('changes the password without script, and signs everybody else out', async () => {
    const other = await atAccount();
    const page = await atAccount({ javaScriptEnabled: false });
    assert.equal(await page.locator('button.reveal').first().isVisible(), false);
    const chosen = 'a password that is new';
    await page.locator('#current-password').fill(cast.alice.password);
    await page.locator('#new-password').fill(chosen);
    await page.locator('#new-password').press('Enter');
    await page.getByText('Your password has been changed').waitFor();
    await keep(page, 'account-password-changed');
    assert.equal(await isSignedIn(other), false);
    await signIn(other, cast.alice.password);
    await other.locator('#problem').waitFor();
    assert.equal(await other.locator('input#username').inputValue(), ALICE);
    await other.locator('input#password').fill(chosen);
    await other.locator('input#password').press('Enter');
    await other.locator('main.page-account').waitFor();
    cast.alice.password = chosen;
  });
});
