//! The document around every page.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::pages::asset;
use crate::pages::{Locale, Page};
use crate::themes::TemplateContext;
use crate::themes::Theme;

/// Draws a page as a whole document. Its style, script and images come from our own origin, so that a content
/// security policy of `'self'` is enough.
pub fn document<P: Page>(page: &P, theme: &Theme, locale: &Locale) -> String {
    html! {
        (DOCTYPE)
        html lang=(locale.tag()) dir=(locale.direction()) {
            head { (head(page, theme, locale)) }
            body {
                (brand(theme))
                main class={ "card page-" (P::NAME) } { (page.body(&locale.text())) }
                (links(theme, locale))
            }
        }
    }
    .into_string()
}

/// What stands in the document's head.
fn head<P: Page>(page: &P, theme: &Theme, locale: &Locale) -> Markup {
    html! {
        meta charset="utf-8";
        meta name="viewport" content="width=device-width, initial-scale=1";
        meta name="color-scheme" content="light dark";
        meta name="robots" content="noindex";
        title { (page.title(&locale.text())) " · " (theme.product_name()) }
        @if let Some(icon) = theme.favicon_url() { link rel="icon" href=(icon); }
        link rel="stylesheet" href=(theme.style_url());
        @if let Some(script) = script_url(page, theme) { script src=(script) defer {} }
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
                img.brand-logo src=(logo) alt="" width="28" height="28";
            }
            bdi.brand-name { (theme.product_name()) }
        }
    }
}

/// The operator's links, below the page.
fn links(theme: &Theme, locale: &Locale) -> Markup {
    let mut links = theme.links(locale).peekable();
    html! {
        @if links.peek().is_some() {
            footer.links {
                @for (href, text) in links { a href=(href) { (text) } }
            }
        }
    }
}

/// What a template is given: what every page has, then what this one adds. `content` is what stands inside the
/// page's `main` element, where it has been drawn already.
pub fn fill<P: Page>(
    page: &P,
    theme: &Theme,
    locale: &Locale,
    content: Option<&str>,
    slots: &mut TemplateContext,
) {
    let text = locale.text();
    slots.part("head", || head(page, theme, locale));
    slots.part("brand", || brand(theme));
    slots.part("content", || {
        content.map_or_else(|| page.body(&text), |content| PreEscaped(content.to_owned()))
    });
    slots.part("footer", || links(theme, locale));
    slots.text("page", P::NAME);
    slots.text("lang", locale.tag());
    slots.text("dir", locale.direction());
    slots.text("title", &page.title(&text));
    slots.text("product", theme.product_name());
    slots.text("stylesheet", &theme.style_url());
    slots.text("logo", &theme.logo_url().unwrap_or_default());
    slots.text("favicon", &theme.favicon_url().unwrap_or_default());
    slots.text("script", &script_url(page, theme).unwrap_or_default());
    slots.list(
        "links",
        theme
            .links(locale)
            .map(|(href, text)| [("href", href), ("text", text)]),
    );
    slots.value("text", locale.values());
    page.slots(&text, slots);
}
