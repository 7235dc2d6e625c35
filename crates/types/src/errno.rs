//! The error numbers that clients see, negative as on the wire.

/// The result of an operation that cannot be done: a negative error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// Shorthand of everything here that can fail with an [`Errno`].
pub type OpResult<T> = Result<T, Errno>;

macro_rules! errnos {
    ($($(#[$doc:meta])* $name:ident = $n:expr;)*) => {
        impl Errno { $($(#[$doc])* pub const $name: Self = Self(-$n);)* }
    };
}
errnos! {
    /// Not allowed.
    PERM = 1;
    /// No such object, or key.
    NOENT = 2;
    /// The store failed.
    IO = 5;
    /// Not here and now; the client tries the primary.
    AGAIN = 11;
    /// Denied.
    ACCES = 13;
    /// In use.
    BUSY = 16;
    /// It exists.
    EXIST = 17;
    /// Makes no sense.
    INVAL = 22;
    /// As many as there may be.
    MFILE = 24;
    /// Beyond the object size limit.
    FBIG = 27;
    /// No space left.
    NOSPC = 28;
    /// More input than fits.
    TOOBIG = 7;
    /// Below the range; an older version.
    RANGE = 34;
    /// Name too long.
    NAMETOOLONG = 36;
    /// Unknown function.
    NOSYS = 38;
    /// No such attribute.
    NODATA = 61;
    /// Above the range; a newer version.
    OVERFLOW = 75;
    /// The snapshot context is older than the object's.
    OLDSNAPC = 85;
    /// Stored bytes that make no sense.
    BADMSG = 74;
    /// Payload too large.
    MSGSIZE = 90;
    /// Not supported.
    OPNOTSUPP = 95;
    /// No such watch.
    NOTCONN = 107;
    /// The client is fenced.
    BLOCKLISTED = 108;
    /// Nothing heard in time.
    TIMEDOUT = 110;
    /// Quota used up.
    DQUOT = 122;
    /// A comparison failed.
    CANCELED = 125;
}
