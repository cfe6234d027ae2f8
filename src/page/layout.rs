//! The document around every page.

use maud::{DOCTYPE, html};

use super::asset::{self, File};
use super::{Locale, Page, Theme};

/// Draws a page as a whole document. Its style, script and images come from our own origin, so that a content
/// security policy of `'self'` is enough.
pub fn document<P: Page>(page: &P, theme: &Theme, locale: Locale) -> String {
    let text = locale.text();
    let url = |file: File| format!("{}{}", theme.base_path, asset::url(file));
    html! {
        (DOCTYPE)
        html lang=(locale.tag()) dir=(locale.direction()) {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="robots" content="noindex";
                title { (page.title(text)) " · " (theme.product_name) }
                link rel="icon" type="image/svg+xml" href=(url(File::Favicon));
                link rel="stylesheet" href=(url(File::Style));
                @if let Some(script) = page.script() {
                    script src=(url(script)) defer {}
                }
            }
            body {
                header.brand {
                    img.brand-logo src=(url(File::Logo)) alt="" width="28" height="28";
                    bdi.brand-name { (theme.product_name) }
                }
                main class={ "card page-" (P::NAME) } { (page.body(text)) }
            }
        }
    }
    .into_string()
}
