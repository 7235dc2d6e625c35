//! Answers: status, headers, and a body that may come piece by piece.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use tokio::sync::mpsc;

use crate::memory::Share;

/// An answer's body.
pub enum Outgoing {
    /// All of it.
    Whole(VecDeque<Bytes>),
    /// Pieces, and how many bytes are to come.
    Pieces(mpsc::Receiver<io::Result<Bytes>>, u64),
}

impl Outgoing {
    fn left(&self) -> u64 {
        match self {
            Self::Whole(pieces) => pieces.iter().map(|p| p.len() as u64).sum(),
            Self::Pieces(_, left) => *left,
        }
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Self::Whole(pieces) => Poll::Ready(pieces.pop_front().map(|b| Ok(Frame::data(b)))),
            Self::Pieces(pieces, left) => match pieces.poll_recv(cx) {
                Poll::Ready(Some(Ok(piece))) => {
                    *left = left.saturating_sub(piece.len() as u64);
                    Poll::Ready(Some(Ok(Frame::data(piece))))
                }
                Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error))),
                Poll::Ready(None) if *left > 0 => {
                    *left = 0;
                    Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into())))
                }
                Poll::Ready(None) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left())
    }
}

/// An answer.
pub struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Outgoing,
}

impl Answer {
    /// An answer without a body.
    pub fn new(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Outgoing::Whole(VecDeque::new()) }
    }

    /// 200 with XML.
    pub fn xml(text: String) -> Self {
        Self::new(200).header("Content-Type", "application/xml").bytes(text.into())
    }

    /// Sets the status.
    pub fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// Adds a header. One whose value no header can have is left out.
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Sets a header that is there already.
    pub fn replace(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self.header(name, value)
    }

    /// Adds a header where there is a value.
    pub fn maybe(self, name: &str, value: Option<impl Into<String>>) -> Self {
        match value {
            Some(value) => self.header(name, value),
            None => self,
        }
    }

    /// Sets the body.
    pub fn bytes(mut self, body: Bytes) -> Self {
        self.body = Outgoing::Whole(if body.is_empty() { [].into() } else { [body].into() });
        self
    }

    /// Has a share hold the body until it is sent.
    pub fn held_by(mut self, share: Share) -> Self {
        if let Outgoing::Whole(pieces) = &mut self.body
            && let [body] = pieces.make_contiguous()
        {
            *body = share.hold(std::mem::take(body));
        }
        self
    }

    /// Sets a body that comes in pieces, of `len` bytes in all.
    pub fn pieces(mut self, pieces: mpsc::Receiver<io::Result<Bytes>>, len: u64) -> Self {
        self.body = Outgoing::Pieces(pieces, len);
        self
    }

    /// A header that is there.
    pub fn get(&self, name: &str) -> Option<&str> {
        let named = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str())
    }

    /// Bytes of the body.
    pub fn len(&self) -> u64 {
        self.body.left()
    }

    /// HTTP's status.
    pub fn code(&self) -> u16 {
        self.status
    }

    /// As hyper sends it. The body of an answer to HEAD is left out, its length is told.
    pub fn into_response(mut self, is_head: bool) -> Response<Outgoing> {
        let len = self.body.left();
        if is_head {
            self.body = Outgoing::Whole(VecDeque::new());
        }
        let has_length = self.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case("content-length"));
        let mut response = Response::new(self.body);
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        for (name, value) in self.headers {
            let name = HeaderName::from_bytes(name.as_bytes());
            let value = HeaderValue::from_bytes(value.as_bytes());
            if let (Ok(name), Ok(value)) = (name, value) {
                response.headers_mut().append(name, value);
            }
        }
        if !has_length && self.status != 204 && self.status != 304 {
            let value = HeaderValue::from(len);
            response.headers_mut().insert(hyper::header::CONTENT_LENGTH, value);
        }
        response
    }
}
