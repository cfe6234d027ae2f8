//! The document around every page.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::pages::asset;
use crate::pages::form::hidden;
use crate::pages::locale::LANGUAGE;
use crate::pages::{Icon, Locale, Page, PageAddress};
use crate::themes::TemplateContext;
use crate::themes::Theme;

/// Draws a page as a whole document. Its style, script and images come from our own origin, so a content security policy
/// of `'self'` is enough.
pub fn document<P: Page>(page: &P, theme: &Theme, reader: &Locale) -> String {
    let locale = locale_of::<P>(reader);
    html! {
        (DOCTYPE)
        html lang=(locale.tag()) dir=(locale.direction()) {
            head { (head(page, theme, locale)) }
            body {
                (brand(theme))
                main class={ "card page-" (P::NAME) } { (page.body(&locale.text())) }
                (footer(page, theme, locale))
            }
        }
    }
    .into_string()
}

/// The language of a page.
fn locale_of<P: Page>(reader: &Locale) -> &Locale {
    if P::IS_ENGLISH { Locale::english() } else { reader }
}

fn head<P: Page>(page: &P, theme: &Theme, locale: &Locale) -> Markup {
    html! {
        meta charset="utf-8";
        meta name="viewport" content="width=device-width, initial-scale=1";
        meta name="color-scheme" content="light dark";
        meta name="robots" content="noindex";
        title { (page.title(&locale.text())) " · " (theme.product_name()) }
        @if let Some(icon) = theme.favicon_url() { link rel="icon" href=(icon); }
        @if theme.has_own_font() {
            link rel="preload" href={ (theme.base_path()) (asset::url(asset::File::Latin)) } as="font" type="font/woff2"
                crossorigin;
        }
        link rel="stylesheet" href=(theme.style_url());
        @if let Some(script) = script_url(page, theme) { script src=(script) defer blocking="render" {} }
    }
}

fn script_url<P: Page>(page: &P, theme: &Theme) -> Option<String> {
    let script = page.script()?;
    Some(format!("{}{}", theme.base_path(), asset::url(script)))
}

/// The product, above the page.
fn brand(theme: &Theme) -> Markup {
    html! {
        header.brand {
            @if let Some(logo) = theme.logo_url() {
                img.brand-logo src=(logo) alt="" width="24" height="24";
            }
            bdi.brand-name { (theme.product_name()) }
        }
    }
}

/// The languages and the operator's links, below the page.
fn footer<P: Page>(page: &P, theme: &Theme, locale: &Locale) -> Markup {
    let mut links = theme.links(locale).peekable();
    let address = page.address();
    html! {
        @if address.is_some() || links.peek().is_some() {
            footer.links {
                @if let Some(address) = address { (languages(address, theme, locale)) }
                @for (href, text) in links { a href=(href) { (text) } }
            }
        }
    }
}

/// Shows the page in another language. The form is sent by GET and changes nothing but the language.
fn languages(address: PageAddress<'_>, theme: &Theme, locale: &Locale) -> Markup {
    html! {
        details.languages {
            summary aria-label={ (locale.text().account_language) ": " (locale.name()) } {
                (Icon::Languages.draw())
                (locale.name())
            }
            form method="get" action=(address.path) {
                @for (name, value) in address.parameters { (hidden(name, value)) }
                // No `type`: scripts of clients find the sign-in button by `button[type=submit]`.
                @for other in theme.locales() {
                    @let here = (other.tag() == locale.tag()).then_some("true");
                    button name=(LANGUAGE) value=(other.tag()) lang=(other.tag()) dir=(other.direction()) aria-current=[here] {
                        (other.name())
                    }
                }
            }
        }
    }
}

/// Fills the context of a template: the values of every page, then those of this one. `content` is the content of the
/// page's `main` element, if it has been drawn already.
pub fn fill<P: Page>(
    page: &P,
    theme: &Theme,
    reader: &Locale,
    content: Option<&str>,
    context: &mut TemplateContext,
) {
    let locale = locale_of::<P>(reader);
    let text = locale.text();
    context.part("head", || head(page, theme, locale));
    context.part("brand", || brand(theme));
    context.part("content", || {
        content.map_or_else(|| page.body(&text), |content| PreEscaped(content.to_owned()))
    });
    context.part("footer", || footer(page, theme, locale));
    context.text("page", P::NAME);
    context.text("lang", locale.tag());
    context.text("dir", locale.direction());
    context.text("title", &page.title(&text));
    context.text("product", theme.product_name());
    context.text("stylesheet", &theme.style_url());
    context.text("logo", &theme.logo_url().unwrap_or_default());
    context.text("favicon", &theme.favicon_url().unwrap_or_default());
    context.text("script", &script_url(page, theme).unwrap_or_default());
    context.list(
        "links",
        theme
            .links(locale)
            .map(|(href, text)| [("href", href), ("text", text)]),
    );
    context.value("text", locale.values());
    page.fill_context(&text, context);
}
