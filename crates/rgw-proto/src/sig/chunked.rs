//! Bodies of `aws-chunked` form: chunks with or without signatures, then perhaps a trailer.
//!
//! ```text
//!   line ──size > 0──> data ──size bytes──> end of data ──CRLF──> line
//!    │ size 0
//!    └──> trailer ──empty line, or the body's end──> done
//! ```
//!
//! Data comes out before its chunk's signature is checked, so that no chunk is held in memory: nothing of it may
//! become visible before [`Decoder::finish`] returned.

use aws_lc_rs::digest;

use super::{hmac_sha256, same, sha256};
use crate::error::{Code, Error, Result};
use crate::uri;

/// Bytes of a chunk's line, its signature included.
const LINE_BYTES_MAX: usize = 256;
/// Bytes of all lines of a trailer.
const TRAILER_BYTES_MAX: usize = 4_096;
/// Lines of a trailer.
const TRAILER_LINES_MAX: usize = 16;
/// Bytes of a chunk: a PUT takes no more in all.
const CHUNK_BYTES_MAX: u64 = 5 << 30;

/// Signs chunk after chunk: each signature covers the one before.
#[derive(Clone)]
pub struct Signer {
    key: [u8; 32],
    date: String,
    scope: String,
    last: String,
}

/// Without the key.
impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signer").field("scope", &self.scope).finish_non_exhaustive()
    }
}

impl Signer {
    pub(super) fn new(key: [u8; 32], date: String, scope: String, seed: &[u8]) -> Self {
        Self { key, date, scope, last: uri::to_hex(seed) }
    }

    fn check(&mut self, algorithm: &str, sums: &str, theirs: &str) -> Result<()> {
        let text = format!("{algorithm}\n{}\n{}\n{}\n{sums}", self.date, self.scope, self.last);
        let ours = uri::to_hex(&hmac_sha256(&self.key, text.as_bytes()));
        same(ours.as_bytes(), theirs.as_bytes())?;
        self.last = ours;
        Ok(())
    }
}

#[derive(Debug)]
enum State {
    Line(Vec<u8>),
    /// Bytes of the chunk that are still to come.
    Data(u64),
    /// Bytes of the CRLF behind the data that have come.
    End(u8),
    Trailer(Vec<u8>),
    Done,
}

/// Takes the body's bytes as they come; gives the object's.
pub struct Decoder {
    state: State,
    /// Checks signatures; `None` where chunks have none.
    signer: Option<Signer>,
    /// Sum and signature of the chunk under way.
    chunk: Option<(digest::Context, String)>,
    /// Whether a trailer was announced.
    has_trailer: bool,
    trailer_bytes: usize,
    trailer: Vec<(String, String)>,
    trailer_signature: Option<String>,
}

fn malformed(text: &str) -> Error {
    Error::new(Code::InvalidRequest, text)
}

impl Decoder {
    /// Reads a body; with a `signer` each chunk has its signature.
    #[must_use]
    pub fn new(signer: Option<Signer>, has_trailer: bool) -> Self {
        let state = State::Line(Vec::new());
        Self {
            state,
            signer,
            chunk: None,
            has_trailer,
            trailer_bytes: 0,
            trailer: Vec::new(),
            trailer_signature: None,
        }
    }

    /// Takes the next bytes and appends the object's to `out`.
    ///
    /// # Errors
    /// [`Code::SignatureDoesNotMatch`], [`Code::InvalidRequest`] for what is no chunked body. The decoder is not to be
    /// used after an error.
    pub fn push(&mut self, mut input: &[u8], out: &mut Vec<u8>) -> Result<()> {
        while !input.is_empty() {
            match &mut self.state {
                State::Line(line) => {
                    if let Some(line) = take_line(line, &mut input, LINE_BYTES_MAX)? {
                        self.begin(&line)?;
                    }
                }
                State::Data(left) => {
                    let n =
                        usize::try_from(*left).map_or(input.len(), |left| left.min(input.len()));
                    let (data, rest) = input.split_at(n);
                    if let Some((sum, _)) = &mut self.chunk {
                        sum.update(data);
                    }
                    out.extend_from_slice(data);
                    input = rest;
                    *left -= n as u64;
                    if *left == 0 {
                        self.check_chunk()?;
                        self.state = State::End(0);
                    }
                }
                State::End(seen) => {
                    if input[0] != b"\r\n"[usize::from(*seen)] {
                        return Err(malformed("A chunk is longer than its line says."));
                    }
                    input = &input[1..];
                    *seen += 1;
                    if *seen == 2 {
                        self.state = State::Line(Vec::new());
                    }
                }
                State::Trailer(line) => {
                    if let Some(line) = take_line(line, &mut input, TRAILER_BYTES_MAX)? {
                        self.trailer_line(&line)?;
                    }
                }
                State::Done => {
                    // A last CRLF more is sent by some clients.
                    if input.iter().any(|b| !b"\r\n".contains(b)) {
                        return Err(malformed("Bytes follow the end of the chunks."));
                    }
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// `SIZE` in hex, then `;chunk-signature=HEX` where chunks are signed.
    fn begin(&mut self, line: &str) -> Result<()> {
        let (size, rest) = line.split_once(';').unwrap_or((line, ""));
        let size = u64::from_str_radix(size.trim(), 16).ok().filter(|_| !size.starts_with('+'));
        let size = size
            .filter(|s| *s <= CHUNK_BYTES_MAX)
            .ok_or_else(|| malformed("A chunk begins with its size in hex."))?;
        if self.signer.is_some() {
            let signature = rest.trim().strip_prefix("chunk-signature=");
            let signature = signature.ok_or_else(|| malformed("A chunk has no chunk-signature, though the request says that chunks are signed."))?;
            self.chunk = Some((digest::Context::new(&digest::SHA256), signature.to_owned()));
        }
        if size == 0 {
            self.check_chunk()?;
            self.state = if self.has_trailer { State::Trailer(Vec::new()) } else { State::Done };
        } else {
            self.state = State::Data(size);
        }
        Ok(())
    }

    fn check_chunk(&mut self) -> Result<()> {
        let (Some(signer), Some((sum, theirs))) = (&mut self.signer, self.chunk.take()) else {
            return Ok(());
        };
        let sum = uri::to_hex(sum.finish().as_ref());
        signer.check("AWS4-HMAC-SHA256-PAYLOAD", &format!("{}\n{sum}", sha256(b"")), &theirs)
    }

    fn trailer_line(&mut self, line: &str) -> Result<()> {
        self.trailer_bytes += line.len();
        if line.is_empty() {
            // Some end their last chunk with a CRLF more, before the trailer.
            if !self.trailer.is_empty()
                && (self.signer.is_none() || self.trailer_signature.is_some())
            {
                self.state = State::Done;
            }
            return Ok(());
        }
        if self.trailer.len() >= TRAILER_LINES_MAX || self.trailer_bytes > TRAILER_BYTES_MAX {
            return Err(malformed("The trailer is too long."));
        }
        let (name, value) =
            line.split_once(':').ok_or_else(|| malformed("A line of the trailer has no ':'."))?;
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim().to_owned());
        if self.trailer_signature.is_some() {
            return Err(malformed("A line follows the trailer's signature."));
        }
        if name == "x-amz-trailer-signature" {
            self.trailer_signature = Some(value);
        } else if self.trailer.iter().any(|(n, _)| *n == name) {
            return Err(malformed("A line of the trailer is there twice."));
        } else {
            self.trailer.push((name, value));
        }
        Ok(())
    }

    /// Ends the body: checks that it is whole, and the trailer's signature. `announced` are the names in the header
    /// `x-amz-trailer`; a line that it does not name is refused.
    ///
    /// Returns the trailer's lines, names in lower case.
    ///
    /// # Errors
    /// As [`Decoder::push`].
    pub fn finish(mut self, announced: &str) -> Result<Vec<(String, String)>> {
        match &mut self.state {
            State::Done => {}
            // The last line may come without an end.
            State::Trailer(line) => {
                let line = std::mem::take(line);
                let line =
                    String::from_utf8(line).map_err(|_| malformed("The trailer is no UTF-8."))?;
                let line = line.trim_end_matches('\r').to_owned();
                if !line.is_empty() {
                    self.trailer_line(&line)?;
                }
            }
            _ => return Err(malformed("The body ends before its last chunk.")),
        }
        let named = |name: &str| announced.split(',').any(|a| a.trim().eq_ignore_ascii_case(name));
        if let Some((name, _)) = self.trailer.iter().find(|(name, _)| !named(name)) {
            return Err(malformed(&format!(
                "The trailer has {name}, which x-amz-trailer does not name."
            )));
        }
        if let Some(mut signer) = self.signer.filter(|_| self.has_trailer) {
            let lines: String = self.trailer.iter().map(|(n, v)| format!("{n}:{v}\n")).collect();
            let theirs = self
                .trailer_signature
                .ok_or_else(|| malformed("The trailer has no x-amz-trailer-signature."))?;
            signer.check("AWS4-HMAC-SHA256-TRAILER", &sha256(lines.as_bytes()), &theirs)?;
        }
        Ok(self.trailer)
    }
}

/// Moves bytes up to a line feed into `line`; the line without its end once it is whole.
fn take_line(line: &mut Vec<u8>, input: &mut &[u8], bytes_max: usize) -> Result<Option<String>> {
    let end = input.iter().position(|b| *b == b'\n');
    let n = end.map_or(input.len(), |at| at + 1);
    if line.len() + n > bytes_max {
        return Err(malformed("A line of the chunked body is too long."));
    }
    line.extend_from_slice(&input[..n]);
    *input = &input[n..];
    if end.is_none() {
        return Ok(None);
    }
    let text = std::str::from_utf8(line)
        .map_err(|_| malformed("A line of the chunked body is no text."))?;
    let text = text.trim_end_matches(['\r', '\n']).to_owned();
    line.clear();
    Ok(Some(text))
}
