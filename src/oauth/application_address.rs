//! Where pages of the service lead to an application.

use crate::oauth::Client;
use crate::oauth::redirect_uri;

impl Client {
    /// Where people begin at the application: where its sign-ins begin, so that they arrive signed in (OpenID Connect
    /// Core 4), else its home page.
    pub fn launch_uri(&self, issuer: &str) -> Option<String> {
        match &self.initiate_login_uri {
            Some(uri) => Some(redirect_uri::with_query(uri, &[("iss", issuer)])),
            None => self.home_uri.clone(),
        }
    }

    /// The website of the client: its home page, else the origin of its redirect URIs. `None` if it has none on the web:
    /// nothing is known about what listens at a loopback address. `None` if the client registered itself, because pages of
    /// the service must not link to sites of strangers.
    pub fn home(&self) -> Option<String> {
        if self.registered_itself() {
            return None;
        }
        if self.home_uri.is_some() {
            return self.home_uri.clone();
        }
        let uris = self.redirect_uris.iter().chain(&self.post_logout_redirect_uris);
        let mut origins = uris.filter_map(|uri| redirect_uri::origin(uri));
        origins.find(|origin| origin.starts_with("https://"))
    }
}
