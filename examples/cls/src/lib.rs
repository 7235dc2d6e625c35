//! `tally`: an object class in Rust. Lines are appended to an object, counted as they come and
//! searched where they are stored.
//!
//! | method | flags | parameters | does |
//! |---|---|---|---|
//! | `add` | rw | lines | appends them, counts them (attribute `lines`) and their first words (omap) |
//! | `count` | r | – | how many lines, as text |
//! | `top` | r | – | first words and how often each came, a line each |
//! | `grep` | r | a word | the lines that contain it |
//! | `spin` | – | – | never ends: what an OSD does about that |
//! | `hoard` | – | – | takes memory until it is stopped |

#![no_std]

extern crate alloc;

mod guest;

use alloc::format;
use alloc::vec::Vec;
use guest::{EINVAL, ENODATA, ENOENT, Errno};

/// A method's export: its flags and name, and what it does.
macro_rules! method {
    ($export:literal, $name:ident) => {
        const _: () = {
            #[unsafe(export_name = concat!("argonaut_cls_v1:", $export))]
            extern "C" fn method() -> i32 {
                match $name() {
                    Ok(()) => 0,
                    Err(errno) => errno,
                }
            }
        };
    };
}
method!("rw:add", add);
method!("r:count", count);
method!("r:top", top);
method!("r:grep", grep);
method!("-:spin", spin);
method!("-:hoard", hoard);

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|b| *b == b'\n').filter(|line| !line.is_empty())
}

/// A number kept as text; 0 where there is none yet.
fn number(found: Result<Vec<u8>, Errno>) -> Result<u64, Errno> {
    match found {
        Ok(text) => core::str::from_utf8(&text).ok().and_then(|t| t.parse().ok()).ok_or(EINVAL),
        Err(ENOENT | ENODATA) => Ok(0),
        Err(e) => Err(e),
    }
}

fn add() -> Result<(), Errno> {
    let text = guest::params();
    if !text.ends_with(b"\n") {
        return Err(EINVAL);
    }
    let total = number(guest::attr("lines"))? + lines(&text).count() as u64;
    for line in lines(&text) {
        let word = line.split(|b| *b == b' ').next().unwrap_or_default();
        let seen = number(guest::value(word))? + 1;
        guest::set_value(word, format!("{seen}").as_bytes())?;
    }
    guest::append_data(&text)?;
    guest::set_attr("lines", format!("{total}").as_bytes())
}

fn count() -> Result<(), Errno> {
    let total = number(guest::attr("lines"))?;
    guest::reply(format!("{total}").as_bytes());
    Ok(())
}

fn top() -> Result<(), Errno> {
    let mut after = Vec::new();
    loop {
        let (pairs, more) = guest::values(&after, 100)?;
        for (word, n) in &pairs {
            guest::reply(&[&word[..], b" ", n, b"\n"].concat());
        }
        match pairs.last() {
            Some((word, _)) if more => after = word.clone(),
            _ => return Ok(()),
        }
    }
}

fn grep() -> Result<(), Errno> {
    let word = guest::params();
    if word.is_empty() {
        return Err(EINVAL);
    }
    let mut data = alloc::vec![0; guest::size()? as usize];
    let n = guest::read_at(0, &mut data)?;
    for line in lines(&data[..n]) {
        if line.windows(word.len()).any(|part| part == word) {
            guest::reply(line);
            guest::reply(b"\n");
        }
    }
    Ok(())
}

fn spin() -> Result<(), Errno> {
    loop {
        core::hint::black_box(());
    }
}

fn hoard() -> Result<(), Errno> {
    let mut all = Vec::new();
    loop {
        all.push(core::hint::black_box(alloc::vec![1u8; 1 << 20]));
    }
}
