// Every page on every screen: three widths, by day and by night, from left to right and from right to left.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, describe, it } from 'node:test';
import { binary, freePort, Server } from './harness.mjs';
import { dismiss, fitsTheScreen, keep, launch, quit, signIn, visitor } from './visitor.mjs';
import { Website } from './website.mjs';

const WIDTHS = [320, 768, 1280];
const SCHEMES = ['light', 'dark'];
/** The least height and width of what is pressed, in CSS pixels. */
const TARGET = 44;
/** The most that a page may weigh with everything that it loads but the font and images, in bytes. */
const HEAVIEST = 30_000;

/** A picture of an application. */
const LOGO =
  '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><path fill="#e4572e" d="M4 4h24v24H4z"/><path fill="#fff" d="M9 13h14v2H9zm0 5h9v2H9z"/></svg>';

const axe = await readFile(new URL(import.meta.resolve('axe-core/axe.min.js')), 'utf8');

let server;
let dev;
let alice;
let website;

before(async () => {
  [server, dev] = await Promise.all([Server.start(), Server.start({ dev: true })]);
  alice = await server.addAlice();
  website = await Website.start();
  // nobody is there: the page says that the provider cannot be reached, and offers it once more
  const nobody = ['--issuer', 'https://127.0.0.1:1', '--client-id', 'x', '--auth-method', 'private_key_jwt'];
  await server.json('provider', 'add', 'upstream', ...nobody, '--name', 'Upstream & Company');
  const logo = join(await mkdtemp(join(tmpdir(), 'idsvc-logo-')), 'logo.svg');
  await writeFile(logo, LOGO);
  for (const [id, ...flags] of [
    ['web', '--name', 'Acme Notes'],
    ['choice', '--name', 'Acme Radio', '--provider', 'upstream'],
    ['careful', '--name', 'Acme Television', '--consent', 'require', '--logo-file', logo],
    ['split', '--name', 'Acme Pictures', '--theme', 'split', '--consent', 'require', '--logo-file', logo],
  ]) {
    await website.join(server, await server.addClient(id, website.redirectUri, ...flags));
  }
  await launch(server, dev);
});

after(async () => {
  await quit();
  await website?.stop();
  await dev?.stop();
  await server?.stop();
});

afterEach(dismiss);

/** What is wrong with the page for those who cannot see, point or read like everybody: nothing. */
async function isAccessible(page, where) {
  const violations = await page.evaluate(async () => {
    const { violations } = await window.axe.run({ resultTypes: ['violations'] });
    return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(' ')}`);
  });
  assert.deepEqual(violations, [], where);
}

/** Each control is large enough for a thumb. Links inside sentences are exempt (WCAG 2.2, 2.5.8). */
async function hasLargeTargets(page, where) {
  const small = await page.evaluate((least) => {
    const targets = [...document.querySelectorAll('button, select, summary, a.button, nav a, input:not([type=hidden])')];
    return targets
      .filter((target) => target.checkVisibility())
      .map((target) => (target.type === 'checkbox' ? target.closest('label') : target))
      .map((target) => [target.outerHTML.slice(0, 120), target.getBoundingClientRect()])
      .filter(([, { width, height }]) => width < least || height < least)
      .map(([html, { width, height }]) => `${html}: ${width} x ${height}`);
  }, TARGET);
  assert.deepEqual(small, [], where);
}

/** Looks at the page that is open on every screen. */
async function survey(page, locale, name) {
  await page.evaluate(axe);
  assert.equal(await page.getAttribute('html', 'lang'), locale);
  for (const width of WIDTHS) {
    await page.setViewportSize({ width, height: 720 });
    for (const colorScheme of SCHEMES) {
      const where = `pages/${name}-${locale}-${width}-${colorScheme}`;
      await page.emulateMedia({ colorScheme });
      await keep(page, where);
      await isAccessible(page, where);
    }
    await fitsTheScreen(page);
    await hasLargeTargets(page, `${name} ${locale} ${width}`);
  }
}

/** Notes what the pages load, and what of it comes from elsewhere. */
function meter(page, origin) {
  const seen = { bodies: [], foreign: [] };
  page.on('response', (response) => {
    const isRedirect = response.status() >= 300 && response.status() < 400;
    if (!response.url().startsWith(`${origin}/`)) seen.foreign.push(response.url());
    else if (!isRedirect && !['image', 'font'].includes(response.request().resourceType())) seen.bodies.push(response.body());
  });
  return seen;
}

for (const locale of ['en', 'ar']) {
  describe(`the pages in ${locale}`, () => {
    it('suit every screen and everybody, from sign-in to sign-out', async () => {
      const page = await visitor({ locale });
      await page.goto(website.start('careful', { prompt: 'consent' }));
      await survey(page, locale, 'login');
      await page.locator('.languages summary').click();
      await survey(page, locale, 'login-languages');
      await page.locator('.languages summary').click();
      await signIn(page, 'not the password');
      await page.locator('#problem').waitFor();
      await survey(page, locale, 'login-problem');
      await page.locator('input#password').fill(alice.password);
      await page.locator('button[type=submit]').click();
      await page.locator('button[value=allow]').waitFor();
      await survey(page, locale, 'consent');
      await page.locator('button[value=allow]').click();
      await page.locator('#result').waitFor();
      await page.goto(website.start('web', { prompt: 'select_account' }));
      await survey(page, locale, 'login-choice');
      for (const section of ['profile', 'devices', 'applications', 'password']) {
        await page.goto(`${server.issuer}/account/${section}`);
        await survey(page, locale, `account-${section}`);
      }
      await page.locator('#current-password').fill('not the password');
      await page.locator('#new-password').fill('a password that is new');
      await page.locator('#new-password').press('Enter');
      await page.locator('#notice').waitFor();
      await survey(page, locale, 'account-problem');
      await page.goto(`${server.issuer}/oauth2/logout`);
      await survey(page, locale, 'logout');
      await page.locator('button[value=logout]').click();
      await page.waitForURL(/logged-out/);
      await survey(page, locale, 'logged-out');
    });

    it('suit every screen and everybody with the picture beside them', async () => {
      const page = await visitor({ locale });
      await page.goto(website.start('split', { prompt: 'consent' }));
      await survey(page, locale, 'split-login');
      await signIn(page, alice.password);
      await page.locator('button[value=allow]').waitFor();
      await survey(page, locale, 'split-consent');
    });

    it('suit every screen and everybody where there is a choice of providers', async () => {
      const page = await visitor({ locale });
      await page.goto(website.start('choice'));
      await survey(page, locale, 'login-providers');
      await page.locator('a.provider').click();
      await page.locator('#problem').waitFor();
      await survey(page, locale, 'login-provider-problem');
    });

    it('suit every screen and everybody where something is wrong', async () => {
      const page = await visitor({ locale });
      await page.goto(`${server.issuer}/oauth2/authorize?client_id=nobody&response_type=code`);
      await survey(page, locale, 'error');
      await page.goto(`${server.issuer}/nowhere`);
      await survey(page, locale, 'not-found');
      await page.route('**/assets/submit.*', (route) => route.fulfill({ contentType: 'text/javascript', body: '' }));
      await page.goto(website.start('web', { response_mode: 'form_post' }));
      await signIn(page, alice.password);
      await page.locator('main.page-form-post').waitFor();
      await survey(page, locale, 'form-post');
    });

    // The pages for developers are in English for everybody.
    it('suit every screen and everybody in development', async () => {
      const page = await visitor({ locale });
      await page.goto(dev.issuer);
      await survey(page, 'en', 'dev-home');
      const [, username, password] = /(\S+@\S+)[^\n]*?password:? +(\S+)/i.exec(dev.log) ?? [];
      await page.locator('a.button').first().click();
      await page.locator('input#username').fill(username);
      await page.locator('input#password').fill(password);
      await page.locator('button[type=submit]').click();
      await page.locator('main.page-tokens').waitFor();
      await survey(page, 'en', 'dev-tokens');
      await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
      const token = await page.locator('#ACCESS_TOKEN').textContent();
      await page.locator('button[data-copy=command-0]').click();
      await page.waitForFunction((part) => navigator.clipboard.readText().then((text) => text.includes(part)), token);
      const shown = await page.content();
      assert.equal(shown.split(token).length, 2, 'each token is there once');
    });
  });
}

/** Pages that only a mail leads to, as the preview of a theme shows them. */
const PREVIEWED = [
  'address/reset',
  'address/sign-up',
  'check-mail/reset',
  'check-mail/wrong',
  'choose-password/reset',
  'choose-password/sign-up',
  'confirm-link/secure',
  'account/data',
  'account/email-requested',
  'passkey-offer/first',
  'no-access/first',
  'device/wrong',
  'device-decision/elsewhere',
  'device-decision/allowed',
];

/** Pages of the account and of the second step, for the theme that differs most from the default one. */
const IN_SPLIT = [
  'account/profile',
  'account/security',
  'account/security-setup',
  'account/security-codes',
  'account/devices',
  'second-factor/first',
  'second-factor/recovery',
  'second-factor/wrong',
  'passkey-offer/first',
];

for (const [theme, previewed] of [
  ['default', PREVIEWED],
  ['split', IN_SPLIT],
]) {
  describe(`the pages that the preview of ${theme} shows`, () => {
    let preview;
    let address;

    before(async () => {
      address = `127.0.0.1:${await freePort()}`;
      const data = await mkdtemp(join(tmpdir(), 'idsvc-preview-'));
      preview = spawn(binary, ['theme', 'preview', theme, '--listen', address, '--data-dir', data]);
      await once(preview.stdout, 'data');
    });

    after(() => preview.kill());

    for (const locale of ['en', 'ar']) {
      it(`suit every screen and everybody in ${locale}`, async () => {
        const page = await visitor({ locale });
        for (const name of previewed) {
          await page.goto(`http://${address}/pages/${name}?locale=${locale}`);
          const kept = name.replace('/', '-');
          await survey(page, locale, theme === 'default' ? kept : `${theme}-${kept}`);
        }
      });
    }
  });
}

describe('a page', () => {
  it('is shown in the language that is chosen below it, without a script', async () => {
    const page = await visitor({ javaScriptEnabled: false });
    await page.goto(website.start('careful', { prompt: 'consent' }));
    await page.locator('.languages summary').click();
    await page.locator('.languages button[lang=de]').click();
    assert.equal(await page.getAttribute('html', 'lang'), 'de');
    await signIn(page, alice.password);
    await page.locator('button[value=allow]').waitFor();
    assert.equal(await page.getAttribute('html', 'lang'), 'de');
  });


  it('loads little, nothing from elsewhere, and never moves what is on it', async () => {
    for (const path of ['/account', '/error', '/logged-out', '/oauth2/authorize?client_id=nobody']) {
      const page = await visitor();
      const seen = meter(page, server.issuer);
      await page.goto(`${server.issuer}${path}`, { waitUntil: 'networkidle' });
      assert.deepEqual(seen.foreign, []);
      const bytes = (await Promise.all(seen.bodies)).reduce((sum, body) => sum + body.length, 0);
      assert.ok(bytes > 0 && bytes < HEAVIEST, `${path}: ${bytes} bytes`);
      const shift = await page.evaluate(
        () =>
          new Promise((done) => {
            let sum = 0;
            const observer = new PerformanceObserver((list) => {
              for (const { value } of list.getEntries()) sum += value;
            });
            observer.observe({ type: 'layout-shift', buffered: true });
            requestAnimationFrame(() => requestAnimationFrame(() => done(sum)));
          }),
      );
      assert.equal(shift, 0, path);
    }
  });

  it('can be read and used when it is enlarged to 200 percent', async () => {
    const page = await visitor({ viewport: { width: 640, height: 360 }, deviceScaleFactor: 2 });
    await page.goto(website.start('careful', { prompt: 'consent' }));
    await fitsTheScreen(page);
    await keep(page, 'zoom-login');
    await signIn(page, alice.password);
    await page.locator('button[value=allow]').waitFor();
    await fitsTheScreen(page);
    await page.goto(`${server.issuer}/account/devices`);
    for (const width of [640, 320]) {
      await page.setViewportSize({ width, height: 360 });
      await page.evaluate(() => {
        document.documentElement.style.fontSize = '200%';
      });
      await fitsTheScreen(page);
      await keep(page, `zoom-account-text-${width}`);
    }
    await page.goto(`${server.issuer}/account/password`);
    await page.locator('#current-password').fill('x');
  });
});
