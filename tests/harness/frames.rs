//! Frames of HTTP/2 (RFC 9113 section 6), made by hand because no client makes these sequences.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// A frame that came in.
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// The next frame.
pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Frame> {
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

/// A field that the static table has the name of, not indexed (RFC 7541 section 6.2.2).
pub(crate) fn literal(block: &mut Vec<u8>, index: u8, value: &str) {
    const IN_THE_FIRST_BYTE: u8 = 15;
    match index.checked_sub(IN_THE_FIRST_BYTE) {
        None => block.push(index),
        Some(rest) => block.extend([IN_THE_FIRST_BYTE, rest]),
    }
    assert!(value.len() < 127, "a length of one byte");
    block.push(u8::try_from(value.len()).unwrap());
    block.extend_from_slice(value.as_bytes());
}

/// The header block of a request without a body, or of a form that is to follow (RFC 7541 appendix A).
pub(crate) fn header_block(method: Method, path: &str) -> Vec<u8> {
    const HTTPS: u8 = 0x87;
    const PATH: u8 = 0x04;
    const AUTHORITY: u8 = 0x01;
    const CONTENT_TYPE: u8 = 31;
    let mut block = vec![method as u8, HTTPS];
    literal(&mut block, PATH, path);
    literal(&mut block, AUTHORITY, "localhost");
    if matches!(method, Method::Post) {
        literal(&mut block, CONTENT_TYPE, "application/x-www-form-urlencoded");
    }
    block
}

/// As the static table has them.
#[derive(Clone, Copy)]
pub(crate) enum Method {
    Get = 0x82,
    Post = 0x83,
}

/// A whole request.
pub(crate) fn get(stream: u32, path: &str) -> Vec<u8> {
    frame(
        HEADERS,
        END_HEADERS | END_STREAM,
        stream,
        &header_block(Method::Get, path),
    )
}
