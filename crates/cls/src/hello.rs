//! `hello`: the example class, and what happens to methods that do not behave.

use bytes::Bytes;
use types::{EntityInst, Errno, OpResult};

use crate::{Class, DONE, Object, READS, Reply, WRITES, method};

pub(crate) const CLASS: Class = Class {
    name: "hello",
    methods: &[
        method("say_hello", READS, say),
        method("record_hello", WRITES, record),
        method("write_return_data", WRITES, write_return_data),
        method("writes_dont_return_data", WRITES, write_return_data),
        method("write_too_much_return_data", WRITES, too_much),
        method("replay", READS, replay),
        method("turn_it_to_11", READS | WRITES, turn_it_to_11),
        method("bad_reader", WRITES, bad_reader),
        method("bad_writer", READS, bad_writer),
    ],
};

fn greeting(input: &Bytes) -> OpResult<Bytes> {
    if input.len() > 100 {
        return Err(Errno::INVAL);
    }
    let whom = if input.is_empty() { b"world".as_slice() } else { input };
    Ok([b"Hello, ", whom, b"!"].concat().into())
}

fn caller(o: &dyn Object) -> Bytes {
    let (name, addr) = o.caller();
    EntityInst { name, addr }.to_string().into()
}

fn say(_: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    Ok(greeting(input)?.into())
}

fn record(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let text = greeting(input)?;
    // Whether it exists may be asked without reading it.
    o.create(true)?;
    o.write_full(text)?;
    let who = caller(o);
    o.set_attr(b"said_by", who)?;
    Ok(DONE)
}

fn write_return_data(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    o.set_attr(b"foo", Bytes::from_static(b"bar"))?;
    if !input.is_empty() {
        let data = Bytes::from_static(b"too much input data!");
        return Ok(Reply { value: Errno::INVAL.0, data });
    }
    Ok(Reply { value: 42, data: Bytes::from_static(b"you might see this") })
}

fn too_much(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    o.set_attr(b"foo", Bytes::from_static(b"bar"))?;
    Ok(Reply { value: 42, data: vec![b'a'; 5 << 20].into() })
}

fn replay(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    Ok(o.read(0, 1100)?.into())
}

fn turn_it_to_11(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    if !input.is_empty() {
        return Err(Errno::INVAL);
    }
    let loud = o.read(0, 1100)?.to_ascii_uppercase();
    o.write_full(loud.into())?;
    let who = caller(o);
    o.set_attr(b"amplified_by", who)?;
    Ok(DONE)
}

fn bad_reader(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    Ok(o.read(0, 100)?.into())
}

fn bad_writer(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    o.write_full(input.clone())?;
    Ok(DONE)
}
