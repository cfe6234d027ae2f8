//! The payload: chunks of 64 KiB, each encrypted and authenticated in its place (section "Payload").

use std::io::{self, Read, Write};

use ring::aead::{Aad, LessSafeKey, NONCE_LEN, Nonce};
use zeroize::Zeroizing;

use super::{AgeError, FileKey, Header, Recipients, hkdf_key, stanza};
use crate::random::Random;

/// The bytes of plaintext in every chunk but the last, which may have fewer.
const CHUNK: usize = 64 * 1024;
const TAG: usize = 16;
const PAYLOAD_NONCE: usize = 16;
/// The fewest bytes of a payload: the nonce and the tag of an empty chunk.
pub const SHORTEST_PAYLOAD: u64 = (PAYLOAD_NONCE + TAG) as u64;

/// The key of a payload, and the place of the next chunk.
struct Chunks {
    key: LessSafeKey,
    next: u64,
}

impl Chunks {
    fn new(key: &FileKey, nonce: [u8; PAYLOAD_NONCE]) -> Self {
        Self {
            key: hkdf_key(key.0.as_slice(), &nonce, b"payload"),
            next: 0,
        }
    }

    /// The nonce of the next chunk: its place in eleven bytes, and whether it is the last.
    fn nonce(&mut self, is_last: bool) -> io::Result<Nonce> {
        let mut nonce = [0; NONCE_LEN];
        let (place, last) = nonce.split_at_mut(NONCE_LEN - 1);
        let (_, place) = place.split_at_mut(NONCE_LEN - 1 - size_of::<u64>());
        place.copy_from_slice(&self.next.to_be_bytes());
        last.copy_from_slice(&[u8::from(is_last)]);
        self.next = self.next.checked_add(1).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(Nonce::assume_unique_for_key(nonce))
    }
}

/// Encrypts what is written to it. Without [`EncryptingWriter::finish`] the file has no end, and is refused.
pub struct EncryptingWriter<W> {
    sink: W,
    /// The header and the nonce, until they are written.
    head: Vec<u8>,
    chunks: Chunks,
    chunk: Zeroizing<Vec<u8>>,
    written: u64,
}

impl<W: Write> EncryptingWriter<W> {
    /// Begins a file for these recipients. Writes nothing yet. The key must be a new one. It allows to verify what was
    /// written. A passphrase takes half a second and 128 MiB.
    pub fn new(sink: W, recipients: &Recipients, key: &FileKey, random: &Random) -> Self {
        let nonce = random.bytes();
        let header = Header::new(stanza::wrap(key, recipients, random), key);
        Self {
            sink,
            head: [header.encode().as_slice(), &nonce].concat(),
            chunks: Chunks::new(key, nonce),
            chunk: Zeroizing::new(Vec::with_capacity(CHUNK + TAG)),
            written: 0,
        }
    }

    /// Writes the last chunk. Returns the number of bytes of the whole file.
    pub fn finish(mut self) -> io::Result<u64> {
        self.write_chunk(true)?;
        self.sink.flush()?;
        Ok(self.written)
    }

    pub(super) fn write_chunk(&mut self, is_last: bool) -> io::Result<()> {
        let nonce = self.chunks.nonce(is_last)?;
        let sealed = self
            .chunks
            .key
            .seal_in_place_append_tag(nonce, Aad::empty(), &mut *self.chunk);
        sealed.map_err(|_| io::Error::other("a chunk cannot be encrypted"))?;
        let head = std::mem::take(&mut self.head);
        let done = self
            .sink
            .write_all(&head)
            .and_then(|()| self.sink.write_all(&self.chunk));
        let length = head.len() + self.chunk.len();
        self.written += u64::try_from(length).unwrap_or(u64::MAX);
        // Also after an error: no chunk is sealed twice.
        self.chunk.clear();
        done
    }
}

impl<W: Write> Write for EncryptingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A full chunk waits for more bytes, because the last one is sealed as such.
        if self.chunk.len() == CHUNK && !bytes.is_empty() {
            self.write_chunk(false)?;
        }
        let (taken, _) = bytes.split_at(bytes.len().min(CHUNK - self.chunk.len()));
        self.chunk.extend_from_slice(taken);
        Ok(taken.len())
    }

    /// Flushes whole chunks. The bytes of the last one wait for [`EncryptingWriter::finish`].
    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

/// Decrypts a payload. Every byte that it returns is authenticated in its place; an end that was cut off is an error.
///
/// # Errors
/// `InvalidData` if the payload was changed or cut off.
pub struct DecryptingReader<R> {
    source: R,
    chunks: Chunks,
    /// The chunk, from which `read` bytes were returned.
    chunk: Zeroizing<Vec<u8>>,
    read: usize,
    /// The first byte of the next chunk. It tells that the chunk before is not the last.
    ahead: Option<u8>,
    state: State,
}

/// How far a payload was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A chunk follows.
    Open,
    /// The last chunk was read.
    Ended,
    /// A chunk could not be read. Nothing that follows is returned.
    Broken,
}

impl<R: Read> DecryptingReader<R> {
    /// Reads the nonce. The header was read from `source` before.
    pub fn new(mut source: R, key: &FileKey) -> Result<Self, AgeError> {
        let mut nonce = [0; PAYLOAD_NONCE];
        source
            .read_exact(&mut nonce)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => AgeError::CutOff,
                _ => AgeError::Unreadable(error),
            })?;
        Ok(Self {
            source,
            chunks: Chunks::new(key, nonce),
            chunk: Zeroizing::new(Vec::with_capacity(CHUNK + TAG + 1)),
            read: 0,
            ahead: None,
            state: State::Open,
        })
    }

    fn next_chunk(&mut self) -> io::Result<()> {
        const WITH_NEXT: usize = CHUNK + TAG + 1;
        self.state = State::Broken;
        self.read = 0;
        self.chunk.clear();
        self.chunk.extend(self.ahead.take());
        let wanted = u64::try_from(WITH_NEXT - self.chunk.len()).unwrap_or(u64::MAX);
        let encrypted = self.source.by_ref().take(wanted).read_to_end(&mut self.chunk);
        if encrypted.is_ok() && self.chunk.len() == WITH_NEXT {
            self.ahead = self.chunk.pop();
        }
        let is_last = self.ahead.is_none();
        let is_first = self.chunks.next == 0;
        let nonce = self.chunks.nonce(is_last)?;
        let opened = self
            .chunks
            .key
            .open_in_place(nonce, Aad::empty(), &mut self.chunk);
        let length = opened.ok().map(|plain| plain.len());
        // An empty chunk is allowed only as the whole payload.
        let length = length.filter(|length| encrypted.is_ok() && (*length > 0 || is_first));
        self.chunk.truncate(length.unwrap_or(0));
        encrypted?;
        length.ok_or_else(changed)?;
        self.state = if is_last { State::Ended } else { State::Open };
        Ok(())
    }
}

fn changed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, AgeError::PayloadChanged)
}

impl<R: Read> Read for DecryptingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        if self.read == self.chunk.len() {
            match self.state {
                State::Open => self.next_chunk()?,
                State::Ended => return Ok(0),
                State::Broken => return Err(changed()),
            }
        }
        let (_, mut rest) = self.chunk.split_at(self.read);
        let count = rest.read(buffer)?;
        self.read += count;
        Ok(count)
    }
}
