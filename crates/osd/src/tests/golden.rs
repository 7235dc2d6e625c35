//! Recorded requests of an unmodified client get the recorded answers.

use bytes::Bytes;
use messages::{OsdOp, op};
use types::PoolId;

use super::cluster::Cluster;

fn hex(s: &str) -> Bytes {
    let s = s.trim();
    if s == "–" {
        return Bytes::new();
    }
    (0..s.len() / 2).map(|i| u8::from_str_radix(&s[2 * i..2 * i + 2], 16).unwrap()).collect()
}

fn code(name: &str) -> u16 {
    match name {
        "WRITEFULL" => op::WRITEFULL,
        "WRITE" => op::WRITE,
        "APPEND" => op::APPEND,
        "TRUNCATE" => op::TRUNCATE,
        "ZERO" => op::ZERO,
        "CREATE" => op::CREATE,
        "DELETE" => op::DELETE,
        "READ" => op::READ,
        "WRITESAME" => op::WRITESAME,
        "CMPEXT" => op::CMPEXT,
        "ASSERT_VER" => op::ASSERT_VER,
        "SETXATTR" => op::SETXATTR,
        "GETXATTR" => op::GETXATTR,
        "RMXATTR" => op::RMXATTR,
        "OMAPSETVALS" => op::OMAPSETVALS,
        "OMAP_CMP" => op::OMAP_CMP,
        "OMAPRMKEYS" => op::OMAPRMKEYS,
        "OMAPRMKEYRANGE" => op::OMAPRMKEYRANGE,
        "OMAPGETVALS" => op::OMAPGETVALS,
        "OMAPGETKEYS" => op::OMAPGETKEYS,
        "OMAPGETVALSBYKEYS" => op::OMAPGETVALSBYKEYS,
        other if other.contains('.') => op::CALL,
        other => panic!("{other}"),
    }
}

struct Line {
    name: String,
    object: String,
    position: (usize, usize),
    flags: u32,
    op: OsdOp,
    result: i32,
    rval: i32,
    out: Bytes,
}

fn parse(text: &str) -> Vec<Line> {
    text.lines()
        .filter(|l| !l.starts_with('#') && !l.is_empty())
        .map(|l| {
            let f: Vec<&str> = l.split('|').map(str::trim).collect();
            let (i, n) = f[2].split_once('/').unwrap();
            let mut raw = [0; 28];
            let (union, op_flags) = f[4].split_once(" opflags=").unwrap_or((f[4], "0"));
            let union = hex(union);
            raw[..union.len()].copy_from_slice(&union);
            let mut data = hex(f[5].strip_prefix("in ").unwrap());
            if let Some((class, method)) = f[0].split_once('.') {
                raw[0] = class.len() as u8;
                raw[1] = method.len() as u8;
                data = [class.as_bytes(), method.as_bytes(), &data].concat().into();
            }
            let (r, rv) = f[6].split_once(' ').unwrap();
            Line {
                name: f[0].into(),
                object: f[1].into(),
                position: (i.parse().unwrap(), n.parse().unwrap()),
                flags: u32::from_str_radix(f[3], 16).unwrap(),
                op: OsdOp { code: code(f[0]), flags: op_flags.parse().unwrap(), raw, data },
                result: r.strip_prefix("r=").unwrap().parse().unwrap(),
                rval: rv.strip_prefix("rv=").unwrap().parse().unwrap(),
                out: hex(f[7].strip_prefix("out ").unwrap()),
            }
        })
        .collect()
}

#[test]
fn recorded_requests_get_recorded_answers() {
    let mut c = Cluster::ready(1, 1, 1, 1);
    let lines = parse(include_str!("../../testdata/golden_ops.txt"));
    let mut at = 0;
    while at < lines.len() {
        let n = lines[at].position.1;
        let vector = &lines[at..at + n];
        assert!(vector.iter().enumerate().all(|(i, l)| l.position == (i + 1, n)));
        let ops = vector.iter().map(|l| l.op.clone()).collect();
        let reply = c.run_with(PoolId(1), &vector[0].object, ops, vector[0].flags);
        for (i, l) in vector.iter().enumerate() {
            let what = format!("{} ({} of {n}), line {}", l.name, i + 1, at + i);
            assert_eq!(reply.result, l.result, "{what}: result");
            assert_eq!(reply.rvals[i], l.rval, "{what}: rval");
            assert_eq!(reply.ops[i].data, l.out, "{what}: output");
            assert_eq!(reply.flags & 5, 5, "{what}: answered as durable");
        }
        at += n;
    }
}
