//! Commands and tokens with a button that copies them.

use maud::{Markup, html};

use crate::pages::Icon;

/// Commands, each with its name and a button that copies it.
pub(super) fn draw_commands(commands: &[(String, String)]) -> Markup {
    html! {
        @for (index, (name, command)) in commands.iter().enumerate() {
            @let id = format!("command-{index}");
            div.title-line {
                h3 { (name) }
                (copy_button(&id))
            }
            pre dir="ltr" { code id=(id) { (command) } }
        }
    }
}

/// A button that copies the text of the element with this id. `assets/copy.js` shows it.
pub(super) fn copy_button(id: &str) -> Markup {
    html! {
        button.button.button-quiet.button-small type="button" hidden data-copy=(id) data-copied="Copied" {
            (Icon::Copy.draw())
            span { "Copy" }
        }
    }
}
