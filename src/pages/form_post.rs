//! The page that carries an authorization response in a form.

use maud::{Markup, html};

use super::asset::File;
use super::form::hidden;
use super::{Page, TemplateContext, Text};

/// Posts the parameters of an authorization response to the client (OAuth 2.0 Form Post Response Mode
/// section 2): at once if scripts run, otherwise by a button.
#[derive(Clone, Debug)]
pub struct FormPost {
    /// The redirect URI.
    pub action: String,
    /// The parameters, in order. Nothing else is posted.
    pub fields: Vec<(String, String)>,
}

impl FormPost {
    fn hidden_fields(&self) -> Markup {
        html! { @for (name, value) in &self.fields { (hidden(name, value)) } }
    }

    fn form(&self, text: &Text<'_>) -> Markup {
        html! {
            form.stack method="post" action=(self.action) {
                (self.hidden_fields())
                button.button type="submit" { (text.proceed) }
            }
        }
    }

    /// The page with a successful response.
    pub fn sample() -> Self {
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        Self {
            action: "https://app.example/cb".to_owned(),
            fields: vec![
                field("code", "idsvc_ac_4lQ0bI2xQ9mN"),
                field("state", "af0ifjsldkj"),
                field("iss", "https://id.example.com"),
            ],
        }
    }
}

impl Page for FormPost {
    const NAME: &'static str = "form-post";

    fn title(&self, text: &Text<'_>) -> String {
        text.form_post_title.to_owned()
    }

    fn body(&self, text: &Text<'_>) -> Markup {
        html! {
            h1 { (text.form_post_title) }
            p.lead { (text.form_post_lead) }
            (self.form(text))
        }
    }

    fn fill_context(&self, text: &Text<'_>, context: &mut TemplateContext) {
        context.part("form", || self.form(text));
        context.part("hidden", || self.hidden_fields());
        context.text("action", &self.action);
        context.list(
            "fields",
            self.fields
                .iter()
                .map(|(name, value)| [("name", name.as_str()), ("value", value.as_str())]),
        );
    }

    fn script(&self) -> Option<File> {
        Some(File::Submit)
    }
}
