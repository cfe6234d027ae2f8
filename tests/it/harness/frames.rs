//! Frames of HTTP/2 (RFC 9113 section 6), made by hand because no client makes these sequences.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// A frame that came in.
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

/// The next frame.
pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Frame> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; usize::try_from(length).unwrap()];
    stream.read_exact(&mut payload).await?;
    Ok(Frame {
        kind: head[3],
        flags: head[4],
        stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]),
        payload,
    })
}

/// The header block of a request without a body, or of a form that is to follow (RFC 7541 appendix A).
pub(super) fn header_block(method: Method, path: &str) -> Vec<u8> {
    const HTTPS: u8 = 0x87;
    const PATH: u8 = 0x04;
    const AUTHORITY: u8 = 0x01;
    const CONTENT_TYPE: u8 = 31;
    let mut block = vec![method as u8, HTTPS];
    let mut literal = |index: &[u8], value: &str| {
        block.extend_from_slice(index);
        block.push(u8::try_from(value.len()).unwrap());
        block.extend_from_slice(value.as_bytes());
    };
    literal(&[PATH], path);
    literal(&[AUTHORITY], "localhost");
    if matches!(method, Method::Post) {
        literal(&[0x0f, CONTENT_TYPE - 15], "application/x-www-form-urlencoded");
    }
    block
}

/// As the static table has them.
#[derive(Clone, Copy)]
pub(super) enum Method {
    Get = 0x82,
    Post = 0x83,
}

/// A whole request.
pub(super) fn get(stream: u32, path: &str) -> Vec<u8> {
    frame(
        HEADERS,
        END_HEADERS | END_STREAM,
        stream,
        &header_block(Method::Get, path),
    )
}
