//! Requests as they go over the wire: one connection each.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderValue, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::reply::Reply;
use super::write_form;

/// The way to the service.
#[derive(Clone)]
pub(crate) struct Wire {
    address: SocketAddr,
    tls: Option<TlsConnector>,
}

impl Wire {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { address, tls: None }
    }

    /// The way over TLS, to a service with the certificate of the issuer's host.
    pub(crate) fn over_tls(address: SocketAddr, config: ClientConfig) -> Self {
        let tls = Some(TlsConnector::from(Arc::new(config)));
        Self { address, tls }
    }

    /// A connection on which nothing has been sent.
    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn try_send(&self, request: Request<Full<Bytes>>) -> std::io::Result<Reply> {
        let stream = self.connect().await;
        let Some(tls) = &self.tls else {
            return exchange(stream, request, false).await;
        };
        let name = ServerName::try_from("id.example.test").unwrap();
        exchange(tls.connect(name, stream).await?, request, true).await
    }
}

async fn exchange<S>(stream: S, request: Request<Full<Bytes>>, is_tls: bool) -> std::io::Result<Reply>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(std::io::Error::other)?;
    let driver = tokio::spawn(connection);
    let answer = sender
        .send_request(request)
        .await
        .map_err(std::io::Error::other)?;
    let (parts, body) = answer.into_parts();
    let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
    driver.abort();
    Ok(Reply::new(parts, body, is_tls))
}

/// A request under construction; awaiting it sends it.
#[derive(Clone)]
pub(crate) struct Call {
    wire: Wire,
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    fields: Vec<(String, String)>,
    body: Option<(String, Bytes)>,
}

impl Call {
    pub(crate) fn new(wire: &Wire, method: &str, path: &str) -> Self {
        Self {
            wire: wire.clone(),
            method: method.to_owned(),
            path: path.to_owned(),
            headers: vec![("host".to_owned(), "id.example.test".to_owned())],
            fields: Vec::new(),
            body: None,
        }
    }

    pub(crate) fn get(wire: &Wire, path: &str) -> Self {
        Self::new(wire, "GET", path)
    }

    pub(crate) fn post(wire: &Wire, path: &str) -> Self {
        Self::new(wire, "POST", path)
    }

    /// Takes another way.
    pub(crate) fn over(self, wire: &Wire) -> Self {
        let wire = wire.clone();
        Self { wire, ..self }
    }

    /// Adds a header.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Leaves a header out that was added before.
    pub(crate) fn without_header(mut self, name: &str) -> Self {
        self.headers
            .retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self
    }

    /// Puts a form field in the place of the one with this name.
    pub(crate) fn with(self, name: &str, value: &str) -> Self {
        self.without(name).and(name, value)
    }

    /// Leaves a form field out.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.fields.retain(|(known, _)| known != name);
        self
    }

    /// Adds a form field, a second one of the same name if need be.
    pub(crate) fn and(mut self, name: &str, value: &str) -> Self {
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds form fields.
    pub(crate) fn fields(mut self, fields: &[(String, String)]) -> Self {
        self.fields.extend_from_slice(fields);
        self
    }

    /// Sends these bytes in the place of a form.
    pub(crate) fn body(mut self, content_type: &str, body: impl Into<Bytes>) -> Self {
        self.body = Some((content_type.to_owned(), body.into()));
        self
    }

    /// The form fields as one JSON object.
    pub(crate) fn as_json(&self) -> String {
        let members = self.fields.iter();
        let members = members.map(|(name, value)| (name.clone(), Value::from(value.as_str())));
        Value::Object(members.collect()).to_string()
    }

    /// Authenticates with the Basic scheme, both halves form-encoded first (RFC 6749 section 2.3.1).
    pub(crate) fn basic(self, user: &str, password: &str) -> Self {
        let encode = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let pair = STANDARD.encode(format!("{}:{}", encode(user), encode(password)));
        self.without_header("authorization")
            .header("authorization", &format!("Basic {pair}"))
    }

    /// Presents an access token (RFC 6750 section 2.1).
    pub(crate) fn bearer(self, token: &str) -> Self {
        self.without_header("authorization")
            .header("authorization", &format!("Bearer {token}"))
    }

    async fn send(self) -> Reply {
        self.try_send().await.unwrap()
    }

    /// The answer, unless the connection fails.
    pub(crate) async fn try_send(self) -> std::io::Result<Reply> {
        let mut request = Request::builder()
            .method(self.method.as_str())
            .uri(self.path.as_str());
        for (name, value) in &self.headers {
            request = request.header(name, HeaderValue::from_str(value).unwrap());
        }
        let body = match self.body {
            Some((content_type, body)) => Some((content_type, body)),
            None if self.method == "POST" => Some((
                "application/x-www-form-urlencoded".to_owned(),
                write_form(&self.fields).into(),
            )),
            None => None,
        };
        let bytes = match body {
            Some((content_type, bytes)) => {
                request = request.header("content-type", content_type);
                bytes
            }
            None => Bytes::new(),
        };
        self.wire.try_send(request.body(Full::new(bytes)).unwrap()).await
    }
}

impl IntoFuture for Call {
    type Output = Reply;
    type IntoFuture = Pin<Box<dyn Future<Output = Reply> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}
