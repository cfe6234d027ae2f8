//! QR codes as SVG within a page: nothing is loaded, and no script is needed.

use std::fmt::Write;

use maud::{Markup, html};
use qrcode::{Color, EcLevel, QrCode};

/// The modules around the code that stay light (ISO/IEC 18004 section 6.3.8).
const QUIET: usize = 4;

/// Draws a text as a QR code. Nothing, if the text is too long for one: then the page has the text only.
pub(super) fn draw(text: &str) -> Markup {
    let Ok(code) = QrCode::with_error_correction_level(text, EcLevel::M) else {
        return html! {};
    };
    let width = code.width();
    let mut path = String::new();
    for (y, row) in code.to_colors().chunks(width).enumerate() {
        let mut at = 0;
        for run in row.chunk_by(|one, next| one == next) {
            if run.first() == Some(&Color::Dark) {
                let _ = write!(path, "M{} {}.5h{}", at + QUIET, y + QUIET, run.len());
            }
            at += run.len();
        }
    }
    let size = width + 2 * QUIET;
    html! {
        svg.qr viewBox={ "0 0 " (size) " " (size) } aria-hidden="true" shape-rendering="crispEdges" {
            rect width=(size) height=(size) fill="#fff" {}
            path d=(path) stroke="#000" {}
        }
    }
}
