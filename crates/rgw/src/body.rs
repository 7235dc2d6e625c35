//! Bodies of requests: read as they come, out of their chunks, summed.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body as _, Frame, Incoming};
use rgw_proto::checksum::{Body, Expected, Sums};
use rgw_proto::request::Head;
use rgw_proto::sig::chunked::Decoder;
use rgw_proto::sig::{Payload, Proof};
use rgw_proto::{Code, Error, Result};

/// How long a client may send nothing.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Bytes of a PUT: `rgw_max_put_size`.
pub const PUT_BYTES_MAX: u64 = 5 << 30;

/// What a client sends behind a request's head, and whether it was read to its end.
///
/// A connection whose last body was not read must not be used again: a client that waits for
/// `100 Continue` sends none of it, one that does not wait sends it all, and what comes next is
/// either the body or another request.
pub struct Received {
    incoming: Incoming,
    unread: Rc<Cell<bool>>,
}

impl Received {
    /// Of a request; and what says, now and later, whether some of it was not read.
    pub fn new(incoming: Incoming) -> (Self, Rc<Cell<bool>>) {
        let unread = Rc::new(Cell::new(!incoming.is_end_stream()));
        (Self { incoming, unread: unread.clone() }, unread)
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let frame = Pin::new(&mut self.incoming).poll_frame(cx);
        if self.incoming.is_end_stream() || matches!(frame, Poll::Ready(None)) {
            self.unread.set(false);
        }
        frame
    }
}

/// A body on its way in.
pub struct Reader {
    incoming: Received,
    chunks: Option<Decoder>,
    sums: Body,
    announced: String,
    /// Bytes that the client says there are; `None` where it says nothing.
    pub len: Option<u64>,
    taken: u64,
    bytes_max: u64,
}

impl Reader {
    /// Begins to read. Checksums in headers are those of the body where `sums_are_its`: of completions they are the
    /// object's.
    ///
    /// # Errors
    /// [`Code::MissingContentLength`], [`Code::EntityTooLarge`], those of checksums named wrongly.
    pub fn new(
        incoming: Received,
        head: &Head,
        proof: Option<&Proof>,
        bytes_max: u64,
        sums_are_its: bool,
    ) -> Result<Self> {
        let mut expected = match sums_are_its {
            true => Expected::of(&head.headers)?,
            false => Expected::default(),
        };
        let headers = &head.headers;
        let number = |name: &str| -> Result<Option<u64>> {
            let text = headers.single(name)?;
            let bad = |_| Error::new(Code::InvalidArgument, format!("{name} is a number."));
            text.map(|t| t.parse::<u64>().map_err(bad)).transpose()
        };
        let mut len = number("content-length")?;
        let mut chunks = None;
        let payload = match proof {
            Some(proof) => proof.payload.clone(),
            None if headers
                .get("x-amz-content-sha256")
                .is_some_and(|v| v.starts_with("STREAMING-")) =>
            {
                if headers.get("x-amz-content-sha256") != Some("STREAMING-UNSIGNED-PAYLOAD-TRAILER")
                {
                    let text = "Signed chunks want a signed request.";
                    return Err(Error::new(Code::AccessDenied, text));
                }
                Payload::UnsignedTrailer
            }
            None => Payload::Unsigned,
        };
        match payload {
            Payload::Sha256(sum) => expected.sha256 = Some(sum),
            Payload::Unsigned => {}
            Payload::Chunked { trailer } => {
                let signer = proof.and_then(|p| p.chunks.clone());
                chunks = Some(Decoder::new(signer, trailer));
            }
            Payload::UnsignedTrailer => chunks = Some(Decoder::new(None, true)),
            Payload::Whole => {
                let text = "Requests of IAM and STS are not built here.";
                return Err(Error::new(Code::NotImplemented, text));
            }
        }
        if chunks.is_some() {
            len = number("x-amz-decoded-content-length")?;
        }
        let is_open = headers.get("transfer-encoding").is_some() || chunks.is_some();
        if len.is_none()
            && !is_open
            && bytes_max > 0
            && matches!(head.method, rgw_proto::request::Method::Put)
        {
            return Err(Code::MissingContentLength.into());
        }
        if len.is_some_and(|len| len > bytes_max) {
            return Err(Code::EntityTooLarge.into());
        }
        let announced = headers.single("x-amz-trailer")?.unwrap_or_default().to_owned();
        let sums = Body::new(expected);
        Ok(Self { incoming, chunks, sums, announced, len, taken: 0, bytes_max })
    }

    /// Begins to read a body that no signature covers and no checksum of S3 goes with: Swift's.
    ///
    /// # Errors
    /// [`Code::MissingContentLength`] unless it comes in HTTP's chunks, [`Code::EntityTooLarge`].
    pub fn plain(incoming: Received, head: &Head, bytes_max: u64) -> Result<Self> {
        let len = head.headers.single("content-length")?;
        let bad = |_| Error::new(Code::InvalidArgument, "content-length is a number.");
        let len = len.map(|text| text.parse::<u64>().map_err(bad)).transpose()?;
        if len.is_none() && head.headers.get("transfer-encoding").is_none() {
            return Err(Code::MissingContentLength.into());
        }
        if len.is_some_and(|len| len > bytes_max) {
            return Err(Code::EntityTooLarge.into());
        }
        let sums = Body::new(Expected::default());
        let announced = String::new();
        Ok(Self { incoming, chunks: None, sums, announced, len, taken: 0, bytes_max })
    }

    /// The next bytes; `None` at the end.
    ///
    /// # Errors
    /// [`Code::RequestTimeout`], [`Code::EntityTooLarge`], [`Code::SignatureDoesNotMatch`] of a chunk.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            let Some(raw) = self.raw().await? else { return Ok(None) };
            let bytes = match &mut self.chunks {
                None => raw,
                Some(chunks) => {
                    let mut out = Vec::with_capacity(raw.len());
                    chunks.push(&raw, &mut out)?;
                    out.into()
                }
            };
            if bytes.is_empty() {
                continue;
            }
            self.taken += bytes.len() as u64;
            if self.taken > self.bytes_max || self.len.is_some_and(|len| self.taken > len) {
                return Err(Code::EntityTooLarge.into());
            }
            self.sums.update(&bytes);
            return Ok(Some(bytes));
        }
    }

    async fn raw(&mut self) -> Result<Option<Bytes>> {
        loop {
            let frame = std::future::poll_fn(|cx| self.incoming.poll_frame(cx));
            let frame = tokio::time::timeout(SILENCE_MAX, frame).await;
            match frame.map_err(|_| Error::from(Code::RequestTimeout))? {
                None => return Ok(None),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
                Some(Err(error)) => {
                    let text = format!("The body did not arrive whole: {error}.");
                    return Err(Error::new(Code::RequestTimeout, text));
                }
            }
        }
    }

    /// Ends the body: what it sums to.
    ///
    /// # Errors
    /// [`Code::BadDigest`], [`Code::XAmzContentSHA256Mismatch`]; [`Code::InvalidRequest`] where bytes are missing.
    pub fn finish(self) -> Result<Sums> {
        let trailer = match self.chunks {
            Some(chunks) => chunks.finish(&self.announced)?,
            None => Vec::new(),
        };
        if self.len.is_some_and(|len| len != self.taken) {
            let text = "The body has fewer bytes than the request says.";
            return Err(Error::new(Code::InvalidRequest, text));
        }
        self.sums.finish(&trailer)
    }

    /// Reads a document: all of it.
    ///
    /// # Errors
    /// As [`Reader::next`] and [`Reader::finish`].
    pub async fn document(mut self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        while let Some(bytes) = self.next().await? {
            out.extend_from_slice(&bytes);
        }
        self.finish()?;
        Ok(out)
    }
}
