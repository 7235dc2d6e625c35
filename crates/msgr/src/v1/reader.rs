//! From bytes to what follows a tag, once the handshake is over.
//!
//! ```text
//!   Tag ──► Header ──► Segment 0..2 ──► Footer ──► Tag
//!    ▲ └──► eight bytes of an ACK or a keepalive ─┘
//! ```

use auth::MessageSigner;
use bytes::{Buf, Bytes, BytesMut};
use stdx::{BlockSums, crc32c};

use super::wire::{FOOTER_LEN, FOOTER_OLD_LEN, Footer, HEADER_LEN, Header, flag, tag};
use crate::Fault;
use crate::intake::{ALIGN_MIN, Intake, page_buffer};

/// One thing a peer said.
#[derive(Debug)]
pub(super) enum Item {
    Message { header: Header, segments: [Bytes; 3], data_sums: Option<BlockSums> },
    Ack(u64),
    Keepalive2([u8; 8]),
    Keepalive2Ack([u8; 8]),
    Close,
}

#[derive(Clone, Copy)]
enum State {
    Tag,
    Header,
    Segment(Header, usize),
    Footer(Header),
    Word(u8),
}

/// How messages on one connection end.
#[derive(Debug, Default)]
pub(super) struct Seals {
    /// Both sides know MSG_AUTH: footers have room for a signature.
    pub(super) long: bool,
    /// Messages are signed with it, and must be.
    pub(super) signer: Option<MessageSigner>,
}

impl Seals {
    fn footer_len(&self) -> usize {
        if self.long { FOOTER_LEN } else { FOOTER_OLD_LEN }
    }
}

/// Cuts what a peer says into [`Item`]s.
pub(super) struct Reader {
    pub(super) intake: Intake,
    state: State,
    /// The peer has proved itself: long messages are taken.
    pub(super) ready: bool,
    /// Do not begin another message.
    pub(super) hold: bool,
    segments: [Bytes; 3],
    crcs: [u32; 3],
    data_sums: Option<BlockSums>,
}

impl Reader {
    pub(super) fn new() -> Self {
        Self {
            intake: Intake::default(),
            state: State::Tag,
            ready: false,
            hold: false,
            segments: Default::default(),
            crcs: [0; 3],
            data_sums: None,
        }
    }

    /// Bytes held in buffers of its own.
    pub(super) fn held(&self) -> usize {
        self.intake.held() + self.segments.iter().map(Bytes::len).sum::<usize>()
    }

    /// The next whole item. Messages that their sender gave up on are passed over.
    ///
    /// # Errors
    /// Any breach of the format; the connection is then beyond saving.
    pub(super) fn next(&mut self, seals: &Seals) -> Result<Option<Item>, Fault> {
        loop {
            match self.state {
                State::Tag => {
                    if self.hold {
                        return Ok(None);
                    }
                    let Some([tag]) = self.intake.array() else { return Ok(None) };
                    match tag {
                        tag::MSG => self.state = State::Header,
                        tag::ACK | tag::KEEPALIVE2 | tag::KEEPALIVE2_ACK => {
                            self.state = State::Word(tag);
                        }
                        tag::KEEPALIVE => {}
                        tag::CLOSE => return Ok(Some(Item::Close)),
                        tag => return Err(Fault::Unexpected { tag }),
                    }
                }
                State::Word(tag) => {
                    let Some(raw) = self.intake.array::<8>() else { return Ok(None) };
                    self.state = State::Tag;
                    return Ok(Some(match tag {
                        tag::ACK => Item::Ack(u64::from_le_bytes(raw)),
                        tag::KEEPALIVE2 => Item::Keepalive2(raw),
                        _ => Item::Keepalive2Ack(raw),
                    }));
                }
                State::Header => {
                    let Some(raw) = self.intake.array::<HEADER_LEN>() else { return Ok(None) };
                    let header = Header::parse(&raw, self.ready)?;
                    self.crcs = [0; 3];
                    self.state = State::Segment(header, 0);
                }
                State::Segment(header, i) => {
                    let len = [header.front_len, header.middle_len, header.data_len][i] as usize;
                    if len > 0 {
                        let large = i == 2 && len >= ALIGN_MIN;
                        let buf = self.intake.gather(len, || {
                            if large { page_buffer(len, 0) } else { BytesMut::with_capacity(len) }
                        });
                        let Some(buf) = buf else { return Ok(None) };
                        // What a store keeps begins with another seed; it is wanted there at once.
                        self.data_sums = if large { BlockSums::of(&buf) } else { None };
                        self.crcs[i] = crc32c(0, &buf);
                        self.segments[i] = buf.freeze();
                    }
                    self.state =
                        if i == 2 { State::Footer(header) } else { State::Segment(header, i + 1) };
                }
                State::Footer(header) => {
                    let len = seals.footer_len();
                    let Some(raw) = self.intake.stage.get(..len) else { return Ok(None) };
                    let footer = Footer::parse(raw, !seals.long);
                    self.intake.stage.advance(len);
                    self.state = State::Tag;
                    let segments = std::mem::take(&mut self.segments);
                    let data_sums = self.data_sums.take();
                    // A message that was given up may be torn; its crcs say nothing.
                    if footer.flags & flag::COMPLETE == 0 {
                        continue;
                    }
                    self.check(&header, &footer, seals)?;
                    return Ok(Some(Item::Message { header, segments, data_sums }));
                }
            }
        }
    }

    fn check(&self, header: &Header, footer: &Footer, seals: &Seals) -> Result<(), Fault> {
        let n = if footer.flags & flag::NOCRC == 0 { 3 } else { 2 };
        if self.crcs[..n] != footer.crcs[..n] {
            return Err(Fault::Crc("segment"));
        }
        if let Some(signer) = &seals.signer
            && signer.sign(footer.signed_words(header)) != footer.signature
        {
            let signed = footer.flags & flag::SIGNED != 0;
            let why = if signed { "its signature is wrong" } else { "it is not signed" };
            return Err(Fault::Unsigned(why));
        }
        Ok(())
    }
}
