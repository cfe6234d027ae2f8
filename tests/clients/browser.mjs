// A browser without script: keeps cookies, follows redirects of one site, reads and submits forms.

import assert from 'node:assert/strict';
import { parse } from 'parse5';
import { request } from 'undici';

/** One set of cookies of one https site. */
export class CookieJar {
  #cookies = new Map();

  /** Takes the `Set-Cookie` values of an answer to `url`, as RFC 6265 says. */
  take(url, values) {
    for (const value of values) {
      const [pair, ...attributes] = value.split(';').map((part) => part.trim());
      const at = pair.indexOf('=');
      const name = pair.slice(0, at);
      const flags = new Map(
        attributes.map((attribute) => {
          const [key, ...rest] = attribute.split('=');
          return [key.toLowerCase(), rest.join('=')];
        }),
      );
      assert.ok(flags.has('secure') && flags.has('httponly'), `cookie ${name} is Secure and HttpOnly`);
      assert.equal(flags.get('samesite'), 'Lax', `cookie ${name} is SameSite=Lax`);
      assert.equal(flags.get('path'), '/', `cookie ${name} is of the whole host`);
      assert.ok(!flags.has('domain'), `cookie ${name} is of this host only`);
      assert.ok(name.startsWith('__Host-'), `cookie ${name} has the __Host- prefix`);
      const maxAge = flags.get('max-age');
      const expires = flags.get('expires');
      const gone = maxAge !== undefined ? Number(maxAge) <= 0 : expires !== undefined && Date.parse(expires) <= Date.now();
      if (gone) this.#cookies.delete(name);
      else this.#cookies.set(name, pair.slice(at + 1));
    }
  }

  /** The `Cookie` header. */
  get header() {
    return [...this.#cookies].map(([name, value]) => `${name}=${value}`).join('; ');
  }

  get names() {
    return [...this.#cookies.keys()];
  }

  valueOf(name) {
    return this.#cookies.get(name);
  }
}

function* elements(node) {
  for (const child of node.childNodes ?? []) {
    if (child.tagName) yield child;
    yield* elements(child);
  }
}

function attributesOf(element) {
  return Object.fromEntries(element.attrs.map(({ name, value }) => [name, value]));
}

function textOf(node) {
  if (node.nodeName === '#text') return node.value;
  if (['script', 'style'].includes(node.nodeName)) return '';
  return (node.childNodes ?? []).map(textOf).join(' ');
}

/** A form as the page offers it. */
class Form {
  constructor(element, url) {
    const { action = '', method = 'get' } = attributesOf(element);
    this.action = new URL(action || url, url).href;
    this.method = method.toUpperCase();
    this.fields = [];
    this.buttons = [];
    for (const part of elements(element)) {
      const { name, type = part.tagName === 'button' ? 'submit' : 'text', value = '', id, ...rest } = attributesOf(part);
      if (part.tagName === 'button' || (part.tagName === 'input' && type === 'submit')) {
        this.buttons.push({ name, value, type });
      } else if (part.tagName === 'input' && name && !('disabled' in rest)) {
        const off = ['checkbox', 'radio'].includes(type) && !('checked' in rest);
        this.fields.push({ name, id, type, value: off ? undefined : value, ...rest });
      }
    }
  }

  /** The field with this id. */
  field(id) {
    return this.fields.find((field) => field.id === id);
  }

  button(name, value) {
    return this.buttons.find((button) => button.name === name && button.value === value);
  }

  /** The body of a submission by the given button. */
  body(button) {
    const body = new URLSearchParams();
    for (const { name, value } of this.fields) if (value !== undefined) body.append(name, value);
    if (button?.name) body.append(button.name, button.value);
    return body;
  }
}

/** An HTML page of the service. */
export class Page {
  constructor({ url, status, headers, html }) {
    Object.assign(this, { url, status, headers, html });
    this.parseErrors = [];
    const document = parse(html, { onParseError: (error) => this.parseErrors.push(`${error.code}:${error.startLine}`) });
    const all = [...elements(document)];
    this.language = attributesOf(all.find((element) => element.tagName === 'html')).lang;
    this.title = textOf(all.find((element) => element.tagName === 'title') ?? {}).trim();
    this.text = textOf(document).replace(/\s+/g, ' ').trim();
    this.forms = all.filter((element) => element.tagName === 'form').map((element) => new Form(element, url));
  }

  get path() {
    return new URL(this.url).pathname;
  }

  /** The form with a password field. */
  get signInForm() {
    return this.forms.find((form) => form.field('username') && form.field('password'));
  }

  /** The form that offers this decision. */
  decisionForm(value) {
    return this.forms.find((form) => form.button('decision', value));
  }
}

/**
 * What the client is given at its redirect URI: `url` and, for `form_post`, `body`.
 * Library calls take it by `request` (a `URL` or a `Request`).
 */
export class Callback {
  constructor(url, body) {
    this.url = new URL(url);
    this.body = body;
  }

  get parameters() {
    return this.body ?? this.url.searchParams;
  }

  get request() {
    if (!this.body) return this.url;
    const headers = { 'content-type': 'application/x-www-form-urlencoded' };
    return new Request(this.url, { method: 'POST', headers, body: this.body.toString() });
  }
}

export class Browser {
  constructor(server, { language = 'en' } = {}) {
    this.server = server;
    this.origin = new URL(server.issuer).origin;
    this.language = language;
    this.jar = new CookieJar();
  }

  /** Opens an address from another site's link. Ends at a page of the service or at the client's redirect URI. */
  async open(url) {
    return this.#visit('GET', String(url), undefined, { 'sec-fetch-site': 'cross-site' });
  }

  /** Posts a form from another site's page. */
  async post(url, parameters, origin) {
    const body = new URLSearchParams(parameters);
    return this.#visit('POST', String(url), body, { 'sec-fetch-site': 'cross-site', origin });
  }

  /** Submits a form of a page by one of its buttons. */
  async submit(page, form, button) {
    const body = form.body(button ?? form.buttons.find(({ type }) => type === 'submit'));
    if (new URL(form.action).origin !== this.origin) {
      assert.equal(form.method, 'POST');
      return new Callback(form.action, body);
    }
    if (form.method === 'GET') return this.#visit('GET', `${form.action}?${body}`, undefined, sameOrigin(page));
    return this.#visit('POST', form.action, body, { ...sameOrigin(page), origin: this.origin });
  }

  /** Fills in the sign-in form and submits it. */
  async signIn(page, username, password) {
    assert.ok(page instanceof Page && page.signInForm, `a sign-in page, not ${describe(page)}`);
    const form = page.signInForm;
    form.field('username').value = username;
    form.field('password').value = password;
    return this.submit(page, form);
  }

  /** Presses a decision button: `allow`, `deny` or `logout`. */
  async decide(page, value) {
    const form = page instanceof Page ? page.decisionForm(value) : undefined;
    assert.ok(form, `a page that offers ${value}, not ${describe(page)}`);
    return this.submit(page, form, form.button('decision', value));
  }

  /** Submits the page that hands a `form_post` response to the client. */
  async hand(page) {
    assert.ok(page instanceof Page && page.forms.length === 1, `a form_post page, not ${describe(page)}`);
    return this.submit(page, page.forms[0]);
  }

  async #visit(method, url, body, extra) {
    for (let hops = 0; hops < 10; hops += 1) {
      if (!url.startsWith(`${this.origin}/`)) return new Callback(url);
      const headers = {
        accept: 'text/html',
        'accept-language': this.language,
        'sec-fetch-mode': 'navigate',
        'sec-fetch-dest': 'document',
        'sec-fetch-user': '?1',
        ...Object.fromEntries(Object.entries(extra).filter(([, value]) => value !== undefined)),
      };
      if (this.jar.header) headers.cookie = this.jar.header;
      if (body) headers['content-type'] = 'application/x-www-form-urlencoded';
      const answer = await request(url, { method, headers, body: body?.toString(), dispatcher: this.server.agent });
      this.jar.take(url, [answer.headers['set-cookie'] ?? []].flat());
      const html = await answer.body.text();
      if (![301, 302, 303, 307, 308].includes(answer.statusCode)) {
        assert.match(answer.headers['content-type'] ?? '', /^text\/html/, `${method} ${url} answers a page: ${html}`);
        return new Page({ url, status: answer.statusCode, headers: answer.headers, html });
      }
      assert.ok(![307, 308].includes(answer.statusCode), 'a redirect never carries a form along (RFC 9700 4.12)');
      url = new URL(answer.headers.location, url).href;
      method = 'GET';
      body = undefined;
      extra = { 'sec-fetch-site': extra['sec-fetch-site'] };
    }
    throw new Error(`too many redirects, the last one to ${url}`);
  }
}

function sameOrigin(page) {
  return { 'sec-fetch-site': 'same-origin', referer: page.url };
}

function describe(answer) {
  if (answer instanceof Page) return `${answer.status} ${answer.path}: ${answer.text}`;
  return `a redirect to ${answer?.url}`;
}
