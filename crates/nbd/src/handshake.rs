//! How client and server agree on an export.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::{Error, export_flag};

const NBD_MAGIC: u64 = 0x4e42_444d_4147_4943;
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

const FIXED_NEWSTYLE: u16 = 1;
const NO_ZEROES: u16 = 2;

mod option {
    pub(super) const EXPORT_NAME: u32 = 1;
    pub(super) const ABORT: u32 = 2;
    pub(super) const LIST: u32 = 3;
    pub(super) const STARTTLS: u32 = 5;
    pub(super) const INFO: u32 = 6;
    pub(super) const GO: u32 = 7;
    pub(super) const STRUCTURED_REPLY: u32 = 8;
    pub(super) const LIST_META_CONTEXT: u32 = 9;
    pub(super) const SET_META_CONTEXT: u32 = 10;
}

mod rep {
    pub(super) const ACK: u32 = 1;
    pub(super) const SERVER: u32 = 2;
    pub(super) const INFO: u32 = 3;
    pub(super) const META_CONTEXT: u32 = 4;
    pub(super) const ERR_UNSUP: u32 = 0x8000_0001;
    pub(super) const ERR_POLICY: u32 = 0x8000_0002;
    pub(super) const ERR_INVALID: u32 = 0x8000_0003;
    pub(super) const ERR_TLS_REQD: u32 = 0x8000_0005;
    pub(super) const ERR_UNKNOWN: u32 = 0x8000_0006;
    pub(super) const ERR_TOO_BIG: u32 = 0x8000_0009;
}

const INFO_EXPORT: u16 = 0;
const INFO_NAME: u16 = 1;
const INFO_DESCRIPTION: u16 = 2;
const INFO_BLOCK_SIZE: u16 = 3;

/// The metadata context that tells what is allocated.
const ALLOCATION: &[u8] = b"base:allocation";
/// Its number on the wire.
const ALLOCATION_ID: u32 = 1;

/// Longest option that is taken, in bytes: names have 4096 at most.
pub const OPTION_MAX: usize = 64 << 10;
/// Longest name of an export, in bytes.
const NAME_MAX: usize = 4096;

/// An export, as clients are told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its name. The empty name means the first export.
    pub name: String,
    /// For people.
    pub description: String,
    /// Bytes.
    pub size: u64,
    /// See [`export_flag`].
    pub flags: u16,
    /// Smallest, best and largest operations, in bytes.
    pub block_sizes: (u32, u32, u32),
}

/// What was agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Which export.
    pub export: usize,
    /// Whether answers are structured.
    pub structured: bool,
    /// The number of `base:allocation`, when the client wants to ask for it.
    pub allocation: Option<u32>,
}

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// More bytes.
    More,
    /// Requests.
    Go(Chosen),
    /// TLS begins, after what is to be sent; nothing of it came yet. Then
    /// [`Handshake::secured`].
    StartTls,
    /// The client takes its leave.
    Abort,
}

/// Whether connections are encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tls {
    /// Never.
    #[default]
    Off,
    /// Always: nothing but the start of TLS is answered before.
    Required,
    /// It is.
    Done,
}

/// The handshake of one connection.
pub struct Handshake {
    exports: Vec<Export>,
    greeted: bool,
    fixed: bool,
    zeroes: bool,
    tls: Tls,
    structured: bool,
    /// Of which export the contexts were set.
    allocation: Option<usize>,
    /// Bytes of a too long option that are still to be passed over.
    skip: usize,
}

/// Why an option is refused: the reply's kind, and words for people.
type Refusal = (u32, &'static str);

fn take_name(data: &mut Bytes) -> Result<Bytes, Refusal> {
    const SHORT: Refusal = (rep::ERR_INVALID, "the option is shorter than it says");
    if data.len() < 4 {
        return Err(SHORT);
    }
    let len = data.get_u32() as usize;
    if len > data.len() {
        return Err(SHORT);
    }
    Ok(data.split_to(len))
}

impl Handshake {
    /// Of a server with these exports; `tls` is [`Tls::Off`] or [`Tls::Required`].
    #[must_use]
    pub fn new(exports: Vec<Export>, tls: Tls) -> Self {
        Self {
            exports,
            greeted: false,
            fixed: false,
            zeroes: true,
            tls,
            structured: false,
            allocation: None,
            skip: 0,
        }
    }

    /// What the server says first.
    pub fn greet(&self, out: &mut BytesMut) {
        out.put_u64(NBD_MAGIC);
        out.put_u64(OPTION_MAGIC);
        out.put_u16(FIXED_NEWSTYLE | NO_ZEROES);
    }

    /// What follows is encrypted. What was negotiated in the clear is forgotten, as the
    /// protocol has it: somebody between could have said it.
    pub fn secured(&mut self) {
        self.tls = Tls::Done;
        self.structured = false;
        self.allocation = None;
    }

    /// Takes what it can of `input`, and appends answers to `out`. To be called again while
    /// bytes are there, until it wants more.
    ///
    /// # Errors
    /// [`Error`]: the connection ends, after `out` is sent.
    pub fn on_bytes(&mut self, input: &mut BytesMut, out: &mut BytesMut) -> Result<Step, Error> {
        if !self.greeted {
            if input.len() < 4 {
                return Ok(Step::More);
            }
            let flags = input.get_u32();
            if flags & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
                return Err(Error::Protocol("flags that the server did not offer"));
            }
            self.fixed = flags & u32::from(FIXED_NEWSTYLE) != 0;
            self.zeroes = flags & u32::from(NO_ZEROES) == 0;
            self.greeted = true;
        }
        loop {
            if self.skip > 0 {
                let some = self.skip.min(input.len());
                input.advance(some);
                self.skip -= some;
            }
            if self.skip > 0 || input.len() < 16 {
                return Ok(Step::More);
            }
            let mut head = &input[..16];
            if head.get_u64() != OPTION_MAGIC {
                return Err(Error::Protocol("an option does not begin as one does"));
            }
            let (option, len) = (head.get_u32(), head.get_u32() as usize);
            if len > OPTION_MAX {
                if option == option::EXPORT_NAME {
                    return Err(Error::Protocol("the name of an export is too long"));
                }
                input.advance(16);
                self.skip = len;
                refuse(out, option, (rep::ERR_TOO_BIG, "the option is too long"));
                continue;
            }
            if input.len() < 16 + len {
                return Ok(Step::More);
            }
            input.advance(16);
            let data = input.split_to(len).freeze();
            if let Some(step) = self.on_option(option, data, out)? {
                if step == Step::StartTls && !input.is_empty() {
                    // Said before the answer, in the clear, to be taken for encrypted words.
                    return Err(Error::Protocol("words between the wish for TLS and its start"));
                }
                return Ok(step);
            }
        }
    }

    fn on_option(
        &mut self,
        option: u32,
        data: Bytes,
        out: &mut BytesMut,
    ) -> Result<Option<Step>, Error> {
        if !self.fixed && option != option::EXPORT_NAME {
            return Err(Error::Protocol("an option that an old client does not have"));
        }
        let early = self.tls == Tls::Required;
        let result = match option {
            option::EXPORT_NAME if early => return Err(Error::TlsRequired),
            option::EXPORT_NAME => return self.on_export_name(&data, out).map(Some),
            option::ABORT => {
                answer(out, option, rep::ACK, &[]);
                return Ok(Some(Step::Abort));
            }
            option::STARTTLS => match self.tls {
                Tls::Off => Err((rep::ERR_POLICY, "this server has no TLS")),
                Tls::Done => Err((rep::ERR_INVALID, "TLS has begun already")),
                Tls::Required if !data.is_empty() => {
                    Err((rep::ERR_INVALID, "the option has no data"))
                }
                Tls::Required => {
                    answer(out, option, rep::ACK, &[]);
                    return Ok(Some(Step::StartTls));
                }
            },
            _ if early => Err((rep::ERR_TLS_REQD, "this server speaks TLS only")),
            option::LIST => self.on_list(&data, out),
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.structured = true;
                answer(out, option, rep::ACK, &[]);
                Ok(())
            }
            option::STRUCTURED_REPLY => Err((rep::ERR_INVALID, "the option has no data")),
            option::INFO | option::GO => match self.on_info(option, data, out) {
                Ok(export) if option == option::GO => {
                    return Ok(Some(Step::Go(self.chosen(export))));
                }
                other => other.map(drop),
            },
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                self.on_contexts(option, data, out)
            }
            _ => Err((rep::ERR_UNSUP, "the option is not known")),
        };
        if let Err(why) = result {
            refuse(out, option, why);
        }
        Ok(None)
    }

    fn find(&self, name: &[u8]) -> Option<usize> {
        if name.is_empty() && !self.exports.is_empty() {
            return Some(0);
        }
        self.exports.iter().position(|e| e.name.as_bytes() == name)
    }

    fn chosen(&self, export: usize) -> Chosen {
        let structured = self.structured;
        let allocation = self.allocation == Some(export);
        Chosen { export, structured, allocation: allocation.then_some(ALLOCATION_ID) }
    }

    /// The old way: no errors, the connection ends.
    fn on_export_name(&mut self, name: &[u8], out: &mut BytesMut) -> Result<Step, Error> {
        let Some(export) = self.find(name) else {
            return Err(Error::NoExport(String::from_utf8_lossy(name).into_owned()));
        };
        out.put_u64(self.exports[export].size);
        out.put_u16(self.exports[export].flags | export_flag::HAS_FLAGS);
        if self.zeroes {
            out.put_bytes(0, 124);
        }
        Ok(Step::Go(self.chosen(export)))
    }

    fn on_list(&self, data: &[u8], out: &mut BytesMut) -> Result<(), Refusal> {
        if !data.is_empty() {
            return Err((rep::ERR_INVALID, "the option has no data"));
        }
        for export in &self.exports {
            let mut entry = Vec::new();
            entry.put_u32(export.name.len() as u32);
            entry.put_slice(export.name.as_bytes());
            answer(out, option::LIST, rep::SERVER, &entry);
        }
        answer(out, option::LIST, rep::ACK, &[]);
        Ok(())
    }

    fn on_info(
        &mut self,
        option: u32,
        mut data: Bytes,
        out: &mut BytesMut,
    ) -> Result<usize, Refusal> {
        const WRONG: Refusal = (rep::ERR_INVALID, "the option's length is not that of its parts");
        let name = take_name(&mut data)?;
        if data.len() < 2 {
            return Err(WRONG);
        }
        let count = usize::from(data.get_u16());
        if data.len() != count * 2 || name.len() > NAME_MAX {
            return Err(WRONG);
        }
        let wanted: Vec<u16> = (0..count).map(|_| data.get_u16()).collect();
        let index = self.find(&name).ok_or((rep::ERR_UNKNOWN, "there is no such export"))?;
        let export = &self.exports[index];
        let mut info = Vec::new();
        info.put_u16(INFO_EXPORT);
        info.put_u64(export.size);
        info.put_u16(export.flags | export_flag::HAS_FLAGS);
        answer(out, option, rep::INFO, &info);
        for what in [INFO_NAME, INFO_DESCRIPTION] {
            if wanted.contains(&what) {
                let text = if what == INFO_NAME { &export.name } else { &export.description };
                let mut info = Vec::new();
                info.put_u16(what);
                info.put_slice(text.as_bytes());
                answer(out, option, rep::INFO, &info);
            }
        }
        let (min, best, max) = export.block_sizes;
        let mut info = Vec::new();
        info.put_u16(INFO_BLOCK_SIZE);
        [min, best, max].iter().for_each(|size| info.put_u32(*size));
        answer(out, option, rep::INFO, &info);
        answer(out, option, rep::ACK, &[]);
        Ok(index)
    }

    fn on_contexts(
        &mut self,
        option: u32,
        mut data: Bytes,
        out: &mut BytesMut,
    ) -> Result<(), Refusal> {
        let set = option == option::SET_META_CONTEXT;
        if set {
            self.allocation = None;
        }
        if !self.structured {
            return Err((rep::ERR_INVALID, "contexts need structured replies"));
        }
        let name = take_name(&mut data)?;
        if data.len() < 4 {
            return Err((rep::ERR_INVALID, "the option is shorter than it says"));
        }
        let count = data.get_u32();
        let mut matches = count == 0 && !set;
        for _ in 0..count {
            let query = take_name(&mut data)?;
            matches |= query == ALLOCATION || (!set && &query[..] == b"base:");
        }
        if !data.is_empty() {
            return Err((rep::ERR_INVALID, "the option is longer than it says"));
        }
        let export = self.find(&name).ok_or((rep::ERR_UNKNOWN, "there is no such export"))?;
        if matches {
            let mut context = Vec::new();
            context.put_u32(ALLOCATION_ID);
            context.put_slice(ALLOCATION);
            answer(out, option, rep::META_CONTEXT, &context);
            if set {
                self.allocation = Some(export);
            }
        }
        answer(out, option, rep::ACK, &[]);
        Ok(())
    }
}

fn answer(out: &mut BytesMut, option: u32, kind: u32, data: &[u8]) {
    out.put_u64(REPLY_MAGIC);
    out.put_u32(option);
    out.put_u32(kind);
    out.put_u32(data.len() as u32);
    out.put_slice(data);
}

fn refuse(out: &mut BytesMut, option: u32, (kind, why): Refusal) {
    answer(out, option, kind, why.as_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn export(name: &str) -> Export {
        Export {
            name: name.to_owned(),
            description: String::new(),
            size: 1 << 30,
            flags: export_flag::SEND_FLUSH,
            block_sizes: (1, 4096, 32 << 20),
        }
    }

    fn server() -> Handshake {
        Handshake::new(vec![export("rbd/a"), export("rbd/b")], Tls::Off)
    }

    fn option(number: u32, data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u64(OPTION_MAGIC);
        out.put_u32(number);
        out.put_u32(data.len() as u32);
        out.put_slice(data);
        out
    }

    fn named(name: &str, rest: &[u8]) -> Vec<u8> {
        [&(name.len() as u32).to_be_bytes()[..], name.as_bytes(), rest].concat()
    }

    fn start(flags: u32) -> Vec<u8> {
        flags.to_be_bytes().to_vec()
    }

    /// Kinds of the replies in `out`.
    fn kinds(mut out: &[u8]) -> Vec<u32> {
        let mut kinds = Vec::new();
        while !out.is_empty() {
            assert_eq!(out.get_u64(), REPLY_MAGIC);
            out.get_u32();
            kinds.push(out.get_u32());
            let len = out.get_u32() as usize;
            out.advance(len);
        }
        kinds
    }

    fn run(input: &[Vec<u8>]) -> (Result<Step, Error>, Vec<u8>) {
        let (mut server, mut out) = (server(), BytesMut::new());
        let mut bytes = BytesMut::from(&input.concat()[..]);
        (server.on_bytes(&mut bytes, &mut out), out.to_vec())
    }

    #[test]
    fn a_modern_client_gets_all_it_asks_for() {
        let queries = [&1u32.to_be_bytes()[..], &named("base:allocation", b"")].concat();
        let (step, out) = run(&[
            start(3),
            option(option::STRUCTURED_REPLY, b""),
            option(option::SET_META_CONTEXT, &named("rbd/b", &queries)),
            option(option::GO, &named("rbd/b", &[0, 1, 0, 3])),
        ]);
        let chosen = Chosen { export: 1, structured: true, allocation: Some(ALLOCATION_ID) };
        assert_eq!(step, Ok(Step::Go(chosen)));
        use rep::{ACK, INFO, META_CONTEXT};
        assert_eq!(kinds(&out), [ACK, META_CONTEXT, ACK, INFO, INFO, ACK]);
    }

    #[test]
    fn contexts_are_of_the_export_they_were_set_for() {
        let queries = [&1u32.to_be_bytes()[..], &named("base:allocation", b"")].concat();
        let (step, _) = run(&[
            start(3),
            option(option::STRUCTURED_REPLY, b""),
            option(option::SET_META_CONTEXT, &named("rbd/b", &queries)),
            option(option::GO, &named("rbd/a", &[0, 0])),
        ]);
        assert_eq!(step, Ok(Step::Go(Chosen { export: 0, structured: true, allocation: None })));
    }

    #[test]
    fn an_old_client_gets_zeroes() {
        let (step, out) = run(&[start(0), option(option::EXPORT_NAME, b"rbd/a")]);
        let chosen = Chosen { export: 0, structured: false, allocation: None };
        assert_eq!((step, out.len()), (Ok(Step::Go(chosen)), 134));
        let (_, out) = run(&[start(3), option(option::EXPORT_NAME, b"")]);
        assert_eq!(out.len(), 10);
        let (step, _) = run(&[start(3), option(option::EXPORT_NAME, b"none")]);
        assert_eq!(step, Err(Error::NoExport("none".to_owned())));
    }

    #[test]
    fn wrong_options_are_refused_and_it_goes_on() {
        let (step, out) = run(&[
            start(3),
            option(99, b"?"),
            option(option::STARTTLS, b""),
            option(option::LIST, b"x"),
            option(option::GO, b"\0\0\0\x09x"),
            option(option::GO, &named("none", &[0, 0])),
            option(option::SET_META_CONTEXT, &named("", &[0; 4])),
            option(option::INFO, &vec![0; OPTION_MAX + 1]),
            option(option::LIST, b""),
            option(option::ABORT, b""),
        ]);
        assert_eq!(step, Ok(Step::Abort));
        use rep::{ACK, ERR_INVALID, ERR_POLICY, ERR_TOO_BIG, ERR_UNKNOWN, ERR_UNSUP, SERVER};
        let refused = [
            ERR_UNSUP,
            ERR_POLICY,
            ERR_INVALID,
            ERR_INVALID,
            ERR_UNKNOWN,
            ERR_INVALID,
            ERR_TOO_BIG,
        ];
        assert_eq!(kinds(&out), [&refused[..], &[SERVER, SERVER, ACK, ACK]].concat());
    }

    /// Before TLS nothing is told, after it all is negotiated anew.
    #[test]
    fn tls_comes_first() {
        use rep::{ACK, ERR_INVALID, ERR_TLS_REQD, SERVER};
        let fresh = || Handshake::new(vec![export("rbd/a")], Tls::Required);
        let say = |server: &mut Handshake, words: &[Vec<u8>]| {
            let (mut input, mut out) = (BytesMut::from(&words.concat()[..]), BytesMut::new());
            let step = server.on_bytes(&mut input, &mut out);
            (step, kinds(&out))
        };
        let mut server = fresh();
        let early = [
            start(3),
            option(option::LIST, b""),
            option(option::STRUCTURED_REPLY, b""),
            option(option::GO, &named("rbd/a", &[0, 0])),
            option(option::STARTTLS, b"x"),
            option(option::STARTTLS, b""),
        ];
        let told = vec![ERR_TLS_REQD, ERR_TLS_REQD, ERR_TLS_REQD, ERR_INVALID, ACK];
        assert_eq!(say(&mut server, &early), (Ok(Step::StartTls), told));
        server.structured = true;
        server.secured();
        let (_, told) =
            say(&mut server, &[option(option::STARTTLS, b""), option(option::LIST, b"")]);
        assert_eq!(told, [ERR_INVALID, SERVER, ACK]);
        let (step, _) = say(&mut server, &[option(option::GO, &named("rbd/a", &[0, 0]))]);
        assert_eq!(step, Ok(Step::Go(Chosen { export: 0, structured: false, allocation: None })));
        // Words smuggled in behind the wish for TLS, and the old way to choose.
        let smuggled = [start(3), option(option::STARTTLS, b""), option(option::LIST, b"")];
        assert!(say(&mut fresh(), &smuggled).0.is_err());
        let old = [start(0), option(option::EXPORT_NAME, b"rbd/a")];
        assert_eq!(say(&mut fresh(), &old), (Err(Error::TlsRequired), vec![]));
    }

    #[test]
    fn what_is_not_the_protocol_ends_it() {
        assert!(run(&[start(4)]).0.is_err());
        assert!(run(&[start(3), vec![0; 16]]).0.is_err());
        assert!(run(&[start(0), option(option::LIST, b"")]).0.is_err());
    }

    proptest! {
        /// Whatever comes, and however it is cut, nothing panics, and the same is answered.
        #[test]
        fn malformed_bytes_are_survived(
            options in proptest::collection::vec((0u32..13, any::<Vec<u8>>()), 0..6),
            noise: Vec<u8>, cut in 1usize..40,
        ) {
            let mut bytes = start(3);
            for (number, data) in options {
                bytes.extend(option(number, &data));
            }
            bytes.extend(noise);
            let (whole, expected) = run(&[bytes.clone()]);
            let (mut server, mut out) = (server(), BytesMut::new());
            let mut input = BytesMut::new();
            let mut step = Ok(Step::More);
            for part in bytes.chunks(cut) {
                input.extend_from_slice(part);
                step = server.on_bytes(&mut input, &mut out);
                if step != Ok(Step::More) {
                    break;
                }
            }
            prop_assert_eq!(step, whole);
            prop_assert_eq!(out.to_vec(), expected);
        }
    }
}
