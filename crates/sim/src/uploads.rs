//! A class that operators upload, replace and remove while clients call its method.

use bytes::Bytes;
use messages::{OsdOp, op};
use serde_json::json;

use crate::history::{Ask, Told};
use crate::operators::KEY_PREFIX;
use crate::world::World;

/// Its name.
const CLASS: &str = "mixer";
/// Its method: the attribute `x`, or 0 without one, times [`FACTOR`], plus the parameter and
/// what the module's version adds.
const METHOD: &str = "mix";
const FACTOR: u64 = 31;
/// What the versions add.
pub(crate) const STEPS: [u64; 2] = [1, 1_000];
/// No such class is known.
pub(crate) const UNKNOWN: i32 = -1;

/// The attribute after a call of one of the versions.
pub(crate) fn mixed(before: Option<u64>, v: u64, step: u64) -> u64 {
    before.unwrap_or(0).wrapping_mul(FACTOR).wrapping_add(v).wrapping_add(step)
}

/// A module that adds `step`.
fn module(step: u64) -> Bytes {
    let abi = cls::wasm::ABI;
    let text = format!(
        "(module
            (import \"{abi}\" \"getxattr\"
                (func $getxattr (param i32 i32 i32 i32) (result i32)))
            (import \"{abi}\" \"setxattr\"
                (func $setxattr (param i32 i32 i32 i32) (result i32)))
            (import \"{abi}\" \"input\" (func $input (param i32 i32 i32) (result i32)))
            (memory (export \"memory\") 1)
            (data (i32.const 0) \"x\")
            (func (export \"{abi}:rw:{METHOD}\") (result i32)
                (drop (call $getxattr (i32.const 0) (i32.const 1) (i32.const 8) (i32.const 8)))
                (drop (call $input (i32.const 0) (i32.const 16) (i32.const 8)))
                (i64.store (i32.const 8) (i64.add
                    (i64.mul (i64.load (i32.const 8)) (i64.const {FACTOR}))
                    (i64.add (i64.load (i32.const 16)) (i64.const {step}))))
                (call $setxattr (i32.const 0) (i32.const 1) (i32.const 8) (i32.const 8))))"
    );
    wat::parse_str(text).expect("well formed").into()
}

/// The call as clients send it.
pub(crate) fn call(v: u64) -> OsdOp {
    let data = [CLASS.as_bytes(), METHOD.as_bytes(), &v.to_le_bytes()].concat();
    let mut call = OsdOp::new(op::CALL, data.into());
    (call.raw[0], call.raw[1]) = (CLASS.len() as u8, METHOD.len() as u8);
    call.put_u32(3, 8);
    call
}

impl World {
    /// A version of the module is uploaded.
    pub(crate) fn put_class(&mut self, step: u64) {
        let words = json!({"prefix": "cls put", "name": CLASS});
        self.upload(words, module(step));
    }

    /// The module is replaced or removed.
    pub(crate) fn class_step(&mut self) {
        let what = match self.chance.below(4) {
            0 => {
                self.command(json!({"prefix": "cls rm", "name": CLASS}));
                "remove a class"
            }
            _ => {
                let step = self.chance.of(&STEPS);
                self.put_class(step);
                "replace a class"
            }
        };
        *self.faults.entry(what).or_default() += 1;
    }

    /// All has healed: the class is there again for everybody, and is called for every object.
    pub(crate) fn call_all(&mut self) {
        self.put_class(STEPS[0]);
        let follow = |w: &mut Self| {
            let known: Vec<u64> = w
                .osds
                .iter()
                .filter_map(|p| p.role.as_ref())
                .map(|o| o.classes_version())
                .collect();
            let newest = w.newest_classes();
            w.operators_idle() && known.iter().all(|v| *v == newest)
        };
        if !self.run_until(60, follow) {
            return self.complain("an OSD does not hear of the class".into());
        }
        let names: Vec<String> = self.histories.keys().cloned().collect();
        let names: Vec<String> = names.into_iter().filter(|n| !n.starts_with(KEY_PREFIX)).collect();
        let mut asked = Vec::new();
        for name in names {
            self.value += 1;
            asked.push((name.clone(), self.histories[&name].records.len()));
            self.ask(0, name.clone(), Ask::Call(self.value));
            self.ask(0, name, Ask::Read);
        }
        if !self.run_until(60, |w| w.clients.iter().all(|c| c.open.is_empty())) {
            return self.complain("the last calls are not answered".into());
        }
        for (name, at) in asked {
            let told = &self.histories[&name].records[at].told;
            if *told != Some(Told::Code(0)) {
                let what = format!("{name}: a class that is there is answered by {told:?}");
                return self.complain(what);
            }
        }
    }
}
